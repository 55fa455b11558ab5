//! Which words belong to which item, and which events say so.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tempfile::TempDir;
use verbatim::live::Config;

use super::{
    APPEND, CLEAR, COMMIT, COMPLETED, DELTA, PATH, append, completed, configure, deltas, kinds, linear,
    manual, of, open, send, start,
};
use crate::program::Program;
use crate::server::new_key;
use crate::socket::{Said, connect};
use crate::speech::{self, cache, word_errors};
use crate::tones::utter;

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

/// Without the model of turns a quarter of the longest silence ends one: half a second.
#[tokio::test]
async fn semantic_turns_last_over_short_pauses() {
    let server = start(Config { min_pause_ms: 200, ..Config::default() }).await;
    let (mut socket, _) = open(&server).await;
    configure(&mut socket, json!({"turn_detection": {"type": "semantic_vad", "eagerness": "high"}})).await;
    append(&mut socket, &linear(&utter(&[(5, 0.5, 0.4), (6, 0.5, 0.4), (7, 0.5, 1.5), (8, 0.5, 1.5)]))).await;
    let events = completed(&mut socket, 2).await;
    let said: Vec<&Value> = of(&events, COMPLETED).iter().map(|event| &event["transcript"]).collect();
    assert_eq!(said, ["W5, W6, W7,", "W8,"]);
    assert_eq!(of(&events, "input_audio_buffer.speech_started").len(), 2, "{events:?}");
    assert_eq!(of(&events, "input_audio_buffer.speech_stopped").len(), 2, "{events:?}");
}
