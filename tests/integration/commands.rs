//! The built program, as a shell sees it: output, exit codes, signals.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

use crate::checkpoint::Checkpoint;

/// A program with nothing of this machine's: no home, no settings, no hub.
pub fn verbatim(home: &TempDir, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_verbatim"));
    command.args(arguments).stdin(Stdio::null()).env("HOME", home.path());
    for (name, _) in std::env::vars() {
        let settings = ["VERBATIM_", "XDG_", "HF_", "DEMO_", "STS_", "INTERACTIVE_"];
        if settings.iter().any(|settings| name.starts_with(settings)) {
            command.env_remove(name);
        }
    }
    command.env_remove("PIP_INDEX_URL");
    // Nothing listens on port 1.
    command.env("VERBATIM_MODELS__HUB__ADDRESS", "http://127.0.0.1:1");
    command.env("VERBATIM_MODELS__HUB__PACKAGE_INDEX", "http://127.0.0.1:1");
    command
}

pub fn home() -> TempDir {
    tempfile::tempdir().expect("a directory")
}

pub fn texts(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

pub fn run(command: &mut Command) -> (Option<i32>, String, String) {
    texts(&command.output().expect("it runs"))
}

/// A model of random weights, and the folder that has the voice activity model.
pub fn model(home: &TempDir) -> (PathBuf, PathBuf) {
    let folder = home.path().join("random");
    std::fs::create_dir(&folder).expect("writable");
    Checkpoint::random(1).write_hugging_face(&folder);
    (folder, Path::new(env!("CARGO_MANIFEST_DIR")).join(".verbatim/models"))
}

/// Silence, 8 kHz, 8 bits.
pub fn write_silence(path: &Path, seconds: u32) {
    let bytes = seconds * 8000;
    let mut wave = b"RIFF".to_vec();
    wave.extend((36 + bytes).to_le_bytes());
    wave.extend(b"WAVEfmt \x10\0\0\0\x01\0\x01\0");
    wave.extend([8000u32.to_le_bytes(), 8000u32.to_le_bytes()].concat());
    wave.extend(b"\x01\0\x08\0data");
    wave.extend(bytes.to_le_bytes());
    wave.resize(wave.len() + bytes as usize, 128);
    std::fs::write(path, wave).expect("writable");
}

#[test]
fn the_configuration_is_printed_as_a_file_that_says_the_same() {
    let home = home();
    let settings = [
        ("VERBATIM_STATE_DIR", "123"),
        ("VERBATIM_MODEL_DIR", "a \"quoted\"\\name # no comment"),
        ("VERBATIM_FETCH_ALLOW", "10.0.0.0/8, media.internal"),
        ("VERBATIM_HTTP__TLS__CERTIFICATE", "c.pem"),
        ("VERBATIM_HTTP__TLS__KEY", "k.pem"),
        ("VERBATIM_AUDIO__MAX_SECONDS", "90.5"),
    ];
    for settings in [&[][..], &settings] {
        let printed = run(verbatim(&home, &["config"]).envs(settings.iter().copied()));
        assert_eq!((printed.0, printed.2.as_str()), (Some(0), ""));
        let table: toml::Table = printed.1.parse().expect("TOML");
        assert_eq!(
            table["audio"]["max_seconds"].as_float(),
            Some(if settings.is_empty() { 600.0 } else { 90.5 })
        );
        let file = home.path().join("printed.toml");
        std::fs::write(&file, &printed.1).expect("writable");
        let again = run(&mut verbatim(&home, &["config", "--config", file.to_str().expect("text")]));
        assert_eq!(again.0, Some(0), "{}", again.2);
        assert_eq!(again.1.parse::<toml::Table>().expect("TOML"), table);
        assert!(settings.is_empty() || printed.1.contains("# the environment variable VERBATIM_STATE_DIR"));
    }
}

#[test]
fn a_reader_who_has_had_enough_is_no_error() {
    let home = home();
    for arguments in [&["models", "list"][..], &["config"], &["keys", "list"]] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let output = verbatim(&home, arguments).stdout(writer).output().expect("it runs");
        assert_eq!(texts(&output), (Some(0), String::new(), String::new()), "{arguments:?}");
    }
}

#[test]
fn two_files_with_one_name_are_refused_before_any_work() {
    let home = home();
    let output = home.path().join("o");
    let arguments = ["transcribe", "a/x.wav", "b/x.mp3", "--output-dir", output.to_str().expect("text")];
    let (code, _, error) = run(&mut verbatim(&home, &arguments));
    assert_eq!(code, Some(2), "{error}");
    assert!(error.contains("a/x.wav") && error.contains("b/x.mp3") && error.contains("x.txt"), "{error}");
    assert!(!output.exists());
}

