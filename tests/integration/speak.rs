//! Text to speech by the built program: what it says, its own recogniser understands. The embedded voice speaks.

use std::time::Duration;

use reqwest::{RequestBuilder, Response};
use serde_json::{Value, json};
use tempfile::TempDir;
use verbatim::audio::{DecodeOptions, Limits, decode};

use crate::program::Program;
use crate::sdks;
use crate::server::{client, new_key};
use crate::socket::{Said, Socket, connect};
use crate::speech::{cache, word_errors};

const FOX: &str = "The quick brown fox jumps over the lazy dog.";
const OPEN: &str = "The office is open on Monday. Please call again tomorrow morning.";
/// For a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(240);

pub struct Server {
    pub program: Program,
    pub key: String,
    state: TempDir,
}

impl Server {
    pub async fn start(settings: &[(&str, &str)]) -> Self {
        let state = TempDir::new().expect("a folder");
        let key = new_key(state.path());
        let models = cache("models");
        let models = models.to_str().expect("text");
        let own = [("VERBATIM_MODEL_DIR", models), ("VERBATIM_STS__SPEECH__EMBEDDED", "kokoro")];
        let settings: Vec<_> = own.iter().chain(settings).copied().collect();
        let program = Program::start_with(state.path(), &cache("models/tiny.en"), &settings).await;
        Self { program, key, state }
    }

    pub fn speak(&self, query: &str, text: &str) -> RequestBuilder {
        let url = self.program.url(&format!("/v1/speak?{query}"));
        client()
            .post(url)
            .bearer_auth(&self.key)
            .header("content-type", "application/json")
            .body(json!({"text": text}).to_string())
            .timeout(PATIENCE)
    }

    fn openai(&self, body: &Value) -> RequestBuilder {
        client()
            .post(self.program.url("/v1/audio/speech"))
            .bearer_auth(&self.key)
            .header("content-type", "application/json")
            .body(body.to_string())
            .timeout(PATIENCE)
    }

    /// What the server itself hears; `query` describes bare samples.
    pub async fn heard(&self, query: &str, audio: Vec<u8>) -> String {
        let url = self.program.url(&format!("/v1/listen?{query}"));
        let sent = client().post(url).bearer_auth(&self.key).body(audio).timeout(PATIENCE).send().await;
        let answer: Value =
            serde_json::from_slice(&sent.expect("an answer").bytes().await.expect("a body")).expect("JSON");
        let transcript = &answer["results"]["channels"][0]["alternatives"][0]["transcript"];
        transcript.as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
    }

    pub async fn stream(&self, query: &str) -> Socket {
        let token = format!("Token {}", self.key);
        let path = format!("/v1/speak?{query}");
        let handshake = connect(self.program.address, &path, &[("authorization", &token)]).await;
        let mut socket =
            handshake.socket.unwrap_or_else(|| panic!("{}: {}", handshake.status, handshake.body));
        let metadata = socket.message().await;
        assert_eq!((&metadata["type"], &metadata["model_name"]), (&json!("Metadata"), &json!("af_heart")));
        socket
    }
}

pub async fn body(answer: Response) -> Vec<u8> {
    let status = answer.status();
    let body = answer.bytes().await.expect("a whole body").to_vec();
    assert!(status.is_success(), "{status}: {}", String::from_utf8_lossy(&body));
    body
}

fn header<'a>(answer: &'a Response, name: &str) -> &'a str {
    answer.headers().get(name).map_or("", |value| value.to_str().expect("text"))
}

pub fn assert_said(what: &str, said: &str, heard: &str) {
    assert!(word_errors(said, heard) <= 1, "{what}: {heard}");
}

/// Five sentences, each of which is a piece for the encoder.
const NOTICE: &str = "The office is open on Monday. Please call again tomorrow morning. We moved to the second floor. \
    The lift is out of order today. Thank you for your patience.";

