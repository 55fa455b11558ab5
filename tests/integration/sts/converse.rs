//! `/v1/agent/converse`: the room's messages as the SDKs of the wire format speak them, without a session
//! made before.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use verbatim::sts::Auth;

use super::service::{Service, Setup};
use crate::socket::{Said, Socket, connect};

const PATH: &str = "/v1/agent/converse";

fn settings() -> Value {
    json!({
        "type": "Settings",
        "audio": {
            "input": {"encoding": "linear16", "sample_rate": 16_000},
            "output": {"encoding": "linear16", "sample_rate": 24_000, "container": "none"},
        },
        "agent": {
            "language": "en", "greeting": "Hello there.",
            "listen": {"provider": {"type": "deepgram", "model": "nova-3"}},
            "think": {"provider": {"type": "open_ai", "model": "gpt"}, "prompt": "Parking is free behind the building."},
            "speak": {"provider": {"type": "deepgram", "model": "aura"}},
        },
    })
}

async fn until(socket: &mut Socket, kind: &str) -> Value {
    loop {
        match socket.said().await {
            Said::Message(message) if message["type"] == kind => return message,
            Said::Message(_) | Said::Audio(_) => {}
            other => panic!("{other:?} instead of {kind}"),
        }
    }
}

async fn said(socket: &mut Socket) -> Value {
    loop {
        let message = until(socket, "ConversationText").await;
        if message["role"] == "assistant" {
            return message["content"].clone();
        }
    }
}

#[tokio::test]
async fn an_sdk_begins_with_its_settings_and_talks() {
    let service = Service::start(Setup::default()).await;
    let mut socket = connect(service.address, PATH, &[]).await.socket.expect("agreed");
    let welcome = socket.message().await;
    assert_eq!(welcome["type"], "Welcome");
    assert!(uuid::Uuid::parse_str(welcome["request_id"].as_str().expect("an id")).is_ok());
    socket.text(&settings().to_string()).await;
    assert_eq!(socket.message().await["type"], "SettingsApplied");
    assert_eq!(said(&mut socket).await, "Hello there.");
    until(&mut socket, "AgentAudioDone").await;
    socket.control("KeepAlive").await;
    socket.text(&json!({"type": "InjectUserMessage", "content": "Where can I park?"}).to_string()).await;
    until(&mut socket, "AgentThinking").await;
    assert_eq!(said(&mut socket).await, "Parking is free behind the building.");
    until(&mut socket, "AgentAudioDone").await;
    // The session belongs to the client: it may change the agent, which then answers from what it was told.
    socket
        .text(&json!({"type": "UpdatePrompt", "prompt": "Parking costs two dollars an hour."}).to_string())
        .await;
    until(&mut socket, "PromptUpdated").await;
    socket
        .text(&json!({"type": "InjectUserMessage", "content": "What does parking cost?"}).to_string())
        .await;
    assert_eq!(said(&mut socket).await, "Parking costs two dollars an hour.");
    until(&mut socket, "AgentAudioDone").await;
    socket.text("{").await;
    assert_eq!(until(&mut socket, "Warning").await["code"], "INVALID_MESSAGE");
    socket.control("Close").await;
    assert!(matches!(socket.rest().await.1, Said::Close(1000, _)));
}

#[tokio::test]
async fn who_begins_otherwise_is_told_why_and_let_go() {
    let service = Service::start(Setup::default()).await;
    let odd = json!({"type": "Settings", "audio": {"input": {"encoding": "opus"}}}).to_string();
    for first in ["{}", "not JSON", r#"{"type":"InjectUserMessage","content":"x"}"#, &odd] {
        let mut socket = connect(service.address, PATH, &[]).await.socket.expect("agreed");
        socket.message().await;
        socket.text(first).await;
        assert_eq!(until(&mut socket, "Error").await["code"], "INVALID_SETTINGS", "{first}");
        assert!(matches!(socket.rest().await.1, Said::Close(1008, _)), "{first}");
    }
}

#[tokio::test]
async fn settings_without_effect_are_warned_of() {
    let service = Service::start(Setup::default()).await;
    let mut settings = settings();
    settings["tags"] = json!(["a"]);
    settings["agent"]["think"]["provider"]["temperature"] = json!(0.5);
    settings["agent"]["listen"]["provider"]["smart_format"] = json!(true);
    settings["agent"]["context"] = json!({"messages": [{"role": "system", "content": "Be brief."}]});
    let mut socket = connect(service.address, PATH, &[]).await.socket.expect("agreed");
    until(&mut socket, "Welcome").await;
    send(&mut socket, settings.clone()).await;
    assert_eq!(socket.message().await["type"], "SettingsApplied");
    let mut left = vec!["`tags`", "`temperature`", "`smart_format`", "`agent.context.messages`"];
    while !left.is_empty() {
        let warning = until(&mut socket, "Warning").await;
        let description = warning["description"].as_str().expect("text").to_owned();
        left.retain(|name| !description.contains(name));
    }
    settings["agent"]["greeting"] = json!(7);
    let mut socket = connect(service.address, PATH, &[]).await.socket.expect("agreed");
    send(&mut socket, settings).await;
    assert_eq!(until(&mut socket, "Error").await["code"], "INVALID_SETTINGS");
}