#[test]
fn files_are_transcribed_past_the_servers_limit_and_in_any_spelling_of_a_language() {
    let home = home();
    let (model, models) = model(&home);
    let long = home.path().join("long.wav");
    write_silence(&long, 601);
    let transcribe = |arguments: &[&str]| {
        let fixed = ["transcribe", long.to_str().expect("text"), "--threads", "1", "--model"];
        let arguments = [&fixed, &[model.to_str().expect("text")][..], arguments].concat();
        run(verbatim(&home, &arguments).env("VERBATIM_MODEL_DIR", &models))
    };
    let (code, text, error) = transcribe(&["--language", "en-US", "--format", "json"]);
    assert_eq!((code, error.as_str()), (Some(0), ""));
    let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert!(crate::figures::count(&value) > 2, "{text}");
    assert_eq!((value["duration"].as_f64(), value["text"].as_str()), (Some(601.0), Some("")));
    let (code, text, error) = transcribe(&["--max-seconds", "600"]);
    assert_eq!((code, text.as_str()), (Some(1), ""));
    assert!(error.contains("long.wav") && error.contains("600"), "{error}");
    let (code, _, error) = transcribe(&["--language", "tlh-KX"]);
    assert_eq!(code, Some(2), "{error}");
    assert!(error.contains("tlh-kx"), "{error}");
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let arguments =
        ["transcribe", long.to_str().expect("text"), "--threads", "1", "--format", "json", "--model"];
    let mut command = verbatim(&home, &[&arguments, &[model.to_str().expect("text")][..]].concat());
    let output = command.env("VERBATIM_MODEL_DIR", &models).stdout(writer).output().expect("it runs");
    assert_eq!(texts(&output), (Some(0), String::new(), String::new()));
}

/// Starts it, waits until `has_begun` and sends the signal; returns the exit code and the output.
fn stopped(command: &mut Command, signal: &str, has_begun: impl FnOnce()) -> (Option<i32>, String) {
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it runs");
    has_begun();
    let kill = Command::new("kill").args([signal, &child.id().to_string()]).status().expect("kill");
    assert!(kill.success());
    let mut said = String::new();
    child.stderr.take().expect("piped").read_to_string(&mut said).expect("text");
    (child.wait().expect("it ends").code(), said)
}

#[test]
fn a_signal_while_a_model_is_fetched_ends_it_at_once() {
    let home = home();
    let sound = home.path().join("x.wav");
    std::fs::write(&sound, b"RIFF").expect("writable");
    for (arguments, signal, code) in [
        (&["serve", "--listen", "127.0.0.1:0"][..], "-TERM", 143),
        (&["transcribe", sound.to_str().expect("text")], "-INT", 130),
        (&["models", "fetch", "tiny"], "-TERM", 143),
    ] {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = format!("http://{}", listener.local_addr().expect("bound"));
        let mut asked = None;
        let mut command = verbatim(&home, arguments);
        let command = command.env("VERBATIM_MODELS__HUB__ADDRESS", address);
        let (ended, said) = stopped(command, signal, || asked = listener.accept().ok());
        assert_eq!(ended, Some(code), "{arguments:?}: {said}");
        assert!(said.contains(&format!("stopped by SIG{}", &signal[1..])), "{said}");
    }
}

#[test]
fn a_signal_while_a_model_is_loaded_ends_it_at_once() {
    let home = home();
    let (model, _) = model(&home);
    // Loading waits here, as it would on a slow disk.
    let slow = model.join("config.json");
    std::fs::remove_file(&slow).expect("removed");
    assert!(Command::new("mkfifo").arg(&slow).status().expect("mkfifo").success());
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--model", model.to_str().expect("text")];
    let mut command = verbatim(&home, &arguments);
    let command = command.env("VERBATIM_TRANSCRIBE__WINDOWS", "sequential");
    let mut writer = None;
    // Opens when the other end is opened to be read.
    let (ended, said) = stopped(command, "-TERM", || writer = std::fs::File::create(&slow).ok());
    assert_eq!(ended, Some(143), "{said}");
    assert!(said.contains("stopped by SIGTERM while the model"), "{said}");
}

/// `text` has these digits for themselves, not as a part of a time, an id or a longer number.
fn tells(text: &str, digits: &str) -> bool {
    let is_edge = |c: Option<char>| c.is_none_or(|c| !(c.is_alphanumeric() || matches!(c, '.' | '-')));
    text.match_indices(digits).any(|(at, _)| {
        is_edge(text[..at].chars().next_back()) && is_edge(text[at + digits.len()..].chars().next())
    })
}