#[tokio::test]
async fn an_mp3_is_as_long_as_its_speech() {
    let server = Server::start(&[]).await;
    let seconds = async |query: &str| {
        let bytes = body(server.speak(query, NOTICE).send().await.expect("an answer")).await;
        let options = DecodeOptions { raw: None, split_channels: false, limits: Limits::default() };
        decode(bytes.into(), &options).expect("audio").duration_seconds
    };
    let (mp3, wav) = (seconds("encoding=mp3").await, seconds("encoding=linear16").await);
    assert!((mp3 - wav).abs() < 0.08, "{mp3} s, and {wav} s of samples");
}

#[tokio::test]
async fn every_encoding_is_understood() {
    let server = Server::start(&[]).await;
    for (query, content_type, bare) in [
        ("", "audio/mpeg", ""),
        ("encoding=mp3&bit_rate=32000", "audio/mpeg", ""),
        ("encoding=linear16", "audio/wav", ""),
        (
            "encoding=linear16&container=none&sample_rate=48000",
            "audio/l16;rate=48000",
            "encoding=linear16&sample_rate=48000",
        ),
        ("encoding=linear16&sample_rate=8000", "audio/wav", ""),
        ("encoding=mulaw", "audio/wav", ""),
        ("encoding=mulaw&container=none", "audio/mulaw;rate=8000", "encoding=mulaw&sample_rate=8000"),
        (
            "encoding=alaw&container=none&sample_rate=16000",
            "audio/alaw;rate=16000",
            "encoding=alaw&sample_rate=16000",
        ),
        ("encoding=alaw", "audio/wav", ""),
        ("encoding=opus", "audio/ogg;codecs=opus", ""),
        ("encoding=opus&bit_rate=64000", "audio/ogg;codecs=opus", ""),
        ("encoding=flac", "audio/flac", ""),
        ("encoding=flac&sample_rate=16000", "audio/flac", ""),
        ("encoding=aac", "audio/aac", ""),
    ] {
        let answer = server.speak(query, FOX).send().await.expect("an answer");
        assert_eq!(header(&answer, "content-type"), content_type, "{query}");
        assert_eq!(header(&answer, "dg-char-count"), FOX.len().to_string(), "{query}");
        assert_eq!(header(&answer, "dg-model-name"), "af_heart", "{query}");
        assert!(header(&answer, "dg-model-uuid").len() == 36 && header(&answer, "dg-request-id").len() == 36);
        let audio = body(answer).await;
        assert_said(query, FOX, &server.heard(bare, audio).await);
    }
    // Several pieces, each of which may be an encoder's own stream.
    for query in ["encoding=mp3", "encoding=aac", "encoding=linear16", "encoding=flac", "encoding=opus"] {
        let audio = body(server.speak(query, OPEN).send().await.expect("an answer")).await;
        assert_said(query, OPEN, &server.heard("", audio).await);
    }
}

#[tokio::test]
async fn voices_differ_and_keep_the_pace_asked_for() {
    let server = Server::start(&[]).await;
    let samples = async |query: &str| {
        let query = format!("encoding=linear16&container=none&{query}");
        let answer = server.speak(&query, FOX).send().await.expect("an answer");
        let voice = header(&answer, "dg-model-name").to_owned();
        (voice, body(answer).await)
    };
    let (woman, heart) = samples("model=aura-2-thalia-en").await;
    let (man, michael) = samples("model=aura-2-zeus-en").await;
    assert_eq!((woman.as_str(), man.as_str()), ("af_heart", "am_michael"));
    assert_ne!(heart, michael);
    let (_, slow) = samples("speed=0.7").await;
    let (_, fast) = samples("speed=1.5").await;
    assert!(slow.len() as f64 > heart.len() as f64 * 1.2, "{} and {}", slow.len(), heart.len());
    assert!((fast.len() as f64) < heart.len() as f64 * 0.85, "{} and {}", fast.len(), heart.len());
}

