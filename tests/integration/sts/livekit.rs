//! Rooms of a real LiveKit server on loopback, with LiveKit's own client as the caller.
//!
//! `./setup livekit-server` builds the server if there is a Go to do it; otherwise the tests are skipped with a message. With
//! `TEST_ALL_SDKS` set, as in CI, the setup must at least have been run.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::net::TcpListener;
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use verbatim::secret::Secret;

use super::room::clip;
use super::service::{Service, Setup};
use super::voices::{self, AMIABLE, COUNTRY, FOX, MAN, Voice, patiently};
use crate::live_audio::wave;
use crate::sdks::python;
use crate::server::{answer, client};
use crate::speech::word_errors;

pub const KEY: &str = "devkey";
pub const SECRET: &str = "a secret of at least thirty-two characters";
/// As a tenth of a second of speech is, and one of silence is not.
pub const LOUD: u64 = 300;
/// Tenths of a second.
const QUIET_TENTHS: usize = 7;

fn installed(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(".verbatim").join(path)
}

/// Outside the range that the system hands out, so that no other program gets it before the server does.
pub fn free_port() -> u16 {
    loop {
        let address = ("127.0.0.1", 15_000 + rand::random::<u16>() % 17_000);
        if std::net::TcpListener::bind(address).is_ok() && std::net::UdpSocket::bind(address).is_ok() {
            return address.1;
        }
    }
}

pub struct Media {
    pub address: SocketAddr,
    process: Child,
    folder: TempDir,
    program: PathBuf,
}

impl Media {
    /// `None` if there is no server to run.
    pub async fn start() -> Option<Self> {
        Self::start_with(|_| ()).await
    }

    /// `change` gets the server's configuration.
    pub async fn start_with(change: impl FnOnce(&mut Value)) -> Option<Self> {
        let program = installed("livekit-server/server");
        if !program.exists() {
            let was_tried = installed("livekit-server/installed").exists();
            assert!(was_tried || std::env::var_os("TEST_ALL_SDKS").is_none(), "run ./setup livekit-server");
            eprintln!("skipped: there is no LiveKit server; ./setup livekit-server builds one with Go 1.26");
            return None;
        }
        let folder = TempDir::new().expect("a folder");
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let mut config = json!({
            "port": address.port(), "bind_addresses": ["127.0.0.1"], "keys": {KEY: SECRET},
            "rtc": {
                "udp_port": free_port(), "tcp_port": free_port(), "node_ip": "127.0.0.1",
                "use_external_ip": false, "enable_loopback_candidate": true,
                "ips": {"includes": ["127.0.0.1/32"]},
            },
            "logging": {"level": "warn"},
        });
        change(&mut config);
        std::fs::write(folder.path().join("livekit.yaml"), config.to_string()).expect("written");
        let process = Self::run(&program, &folder);
        let media = Self { address, process, folder, program };
        media.is_up().await;
        Some(media)
    }