#[test]
fn the_demo_and_its_service_begin_with_one_command_and_the_story_that_it_prints_is_true() {
    let home = home();
    let (model, models) = model(&home);
    let log = home.path().join("log");
    let arguments = ["demo", "--with-sts", "--listen", "127.0.0.1:0", "--threads", "1", "--log", "debug"];
    let mut command =
        verbatim(&home, &[&arguments, &["--model", model.to_str().expect("text")][..]].concat());
    let mut child = command
        .env("VERBATIM_MODEL_DIR", &models)
        .env("VERBATIM_LISTEN", "127.0.0.1:0")
        .env("DEMO_FRONTEND_BASE_URL", "http://127.0.0.1:0")
        // Not a public address: it is not asked.
        .env("DEMO_WEBSITE_URL", "http://127.0.0.1:1/")
        .env("VERBATIM_SHUTDOWN__GRACE_SECONDS", "0")
        .stdout(Stdio::piped())
        .stderr(std::fs::File::create(&log).expect("writable"))
        .spawn()
        .expect("it runs");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let mut story = String::new();
    while !story.contains("/api/client/form-completed") {
        let Some(line) = lines.next() else {
            panic!("it ended: {}", std::fs::read_to_string(&log).expect("readable"))
        };
        story += &format!("{}\n", line.expect("text"));
    }
    let (addresses, steps) = story.split_once("\n\n").expect("addresses, then steps");
    let places: Vec<&str> = addresses.lines().filter_map(|line| line.split_whitespace().last()).collect();
    assert!(
        places.len() == 3 && places.iter().all(|place| place.starts_with("http://127.0.0.1:")),
        "{places:?}"
    );
    assert!(places.iter().all(|place| !place.ends_with(":0")), "{places:?}");

    // Every line unchanged, in a shell; needs curl, as a reader does.
    let script: String = steps.lines().map(|line| format!("{line}\n")).collect::<Vec<_>>().join("echo\n");
    let (code, output, error) = run(Command::new("sh").args(["-ec", &script]).stdin(Stdio::null()));
    assert_eq!((code, error.as_str()), (Some(0), ""), "{output}");
    let replies: Vec<&str> = output.lines().filter(|line| !line.is_empty()).collect();
    let [session, event, hook, verified, status, completed] = replies[..] else { panic!("{replies:?}") };
    assert!(session.len() == 17 && session.starts_with("sess_"), "{session}");
    let json = |text: &str| serde_json::from_str::<serde_json::Value>(text).expect(text);
    assert_eq!(json(event)["page_context"]["form_name"], "healthcare_signup");
    assert_eq!(json(hook)["verified"], true);
    assert_eq!(json(verified)["verified"], true);
    let status = json(status);
    assert_eq!(status["session_id"], session);
    assert_eq!(status["caller_number"], "+12025550143");
    assert_eq!(status["page_context"]["step"], "name");
    assert_eq!(status["verification"]["patient_information"]["verified"], true);
    assert_eq!(status["pending_sms"][0]["sms_catalog_key"], "patient_information");
    assert_eq!(json(completed)["completed"], true);

    let kill = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().expect("kill");
    assert!(kill.success());
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
    let log = std::fs::read_to_string(&log).expect("readable");
    assert!(log.contains("session started") && log.contains("spoken verification"), "{log}");
    for digits in ["2025550143", "12025550143", "5005550006", "4567", "four five six seven"] {
        assert!(!tells(&log, digits), "{digits} in {log}");
    }
    assert!(!log.contains("2025550143") && !log.contains("verbatim-demo-key"), "{log}");
}

#[test]
fn the_demo_is_not_shown_to_others_with_the_key_that_all_know() {
    let home = home();
    for arguments in [&["demo"][..], &["demo", "--with-sts"]] {
        let arguments = [arguments, &["--listen", "0.0.0.0:0"]].concat();
        let (code, _, error) = run(&mut verbatim(&home, &arguments));
        assert_eq!(code, Some(2), "{error}");
        assert!(error.contains("DEMO_API_KEY"), "{error}");
    }
}

#[test]
fn a_demo_that_others_reach_shows_its_voice_service_a_key() {
    let home = home();
    let arguments = ["demo", "--with-sts", "--listen", "127.0.0.1:0"];
    let (code, _, error) = run(verbatim(&home, &arguments)
        .env("VERBATIM_LISTEN", "0.0.0.0:0")
        .env("DEMO_FRONTEND_BASE_URL", "http://127.0.0.1:0"));
    assert_eq!(code, Some(2), "{error}");
    assert!(error.contains("demo.sts_api_key") && error.contains("0.0.0.0:0"), "{error}");
}