#[tokio::test]
async fn what_cannot_be_spoken_is_refused_with_a_reason() {
    let server = Server::start(&[]).await;
    for (query, text, status, code, message) in [
        ("model=aura-2-celeste-es", FOX, 400, "Bad Request", "No such model/version combination found."),
        (
            "encoding=mp3&container=wav",
            FOX,
            400,
            "INVALID_QUERY_PARAMETER",
            "Unsupported audio format: `container`",
        ),
        ("encoding=wma", FOX, 400, "INVALID_QUERY_PARAMETER", "Failed to deserialize query parameters"),
        ("speed=3", FOX, 400, "INVALID_QUERY_PARAMETER", "0.7 to 1.5"),
        ("", " ", 400, "Bad Request", "Input text contains no characters."),
        (
            "",
            &"a".repeat(2001),
            413,
            "Payload Too Large",
            "Input text exceeds maximum character limit of 2000.",
        ),
    ] {
        let answer = server.speak(query, text).send().await.expect("an answer");
        assert_eq!(answer.status(), status, "{query}");
        let body: Value = serde_json::from_slice(&answer.bytes().await.expect("a body")).expect("JSON");
        assert_eq!(body["err_code"], code, "{query}");
        assert!(body["err_msg"].as_str().expect("text").contains(message), "{body}");
    }
    let post = || client().post(server.program.url("/v1/speak?encoding=linear16")).bearer_auth(&server.key);
    for (content_type, body, status) in [
        ("application/json", "{\"txt\": 1}", 400),
        ("application/json", "", 400),
        ("audio/wav", "x", 415),
        ("text/plain", "Hello there.", 200),
    ] {
        let answer = post().header("content-type", content_type).body(body).send().await.expect("an answer");
        assert_eq!(answer.status(), status, "{content_type}");
    }
    let open = client()
        .post(server.program.url("/v1/speak"))
        .header("content-type", "application/json")
        .body(json!({"text": FOX}).to_string());
    assert_eq!(open.send().await.expect("an answer").status(), 401);
}

#[tokio::test]
async fn a_long_text_is_heard_early_and_given_up_with_its_client() {
    let server = Server::start(&[("VERBATIM_SPEAK__HELD_CHARACTERS_MAX", "4096")]).await;
    let long = "This is one of many sentences that all take their time. ".repeat(35);
    let mut first = server.speak("encoding=linear16", &long).send().await.expect("an answer");
    assert_eq!(header(&first, "content-length"), "");
    let chunk = first.chunk().await.expect("audio").expect("a chunk");
    // A whole text of this length is more than a minute of speech, of 48 000 bytes a second.
    assert!(chunk.len() < 20 * 48_000, "{} bytes at once", chunk.len());
    let second = server.speak("encoding=linear16", &long).send().await.expect("an answer");
    assert_eq!(second.status(), 200);
    let third = server.speak("", &long).send().await.expect("an answer");
    assert_eq!(third.status(), 503);
    assert!(header(&third, "retry-after").parse::<u64>().is_ok_and(|seconds| (1..=120).contains(&seconds)));
    // Both clients leave: what they held is free again.
    drop((first, second));
    let accepted = async {
        while server.speak("encoding=linear16", &long).send().await.expect("an answer").status() != 200 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, accepted).await.expect("in time");
}

#[tokio::test]
async fn one_organisation_leaves_room_to_another() {
    let server = Server::start(&[("VERBATIM_SPEAK__HELD_CHARACTERS_MAX", "4096")]).await;
    let other = new_key(server.state.path());
    let long = "This is one of many sentences that all take their time. ".repeat(35);
    let post = |key: &str, text: &str| {
        let url = server.program.url("/v1/speak?encoding=linear16");
        client()
            .post(url)
            .bearer_auth(key)
            .header("content-type", "application/json")
            .body(json!({"text": text}).to_string())
            .timeout(PATIENCE)
    };
    // The other key is known once it is used.
    body(post(&other, "Hello.").send().await.expect("an answer")).await;
    let first = post(&server.key, &long).send().await.expect("an answer");
    assert_eq!(first.status(), 200);
    let second = post(&server.key, &long).send().await.expect("an answer");
    assert_eq!(second.status(), 429, "it holds its share");
    assert!(!header(&second, "retry-after").is_empty());
    let spoken = body(post(&other, FOX).send().await.expect("an answer")).await;
    assert_said("the other", FOX, &server.heard("", spoken).await);
    drop(first);
}

