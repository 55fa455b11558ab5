//! Settings, formats, and events that are refused.

use serde_json::{Value, json};
use verbatim::live::Config;

use super::{
    APPEND, COMMIT, COMPLETED, PATH, append, at_rate, completed, configure, handshake, linear, manual, of,
    open, send, start,
};
use crate::socket::connect;
use crate::tones::utter;

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
    // A null beside the language is no language that it would replace.
    let both = json!({"transcription": {"language": "es", "languages": null}});
    assert_eq!(configure(&mut socket, both).await["transcription"]["language"], "es");
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