#[test]
fn keys_of_operators_are_told_apart() {
    let home = home();
    for (arguments, role) in
        [(&["--label", "app"][..], "caller"), (&["--label", "scraper", "--operator"], "operator")]
    {
        let (code, key, error) = run(&mut verbatim(&home, &[&["keys", "create"], arguments].concat()));
        assert!(code == Some(0) && key.starts_with("org_"), "{error}");
        let (_, listed, _) = run(&mut verbatim(&home, &["keys", "list"]));
        let line = listed.lines().find(|line| line.ends_with(arguments[1])).expect(arguments[1]);
        assert!(line.split_whitespace().any(|word| word == role), "{listed}");
    }
}

#[test]
fn random_weights_are_measured_on_any_machine() {
    let home = home();
    let figures = home.path().join("figures.json");
    let bench = ["bench", "--device", "cpu", "--threads", "2", "--synthetic"];
    let measured =
        ["tiny", "--tokens", "2-4", "--windows", "2", "--peak-tflops", "1", "--peak-gbs", "10", "--json"];
    let (code, out, err) = run(verbatim(&home, &bench).args(measured).arg(&figures));
    assert_eq!(code, Some(0), "{err}");
    assert!(out.starts_with("tiny with random weights on cpu"), "{out}");
    let figures: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&figures).expect("written")).expect("JSON");
    assert_eq!(figures["windows"], 2);
    for figure in ["windows_per_second", "rtfx", "tokens_per_second", "teraflops", "share_of_roofline"] {
        assert!(figures[figure].as_f64().is_some_and(|value| value > 0.0), "{figure}: {figures}");
    }
    assert_eq!(
        (&figures["protocol"], &figures["ceilings"]),
        (&serde_json::Value::Null, &serde_json::Value::Null)
    );

    let (code, _, err) = run(verbatim(&home, &bench).arg("enormous"));
    assert_eq!(code, Some(2));
    assert!(err.contains("large-v3-turbo"), "{err}");
}

#[test]
fn random_weights_show_where_the_time_goes() {
    let home = home();
    let json = home.path().join("figures.json");
    let bench = ["bench", "--device", "cpu", "--threads", "2", "--synthetic", "tiny", "--slots", "2"];
    let asked = ["--protocol", "mlperf", "--windows", "2", "--word-times", "--stages", "--json"];
    let (code, out, err) = run(verbatim(&home, &bench).args(asked).arg(&json));
    assert_eq!(code, Some(0), "{err}");
    let figures: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&json).expect("written")).expect("JSON");
    assert_eq!(figures["protocol"], "mlperf");
    assert_eq!((&figures["tokens_of_a_window"], &figures["slots"]), (&"40-87".into(), &2.into()));
    assert_eq!((&figures["word_times"], &figures["concurrency"]), (&true.into(), &2.into()));
    let positive = |value: &serde_json::Value| value.as_f64().is_some_and(|value| value > 0.0);
    assert!(positive(&figures["host_microseconds_per_loop"]), "{figures}");
    for ceiling in ["copy_gigabytes_per_second", "product_teraflops"] {
        assert!(positive(&figures["ceilings"][ceiling]), "{ceiling}: {figures}");
    }
    let stages = figures["stages"].as_array().expect("stages");
    for name in ["mel", "encoder", "cache_fill", "prefill", "step", "alignment"] {
        let mut found = stages.iter().filter(|stage| stage["stage"] == name).peekable();
        assert!(found.peek().is_some(), "{name}: {out}");
        for stage in found {
            assert!(positive(&stage["count"]) && positive(&stage["microseconds"]), "{stage}");
            assert_eq!(stage["rows"].is_u64(), ["prefill", "step"].contains(&name), "{stage}");
        }
    }
    // The engine's thread does nothing else meanwhile: the stages are most of the time, and no more than all of it.
    let share: f64 = stages.iter().filter_map(|stage| stage["share_of_wall"].as_f64()).sum();
    assert!((0.5..=1.001).contains(&share), "{out}");
    assert!(out.contains("cache_fill") && out.contains("ceilings"), "{out}");

    let both = ["--tokens", "8", "--protocol", "mlperf"];
    let (code, _, err) = run(verbatim(&home, &["bench", "--synthetic", "tiny"]).args(both));
    assert_eq!(code, Some(2), "{err}");
}

#[test]
fn a_gpu_that_is_asked_for_and_is_not_there_is_an_error() {
    if Path::new("/dev/nvidia0").exists() {
        println!("skipped: there is a GPU");
        return;
    }
    let home = home();
    let (code, _, err) = run(&mut verbatim(&home, &["bench", "--synthetic", "tiny", "--device", "cuda"]));
    assert_eq!(code, Some(1));
    assert!(err.contains("CUDA cannot be used: there is no NVIDIA driver"), "{err}");
}
