//! Who is let in, and how sessions end.

use serde_json::{Value, json};
use verbatim::live::Config;

use super::{
    APPEND, COMMIT, COMPLETED, PATH, append, completed, configure, handshake, linear, manual, of, open, send,
    start,
};
use crate::server::{TestServer, client};
use crate::socket::{Said, connect};
use crate::tones::{FAILS, utter};

#[tokio::test]
async fn handshakes_are_refused_before_the_upgrade() {
    let server = start(Config { max_streams: 1, ..Config::default() }).await;
    let key = server.key.clone();
    let unknown = connect(server.address, PATH, &[]).await;
    assert_eq!((unknown.status, &unknown.body["error"]["code"]), (401, &json!("invalid_api_key")));
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
    let full = handshake(&server, &server.others[0], PATH).await;
    assert!(full.status == 503 && full.header("retry-after").is_some(), "{} {}", full.status, full.body);
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
    server.send_until_cut(async || socket.text("nonsense").await).await;
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
    // Nothing is recognised before the commit.
    configure(&mut socket, json!({"transcription": {"delay": "xhigh"}})).await;
    append(&mut socket, &linear(&utter(&[(FAILS, 0.5, 0.5)]))).await;
    send(&mut socket, json!({"type": COMMIT})).await;
    let (events, end) = socket.rest().await;
    let failed = of(&events, "conversation.item.input_audio_transcription.failed");
    assert_eq!(failed.len(), 1, "{events:?}");
    assert_eq!(failed[0]["item_id"], of(&events, "input_audio_buffer.committed")[0]["item_id"]);
    assert!(!events.iter().any(|event| event.to_string().contains("as the script says")), "{events:?}");
    assert_eq!(events.last().expect("an event")["type"], "error");
    assert!(matches!(end, Said::Close(1011, _)), "{end:?}");
}

/// The answer of a path that makes secrets.
async fn make(server: &TestServer, key: &str, path: &str, body: &Value) -> (u16, Value) {
    let request = client().post(server.url(&format!("/v1/realtime/{path}"))).bearer_auth(key);
    let response = request.body(body.to_string()).send().await.expect("an answer");
    let status = response.status().as_u16();
    (status, serde_json::from_slice(&response.bytes().await.expect("a body")).expect("JSON"))
}

#[tokio::test]
async fn browsers_get_secrets_with_the_settings_of_their_session() {
    let server = start(Config::default()).await;
    let input =
        json!({"transcription": {"model": "gpt-4o-transcribe", "language": "es"}, "turn_detection": null});
    let session = json!({"type": "transcription", "audio": {"input": input}});
    let asked = json!({"session": session, "expires_after": {"anchor": "created_at", "seconds": 60}});
    let (status, made) = make(&server, &server.key, "client_secrets", &asked).await;
    assert_eq!((status, &made["session"]["type"]), (200, &json!("transcription")), "{made}");
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a time").as_secs();
    let expires = made["expires_at"].as_u64().expect("a time");
    assert!((now + 50..=now + 60).contains(&expires), "{expires} at {now}");
    let secret = made["value"].as_str().expect("a secret");
    assert!(secret.starts_with("ek_"), "{secret}");
    for (header, value) in [
        ("authorization", format!("Bearer {secret}")),
        ("sec-websocket-protocol", format!("realtime, openai-insecure-api-key.{secret}")),
    ] {
        let mut socket =
            connect(server.address, "/v1/realtime", &[(header, &value)]).await.socket.expect("agreed");
        let created = socket.message().await;
        let input = &created["session"]["audio"]["input"];
        assert_eq!(
            (&input["transcription"]["language"], &input["turn_detection"]),
            (&json!("es"), &Value::Null)
        );
    }
    // Nothing else takes it, and it makes no others.
    let listen = client().get(server.url("/v1/listen")).bearer_auth(secret);
    assert_eq!(listen.send().await.expect("an answer").status(), 401);
    assert_eq!(make(&server, secret, "client_secrets", &asked).await.0, 401);
    let token = secret.strip_prefix("ek_").expect("checked").rsplit_once('.').expect("settings").0;
    assert_eq!(make(&server, token, "client_secrets", &asked).await.0, 403);
    let changed = format!("Bearer ek_x{}", &secret[3..]);
    assert_eq!(connect(server.address, PATH, &[("authorization", &changed)]).await.status, 401);

    let beta = json!({
        "input_audio_format": "g711_alaw", "input_audio_transcription": {"model": "whisper-1"},
        "client_secret": {"expires_at": {"anchor": "created_at", "seconds": 30}},
    });
    let (status, made) = make(&server, &server.key, "transcription_sessions", &beta).await;
    assert_eq!((status, &made["input_audio_format"]), (200, &json!("g711_alaw")), "{made}");
    assert!(made["client_secret"]["value"].as_str().is_some_and(|value| value.starts_with("ek_")), "{made}");

    for (path, body, param) in [
        ("client_secrets", json!({"session": {"type": "realtime"}}), "session.type"),
        ("client_secrets", json!({"expires_after": {"seconds": 5}}), "expires_after.seconds"),
        ("client_secrets", json!({"expires_after": {"anchor": "now"}}), "expires_after.anchor"),
        ("client_secrets", json!({"session": {"type": "transcription", "voice": "x"}}), "session"),
        ("transcription_sessions", json!({"input_audio_format": "mp3"}), "session"),
        ("transcription_sessions", json!({"client_secret": {"expires_at": 7}}), "client_secret.expires_at"),
    ] {
        let (status, refused) = make(&server, &server.key, path, &body).await;
        assert_eq!((status, &refused["error"]["param"]), (400, &json!(param)), "{body}: {refused}");
    }
    assert_eq!(make(&server, "org_wrong", "client_secrets", &asked).await.0, 401);
}

#[tokio::test]
async fn the_sockets_are_described() {
    let server = start(Config::default()).await;
    let response = client().get(server.url("/asyncapi.json")).send().await.expect("an answer");
    assert_eq!(response.status(), 200);
    let document: Value = serde_json::from_slice(&response.bytes().await.expect("a body")).expect("JSON");
    assert_eq!(document["asyncapi"], "3.0.0");
    // A session's events are among those of the description.
    let (mut socket, created) = open(&server).await;
    append(&mut socket, &linear(&utter(&[(5, 0.5, 0.9)]))).await;
    let mut events = completed(&mut socket, 1).await;
    events.push(created);
    send(&mut socket, json!({})).await;
    events.push(socket.message().await);
    for event in events {
        let name = format!("realtime.send.{}", event["type"].as_str().expect("a type"));
        let described = &document["components"]["messages"][&name]["payload"];
        let required = described["required"].as_array().unwrap_or_else(|| panic!("{name} is not described"));
        assert!(
            required.iter().all(|member| event.get(member.as_str().expect("a name")).is_some()),
            "{event}"
        );
        let known = described["properties"].as_object().expect("members");
        assert!(
            event.as_object().expect("an object").keys().all(|member| known.contains_key(member)),
            "{event}"
        );
    }
}
