//! The built server while its model is loaded: it answers, says so, and can be stopped.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::mpsc;

use serde_json::Value;
use tempfile::TempDir;

use crate::commands::{home, model, run, verbatim};
use crate::server::{answer, client};

/// A server whose model's `config.json` is a pipe: it is loaded when that is fed.
struct Loading {
    home: TempDir,
    process: Child,
    log: Lines<BufReader<ChildStderr>>,
    address: String,
    pipe: PathBuf,
    config: Vec<u8>,
}

impl Loading {
    fn start() -> Self {
        Self::start_in(home())
    }

    fn start_in(home: TempDir) -> Self {
        let (model, _) = model(&home);
        let pipe = model.join("config.json");
        let config = std::fs::read(&pipe).expect("readable");
        std::fs::remove_file(&pipe).expect("removed");
        assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
        let mut process =
            serve(&home, &model, "127.0.0.1:0").stderr(Stdio::piped()).spawn().expect("it runs");
        let mut log = BufReader::new(process.stderr.take().expect("piped")).lines();
        let address = until(&mut log, "loaded")["address"].as_str().expect("an address").to_owned();
        Self { home, process, log, address, pipe, config }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Feeds the pipe once, when the sender signals it; from then on the file is an ordinary one.
    fn feed(&self) -> mpsc::Sender<()> {
        let (pipe, config) = (self.pipe.clone(), self.config.clone());
        let (begin, begun) = mpsc::channel();
        std::thread::spawn(move || {
            let _ = begun.recv();
            // Opens when the other end is opened to be read.
            let mut reader = File::options().write(true).open(&pipe).expect("a pipe");
            let file = pipe.with_extension("whole");
            std::fs::write(&file, &config).and_then(|()| std::fs::rename(&file, &pipe)).expect("writable");
            reader.write_all(&config).expect("it is read");
        });
        begin
    }

    fn stop(mut self) -> (Option<i32>, String) {
        let killed = Command::new("kill").args(["-TERM", &self.process.id().to_string()]).status();
        assert!(killed.expect("kill").success());
        let code = self.process.wait().expect("it ends").code();
        (code, self.log.map_while(Result::ok).collect::<Vec<_>>().join("\n"))
    }
}

fn serve(home: &TempDir, model: &Path, listen: &str) -> Command {
    let arguments = ["serve", "--threads", "1", "--listen", listen, "--model", model.to_str().expect("text")];
    let mut command = verbatim(home, &arguments);
    command.env("VERBATIM_TRANSCRIBE__WINDOWS", "sequential").env("VERBATIM_LOG__FORMAT", "json");
    command.env("VERBATIM_SHUTDOWN__GRACE_SECONDS", "0");
    command
}

/// The next line of the log whose message has `words`.
fn until(log: &mut Lines<BufReader<ChildStderr>>, words: &str) -> Value {
    let mut seen = String::new();
    for line in log {
        let line = line.expect("text");
        let entry: Value = serde_json::from_str(&line).unwrap_or_default();
        if entry["message"].as_str().is_some_and(|message| message.contains(words)) {
            return entry;
        }
        seen += &(line + "\n");
    }
    panic!("nothing says `{words}`: {seen}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_answers_while_its_model_is_loaded() {
    let mut server = Loading::start();
    let get = |path: &str| client().get(server.url(path));
    let (status, body) = answer(get("/livez")).await;
    assert_eq!((status, &body["status"]), (200, &Value::from("ok")));
    let (status, body) = answer(get("/health")).await;
    assert_eq!((status, &body["ready"]), (200, &Value::from(false)));
    let (status, body) = answer(get("/v1/status")).await;
    assert_eq!((status, &body["system_health"]), (200, &Value::from("Initializing")));
    for request in [
        get("/readyz"),
        get("/metrics"),
        get("/no/such/path"),
        client().post(server.url("/v1/listen")).body(vec![0u8; 1000]),
        client().post(server.url("/STS/interactiveAgent")).body("{}"),
    ] {
        let response = request.send().await.expect("an answer");
        assert_eq!(response.status(), 503, "{}", response.url());
        assert!(response.headers().get("retry-after").is_some_and(|after| after == "5"));
        let body: Value = serde_json::from_slice(&response.bytes().await.expect("a body")).expect("JSON");
        assert!(body["err_msg"].as_str().is_some_and(|message| message.contains("being loaded")), "{body}");
    }
    server.feed().send(()).expect("the thread waits");
    let model = server.pipe.parent().expect("a folder").to_owned();
    server = tokio::task::spawn_blocking(move || {
        assert_eq!(until(&mut server.log, "listening")["address"], server.address.as_str());
        server
    })
    .await
    .expect("it listens");
    let (status, body) = answer(client().get(server.url("/readyz"))).await;
    assert_eq!((status, &body["ready"]), (200, &Value::from(true)), "{}", model.display());
    let (status, _) = answer(client().post(server.url("/v1/listen")).body(vec![0u8; 1000])).await;
    assert_eq!(status, 401, "the real door");
    let (status, _) = answer(client().get(server.url("/no/such/path"))).await;
    assert_eq!(status, 404);
    let (code, log) = server.stop();
    assert_eq!(code, Some(0), "{log}");
}

#[test]
fn a_server_that_loads_can_be_stopped_and_its_port_is_taken() {
    let server = Loading::start();
    let (code, _, error) = run(&mut serve(&home(), Path::new("/no/model"), &server.address));
    assert_eq!(code, Some(1), "{error}");
    assert!(error.contains(&server.address) && error.contains("in use"), "{error}");
    let (code, log) = server.stop();
    assert_eq!(code, Some(143), "{log}");
    assert!(log.contains("stopped by SIGTERM while the model"), "{log}");
}

#[test]
fn a_second_server_on_a_state_directory_says_so_before_it_loads() {
    let server = Loading::start();
    let (code, _, error) = run(&mut serve(&server.home, Path::new("/no/model"), "127.0.0.1:0"));
    assert_eq!(code, Some(1), "{error}");
    assert!(error.contains("jobs") && !error.contains("/no/model"), "{error}");
    assert_eq!(server.stop().0, Some(143));
}

#[test]
fn a_server_without_keys_says_how_to_make_one() {
    let home = home();
    let serve = |home: &TempDir| run(&mut serve(home, Path::new("/no/model"), "127.0.0.1:0")).2;
    let said = serve(&home);
    assert!(said.contains("verbatim keys create --label"), "{said}");
    let (code, key, _) = run(&mut verbatim(&home, &["keys", "create", "--label", "me"]));
    assert_eq!(code, Some(0));
    assert!(!serve(&home).contains("keys create"), "{key}");
    let listed = run(&mut verbatim(&home, &["keys", "list"])).1;
    let id = listed.lines().nth(1).and_then(|line| line.split_whitespace().next()).expect("a key").to_owned();
    assert_eq!(run(&mut verbatim(&home, &["keys", "revoke", &id])).0, Some(0));
    assert!(serve(&home).contains("verbatim keys create --label"), "a revoked key is none");
}

#[test]
fn what_is_wrong_with_files_of_the_configuration_is_found_before_the_model_is_looked_for() {
    let home = home();
    let (records, empty) = (home.path().join("records.json"), home.path().join("empty.pem"));
    std::fs::write(&records, "[{\"digits\": 1234}]").expect("writable");
    std::fs::write(&empty, "").expect("writable");
    let cases: [(&[(&str, &Path)], &str); 3] = [
        (&[("VERBATIM_STS__VERIFICATION__RECORDS", &records)], "records.json"),
        (&[("VERBATIM_STS__VERIFICATION__RECORDS", Path::new("/no/records"))], "/no/records"),
        (&[("VERBATIM_HTTP__TLS__CERTIFICATE", &empty), ("VERBATIM_HTTP__TLS__KEY", &empty)], "empty.pem"),
    ];
    for (variables, expected) in cases {
        let mut command = serve(&home, Path::new("/no/model"), "127.0.0.1:0");
        let (code, _, error) = run(command.envs(variables.iter().copied()));
        assert_eq!(code, Some(2), "{error}");
        assert!(error.contains(expected) && !error.contains("/no/model"), "{error}");
        assert!(!error.contains("1234"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_callback_says_why_to_the_client_and_names_the_setting_to_operators() {
    let home = home();
    // Before the server starts: one that runs may take half a second to notice a new key.
    let (code, key, error) = run(&mut verbatim(&home, &["keys", "create", "--label", "me"]));
    assert_eq!(code, Some(0), "{error}");
    let server = Loading::start_in(home);
    server.feed().send(()).expect("the thread waits");
    let server = tokio::task::spawn_blocking(move || {
        let mut server = server;
        until(&mut server.log, "listening");
        server
    })
    .await
    .expect("it listens");
    for (callback, why) in [
        ("http%3A%2F%2F10.20.30.40%2Fx", "public address"),
        ("https%3A%2F%2Flocalhost%2Fx", "public address"),
        ("http%3A%2F%2F8.8.8.8%3A22%2F", "at port 80, 443"),
        ("ftp%3A%2F%2Fa.example%2F", "scheme"),
        ("nonsense", "not a URL"),
    ] {
        let url = server.url(&format!("/v1/listen?callback={callback}"));
        let (status, body) = answer(client().post(url).bearer_auth(key.trim()).body(vec![0u8; 100])).await;
        let message = body["err_msg"].as_str().unwrap_or_default();
        assert_eq!((status, &body["err_code"]), (400, &Value::from("INVALID_QUERY_PARAMETER")), "{message}");
        assert!(message.starts_with("Invalid callback url.") && message.contains(why), "{message}");
        assert!(!message.contains("fetch.allow") && !message.contains("10.20"), "{message}");
    }
    let (code, log) = server.stop();
    assert_eq!(code, Some(0), "{log}");
    assert_eq!(log.matches("`fetch.allow` lists").count(), 3, "{log}");
    assert!(!log.contains("10.20.30.40"), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_whose_log_is_closed_serves_all_the_same() {
    let server = Loading::start();
    let begin = server.feed();
    let Loading { home: _home, mut process, log, address, .. } = server;
    drop(log);
    begin.send(()).expect("the thread waits");
    let ready = async {
        while answer(client().get(format!("http://{address}/readyz"))).await.0 != 200 {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), ready).await.expect("it is ready");
    // Refusals are logged.
    for _ in 0..10 {
        let (status, _) = answer(client().post(format!("http://{address}/v1/listen")).body("x")).await;
        assert_eq!(status, 401);
    }
    let killed = Command::new("kill").args(["-TERM", &process.id().to_string()]).status();
    assert!(killed.expect("kill").success());
    assert_eq!(process.wait().expect("it ends").code(), Some(0));
}
