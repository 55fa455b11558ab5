//! Rooms of a LiveKit server that is reached over relays (TURN) alone: coturn on loopback, as Debian's package installs
//! it. Without it the tests are skipped with a message.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use serde_json::json;
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use verbatim::sts::config::Relay;

use super::livekit::{Caller, LOUD, Media, free_port};
use super::service::{Service, Setup};
use super::voices::{self, FOX, MAN, Voice};

const USER: &str = "agent";
const PASSWORD: &str = "a password";

/// coturn.
struct Turn {
    port: u16,
    _process: Child,
    _folder: TempDir,
}

impl Turn {
    /// `None` if it is not installed.
    async fn start() -> Option<Self> {
        let program = PathBuf::from("/usr/bin/turnserver");
        if !program.exists() {
            eprintln!("skipped: there is no coturn; apt-get install coturn");
            return None;
        }
        let (port, folder) = (free_port(), TempDir::new().expect("a folder"));
        let process = Command::new(program)
            .args(["-n", "--no-cli", "--no-tls", "--no-dtls", "--lt-cred-mech", "--allow-loopback-peers"])
            .args(["--realm", "example", "--user", &format!("{USER}:{PASSWORD}")])
            .args(["--listening-ip", "127.0.0.1", "--relay-ip", "127.0.0.1"])
            .args(["--listening-port", &port.to_string(), "--log-file", "stdout", "--simple-log"])
            .arg("--pidfile")
            .arg(folder.path().join("pid"))
            .arg("--db")
            .arg(folder.path().join("db"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect("it starts");
        let up = async {
            while TcpStream::connect(("127.0.0.1", port)).await.is_err() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), up).await.expect("it listens");
        Some(Self { port, _process: process, _folder: folder })
    }
}

/// A talk in which the agent's media goes over a relay that is reached by `protocol`.
async fn talk_over(protocol: &str) {
    let Some(turn) = Turn::start().await else { return };
    let server = json!({
        "host": "127.0.0.1", "port": turn.port, "protocol": protocol, "username": USER, "credential": PASSWORD,
    });
    let media = Media::start_with(|config| config["rtc"]["turn_servers"] = json!([server])).await;
    let Some(media) = media else { return };
    let voice = Voice::start().await;
    let mut setup =
        Setup { recognize: Some(voices::ears(&[Some("How may I help you?")])), ..Setup::default() };
    media.give(&mut setup);
    voice.give(&mut setup);
    setup.config.livekit.relay = Relay::Only;
    let service = Service::start(setup).await;
    let (id, reply) = service.session(json!({"greeting": MAN.0})).await;
    let mut caller = Caller::join(&reply).await;
    caller.find(|event| event["event"] == "heard" && event["loudness"].as_u64() > Some(LOUD)).await;
    caller.message("AgentAudioDone").await;
    caller.speak(FOX.1).await;
    let me = reply["participant_identity"].as_str().expect("text");
    assert_eq!(caller.line(me).await["text"], "How may I help you?");
    assert_eq!(service.status(&id).await["room"]["state"], "ready");
}

#[tokio::test]
async fn a_relay_over_udp_carries_the_talk() {
    talk_over("udp").await;
}

#[tokio::test]
async fn a_relay_over_tcp_carries_the_talk() {
    talk_over("tcp").await;
}

#[tokio::test]
async fn without_the_only_way_there_is_no_silent_agent() {
    let Some(media) = Media::start().await else { return };
    let mut setup = Setup::default();
    media.give(&mut setup);
    setup.config.livekit.relay = Relay::Only;
    let service = Service::start(setup).await;
    let (id, _) = service.session(json!({})).await;
    let status = service.until(&id, |status| status["status"] == "ended").await;
    assert_eq!(status["end_reason"], "room_failed");
    let error = status["room"]["error"].as_str().expect("text");
    assert!(error.contains("relay"), "{error}");
}
