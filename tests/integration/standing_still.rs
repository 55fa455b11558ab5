//! The built program, stopped for longer than a client may say nothing, and let go on: what clients sent meanwhile
//! lies in its sockets, and counts.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::checkpoint::Checkpoint;
use crate::program::Program;
use crate::server::{RAW, answer, client, new_key};
use crate::socket::{self, Said, Socket, connect};

const IDLE_MS: &str = "3000";
/// By so much longer that the end of the wait and the end of the stop are not one.
const STOPPED: Duration = Duration::from_secs(6);
/// A tenth of a second of silence at 16 kHz.
const PIECE: [u8; 3200] = [0; 3200];
/// The pieces that are sent before, and while the program stands still.
const PIECES: (usize, usize) = (5, 20);
const LIVE: usize = 10;
const ROOMS: usize = 4;
const CALLS: usize = 4;

/// A client's socket, and how it shows that it is there.
struct Peer {
    kind: Kind,
    socket: Socket,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    LiveAudio,
    LiveKeepAlive,
    RoomAudio,
    RoomKeepAlive,
    Call,
}

impl Peer {
    async fn live(address: std::net::SocketAddr, key: &str, number: usize) -> Self {
        let mut socket = socket::listen(address, key, RAW).await.socket.expect("agreed");
        for _ in 0..PIECES.0 {
            socket.audio(&PIECE).await;
        }
        Self { kind: if number.is_multiple_of(2) { Kind::LiveAudio } else { Kind::LiveKeepAlive }, socket }
    }

    async fn room(address: std::net::SocketAddr, number: usize) -> Self {
        let mut socket = connect(address, "/v1/agent/converse", &[]).await.socket.expect("agreed");
        let settings = json!({
            "type": "Settings",
            "audio": {
                "input": {"encoding": "linear16", "sample_rate": 16_000},
                "output": {"encoding": "linear16", "sample_rate": 24_000, "container": "none"},
            },
            "agent": {"greeting": "Hello."},
        });
        socket.text(&settings.to_string()).await;
        Self { kind: if number.is_multiple_of(2) { Kind::RoomAudio } else { Kind::RoomKeepAlive }, socket }
    }

    async fn call(program: &Program) -> Self {
        let start = json!({"action": "start", "channel": "phone"}).to_string();
        let request = client().post(program.url("/STS/interactiveAgent")).body(start);
        let (status, started) = answer(request.header("content-type", "application/json")).await;
        assert_eq!(status, 200, "{started}");
        let text = |name: &str| started[name].as_str().expect("text").to_owned();
        let query = format!("session_id={}&room_name={}", text("session_id"), text("room_name"));
        let url = program.url(&format!("/api/twilio/incoming-call?{query}"));
        let response = client().post(url).send().await.expect("an answer");
        let twiml = response.text().await.expect("text");
        let (_, token) = twiml.split_once("name=\"token\" value=\"").expect("a token");
        let (token, _) = token.split_once('"').expect("its end");
        let mut socket = connect(program.address, "/api/twilio/media", &[]).await.socket.expect("agreed");
        let start = json!({"event": "start", "streamSid": "MZ1", "start": {
            "streamSid": "MZ1", "callSid": "CA1", "customParameters": {"token": token}}});
        socket.text(&start.to_string()).await;
        Self { kind: Kind::Call, socket }
    }

    /// A sign of life that adds no audio to a stream.
    async fn is_here(&mut self) {
        match self.kind {
            Kind::Call => self.media().await,
            _ => self.socket.control("KeepAlive").await,
        }
    }

    async fn media(&mut self) {
        let payload = STANDARD.encode([0xFF; 160]);
        let media =
            json!({"event": "media", "streamSid": "MZ1", "media": {"track": "inbound", "payload": payload}});
        self.socket.text(&media.to_string()).await;
    }

    /// Does as a client does that notices nothing.
    async fn goes_on(&mut self) {
        for _ in 0..PIECES.1 {
            match self.kind {
                Kind::LiveAudio | Kind::RoomAudio => self.socket.audio(&PIECE).await,
                Kind::LiveKeepAlive | Kind::RoomKeepAlive => self.socket.control("KeepAlive").await,
                Kind::Call => self.media().await,
            }
        }
    }

    /// Whether the server answers, after all that it had to say.
    async fn is_answered(&mut self) -> bool {
        self.socket.frame(0x89, b"?").await;
        loop {
            match self.socket.said().await {
                Said::Pong(_) => return true,
                Said::Message(_) | Said::Audio(_) | Said::Ping(_) => {}
                Said::Close(..) | Said::Gone => return false,
            }
        }
    }
}