    fn run(program: &Path, folder: &TempDir) -> Child {
        Command::new(program)
            .arg("--config")
            .arg(folder.path().join("livekit.yaml"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect("it starts")
    }

    async fn is_up(&self) {
        let up = async {
            while client().get(format!("http://{}/", self.address)).send().await.is_err() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), up).await.expect("it listens");
    }

    /// Kills the server: it says goodbye to no one.
    pub async fn kill(&mut self) {
        self.process.kill().await.expect("it runs");
    }

    /// Starts the server anew, where it was.
    pub async fn restart(&mut self) {
        self.process = Self::run(&self.program, &self.folder);
        self.is_up().await;
    }

    pub fn give(&self, setup: &mut Setup) {
        setup.config.livekit.url = Some(format!("ws://{}", self.address));
        setup.config.livekit.api_key = Some(KEY.into());
        setup.config.livekit.api_secret = Some(Secret::from(SECRET));
    }
}

/// The official client.
pub struct Caller {
    pub process: Child,
    commands: ChildStdin,
    events: Lines<BufReader<ChildStdout>>,
    /// The agent's, that were seen.
    states: Vec<Value>,
    /// Lines and messages that arrived while the test waited for something else.
    pub pending: VecDeque<Value>,
    /// All but how loud it is, for who has to find out what did not come.
    seen: Vec<String>,
    folder: TempDir,
}

impl Caller {
    pub async fn join(start: &Value) -> Self {
        let mut process = python("livekit", "livekit_caller.py")
            .env("LIVEKIT_ADDRESS", start["websocket_url"].as_str().expect("an address"))
            .env("LIVEKIT_TOKEN", start["token"].as_str().expect("a token"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("it starts");
        let commands = process.stdin.take().expect("piped");
        let events = BufReader::new(process.stdout.take().expect("piped")).lines();
        let folder = TempDir::new().expect("a folder");
        let mut caller = Self {
            process,
            commands,
            events,
            states: Vec::new(),
            pending: VecDeque::new(),
            seen: Vec::new(),
            folder,
        };
        let joined = caller.find(|event| event["event"] == "joined").await;
        assert_eq!(joined["identity"], start["participant_identity"]);
        caller
    }

    pub async fn tell(&mut self, command: Value) {
        self.commands.write_all(format!("{command}\n").as_bytes()).await.expect("it reads");
    }

    pub async fn find(&mut self, wish: impl Fn(&Value) -> bool) -> Value {
        if let Some(at) = self.pending.iter().position(&wish) {
            return self.pending.remove(at).expect("it is there");
        }
        let wait = async {
            loop {
                let line = self.events.next_line().await.expect("it writes").expect("it goes on");
                let event: Value = serde_json::from_str(&line).expect("JSON");
                if event["event"] == "attributes" {
                    self.states.push(event["lk.agent.state"].clone());
                }
                if event["event"] != "heard" && event["event"] != "words" {
                    self.seen.push(line);
                }
                if wish(&event) {
                    return event;
                }
                if event["event"] == "line" || event["event"] == "message" {
                    self.pending.push_back(event);
                }
            }
        };
        let found = tokio::time::timeout(Duration::from_secs(120), wait).await;
        found.unwrap_or_else(|_| panic!("it does not come after {:#?}", self.seen))
    }

    /// The next whole line of the conversation by a speaker, as LiveKit's user interfaces show it.
    pub async fn line(&mut self, identity: &str) -> Value {
        let is_line = |event: &Value| event["event"] == "line" && event["identity"] == identity;
        self.find(|event| is_line(event) && event["attributes"]["lk.transcription_final"] == "true").await
    }

    /// Waits until a speaker has begun to say `text`.
    async fn begun(&mut self, identity: &str, text: &str) -> Value {
        let begins = |event: &Value| {
            let words = event["text"].as_str().unwrap_or_default();
            !words.is_empty() && text.starts_with(words)
        };
        self.find(|event| event["event"] == "words" && event["identity"] == identity && begins(event)).await
    }

    pub async fn message(&mut self, kind: &str) -> Value {
        self.find(|event| event["event"] == "message" && event["message"]["type"] == kind).await
    }

    /// Speaks a recording, with the silence that ends a turn.
    pub async fn speak(&mut self, file: &str) {
        let path = self.folder.path().join(file);
        let samples = super::room::turn(clip(file).samples());
        std::fs::write(&path, wave(16_000, samples.len() as u32 * 2, &samples)).expect("written");
        self.tell(json!({ "speak": path })).await;
    }

    /// The agent's speech since the last call, by this crate's recogniser.
    async fn heard(&mut self) -> String {
        let path = self.folder.path().join("heard.wav");
        self.tell(json!({ "save": path })).await;
        self.find(|event| event["event"] == "saved").await;
        let bytes = std::fs::read(path).expect("saved");
        let samples: Vec<f32> = bytes[44..]
            .chunks_exact(2)
            .map(|pair| f32::from(i16::from_le_bytes([pair[0], pair[1]])) / 32_768.0)
            .collect();
        voices::heard(verbatim::audio::Pcm::new(samples)).await
    }

    /// Waits until it is quiet for longer than one pauses between words; since when.
    async fn quiet(&mut self) -> Instant {
        let (mut since, mut count) = (Instant::now(), 0);
        while count < QUIET_TENTHS {
            let event = self.find(|event| event["event"] == "heard").await;
            if event["loudness"].as_u64() >= Some(LOUD) {
                count = 0;
                continue;
            }
            if count == 0 {
                since = Instant::now();
            }
            count += 1;
        }
        since
    }
}

fn start() -> Value {
    json!({
        "greeting": MAN.0,
        "documents": [
            {"title": "Pangram", "type": "text", "content": FOX.0},
            {"title": "Speech", "type": "text", "content": COUNTRY.0},
            {"title": "Character", "type": "text", "content": AMIABLE.0},
        ],
    })
}

#[tokio::test]
async fn a_caller_talks_with_the_agent_in_a_room_of_a_livekit_server() {
    let Some(media) = Media::start().await else { return };
    let voice = Voice::start().await;
    // The fox is a recording; there is none of the questions after it.
    let script = [
        None,
        Some("What may fellow Americans ask for their country?"),
        Some("Might he have been made amiable himself?"),
    ];
    let mut setup = Setup { recognize: Some(voices::ears(&script)), ..Setup::default() };
    // On a busy machine packets arrive late, and a gap in a sentence isn't its end.
    setup.config.turn.silence_ms = 3_000;
    media.give(&mut setup);
    voice.give(&mut setup);
    let service = Service::start(setup).await;
    let (status, reply) = answer(service.post("/api/livekit/sts", &start())).await;
    assert_eq!(status, 200, "{reply}");
    assert_eq!(reply["websocket_url"], format!("ws://{}", media.address));
    assert_eq!(
        (&reply["server_url"], &reply["participant_token"]),
        (&reply["websocket_url"], &reply["token"])
    );
    let id = reply["session_id"].as_str().expect("an id");
    let status =
        service.until(id, |s| s["room"]["state"] == "ready" && s["knowledge"]["ready"] == true).await;
    assert_eq!((&status["room"]["provider"], &status["status"]), (&json!("livekit"), &json!("created")));

    // The greeting is heard whole, and shown.
    let mut caller = Caller::join(&reply).await;
    let me = reply["participant_identity"].as_str().expect("text").to_owned();
    let agent = caller.find(|event| event["event"] == "agent").await;
    assert_eq!(agent["kind"], 4, "an agent");
    let agent = agent["identity"].as_str().expect("text").to_owned();
    let line = caller.line(&agent).await;
    assert_eq!(
        (&line["text"], &line["attributes"]["lk.transcription_final"]),
        (&json!(MAN.0), &json!("true"))
    );
    caller.message("AgentAudioDone").await;
    caller.quiet().await;
    let heard = patiently(caller.heard()).await;
    // One word of it is two, `ill-disposed`.
    assert!(word_errors(MAN.0, &heard) <= 2, "{heard}");

    // A question that is really heard, and its answer.
    caller.speak(FOX.1).await;
    let line = patiently(caller.line(&me)).await;
    let question = line["text"].as_str().expect("text");
    assert!(word_errors(FOX.0, question) <= 1, "{question}");
    assert!(line["attributes"]["lk.transcribed_track_id"].is_string(), "{line}");
    assert_eq!(caller.line(&agent).await["text"], FOX.0);
    caller.message("AgentAudioDone").await;
    caller.quiet().await;
    let heard = patiently(caller.heard()).await;
    assert!(word_errors(FOX.0, &heard) <= 1, "{heard}");

    // A caller who speaks over the agent silences it, and is answered.
    caller.speak(FOX.1).await;
    let begun = caller.begun(&agent, COUNTRY.0).await;
    assert_eq!(begun["attributes"]["lk.transcription_final"], "false");
    caller.find(|event| event["event"] == "heard" && event["loudness"].as_u64() > Some(LOUD)).await;
    caller.pending.clear();
    caller.speak(FOX.1).await;
    caller.message("UserStartedSpeaking").await;
    let interrupted = Instant::now();
    let went_on = caller.quiet().await - interrupted;
    // It has eleven seconds to say.
    assert!(went_on < Duration::from_secs(6), "it goes on for {went_on:?}");
    let mut line = patiently(caller.line(&agent)).await;
    // Before the answer there may come what was heard of the line that was cut.
    if line["text"] != AMIABLE.0 {
        assert!(COUNTRY.0.starts_with(line["text"].as_str().expect("text")), "{line}");
        let segment = |event: &Value| event["attributes"]["lk.segment_id"].clone();
        assert_eq!(segment(&line), segment(&begun), "the same line, as far as it was heard");
        line = patiently(caller.line(&agent)).await;
    }
    assert_eq!(line["text"], AMIABLE.0);
    caller.message("AgentAudioDone").await;
    for state in ["speaking", "listening"] {
        assert!(caller.states.contains(&json!(state)), "{state} is not among {:?}", caller.states);
    }
    let status = service.status(id).await;
    let lines = status["transcript"].as_array().expect("lines");
    let cut = lines.iter().find(|line| line["interrupted"] == true).expect("one was interrupted");
    assert!(cut["text"].as_str().expect("text").len() < COUNTRY.0.len(), "{cut}");

    // Typed text counts like speech; then a goodbye, and the room is deleted.
    caller.tell(json!({"type": "Goodbye!"})).await;
    let gone = caller.find(|event| event["event"] == "disconnected").await;
    assert_eq!(gone["reason"], "ROOM_DELETED");
    let status = service.until(id, |status| status["room"]["state"] == "closed").await;
    assert_eq!((&status["status"], &status["end_reason"]), (&json!("ended"), &json!("goodbye")));
    let _ = caller.process.kill().await;
}

#[tokio::test]
async fn where_no_udp_gets_through_the_talk_goes_over_tcp() {
    let Some(media) = Media::start_with(|config| config["rtc"]["force_tcp"] = true.into()).await else {
        return;
    };
    let voice = Voice::start().await;
    let mut setup =
        Setup { recognize: Some(voices::ears(&[Some("How may I help you?")])), ..Setup::default() };
    media.give(&mut setup);
    voice.give(&mut setup);
    let service = Service::start(setup).await;
    let start = json!({"action": "start", "greeting": MAN.0});
    let (status, reply) = answer(service.request(&start).bearer_auth(&service.keys[0])).await;
    assert_eq!(status, 200, "{reply}");
    let mut caller = Caller::join(&reply).await;
    caller.find(|event| event["event"] == "heard" && event["loudness"].as_u64() > Some(LOUD)).await;
    caller.message("AgentAudioDone").await;
    caller.speak(FOX.1).await;
    let me = reply["participant_identity"].as_str().expect("text");
    assert_eq!(caller.line(me).await["text"], "How may I help you?");
    drop(caller);
    let stays = service.stays(1).await;
    assert!(stays[0].0 == "/STS/rooms/{room}" && stays[0].1 > 1.0, "{stays:?}");
}

#[tokio::test]
async fn who_leaves_the_room_ends_the_talk() {
    let Some(media) = Media::start().await else { return };
    let mut setup = Setup::default();
    media.give(&mut setup);
    setup.config.rejoin_seconds = 0;
    let service = Service::start(setup).await;
    let (id, reply) = service.session(json!({"greeting": "Hello there."})).await;
    let mut caller = Caller::join(&reply).await;
    service.until(&id, |status| status["participants"].as_array().is_some_and(|all| all.len() == 1)).await;
    caller.message("AgentAudioDone").await;
    caller.tell(json!({"leave": true})).await;
    let status = service.until(&id, |status| status["status"] == "ended").await;
    assert_eq!(status["end_reason"], "left");
}

#[tokio::test]
async fn a_server_that_is_not_there_or_does_not_know_us_is_no_silent_agent() {
    let closed = TcpListener::bind("127.0.0.1:0").await.expect("a port").local_addr().expect("bound");
    let mut setup = Setup::default();
    setup.config.livekit.url = Some(format!("ws://{closed}"));
    setup.config.livekit.api_key = Some(KEY.into());
    setup.config.livekit.api_secret = Some(Secret::from(SECRET));
    let service = Service::start(setup).await;
    let (status, refusal) = service.action(json!({"action": "start"})).await;
    assert_eq!(status, 503, "{refusal}");
    // A telephone needs no room there.
    let (_, reply) = service.session(json!({"channel": "phone"})).await;
    assert!(reply.get("token").is_none(), "{reply}");

    let Some(media) = Media::start().await else { return };
    let mut setup = Setup::default();
    media.give(&mut setup);
    setup.config.livekit.api_secret = Some(Secret::from("another secret of thirty-two characters"));
    let service = Service::start(setup).await;
    assert_eq!(service.action(json!({"action": "start"})).await.0, 503);
}
