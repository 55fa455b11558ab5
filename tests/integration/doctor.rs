//! `verbatim doctor`: what is well, what is broken, what to change, and no secret in any of it.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use hyper::{Method, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use verbatim::http::{self, Router};

use crate::commands::{home, model, run, verbatim};
use crate::program::Program;
use crate::server::Door;
use crate::sts::doubles::{Asked, Double};

const TOKEN: &str = "a-very-secret-token";

/// A program with a model of random weights, a state folder and a key.
fn deployment(home: &TempDir) -> Vec<(&'static str, String)> {
    let (folder, models) = model(home);
    let state = home.path().join("state");
    let settings = vec![
        ("VERBATIM_STATE_DIR", state.display().to_string()),
        ("VERBATIM_MODEL_DIR", models.display().to_string()),
        ("VERBATIM_MODELS__MODEL", folder.display().to_string()),
        ("VERBATIM_MODELS__THREADS", "1".into()),
        ("VERBATIM_ENGINE__MAX_HELD_SECONDS", "600".into()),
        ("VERBATIM_LISTEN", "127.0.0.1:0".into()),
        ("VERBATIM_JOBS__DISK_FREE_BYTES_MIN", "0".into()),
        ("VERBATIM_STS__SPEECH__EMBEDDED", "none".into()),
    ];
    let made = run(verbatim(home, &["keys", "create", "--label", "test"]).envs(settings.clone()));
    assert_eq!(made.0, Some(0), "{}", made.2);
    settings
}

