//! `/v2/speak`: turns that follow each other, an interruption, and what is refused.

use serde_json::{Value, json};

use crate::server::client;
use crate::socket::{Handshake, Said, Socket, connect};
use crate::speak::{PATIENCE, Server, assert_said, body, send};

const FOX: &str = "The quick brown fox jumps over the lazy dog.";
const RAW: &str = "encoding=linear16&sample_rate=16000";

async fn handshake(server: &Server, query: &str) -> Handshake {
    let token = format!("Token {}", server.key);
    connect(server.program.address, &format!("/v2/speak?{query}"), &[("authorization", &token)]).await
}

async fn session(server: &Server) -> Socket {
    let handshake = handshake(server, &format!("model=flux-alexis-en&{RAW}")).await;
    let mut socket = handshake.socket.unwrap_or_else(|| panic!("{}: {}", handshake.status, handshake.body));
    let connected = socket.message().await;
    assert_eq!((&connected["type"], &connected["model_name"]), (&json!("Connected"), &json!("af_heart")));
    socket
}

/// The audio up to the next message, and the message.
async fn next(socket: &mut Socket) -> (Vec<u8>, Value) {
    let mut audio = Vec::new();
    loop {
        match tokio::time::timeout(PATIENCE, socket.said()).await.expect("in time") {
            Said::Audio(bytes) => audio.extend(bytes),
            Said::Message(message) => return (audio, message),
            Said::Ping(_) | Said::Pong(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn turns_follow_each_other_and_add_up() {
    let server = Server::start(&[]).await;
    let mut socket = session(&server).await;
    let lines = [FOX, "Please call again tomorrow morning."];
    // The second turn waits for the first.
    for line in lines {
        for word in line.split_inclusive(' ') {
            send(&mut socket, json!({"type": "Speak", "text": word})).await;
        }
        send(&mut socket, json!({"type": "Flush"})).await;
    }
    let (mut ids, mut sum) = (Vec::new(), 0);
    for line in lines {
        let (none, started) = next(&mut socket).await;
        assert_eq!((none.len(), &started["type"]), (0, &json!("SpeechStarted")));
        let (audio, flushed) = next(&mut socket).await;
        assert_eq!(flushed, json!({"type": "Flushed", "speech_id": started["speech_id"]}));
        let (none, told) = next(&mut socket).await;
        assert_eq!(
            (none.len(), &told["type"], &told["speech_id"]),
            (0, &json!("SpeechMetadata"), &started["speech_id"])
        );
        assert_eq!(told["input_character_count"], line.chars().count());
        let milliseconds = told["audio_duration_ms"].as_u64().expect("a number");
        assert!(milliseconds.abs_diff(audio.len() as u64 / 32) < 20, "{told}, and {} bytes", audio.len());
        assert_said(line, line, &server.heard(RAW, audio).await);
        ids.push(started["speech_id"].clone());
        sum += milliseconds;
    }
    assert_ne!(ids[0], ids[1]);
    // A turn without a word, then a wrong pace, then the end.
    send(&mut socket, json!({"type": "Flush"})).await;
    assert_eq!(next(&mut socket).await.1["code"], "NO_ACTIVE_SPEECH");
    send(&mut socket, json!({"type": "Speak", "text": "... !"})).await;
    send(&mut socket, json!({"type": "Flush"})).await;
    for (name, value) in [
        ("type", "SpeechStarted"),
        ("code", "NO_SYNTHESIZABLE_TEXT"),
        ("type", "Flushed"),
        ("type", "SpeechMetadata"),
    ] {
        let (audio, message) = next(&mut socket).await;
        assert_eq!((audio.len(), &message[name]), (0, &json!(value)), "{message}");
    }
    for (speed, code) in [(0.4, "SPEED_OUT_OF_RANGE"), (1.02, "SPEED_INCREMENT_INVALID")] {
        send(&mut socket, json!({"type": "Configure", "speed": speed})).await;
        let failure = next(&mut socket).await.1;
        assert_eq!((&failure["type"], &failure["code"]), (&json!("ConfigureFailure"), &json!(code)));
        assert_eq!((&failure["field"], &failure["value"]), (&json!("speed"), &json!(speed)));
    }
    send(&mut socket, json!({"type": "Configure", "speed": 0.95})).await;
    assert_eq!(next(&mut socket).await.1, json!({"type": "ConfigureSuccess", "applied": {"speed": 0.95}}));
    send(&mut socket, json!({"type": "Close"})).await;
    let sums = next(&mut socket).await.1;
    assert_eq!(
        (&sums["type"], sums["total_audio_duration_ms"].as_u64()),
        (&json!("SessionMetadata"), Some(sum))
    );
    assert_eq!(socket.said().await, Said::Close(1000, String::new()));
}

#[tokio::test]
async fn a_listener_who_cuts_in_is_told_what_was_heard() {
    let server = Server::start(&[]).await;
    let mut socket = session(&server).await;
    send(&mut socket, json!({"type": "Interrupt"})).await;
    assert_eq!(next(&mut socket).await.1["code"], "NO_AUDIO_GENERATED");
    let text = [FOX, "This is never said."].join(" ").repeat(8);
    send(&mut socket, json!({"type": "Speak", "text": text})).await;
    let started = next(&mut socket).await.1;
    // Two seconds have come.
    let mut come = 0;
    while come < 64_000 {
        match tokio::time::timeout(PATIENCE, socket.said()).await.expect("in time") {
            Said::Audio(bytes) => come += bytes.len(),
            Said::Ping(_) => {}
            other => panic!("{other:?}"),
        }
    }
    let offset = json!({"type": "time_ms", "value": 1000});
    send(&mut socket, json!({"type": "Interrupt", "playback_offset": offset})).await;
    let (_, cut) = next(&mut socket).await;
    assert_eq!((&cut["type"], &cut["audio_played_ms"]), (&json!("SpeechInterrupted"), &json!(1000)), "{cut}");
    assert_eq!(cut["metadata"]["speech_id"], started["speech_id"]);
    let spoken = cut["text_spoken"].as_str().expect("text");
    let remaining = cut["text_remaining"].as_str().expect("text");
    assert!(spoken.starts_with("The quick") && spoken.len() < 40, "{spoken}");
    assert_eq!(format!("{spoken} {remaining}"), text);
    // The next turn is as if nothing had been.
    send(&mut socket, json!({"type": "Interrupt", "playback_offset": offset})).await;
    assert_eq!(next(&mut socket).await.1["code"], "INVALID_INTERRUPT_OFFSET");
    send(&mut socket, json!({"type": "Speak", "text": FOX})).await;
    send(&mut socket, json!({"type": "Close"})).await;
    assert_eq!(next(&mut socket).await.1["type"], "SpeechStarted");
    let (audio, _) = next(&mut socket).await;
    assert_said("after it", FOX, &server.heard(RAW, audio).await);
}

#[tokio::test]
async fn what_cannot_be_a_session_is_refused_with_the_reason() {
    let server = Server::start(&[]).await;
    for (query, status) in [
        ("", 400),
        ("model=aura-2-thalia-en", 400),
        ("model=flux-alexis-de", 400),
        ("model=flux-alexis-en&encoding=mp3", 400),
        ("model=flux-alexis-en&speed=0.4", 400),
        ("model=flux-alexis-en&expressivity=3", 400),
    ] {
        let refused = handshake(&server, query).await;
        assert_eq!(refused.status, status, "{query}: {}", refused.body);
        assert!(refused.header("dg-error").is_some(), "{query}");
    }
    let post = |query: &str| {
        let url = server.program.url(&format!("/v2/speak?{query}"));
        client()
            .post(url)
            .bearer_auth(&server.key)
            .header("content-type", "application/json")
            .timeout(PATIENCE)
            .body(json!({"text": FOX}).to_string())
            .send()
    };
    assert_eq!(post("").await.expect("an answer").status(), 400);
    let whole =
        post("model=flux-alexis-en&encoding=linear16&speed=0.6&priority=low").await.expect("an answer");
    assert_said("slow", FOX, &server.heard("", body(whole).await).await);
    for said in [json!({"type": "Sing"}).to_string(), "{".into()] {
        let mut socket = session(&server).await;
        socket.text(&said).await;
        assert_eq!(next(&mut socket).await.1["code"], "DATA-0000");
        assert!(matches!(socket.said().await, Said::Close(1008, _)));
    }
}