#[tokio::test]
async fn a_client_without_settings_does_not_stay() {
    let service = Service::start(Setup::default()).await;
    let mut socket = connect(service.address, PATH, &[]).await.socket.expect("agreed");
    until(&mut socket, "Welcome").await;
    // Half of the time for settings, which a sign of life does not prolong.
    tokio::time::sleep(Duration::from_secs(5)).await;
    socket.control("KeepAlive").await;
    let begun = Instant::now();
    assert!(matches!(socket.rest().await.1, Said::Close(1008, _)));
    assert!(begun.elapsed() < Duration::from_secs(9), "{:?}", begun.elapsed());

    let mut socket = connect(service.address, PATH, &[]).await.socket.expect("agreed");
    until(&mut socket, "Welcome").await;
    let (end, ()) = tokio::join!(socket.rest(), service.stop());
    assert!(matches!(end.1, Said::Close(1012, _)), "{:?}", end.1);
}

#[tokio::test]
async fn a_full_server_says_that_it_is_full() {
    let mut setup = Setup::default();
    setup.config.sessions_max = 1;
    let service = Service::start(setup).await;
    // Both come while there is room, and begin one after the other.
    let mut late = connect(service.address, PATH, &[]).await.socket.expect("agreed");
    until(&mut late, "Welcome").await;
    let _first = begun(&service, &settings()).await;
    send(&mut late, settings()).await;
    let error = until(&mut late, "Error").await;
    assert_ne!(error["code"], "INVALID_SETTINGS", "{error}");
    assert!(matches!(late.rest().await.1, Said::Close(1013, _)));
    let refused = connect(service.address, PATH, &[]).await;
    assert!(matches!(refused.status, 429 | 503), "{}", refused.status);
    assert!(refused.header("retry-after").is_some());
}

#[tokio::test]
async fn where_a_key_is_asked_for_it_may_be_a_subprotocol() {
    let mut setup = Setup::default();
    setup.config.auth = Auth::Required;
    let service = Service::start(setup).await;
    assert_eq!(connect(service.address, PATH, &[]).await.status, 401);
    let offered = format!("token, {}", service.keys[0]);
    let handshake = connect(service.address, PATH, &[("sec-websocket-protocol", offered.as_str())]).await;
    assert_eq!((handshake.status, handshake.header("sec-websocket-protocol")), (101, Some("token")));
    let header = format!("Token {}", service.keys[0]);
    assert_eq!(connect(service.address, PATH, &[("authorization", header.as_str())]).await.status, 101);
}

const LINE: &str = "One moment, please.";

async fn send(socket: &mut Socket, message: Value) {
    socket.text(&message.to_string()).await;
}

/// A session after its greeting.
async fn begun(service: &Service, settings: &Value) -> Socket {
    let mut socket = connect(service.address, PATH, &[]).await.socket.expect("agreed");
    until(&mut socket, "Welcome").await;
    socket.text(&settings.to_string()).await;
    assert_eq!(socket.message().await["type"], "SettingsApplied");
    until(&mut socket, "AgentAudioDone").await;
    socket
}

#[tokio::test]
async fn the_owner_has_the_agent_say_lines_and_changes_it() {
    let service = Service::start(Setup::default()).await;
    let mut socket = begun(&service, &settings()).await;
    // While the agent speaks, a line is refused, waits, or replaces what is said.
    for _ in 0..8 {
        send(&mut socket, json!({"type": "InjectAgentMessage", "message": LINE})).await;
    }
    let (mut is_refused, mut is_said) = (false, false);
    while !(is_refused && is_said) {
        match socket.said().await {
            Said::Message(message) if message["type"] == "InjectionRefused" => is_refused = true,
            Said::Message(message) if message["type"] == "ConversationText" => {
                assert_eq!(message["content"], LINE);
                is_said = true;
            }
            Said::Message(_) | Said::Audio(_) => {}
            other => panic!("{other:?}"),
        }
    }
    send(&mut socket, json!({"type": "InjectAgentMessage", "message": "Then this.", "behavior": "queue"}))
        .await;
    while said(&mut socket).await != "Then this." {}
    until(&mut socket, "AgentAudioDone").await;
    for (message, answer) in [
        (
            json!({"type": "UpdateSpeak", "speak": {"provider": {"type": "deepgram", "speed": 1.2}}}),
            "SpeakUpdated",
        ),
        (
            json!({"type": "UpdateListen", "listen": {"provider": {"type": "deepgram", "version": "v2", "eot_timeout_ms": 1000}}}),
            "ListenUpdated",
        ),
        (
            json!({"type": "UpdateThink", "think": {"provider": {"type": "open_ai"}, "prompt": "Be kind."}}),
            "ThinkUpdated",
        ),
        (json!({"type": "UpdateSpeak", "speak": {"provider": {"speed": 9}}}), "Warning"),
        (json!({"type": "FunctionCallResponse", "name": "weather", "content": "rain"}), "Warning"),
    ] {
        send(&mut socket, message).await;
        until(&mut socket, answer).await;
    }
    // With no one in the middle of a turn, there is none to end.
    socket.control("ForceEndTurn").await;
    socket.control("Close").await;
    assert!(matches!(socket.rest().await.1, Said::Close(1000, _)));
}

#[tokio::test]
async fn lines_come_as_history_unless_that_is_switched_off() {
    let service = Service::start(Setup::default()).await;
    for (history, expected) in [(true, true), (false, false)] {
        let mut wanted = settings();
        wanted["flags"] = json!({"history": history});
        let mut socket = begun(&service, &wanted).await;
        send(&mut socket, json!({"type": "InjectUserMessage", "content": "Where can I park?"})).await;
        until(&mut socket, "AgentThinking").await;
        until(&mut socket, "AgentAudioDone").await;
        socket.control("Close").await;
        let (messages, _) = socket.rest().await;
        let told = messages.iter().any(|message| message["type"] == "History");
        assert!(!told || expected, "{messages:?}");
    }
}