fn command(home: &TempDir, settings: &[(&'static str, String)], more: &[(&str, &str)]) -> Command {
    let mut command = verbatim(home, &["doctor", "--json"]);
    command.envs(settings.iter().map(|(name, value)| (*name, value))).envs(more.iter().copied());
    command
}

/// The exit code, and each check by its name.
async fn doctor(mut command: Command) -> (Option<i32>, HashMap<String, Value>) {
    let (code, output, log) = tokio::task::spawn_blocking(move || run(&mut command)).await.expect("no panic");
    assert!(!output.contains(TOKEN) && !log.contains(TOKEN), "{output}{log}");
    let report: Value = serde_json::from_str(&output).unwrap_or_else(|_| panic!("{output}{log}"));
    let checks = report["checks"].as_array().expect("checks").clone();
    let failed = checks.iter().any(|check| check["status"] == "failed");
    assert_eq!((report["ok"] == true, code), (!failed, Some(i32::from(failed))), "{report}");
    for check in checks.iter().filter(|check| check["status"] != "ok") {
        assert!(check["mend"].as_str().is_some_and(|mend| !mend.is_empty()), "{check}");
    }
    let named = checks.into_iter().map(|check| (check["name"].as_str().expect("text").to_owned(), check));
    (code, named.collect())
}

#[track_caller]
fn fails(checks: &HashMap<String, Value>, name: &str, about: &str) {
    let check = checks.get(name).unwrap_or_else(|| panic!("{name} is not in {:?}", checks.keys()));
    assert!(check["status"] == "failed" && check.to_string().contains(about), "{check}");
}

#[tokio::test]
async fn what_is_broken_is_named_with_the_setting_that_mends_it() {
    let home = home();
    let settings = deployment(&home);
    let missing = home.path().join("missing").display().to_string();
    let taken = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let taken = taken.local_addr().expect("bound").to_string();
    let closed = "http://127.0.0.1:1";
    let (_, checks) = doctor(command(
        &home,
        &settings,
        &[
            ("VERBATIM_MODEL_DIR", &missing),
            ("VERBATIM_LISTEN", &taken),
            ("VERBATIM_JOBS__DISK_FREE_BYTES_MIN", "1152921504606846976"),
            ("VERBATIM_STS__SPEECH__EMBEDDED", "kokoro"),
            ("VERBATIM_STS__TURN__END_OF_TURN", "model"),
            ("VERBATIM_STS__PUBLIC_URL", "http://user:a-very-secret-token@127.0.0.1:1"),
            ("LIVEKIT_URL", "ws://127.0.0.1:1"),
            ("LIVEKIT_API_KEY", "devkey"),
            ("LIVEKIT_API_SECRET", TOKEN),
            ("VERBATIM_STS__TWILIO__BASE_URL", closed),
            ("VERBATIM_STS__TWILIO__ACCOUNT_SID", "AC1"),
            ("VERBATIM_STS__TWILIO__AUTH_TOKEN", TOKEN),
            ("VERBATIM_STS__TWILIO__FROM", "+15005550006"),
            ("VERBATIM_STS__CHAT__BASE_URL", closed),
            ("VERBATIM_STS__CHAT__API_KEY", TOKEN),
        ],
    ))
    .await;
    for (name, about) in [
        ("disk space", "jobs.disk_free_bytes_min"),
        ("transcription", "voice activity"),
        ("voice", "sts.speech"),
        ("speech detector", "./setup"),
        ("turn model", "./setup smart-turn"),
        ("public address", "sts.public_url"),
        ("text messages", "sts.twilio.base_url"),
        ("chat", "sts.chat.base_url"),
    ] {
        fails(&checks, name, about);
    }
    if cfg!(feature = "livekit") {
        fails(&checks, "livekit", "sts.livekit.url");
    }
    for (name, status) in [("configuration", "ok"), ("keys", "ok"), ("clock", "ok")] {
        assert_eq!(checks[name]["status"], status, "{}", checks[name]);
    }
}

#[tokio::test]
async fn a_model_that_hears_nothing_and_a_state_folder_without_keys_are_found() {
    let home = home();
    let settings = deployment(&home);
    let empty = home.path().join("empty").display().to_string();
    let (_, checks) = doctor(command(&home, &settings, &[("VERBATIM_STATE_DIR", &empty)])).await;
    // Its weights are random.
    fails(&checks, "transcription", "heard");
    fails(&checks, "keys", "verbatim keys create");
    assert_eq!(checks["voice"]["status"], "warning", "{}", checks["voice"]);
    assert!(!Path::new(&empty).exists(), "the doctor makes nothing");
}

#[tokio::test]
async fn a_configuration_that_cannot_be_read_is_a_check_too() {
    let home = home();
    let (code, checks) = doctor(command(&home, &[], &[("VERBATIM_STS__SESSIONS_MAX", "many")])).await;
    assert_eq!((code, checks.len()), (Some(1), 1));
    fails(&checks, "configuration", "sts.sessions_max");
    let text = run(verbatim(&home, &["doctor"]).env("VERBATIM_STS__SESSIONS_MAX", "many"));
    assert!(text.0 == Some(1) && text.1.starts_with("failed   configuration"), "{}", text.1);
}

#[tokio::test]
async fn refused_keys_are_told_from_services_that_are_away() {
    let home = home();
    let settings = deployment(&home);
    let refuse = |_: &str| (StatusCode::UNAUTHORIZED, json!({"code": 20003, "message": TOKEN}));
    let (provider, chat) = (Double::start("/any", refuse).await, Double::start("/any", refuse).await);
    let (_, checks) = doctor(command(
        &home,
        &settings,
        &[
            ("VERBATIM_STS__TWILIO__BASE_URL", &provider.url),
            ("VERBATIM_STS__TWILIO__ACCOUNT_SID", "AC1"),
            ("VERBATIM_STS__TWILIO__AUTH_TOKEN", TOKEN),
            ("VERBATIM_STS__TWILIO__FROM", "+15005550006"),
            ("VERBATIM_STS__CHAT__BASE_URL", &chat.url),
        ],
    ))
    .await;
    // The double knows no such path, as an account that does not exist.
    fails(&checks, "text messages", "sts.twilio.auth_token");
    // Signatures can't be checked without knowing which address the provider calls.
    fails(&checks, "public address", "sts.public_url");
}

/// The provider's account, and the messages that it was asked to send.
async fn provider() -> (String, Asked, Door) {
    let asked = Asked::default();
    let noted = asked.clone();
    let send = move |request: http::Request| {
        let noted = noted.clone();
        async move {
            let body = request.body.collect().await?;
            let body = String::from_utf8(body.bytes().to_vec()).expect("text");
            noted.lock().expect("no test panics here").push((request.headers, body));
            Ok(http::json(StatusCode::CREATED, &json!({"sid": "SM1", "status": "queued"})))
        }
    };
    let account = async |_| Ok(http::json(StatusCode::OK, &json!({"status": "active"})));
    let router = Router::new().route(Method::GET, "/2010-04-01/Accounts/AC1.json", account).route(
        Method::POST,
        "/2010-04-01/Accounts/AC1/Messages.json",
        send,
    );
    let door = Door::open(router, http::Config::default()).await;
    (format!("http://{}", door.address), asked, door)
}

#[tokio::test]
async fn a_message_is_sent_only_if_a_number_is_given() {
    let home = home();
    let settings = deployment(&home);
    let (url, asked, _door) = provider().await;
    let account = [
        ("VERBATIM_STS__TWILIO__BASE_URL", url.as_str()),
        ("VERBATIM_STS__TWILIO__ACCOUNT_SID", "AC1"),
        ("VERBATIM_STS__TWILIO__AUTH_TOKEN", TOKEN),
        ("VERBATIM_STS__TWILIO__FROM", "+15005550006"),
    ];
    let (_, checks) = doctor(command(&home, &settings, &account)).await;
    assert_eq!(checks["text messages"]["status"], "ok", "{}", checks["text messages"]);
    assert!(asked.lock().expect("no test panics here").is_empty());
    let mut sending = command(&home, &settings, &account);
    sending.args(["--sms-to", "+1 415 555 2671"]);
    let (_, checks) = doctor(sending).await;
    assert_eq!(checks["text messages"]["status"], "ok", "{}", checks["text messages"]);
    let asked = asked.lock().expect("no test panics here");
    assert!(asked.len() == 1 && asked[0].1.contains("To=%2B14155552671"), "{}", asked[0].1);
    assert!(!checks["text messages"].to_string().contains("4155552671"));
}

/// A proxy before `server`; without `upgrades`, it leaves out the header that asks for a WebSocket.
async fn proxy(upgrades: bool) -> (SocketAddr, tokio::sync::watch::Sender<Option<SocketAddr>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    let (sender, server) = tokio::sync::watch::channel(None);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Some(server) = *server.borrow() else { continue };
            tokio::spawn(pass_on(stream, server, upgrades));
        }
    });
    (address, sender)
}

