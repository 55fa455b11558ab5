//! `wss /v1/realtime` over a real socket: transcription sessions as OpenAI's clients know them.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tempfile::TempDir;
use verbatim::live::Config;

use crate::program::Program;
use crate::server::{Setup, TestServer, client, new_key};
use crate::socket::{Handshake, Said, Socket, connect};
use crate::speech::{self, cache, word_errors};
use crate::tones::{FAILS, Listener, utter};

const PATH: &str = "/v1/realtime?intent=transcription";
const APPEND: &str = "input_audio_buffer.append";
const COMMIT: &str = "input_audio_buffer.commit";
const CLEAR: &str = "input_audio_buffer.clear";
const DELTA: &str = "conversation.item.input_audio_transcription.delta";
const COMPLETED: &str = "conversation.item.input_audio_transcription.completed";

async fn start(live: Config) -> TestServer {
    TestServer::start(Setup {
        live,
        organisations: 2,
        model: Some(Box::new(Listener::new())),
        ..Setup::default()
    })
    .await
}

async fn handshake(server: &TestServer, key: &str, path: &str) -> Handshake {
    connect(server.address, path, &[("authorization", &format!("Bearer {key}"))]).await
}

/// A session, and the event that it begins with.
async fn open(server: &TestServer) -> (Socket, Value) {
    let handshake = handshake(server, &server.key, PATH).await;
    let mut socket = handshake.socket.unwrap_or_else(|| panic!("{} {}", handshake.status, handshake.body));
    let created = socket.message().await;
    (socket, created)
}

async fn send(socket: &mut Socket, event: Value) {
    socket.text(&event.to_string()).await;
}

/// Sets `input`, and returns the input in effect.
async fn configure(socket: &mut Socket, input: Value) -> Value {
    let session = json!({"type": "transcription", "audio": {"input": input}});
    send(socket, json!({"type": "session.update", "session": session})).await;
    let updated = socket.message().await;
    assert_eq!(updated["type"], "session.updated", "{updated}");
    updated["session"]["audio"]["input"].clone()
}

/// A session whose client commits.
async fn manual(server: &TestServer) -> Socket {
    let (mut socket, _) = open(server).await;
    let input = configure(&mut socket, json!({"turn_detection": null})).await;
    assert_eq!(input["turn_detection"], Value::Null);
    socket
}

/// Samples at 16 kHz, at another rate: each the nearest.
fn at_rate(samples: &[i16], rate: usize) -> Vec<i16> {
    (0..samples.len() * rate / 16_000).map(|index| samples[index * 16_000 / rate]).collect()
}

fn linear(samples: &[i16]) -> Vec<u8> {
    at_rate(samples, 24_000).iter().flat_map(|sample| sample.to_le_bytes()).collect()
}

async fn append(socket: &mut Socket, bytes: &[u8]) {
    // A tenth of a second each.
    for piece in bytes.chunks(4800) {
        send(socket, json!({"type": APPEND, "audio": STANDARD.encode(piece)})).await;
    }
}

/// Events up to the `count`th that completes an item.
async fn completed(socket: &mut Socket, count: usize) -> Vec<Value> {
    let mut events = Vec::new();
    while of(&events, COMPLETED).len() < count {
        events.push(socket.message().await);
    }
    events
}

fn of<'a>(events: &'a [Value], kind: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["type"] == kind).collect()
}

fn kinds(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["type"].as_str().expect("a type")).collect()
}

/// The deltas of an item, one after another.
fn deltas(events: &[Value], item: &Value) -> String {
    let own = events.iter().filter(|event| event["type"] == DELTA && event["item_id"] == *item);
    own.map(|event| event["delta"].as_str().expect("text")).collect()
}