/// An answer of HTTP/1.1 without a body's end to wait for.
async fn answered(stream: &mut TcpStream) -> String {
    stream.write_all(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n").await.expect("sent");
    next_answer(stream).await
}

async fn next_answer(stream: &mut TcpStream) -> String {
    let mut reply = Vec::new();
    while !reply.ends_with(b"}") && stream.read_buf(&mut reply).await.is_ok_and(|count| count > 0) {}
    String::from_utf8(reply).expect("text")
}

#[tokio::test]
async fn clients_that_went_on_while_the_process_stood_still_are_kept() {
    let (state, model) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    Checkpoint::random(1).write_hugging_face(model.path());
    let key = new_key(state.path());
    let settings = [
        ("VERBATIM_LIVE__IDLE_TIMEOUT_MS", IDLE_MS),
        ("VERBATIM_STS__ROOM_IDLE_TIMEOUT_MS", IDLE_MS),
        ("VERBATIM_STS__PHONE_IDLE_TIMEOUT_MS", IDLE_MS),
        ("VERBATIM_HTTP__IDLE_TIMEOUT_MS", IDLE_MS),
        ("VERBATIM_STS__AUTH", "loopback"),
        ("VERBATIM_STS__SPEECH__EMBEDDED", "none"),
    ];
    let program = Program::start_with(state.path(), model.path(), &settings).await;
    let mut peers: Vec<Peer> = Vec::new();
    for number in 0..LIVE + ROOMS + CALLS {
        // On a busy machine all this takes longer than one may be silent.
        for peer in &mut peers {
            peer.is_here().await;
        }
        peers.push(match number {
            0..LIVE => Peer::live(program.address, &key, number).await,
            number if number < LIVE + ROOMS => Peer::room(program.address, number).await,
            _ => Peer::call(&program).await,
        });
    }
    for peer in &mut peers {
        peer.is_here().await;
        assert!(peer.is_answered().await, "{:?}", peer.kind);
    }
    // A connection that waits for its client's next request.
    let mut between = TcpStream::connect(program.address).await.expect("a connection");
    assert!(answered(&mut between).await.starts_with("HTTP/1.1 200"));

    let meanwhile = async {
        for peer in &mut peers {
            peer.goes_on().await;
        }
        between.write_all(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n").await.expect("sent");
    };
    program.stands_still(STOPPED, meanwhile).await;

    let mut lost = Vec::new();
    for peer in &mut peers {
        if !peer.is_answered().await {
            lost.push(peer.kind);
        }
    }
    assert!(lost.is_empty(), "lost: {lost:?}");
    assert!(next_answer(&mut between).await.starts_with("HTTP/1.1 200"), "the request is lost");
    for Peer { kind, mut socket } in peers {
        let seconds = match kind {
            Kind::LiveAudio => (PIECES.0 + PIECES.1) as f64 / 10.0,
            Kind::LiveKeepAlive => PIECES.0 as f64 / 10.0,
            Kind::RoomAudio | Kind::RoomKeepAlive | Kind::Call => continue,
        };
        // All of the audio was heard.
        socket.control("CloseStream").await;
        let (messages, end) = socket.rest().await;
        assert_eq!(end, Said::Close(1000, String::new()), "{kind:?}");
        let metadata = messages.last().expect("metadata");
        assert_eq!(metadata["type"], Value::from("Metadata"));
        assert_eq!(metadata["duration"].as_f64(), Some(seconds), "{kind:?}: {metadata}");
    }
}

#[tokio::test]
async fn a_request_has_its_whole_time_though_the_process_stood_still_in_it() {
    let (state, model) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    Checkpoint::random(1).write_hugging_face(model.path());
    let key = new_key(state.path());
    // Less than the process stands still for.
    let settings =
        [("VERBATIM_API__PROCESSING_TIMEOUT_MS", "5000"), ("VERBATIM_STS__SPEECH__EMBEDDED", "none")];
    let program = Program::start_with(state.path(), model.path(), &settings).await;
    let mut stream = TcpStream::connect(program.address).await.expect("a connection");
    let head = format!(
        "POST /v1/listen?{RAW} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\ncontent-length: {}\r\n\
         expect: 100-continue\r\n\r\n",
        2 * PIECE.len()
    );
    stream.write_all(head.as_bytes()).await.expect("sent");
    // Its time has begun when its body is asked for.
    let mut leave = Vec::new();
    while !leave.ends_with(b"\r\n\r\n") {
        assert_ne!(stream.read_buf(&mut leave).await.expect("an answer"), 0);
    }
    assert!(leave.starts_with(b"HTTP/1.1 100"), "{}", String::from_utf8_lossy(&leave));
    stream.write_all(&PIECE).await.expect("sent");

    program.stands_still(STOPPED, async { stream.write_all(&PIECE).await.expect("sent") }).await;
    let answer = next_answer(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}
