//! `wss /v1/realtime` over a real socket: transcription sessions as OpenAI's clients know them.

mod doors;
mod sdks;
mod settings;
mod turns;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use verbatim::live::Config;

use crate::server::{Setup, TestServer};
use crate::socket::{Handshake, Socket, connect};
use crate::tones::Listener;

pub const PATH: &str = "/v1/realtime?intent=transcription";
pub const APPEND: &str = "input_audio_buffer.append";
pub const COMMIT: &str = "input_audio_buffer.commit";
pub const CLEAR: &str = "input_audio_buffer.clear";
pub const DELTA: &str = "conversation.item.input_audio_transcription.delta";
pub const COMPLETED: &str = "conversation.item.input_audio_transcription.completed";

pub async fn start(live: Config) -> TestServer {
    TestServer::start(Setup {
        live,
        organisations: 2,
        model: Some(Box::new(Listener::new())),
        ..Setup::default()
    })
    .await
}

pub async fn handshake(server: &TestServer, key: &str, path: &str) -> Handshake {
    connect(server.address, path, &[("authorization", &format!("Bearer {key}"))]).await
}

/// A session, and the event that it begins with.
pub async fn open(server: &TestServer) -> (Socket, Value) {
    let handshake = handshake(server, &server.key, PATH).await;
    let mut socket = handshake.socket.unwrap_or_else(|| panic!("{} {}", handshake.status, handshake.body));
    let created = socket.message().await;
    (socket, created)
}

pub async fn send(socket: &mut Socket, event: Value) {
    socket.text(&event.to_string()).await;
}

/// Sets `input`, and returns the input in effect.
pub async fn configure(socket: &mut Socket, input: Value) -> Value {
    let session = json!({"type": "transcription", "audio": {"input": input}});
    send(socket, json!({"type": "session.update", "session": session})).await;
    let updated = socket.message().await;
    assert_eq!(updated["type"], "session.updated", "{updated}");
    updated["session"]["audio"]["input"].clone()
}

/// A session whose client commits.
pub async fn manual(server: &TestServer) -> Socket {
    let (mut socket, _) = open(server).await;
    let input = configure(&mut socket, json!({"turn_detection": null})).await;
    assert_eq!(input["turn_detection"], Value::Null);
    socket
}

/// Samples at 16 kHz, at another rate: each the nearest.
pub fn at_rate(samples: &[i16], rate: usize) -> Vec<i16> {
    (0..samples.len() * rate / 16_000).map(|index| samples[index * 16_000 / rate]).collect()
}

pub fn linear(samples: &[i16]) -> Vec<u8> {
    at_rate(samples, 24_000).iter().flat_map(|sample| sample.to_le_bytes()).collect()
}

pub async fn append(socket: &mut Socket, bytes: &[u8]) {
    // A tenth of a second each.
    for piece in bytes.chunks(4800) {
        send(socket, json!({"type": APPEND, "audio": STANDARD.encode(piece)})).await;
    }
}

/// Events up to the `count`th that completes an item.
pub async fn completed(socket: &mut Socket, count: usize) -> Vec<Value> {
    let mut events = Vec::new();
    while of(&events, COMPLETED).len() < count {
        events.push(socket.message().await);
    }
    events
}

pub fn of<'a>(events: &'a [Value], kind: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["type"] == kind).collect()
}

pub fn kinds(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["type"].as_str().expect("a type")).collect()
}

/// The deltas of an item, one after another.
pub fn deltas(events: &[Value], item: &Value) -> String {
    let own = events.iter().filter(|event| event["type"] == DELTA && event["item_id"] == *item);
    own.map(|event| event["delta"].as_str().expect("text")).collect()
}