#[tokio::test]
async fn speech_becomes_items_by_its_pauses() {
    let server = start(Config { hop_ms: 100, ..Config::default() }).await;
    let (mut socket, created) = open(&server).await;
    assert_eq!(
        (&created["type"], &created["session"]["type"]),
        (&json!("session.created"), &json!("transcription"))
    );
    assert!(created["session"]["id"].as_str().is_some_and(|id| id.starts_with("sess_")));
    assert_eq!(
        created["session"]["audio"]["input"]["turn_detection"],
        json!({"type": "server_vad", "threshold": 0.5, "prefix_padding_ms": 300, "silence_duration_ms": 500})
    );
    append(&mut socket, &linear(&utter(&[(0, 0.0, 0.5), (5, 0.5, 0.1), (6, 0.5, 0.9), (7, 0.5, 0.9)]))).await;
    let events = completed(&mut socket, 2).await;
    let said: Vec<&Value> = of(&events, COMPLETED).iter().map(|event| &event["transcript"]).collect();
    assert_eq!(said, ["W5, W6,", "W7,"]);

    let items: Vec<&Value> = of(&events, COMPLETED).iter().map(|event| &event["item_id"]).collect();
    assert_ne!(items[0], items[1]);
    for (number, item) in items.iter().enumerate() {
        assert_eq!(deltas(&events, item), said[number].as_str().expect("text"));
        let own: Vec<Value> = events
            .iter()
            .filter(|event| event["item_id"] == **item || event["item"]["id"] == **item)
            .cloned()
            .collect();
        let own: Vec<&str> = kinds(&own).into_iter().filter(|kind| *kind != DELTA).collect();
        assert_eq!(
            own,
            [
                "input_audio_buffer.speech_started",
                "input_audio_buffer.speech_stopped",
                "input_audio_buffer.committed",
                "conversation.item.added",
                "conversation.item.done",
                COMPLETED,
            ]
        );
    }
    let committed = of(&events, "input_audio_buffer.committed");
    assert_eq!(
        (&committed[0]["previous_item_id"], &committed[1]["previous_item_id"]),
        (&Value::Null, items[0])
    );
    let started =
        of(&events, "input_audio_buffer.speech_started")[0]["audio_start_ms"].as_u64().expect("a time");
    assert!((150..=250).contains(&started), "{started}");
    let stopped =
        of(&events, "input_audio_buffer.speech_stopped")[0]["audio_end_ms"].as_u64().expect("a time");
    assert!((2_050..=2_250).contains(&stopped), "{stopped}");
    let usage = &of(&events, COMPLETED)[0]["usage"];
    assert_eq!(usage["type"], "duration");
    assert_eq!(usage["seconds"].as_f64().expect("a number"), (stopped - started) as f64 / 1000.0);
    assert_eq!(of(&events, COMPLETED)[0]["languages"], json!([{"code": "en"}]));
    let item = &of(&events, "conversation.item.added")[0]["item"];
    assert_eq!((&item["role"], &item["content"][0]["type"]), (&json!("user"), &json!("input_audio")));
    let mut ids: Vec<&str> = events.iter().map(|event| event["event_id"].as_str().expect("an id")).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), events.len());
}