/// Audio until a message, and the message.
async fn until_message(socket: &mut Socket) -> (Vec<u8>, Value) {
    let mut audio = Vec::new();
    loop {
        match tokio::time::timeout(PATIENCE, socket.said()).await.expect("in time") {
            Said::Audio(bytes) => audio.extend(bytes),
            Said::Message(message) => return (audio, message),
            other => panic!("{other:?}"),
        }
    }
}

pub async fn send(socket: &mut Socket, message: Value) {
    socket.text(&message.to_string()).await;
}

#[tokio::test]
async fn a_stream_speaks_in_order_and_forgets_what_is_cleared() {
    let server = Server::start(&[]).await;
    let mut socket = server.stream("encoding=linear16&sample_rate=16000").await;
    for word in FOX.split_inclusive(' ') {
        send(&mut socket, json!({"type": "Speak", "text": word})).await;
    }
    send(&mut socket, json!({"type": "Flush"})).await;
    let (audio, flushed) = until_message(&mut socket).await;
    assert_eq!(flushed, json!({"type": "Flushed", "sequence_id": 0}));
    assert_said("flushed", FOX, &server.heard("encoding=linear16&sample_rate=16000", audio).await);

    send(&mut socket, json!({"type": "Speak", "text": "This is never said. Nor is ".repeat(20)})).await;
    send(&mut socket, json!({"type": "Flush"})).await;
    send(&mut socket, json!({"type": "Clear"})).await;
    let (_, cleared) = until_message(&mut socket).await;
    assert_eq!(cleared, json!({"type": "Cleared", "sequence_id": 1}));

    // A whole sentence needs no flush, and the rest is spoken before the close.
    send(&mut socket, json!({"type": "Speak", "text": OPEN})).await;
    send(&mut socket, json!({"type": "Close"})).await;
    let mut audio = Vec::new();
    let end = loop {
        match tokio::time::timeout(PATIENCE, socket.said()).await.expect("in time") {
            Said::Audio(bytes) => audio.extend(bytes),
            other => break other,
        }
    };
    assert_eq!(end, Said::Close(1000, String::new()));
    assert_said("closed", OPEN, &server.heard("encoding=linear16&sample_rate=16000", audio).await);
}

#[tokio::test]
async fn a_stream_has_limits_and_says_which() {
    let server = Server::start(&[]).await;
    let mut socket = server.stream("encoding=mulaw").await;
    for number in 0..20 {
        send(&mut socket, json!({"type": "Flush"})).await;
        assert_eq!(until_message(&mut socket).await.1, json!({"type": "Flushed", "sequence_id": number}));
    }
    send(&mut socket, json!({"type": "Flush"})).await;
    let (_, warning) = until_message(&mut socket).await;
    assert_eq!((&warning["type"], &warning["code"]), (&json!("Warning"), &json!("EXCESSIVE_FLUSH")));
    send(&mut socket, json!({"type": "Close"})).await;
    assert_eq!(socket.said().await, Said::Close(1000, String::new()));

    for (message, code, reason) in [
        (json!({"type": "Sing"}).to_string(), 1008, "DATA-0000"),
        ("not JSON".to_owned(), 1008, "DATA-0000"),
        (json!({"type": "Speak", "text": "a".repeat(2001)}).to_string(), 1009, "BIG-0001"),
        (json!({"type": "Speak", "text": "a".repeat(80_000)}).to_string(), 1009, "BIG-0000"),
    ] {
        let mut socket = server.stream("").await;
        socket.text(&message).await;
        let Said::Close(closed, why) = socket.said().await else { panic!("{message} is taken") };
        assert_eq!(closed, code, "{why}");
        assert!(why.starts_with(reason), "{why}");
    }
    let mut socket = server.stream("").await;
    socket.audio(b"sound").await;
    assert!(matches!(socket.said().await, Said::Close(1003, why) if why.starts_with("MESSAGE-0000")));

    for (query, status) in [("encoding=mp3", 400), ("model=nobody", 400), ("sample_rate=7", 400)] {
        let token = format!("Token {}", server.key);
        let path = format!("/v1/speak?{query}");
        let handshake = connect(server.program.address, &path, &[("authorization", &token)]).await;
        assert_eq!(handshake.status, status, "{query}");
        assert!(handshake.header("dg-error").is_some(), "{query}");
    }
}