async fn pass_on(mut client: TcpStream, server: SocketAddr, upgrades: bool) -> std::io::Result<()> {
    let mut server = TcpStream::connect(server).await?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await?);
    }
    let text = String::from_utf8_lossy(&head).into_owned();
    let is_hop = |line: &str| line.to_ascii_lowercase().starts_with("upgrade:");
    let is_plain = !text.split("\r\n").any(is_hop);
    let mut kept: Vec<&str> = text.split("\r\n").filter(|line| upgrades || !is_hop(line)).collect();
    if is_plain {
        // The next request comes over a connection of its own, so that its head passes here too.
        kept.insert(1, "connection: close");
    }
    server.write_all(kept.join("\r\n").as_bytes()).await?;
    tokio::io::copy_bidirectional(&mut client, &mut server).await.map(drop)
}

#[tokio::test]
async fn a_proxy_must_pass_websockets_on_and_lead_to_a_server_that_checks_signatures() {
    let home = home();
    let settings = deployment(&home);
    let find = |name: &str| {
        settings.iter().find(|(setting, _)| *setting == name).map(|(_, value)| value.clone()).expect("set")
    };
    let (state, weights) = (find("VERBATIM_STATE_DIR"), find("VERBATIM_MODELS__MODEL"));
    for upgrades in [true, false] {
        let (address, server) = proxy(upgrades).await;
        let public = format!("http://{address}");
        let signing =
            [("VERBATIM_STS__PUBLIC_URL", public.as_str()), ("VERBATIM_STS__TWILIO__AUTH_TOKEN", TOKEN)];
        let program = Program::start_with(Path::new(&state), Path::new(&weights), &signing).await;
        server.send_replace(Some(program.address));
        let (_, checks) = doctor(command(&home, &settings, &signing)).await;
        assert_eq!(checks["public address"]["status"], "ok", "{}", checks["public address"]);
        assert_eq!(checks["signature"]["status"], "ok", "{}", checks["signature"]);
        match upgrades {
            true => assert_eq!(checks["websocket"]["status"], "ok", "{}", checks["websocket"]),
            false => fails(&checks, "websocket", "proxy_set_header Upgrade"),
        }
        // The doctor has another token than the server.
        let other =
            [("VERBATIM_STS__PUBLIC_URL", public.as_str()), ("VERBATIM_STS__TWILIO__AUTH_TOKEN", "other")];
        let (_, checks) = doctor(command(&home, &settings, &other)).await;
        fails(&checks, "signature", "sts.twilio.auth_token");
        program.stop().await;
    }
}

#[tokio::test]
async fn a_deployment_as_setup_makes_it_transcribes_and_speaks() {
    let home = home();
    let mut settings = deployment(&home);
    settings
        .retain(|(name, _)| !matches!(*name, "VERBATIM_STS__SPEECH__EMBEDDED" | "VERBATIM_MODELS__MODEL"));
    settings.push(("VERBATIM_MODELS__MODEL", "base".into()));
    let (_, checks) = doctor(command(&home, &settings, &[])).await;
    for name in ["model", "transcription", "speech detector", "port", "device"] {
        assert_eq!(checks[name]["status"], "ok", "{}", checks[name]);
    }
    // A busy machine may let the voice's time pass; what it says is understood.
    let voice = &checks["voice"];
    assert!(voice["status"] == "ok" || voice.to_string().contains("said nothing"), "{voice}");
}