#[tokio::test]
async fn deltas_come_while_speech_goes_on_and_add_up() {
    let server = start(Config { hop_ms: 100, ..Config::default() }).await;
    let (mut socket, _) = open(&server).await;
    configure(&mut socket, json!({"transcription": {"delay": "minimal"}})).await;
    let words: Vec<(u8, f64, f64)> = (5..=12).map(|word| (word, 0.4, 0.1)).chain([(13, 0.4, 1.0)]).collect();
    let audio = linear(&utter(&words));
    let mut events: Vec<Value> = Vec::new();
    // One piece at a time, each answered before the next: the pace is that of the server.
    for (piece, audio) in audio.chunks(9600).enumerate() {
        send(&mut socket, json!({"type": APPEND, "audio": STANDARD.encode(audio)})).await;
        // When most of it was said, some of it has come.
        let wanted = usize::from(piece >= 18);
        while of(&events, DELTA).len() < wanted {
            socket.frame(0x89, b"?").await;
            match socket.said().await {
                Said::Message(message) => events.push(message),
                Said::Pong(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }
    assert!(of(&events, COMPLETED).is_empty(), "{events:?}");
    loop {
        match socket.said().await {
            Said::Message(message) => events.push(message),
            Said::Pong(_) => continue,
            other => panic!("{other:?}"),
        }
        if !of(&events, COMPLETED).is_empty() {
            break;
        }
    }
    let last = of(&events, COMPLETED)[0];
    let all: Vec<String> = (5..=13).map(|word| format!("W{word},")).collect();
    assert_eq!(last["transcript"], all.join(" "));
    assert_eq!(deltas(&events, &last["item_id"]), all.join(" "));
    assert!(of(&events, DELTA).len() > 1);
}

#[tokio::test]
async fn the_client_commits_where_turns_are_not_detected() {
    let server = start(Config::default()).await;
    let mut socket = manual(&server).await;
    for _ in 0..2 {
        send(&mut socket, json!({"type": COMMIT, "event_id": "too early"})).await;
        let error = socket.message().await;
        assert_eq!(
            (&error["type"], &error["error"]["type"]),
            (&json!("error"), &json!("invalid_request_error"))
        );
        assert_eq!(error["error"]["code"], "input_audio_buffer_commit_empty");
        assert_eq!(error["error"]["event_id"], "too early");
        append(&mut socket, &linear(&utter(&[(5, 0.05, 0.0)]))).await;
    }
    // A pause ends nothing.
    append(&mut socket, &linear(&utter(&[(5, 0.5, 1.5), (6, 0.5, 0.1)]))).await;
    send(&mut socket, json!({"type": COMMIT})).await;
    append(&mut socket, &linear(&utter(&[(7, 0.5, 0.1)]))).await;
    send(&mut socket, json!({"type": COMMIT})).await;
    let events = completed(&mut socket, 2).await;
    let said: Vec<&Value> = of(&events, COMPLETED).iter().map(|event| &event["transcript"]).collect();
    assert_eq!(said, ["W5, W6,", "W7,"]);
    let ids = |kind: &str| -> Vec<Value> {
        of(&events, kind).iter().map(|event| event["item_id"].clone()).collect()
    };
    assert_eq!(ids("input_audio_buffer.committed"), ids(COMPLETED));
    assert!(of(&events, "input_audio_buffer.speech_started").is_empty());
    let seconds = of(&events, COMPLETED)[1]["usage"]["seconds"].as_f64().expect("a number");
    assert!((seconds - 0.6).abs() < 0.01, "{seconds}");
}

#[tokio::test]
async fn what_is_cleared_is_not_transcribed() {
    let server = start(Config::default()).await;
    let mut socket = manual(&server).await;
    send(&mut socket, json!({"type": CLEAR})).await;
    assert_eq!(socket.message().await["type"], "input_audio_buffer.cleared");
    append(&mut socket, &linear(&utter(&[(5, 0.5, 0.3)]))).await;
    send(&mut socket, json!({"type": CLEAR})).await;
    append(&mut socket, &linear(&utter(&[(6, 0.5, 0.3)]))).await;
    send(&mut socket, json!({"type": COMMIT})).await;
    let events = completed(&mut socket, 1).await;
    assert_eq!(of(&events, "input_audio_buffer.cleared").len(), 1);
    assert_eq!(of(&events, COMPLETED)[0]["transcript"], "W6,");
    let item = of(&events, COMPLETED)[0]["item_id"].clone();
    assert_eq!(deltas(&events, &item), "W6,");
    assert_eq!(of(&events, DELTA).len(), 1, "{events:?}");
}

/// μ-law by its definition (ITU-T G.711): the code whose value is nearest.
fn mulaw(sample: i16) -> u8 {
    let value = |code: u8| {
        let code = !code;
        let magnitude = ((i32::from(code & 0x0F) * 2 + 33) << ((code >> 4) & 7)) - 33;
        4 * if code & 0x80 == 0 { magnitude } else { -magnitude }
    };
    (0..=255).min_by_key(|&code| (value(code) - i32::from(sample)).abs()).expect("codes")
}

/// A-law likewise.
fn alaw(sample: i16) -> u8 {
    let value = |code: u8| {
        let code = code ^ 0x55;
        let (exponent, mantissa) = ((code >> 4) & 7, i32::from(code & 0x0F));
        let magnitude = if exponent == 0 { mantissa * 2 + 1 } else { (mantissa * 2 + 33) << (exponent - 1) };
        8 * if code & 0x80 != 0 { magnitude } else { -magnitude }
    };
    (0..=255).min_by_key(|&code| (value(code) - i32::from(sample)).abs()).expect("codes")
}

#[tokio::test]
async fn audio_comes_in_three_formats() {
    let server = start(Config::default()).await;
    let samples = utter(&[(5, 0.5, 0.1), (9, 0.5, 0.2)]);
    for (format, encode) in [("audio/pcmu", mulaw as fn(i16) -> u8), ("audio/pcma", alaw)] {
        let mut socket = manual(&server).await;
        let input = configure(&mut socket, json!({"format": {"type": format}})).await;
        assert_eq!(input["format"], json!({"type": format}));
        let bytes: Vec<u8> = at_rate(&samples, 8_000).into_iter().map(encode).collect();
        append(&mut socket, &bytes).await;
        send(&mut socket, json!({"type": COMMIT})).await;
        let events = completed(&mut socket, 1).await;
        assert_eq!(of(&events, COMPLETED)[0]["transcript"], "W5, W9,", "{format}");
        assert_eq!(of(&events, COMPLETED)[0]["usage"]["seconds"], 1.3);
        // The stream has its format now.
        let session = json!({"type": "transcription", "audio": {"input": {"format": {"type": "audio/pcm"}}}});
        send(&mut socket, json!({"type": "session.update", "session": session})).await;
        assert_eq!(socket.message().await["error"]["param"], "session.audio.input.format");
    }
}

#[tokio::test]
async fn settings_are_merged_and_shown_as_they_are() {
    let server = start(Config::default()).await;
    let (mut socket, _) = open(&server).await;
    let first = json!({
        "transcription": {"model": "gpt-4o-transcribe", "language": "es", "prompt": "Hola."},
        "turn_detection": {"type": "server_vad", "threshold": 0.25, "silence_duration_ms": 700},
        "noise_reduction": {"type": "near_field"},
    });
    configure(&mut socket, first).await;
    let input =
        configure(&mut socket, json!({"transcription": {"prompt": null, "keywords": ["Verbatim"]}})).await;
    assert_eq!(
        input["transcription"],
        json!({
            "model": "gpt-4o-transcribe", "language": "es", "prompt": null, "keywords": ["Verbatim"],
        })
    );
    assert_eq!(
        input["turn_detection"],
        json!({"type": "server_vad", "threshold": 0.25, "prefix_padding_ms": 300, "silence_duration_ms": 700})
    );
    assert_eq!(input["noise_reduction"], Value::Null);
    let input =
        configure(&mut socket, json!({"turn_detection": {"type": "semantic_vad", "eagerness": "high"}}))
            .await;
    assert_eq!(input["turn_detection"], json!({"type": "semantic_vad", "eagerness": "high"}));

    // Clients of these commit by themselves, and say so by the model alone.
    for model in ["gpt-realtime-whisper", "gpt-live-transcribe"] {
        let path = format!("{PATH}&model={model}");
        let mut socket = handshake(&server, &server.key, &path).await.socket.expect("agreed");
        let created = socket.message().await;
        assert_eq!(created["session"]["audio"]["input"]["turn_detection"], Value::Null, "{created}");
        assert_eq!(created["session"]["audio"]["input"]["transcription"]["model"], model);
    }
}

#[tokio::test]
async fn settings_change_while_audio_comes() {
    let server = start(Config::default()).await;
    let (mut socket, _) = open(&server).await;
    append(&mut socket, &linear(&utter(&[(5, 0.5, 0.9)]))).await;
    assert_eq!(completed(&mut socket, 1).await.last().expect("an event")["transcript"], "W5,");
    let include = json!({"type": "transcription", "include": ["item.input_audio_transcription.logprobs"]});
    send(&mut socket, json!({"type": "session.update", "session": include})).await;
    assert_eq!(socket.message().await["session"]["include"].as_array().map(Vec::len), Some(1));
    configure(&mut socket, json!({"turn_detection": null})).await;
    append(&mut socket, &linear(&utter(&[(6, 0.5, 0.9), (7, 0.5, 0.9)]))).await;
    send(&mut socket, json!({"type": COMMIT})).await;
    let events = completed(&mut socket, 1).await;
    let last = of(&events, COMPLETED)[0];
    assert_eq!(last["transcript"], "W6, W7,");
    let tokens = last["logprobs"].as_array().expect("a list");
    let text: String = tokens.iter().map(|token| token["token"].as_str().expect("text")).collect();
    assert_eq!(text.trim(), "W6, W7,");
    let logarithm = tokens[0]["logprob"].as_f64().expect("a number");
    assert!((logarithm - 0.9f64.ln()).abs() < 1e-3, "{logarithm}");
    assert_eq!(tokens[0]["bytes"].as_array().map(Vec::len), tokens[0]["token"].as_str().map(str::len));
}

#[tokio::test]
async fn events_that_are_not_available_are_answered_and_the_session_goes_on() {
    let server = start(Config::default()).await;
    let (mut socket, _) = open(&server).await;
    let input = |input: Value| json!({"type": "transcription", "audio": {"input": input}});
    let update = |session: Value| json!({"type": "session.update", "session": session});
    let many = json!(vec!["en"; 101]);
    for (event, param) in [
        (json!({}), "type"),
        (json!({"type": 7}), "type"),
        (json!({"type": "response.create"}), "type"),
        (json!({"type": "response.cancel"}), "type"),
        (json!({"type": "conversation.item.create", "item": {"type": "message"}}), "type"),
        (json!({"type": "output_audio_buffer.clear"}), "type"),
        (json!({"type": "session.created"}), "type"),
        (json!({"type": APPEND}), "audio"),
        (json!({"type": APPEND, "audio": "not base64!"}), "audio"),
        (json!({"type": APPEND, "audio": {"a": 1}}), "audio"),
        (json!({"type": "session.update"}), "session"),
        (update(json!({})), "session.type"),
        (update(json!({"type": "realtime", "voice": "alloy"})), "session.type"),
        (update(json!({"type": "transcription", "tools": []})), "session"),
        (update(json!({"type": "transcription", "include": ["item.everything"]})), "session.include"),
        (
            update(input(json!({"format": {"type": "audio/pcm", "rate": 44_100}}))),
            "session.audio.input.format.rate",
        ),
        (update(input(json!({"transcription": {"language": "xx"}}))), "transcription.language"),
        (update(input(json!({"transcription": {"languages": many}}))), "transcription.languages"),
        (update(input(json!({"transcription": {"prompt": "x".repeat(9000)}}))), "transcription.prompt"),
        (update(input(json!({"transcription": {"model": ""}}))), "transcription.model"),
        (
            update(input(json!({"transcription": {"model": "gpt-4o-transcribe-diarize"}}))),
            "transcription.model",
        ),
        (update(input(json!({"transcription": {"keywords": ["a ".repeat(600)]}}))), "transcription.keywords"),
        (
            update(input(json!({"turn_detection": {"type": "server_vad", "threshold": 1.5}}))),
            "turn_detection.threshold",
        ),
        (
            update(input(json!({"turn_detection": {"type": "server_vad", "silence_duration_ms": 90_000}}))),
            "turn_detection",
        ),
        (
            json!({"type": "transcription_session.update", "session": {"input_audio_format": "mp3"}}),
            "session",
        ),
    ] {
        let mut named = event.clone();
        named["event_id"] = "mine".into();
        send(&mut socket, named).await;
        let error = socket.message().await;
        assert_eq!(
            (&error["type"], &error["error"]["param"]),
            (&json!("error"), &json!(param)),
            "{event}: {error}"
        );
        assert_eq!(
            (&error["error"]["type"], &error["error"]["event_id"]),
            (&json!("invalid_request_error"), &json!("mine"))
        );
        assert!(
            error["error"]["message"].as_str().is_some_and(|text| (10..500).contains(&text.len())),
            "{error}"
        );
    }
    for text in ["", "hello", "[1", "\"x\"", "null", "\u{0}", &"[".repeat(2000)] {
        socket.text(text).await;
        assert_eq!(socket.message().await["error"]["code"], "invalid_event", "{text:?}");
    }
    socket.audio(&[1, 2, 3]).await;
    assert_eq!(socket.message().await["error"]["code"], "invalid_event");
    append(&mut socket, &linear(&utter(&[(5, 0.5, 0.9)]))).await;
    assert_eq!(completed(&mut socket, 1).await.last().expect("an event")["transcript"], "W5,");
}

#[tokio::test]
async fn handshakes_are_refused_before_the_upgrade() {
    let server = start(Config { max_streams: 1, ..Config::default() }).await;
    let key = server.key.clone();
    assert_eq!(connect(server.address, PATH, &[]).await.status, 401);
    assert_eq!(handshake(&server, "org_wrong", PATH).await.status, 401);
    let offered = [("sec-websocket-protocol", "realtime, openai-insecure-api-key.org_wrong")];
    assert_eq!(connect(server.address, PATH, &offered).await.status, 401);
    for query in ["intent=conversation", "call_id=rtc_1", &format!("model={}", "x".repeat(300))] {
        assert_eq!(handshake(&server, &key, &format!("/v1/realtime?{query}")).await.status, 400, "{query}");
    }
    let plain = client().get(server.url(PATH)).bearer_auth(&key);
    assert_eq!(plain.send().await.expect("an answer").status(), 426);
    let posted = client().post(server.url(PATH)).bearer_auth(&key);
    assert_eq!(posted.send().await.expect("an answer").status(), 405);

    let (first, _) = open(&server).await;
    let full = handshake(&server, &key, PATH).await;
    assert!(full.status == 503 && full.header("retry-after").is_some());
    drop(first);
}

#[tokio::test]
async fn browsers_offer_their_key_as_a_subprotocol() {
    let server = start(Config::default()).await;
    let key = &server.key;
    for (offered, beta) in [
        (format!("realtime, openai-insecure-api-key.{key}"), false),
        (format!("realtime,openai-insecure-api-key.{key},openai-beta.realtime-v1"), true),
    ] {
        let handshake = connect(server.address, PATH, &[("sec-websocket-protocol", &offered)]).await;
        assert_eq!((handshake.status, handshake.header("sec-websocket-protocol")), (101, Some("realtime")));
        let created = handshake.socket.expect("agreed").message().await;
        let expected = if beta { "transcription_session.created" } else { "session.created" };
        assert_eq!(created["type"], expected);
    }
}

#[tokio::test]
async fn the_older_beta_has_its_own_shape() {
    let server = start(Config::default()).await;
    let bearer = format!("Bearer {}", server.key);
    let headers = [("authorization", bearer.as_str()), ("openai-beta", "realtime=v1")];
    let mut socket = connect(server.address, PATH, &headers).await.socket.expect("agreed");
    let created = socket.message().await;
    assert_eq!(created["type"], "transcription_session.created");
    assert_eq!(created["session"]["input_audio_format"], "pcm16");
    let session = json!({
        "input_audio_format": "g711_ulaw",
        "input_audio_transcription": {"model": "gpt-4o-transcribe", "language": "en"},
        "turn_detection": {"type": "server_vad", "silence_duration_ms": 400},
    });
    send(&mut socket, json!({"type": "transcription_session.update", "session": session})).await;
    let updated = socket.message().await;
    assert_eq!(updated["type"], "transcription_session.updated");
    assert_eq!(updated["session"]["input_audio_format"], "g711_ulaw");
    assert_eq!(updated["session"]["turn_detection"]["silence_duration_ms"], 400);
    let samples = utter(&[(5, 0.5, 0.9)]);
    let bytes: Vec<u8> = at_rate(&samples, 8_000).into_iter().map(mulaw).collect();
    append(&mut socket, &bytes).await;
    let events = completed(&mut socket, 1).await;
    assert_eq!(of(&events, COMPLETED)[0]["transcript"], "W5,");
    assert_eq!(of(&events, "conversation.item.created").len(), 1);
    assert!(of(&events, "conversation.item.added").is_empty());
}

#[tokio::test]
async fn two_organisations_have_their_own_words_and_their_share() {
    let server = start(Config { max_streams: 5, ..Config::default() }).await;
    let mut first = handshake(&server, &server.key, PATH).await.socket.expect("agreed");
    let mut second = handshake(&server, &server.others[0], PATH).await.socket.expect("agreed");
    for _ in 0..2 {
        append(&mut first, &linear(&utter(&[(5, 0.5, 0.9)]))).await;
        append(&mut second, &linear(&utter(&[(9, 0.5, 0.9)]))).await;
    }
    for (socket, expected) in [(&mut first, "W5,"), (&mut second, "W9,")] {
        let events = completed(socket, 2).await;
        assert!(of(&events, COMPLETED).iter().all(|event| event["transcript"] == expected), "{events:?}");
    }
    let mut held = Vec::new();
    let refused = loop {
        let mut handshake = handshake(&server, &server.key, PATH).await;
        match handshake.socket.take() {
            Some(socket) => held.push(socket),
            None => break handshake,
        }
    };
    assert_eq!(refused.status, 429);
}

#[tokio::test]
async fn a_client_that_takes_nothing_in_is_cut_off() {
    let server = start(Config { write_timeout_ms: 100, ..Config::default() }).await;
    let (mut socket, _) = open(&server).await;
    let flood = async {
        loop {
            socket.text("nonsense").await;
        }
    };
    let cut = async {
        while server.live.streams() > 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        () = flood => unreachable!("it goes on for ever"),
        () = cut => {}
    }
}

#[tokio::test]
async fn clients_that_are_silent_or_say_too_much_are_closed() {
    let limits =
        Config { realtime_idle_timeout_ms: 200, realtime_message_bytes_max: 10_000, ..Config::default() };
    let server = start(limits).await;
    let (mut silent, _) = open(&server).await;
    assert!(matches!(silent.said().await, Said::Close(1011, _)));
    let (mut large, _) = open(&server).await;
    send(&mut large, json!({"type": APPEND, "audio": "A".repeat(12_000)})).await;
    assert!(matches!(large.said().await, Said::Close(1009, _)));
}

#[tokio::test]
async fn a_drain_transcribes_everything_that_was_sent() {
    let server = start(Config::default()).await;
    let (mut detected, _) = open(&server).await;
    let mut committed = manual(&server).await;
    for socket in [&mut detected, &mut committed] {
        append(socket, &linear(&utter(&[(5, 0.5, 0.1)]))).await;
        // So that the audio is surely there before the end.
        socket.frame(0x89, b"").await;
        loop {
            match socket.said().await {
                Said::Pong(_) => break,
                Said::Message(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }
    let stopped = server.door.begin_to_stop();
    for mut socket in [detected, committed] {
        let (events, end) = socket.rest().await;
        assert_eq!(of(&events, COMPLETED)[0]["transcript"], "W5,");
        assert!(matches!(end, Said::Close(1001, _)), "{end:?}");
    }
    stopped.await.expect("no panic").expect("served");
}

#[tokio::test]
async fn items_that_the_model_fails_on_are_named() {
    let server = start(Config::default()).await;
    let mut socket = manual(&server).await;
    append(&mut socket, &linear(&utter(&[(FAILS, 0.5, 0.5)]))).await;
    send(&mut socket, json!({"type": COMMIT})).await;
    let (events, end) = socket.rest().await;
    let failed = of(&events, "conversation.item.input_audio_transcription.failed");
    assert_eq!(failed.len(), 1, "{events:?}");
    assert_eq!(failed[0]["item_id"], of(&events, "input_audio_buffer.committed")[0]["item_id"]);
    assert!(!events.iter().any(|event| event.to_string().contains("script")), "{events:?}");
    assert_eq!(events.last().expect("an event")["type"], "error");
    assert!(matches!(end, Said::Close(1011, _)), "{end:?}");
}

/// The built program hears real speech, by its pauses and by commits.
#[tokio::test]
async fn real_speech_is_transcribed_by_the_program() {
    let said = "He might even have been made amiable himself.";
    let state = TempDir::new().expect("a folder");
    let key = new_key(state.path());
    let program = Program::start(state.path(), &cache("models/tiny.en"), "").await;
    let clip = speech::read("speech/austen_0930.wav");
    let mut samples: Vec<i16> = clip.samples().iter().map(|sample| (sample * 32_767.0) as i16).collect();
    samples.extend([0; 16_000]);
    let bearer = format!("Bearer {key}");
    for detects in [true, false] {
        let handshake = connect(program.address, PATH, &[("authorization", &bearer)]).await;
        let mut socket = handshake.socket.expect("agreed");
        socket.message().await;
        if !detects {
            configure(&mut socket, json!({"turn_detection": null})).await;
        }
        append(&mut socket, &linear(&samples)).await;
        if !detects {
            send(&mut socket, json!({"type": COMMIT})).await;
        }
        let mut events = completed(&mut socket, 1).await;
        // A pause within the sentence may make two of it.
        while detects
            && of(&events, COMPLETED)
                .iter()
                .map(|event| event["transcript"].as_str().map_or(0, str::len))
                .sum::<usize>()
                < 40
        {
            events.extend(completed(&mut socket, 1).await);
        }
        let heard: Vec<&str> =
            of(&events, COMPLETED).iter().map(|event| event["transcript"].as_str().expect("text")).collect();
        assert!(word_errors(said, &heard.join(" ")) <= 1, "{heard:?}");
        for event in of(&events, COMPLETED) {
            assert_eq!(deltas(&events, &event["item_id"]), event["transcript"].as_str().expect("text"));
        }
    }
    program.stop().await;
}