#[tokio::test]
async fn openais_route_speaks_in_each_format() {
    let server = Server::start(&[]).await;
    for (format, content_type, bare) in [
        ("mp3", "audio/mpeg", ""),
        ("opus", "audio/opus", ""),
        ("aac", "audio/aac", ""),
        ("flac", "audio/flac", ""),
        ("wav", "audio/wav", ""),
        ("pcm", "audio/pcm", "encoding=linear16&sample_rate=24000"),
    ] {
        let body_of = json!({"model": "tts-1", "input": FOX, "voice": "onyx", "response_format": format});
        let answer = server.openai(&body_of).send().await.expect("an answer");
        assert_eq!(header(&answer, "content-type"), content_type);
        assert_eq!(header(&answer, "dg-model-name"), "am_michael");
        let audio = body(answer).await;
        assert_said(format, FOX, &server.heard(bare, audio).await);
    }
    let events = json!({
        "model": "gpt-4o-mini-tts", "input": OPEN, "voice": "alloy", "response_format": "pcm", "stream_format": "sse",
        "instructions": "Whisper.", "speed": 1.2,
    });
    let answer = server.openai(&events).send().await.expect("an answer");
    assert!(header(&answer, "content-type").starts_with("text/event-stream"));
    assert!(header(&answer, "x-verbatim-warning").contains("instructions"));
    let text = String::from_utf8(body(answer).await).expect("text");
    let mut audio = Vec::new();
    let mut done = Value::Null;
    for event in text.split_terminator("\n\n") {
        let event: Value = serde_json::from_str(event.strip_prefix("data: ").expect("data")).expect("JSON");
        assert!(done.is_null(), "after the end: {event}");
        match event["type"].as_str() {
            Some("speech.audio.delta") => {
                let piece = event["audio"].as_str().expect("text");
                audio.extend(data_encoding::BASE64.decode(piece.as_bytes()).expect("Base64"));
            }
            _ => done = event,
        }
    }
    assert_eq!(done["type"], "speech.audio.done");
    let tokens = done["usage"]["input_tokens"].as_u64().expect("a number") as usize;
    assert!((OPEN.split_whitespace().count()..OPEN.len()).contains(&tokens), "{tokens}");
    assert_said("events", OPEN, &server.heard("encoding=linear16&sample_rate=24000", audio).await);

    for (body_of, status, param) in [
        (json!({"model": "tts-1", "input": FOX}), 400, "voice"),
        (json!({"model": "tts-1", "input": FOX, "voice": "nobody"}), 400, "voice"),
        (json!({"model": "tts-1", "input": "a".repeat(4097), "voice": "alloy"}), 400, "input"),
        (json!({"model": "tts-1", "input": FOX, "voice": "alloy", "speed": 5}), 400, "speed"),
        (
            json!({"model": "tts-1", "input": FOX, "voice": "alloy", "response_format": "wma"}),
            400,
            "response_format",
        ),
    ] {
        let answer = server.openai(&body_of).send().await.expect("an answer");
        assert_eq!(answer.status(), status, "{body_of}");
        let body: Value = serde_json::from_slice(&answer.bytes().await.expect("a body")).expect("JSON");
        assert_eq!(body["error"]["param"], param, "{body}");
    }
}

#[tokio::test]
async fn sdks_hear_their_text() {
    let server = Server::start(&[]).await;
    let folder = TempDir::new().expect("a folder");
    let address = server.program.url("");
    let clients = [
        ("Python", Some(sdks::python("python", "speak.py"))),
        ("Node", sdks::node("speak.js")),
        ("Rust", Some(sdks::rust("speak-client"))),
    ];
    for (name, client) in clients {
        let Some(mut client) = client else { continue };
        sdks::text(client.args([&address, &server.key]).arg(folder.path())).await;
        let read = |file: &str| std::fs::read(folder.path().join(file)).expect("written");
        assert_said(name, FOX, &server.heard("", read("rest.wav")).await);
        let stream = server.heard("encoding=linear16&sample_rate=24000", read("stream.raw")).await;
        assert_said(name, FOX, &stream);
        // The Rust SDK has no client of turns that takes another address.
        if name != "Rust" {
            assert_said(name, FOX, &server.heard("", read("turn.wav")).await);
            let turns = server.heard("encoding=linear16&sample_rate=24000", read("turns.raw")).await;
            assert_said(name, FOX, &turns);
        }
    }
    let openai = [
        ("Python", Some(sdks::python("openai", "openai_speech.py"))),
        ("Node", sdks::node("openai-speech.js")),
    ];
    for (name, client) in openai {
        let Some(mut client) = client else { continue };
        sdks::text(client.args([&address, &server.key]).arg(folder.path())).await;
        let audio = std::fs::read(folder.path().join("speech.mp3")).expect("written");
        assert_said(name, FOX, &server.heard("", audio).await);
    }
}

/// What tests/sdks/speak_plugins.py has spoken.
const BOTH: &str = "The quick brown fox jumps over the lazy dog. The office is open on Monday, please call again tomorrow \
                    morning.";

#[tokio::test]
async fn plugins_hear_their_text_while_it_is_spoken() {
    let server = Server::start(&[]).await;
    let folder = TempDir::new().expect("a folder");
    let mut client = sdks::python("plugins", "speak_plugins.py");
    client.args([&server.program.url(""), &server.key]).arg(folder.path()).kill_on_drop(true);
    let output = tokio::time::timeout(PATIENCE, client.output()).await.expect("in time").expect("it starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let told = String::from_utf8(output.stdout).expect("text");
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(lines.len(), 8, "{told}{errors}");
    for line in lines {
        let (name, times) = line.split_once(' ').expect("a name");
        let times: Vec<f64> = times.split(' ').map(|time| time.parse().expect("seconds")).collect();
        // The first of three pieces is a third of the work.
        assert!(times[0] < times[1] * 0.85, "{line}: the first sound comes with the last");
        let audio = std::fs::read(folder.path().join(format!("{name}.wav"))).expect("written");
        let heard = server.heard("", audio).await;
        assert!(word_errors(BOTH, &heard) <= 2, "{name}: {heard}");
    }
}

#[tokio::test]
async fn a_client_that_waits_long_for_sound_is_pinged() {
    // A voice that takes in texts and never speaks.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let base = format!("http://{}/v1", silent.local_addr().expect("an address"));
    let settings =
        [("VERBATIM_STS__SPEECH__BASE_URL", base.as_str()), ("VERBATIM_STS__SPEECH__EMBEDDED", "none")];
    let server = Server::start(&settings).await;
    let token = format!("Token {}", server.key);
    let handshake = connect(server.program.address, "/v1/speak", &[("authorization", &token)]).await;
    let mut socket = handshake.socket.expect("a stream");
    assert_eq!(socket.message().await["type"], "Metadata");
    send(&mut socket, json!({"type": "Speak", "text": FOX})).await;
    send(&mut socket, json!({"type": "Flush"})).await;
    let end = tokio::time::timeout(PATIENCE, socket.said()).await.expect("in time");
    assert!(matches!(end, Said::Close(1011, _)), "{end:?}");
    assert!((1..=3).contains(&socket.pings), "{} pings", socket.pings);
}

#[tokio::test]
async fn an_sdks_client_owns_its_agent() {
    let server = Server::start(&[("VERBATIM_STS__SPEECH__EMBEDDED", "none")]).await;
    for client in [Some(sdks::python("python", "agent.py")), sdks::node("agent.js")] {
        let Some(mut client) = client else { continue };
        sdks::text(client.args([&server.program.url(""), &server.key])).await;
    }
}
