//! Functions that clients run for the chat model: those of `/v1/agent/converse`, and pages in the room of a session.

use serde_json::{Value, json};

use super::endpoints::{Model, Turn, text, tool};
use super::room::Caller;
use super::service::{Service, Setup};
use crate::server::client;
use crate::socket::{Said, Socket, connect};

async fn until(socket: &mut Socket, kind: &str) -> Value {
    loop {
        match socket.said().await {
            Said::Message(message) if message["type"] == kind => return message,
            Said::Message(_) | Said::Audio(_) => {}
            other => panic!("{other:?} instead of {kind}"),
        }
    }
}

#[tokio::test]
async fn the_client_runs_a_function_and_the_model_goes_on_with_its_answer() {
    let model = Model::start(vec![
        Turn::Events(vec![tool("weather", r#"{"city":"Bath"}"#)]),
        Turn::Events(vec![text("It rains in Bath.")]),
    ])
    .await;
    model.allowed.add_permits(2);
    let mut setup = Setup::default();
    model.give(&mut setup);
    let service = Service::start(setup).await;
    let mut socket = connect(service.address, "/v1/agent/converse", &[]).await.socket.expect("agreed");
    until(&mut socket, "Welcome").await;
    let weather = json!({
        "name": "weather", "description": "The weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    });
    let settings = json!({
        "type": "Settings", "audio": {},
        "agent": {
            "greeting": "Hello.",
            "context": {"messages": [{"type": "History", "role": "user", "content": "I am in Bath."}]},
            "think": {"provider": {"type": "open_ai", "model": "small"}, "prompt": "Be kind.", "functions": [weather]},
        },
    });
    socket.text(&settings.to_string()).await;
    until(&mut socket, "AgentAudioDone").await;
    socket.text(&json!({"type": "InjectUserMessage", "content": "How is the weather?"}).to_string()).await;
    let asked = until(&mut socket, "FunctionCallRequest").await;
    assert_eq!(
        asked["functions"],
        json!([{"id": "call_1", "name": "weather", "arguments": "{\"city\":\"Bath\"}", "client_side": true}])
    );
    let answer =
        json!({"type": "FunctionCallResponse", "id": "call_1", "name": "weather", "content": "rain"});
    socket.text(&answer.to_string()).await;
    loop {
        let line = until(&mut socket, "ConversationText").await;
        if line["role"] == "assistant" {
            assert_eq!(line["content"], "It rains in Bath.");
            break;
        }
    }
    let report = until(&mut socket, "History").await;
    assert!(report["content"].is_string(), "{report}");

    let first = model.question(0);
    let messages = first["messages"].as_array().expect("messages");
    assert!(messages.contains(&json!({"role": "user", "content": "I am in Bath."})), "{first}");
    let tools = first["tools"].as_array().expect("tools");
    assert!(tools.iter().any(|tool| tool["function"]["name"] == "weather"), "{first}");
    let second = model.question(1);
    let messages = second["messages"].as_array().expect("messages");
    let [.., question, call, result] = messages.as_slice() else { panic!("{second}") };
    assert_eq!(question, &json!({"role": "user", "content": "How is the weather?"}));
    assert_eq!(call["tool_calls"][0]["function"]["arguments"], "{\"city\":\"Bath\"}");
    assert_eq!(result, &json!({"role": "tool", "tool_call_id": "call_1", "content": "rain"}));
}

#[tokio::test]
async fn a_page_runs_the_functions_that_its_session_was_started_with() {
    let model = Model::start(vec![
        Turn::Events(vec![tool("fill_in", r#"{"city":"Bath"}"#)]),
        Turn::Events(vec![text("Your city is filled in.")]),
    ])
    .await;
    model.allowed.add_permits(2);
    let mut setup = Setup::default();
    model.give(&mut setup);
    let service = Service::start(setup).await;
    let functions = json!([{"name": "fill_in", "parameters": {"type": "object"}}]);
    let (_, start) = service.session(json!({"greeting": "Hello.", "functions": functions})).await;
    assert_eq!(start["warnings"], json!([]));
    let mut caller = Caller::greeted(&service, &start).await;
    caller.write("I live in Bath.").await;
    let asked = caller.message("FunctionCallRequest").await;
    assert_eq!(asked["functions"][0]["arguments"], "{\"city\":\"Bath\"}");
    let answer =
        json!({"type": "FunctionCallResponse", "id": "call_1", "name": "fill_in", "content": "done"});
    caller.send(answer.clone()).await;
    let said = caller.find(|m| m["type"] == "ConversationText" && m["role"] == "assistant").await;
    assert_eq!(said["content"], "Your city is filled in.");
    // An answer to no call is told so, and the other orders stay the owner's.
    caller.send(answer).await;
    assert_eq!(caller.message("Warning").await["code"], "UNKNOWN_FUNCTION_CALL");
    caller.send(json!({"type": "UpdatePrompt", "prompt": "Be rude."})).await;
    assert_eq!(caller.message("Warning").await["code"], "NOT_ALLOWED");
}

#[tokio::test]
async fn a_start_says_what_of_voice_and_functions_is_of_no_use() {
    let service = Service::start(Setup::default()).await;
    let functions = json!([{"name": "fill_in"}]);
    let (_, start) = service.session(json!({"voice": "af_heart", "functions": functions})).await;
    // Without any voice, a name is as good as another.
    assert_eq!(
        start["warnings"],
        json!(["`functions` are called by a chat model, and this server has none"])
    );
    for wrong in
        [json!([{"name": "a b"}]), json!([{"name": "a", "endpoint": {"url": "http://10.0.0.1"}}]), json!([7])]
    {
        let (_, start) = service.session(json!({ "functions": wrong })).await;
        let warnings = start["warnings"].to_string();
        assert!(warnings.contains("`functions` were left out"), "{warnings}");
    }
    let (_, start) = service.session(json!({"voice": {"name": "x"}, "functions": "x"})).await;
    let warnings = start["warnings"].to_string();
    for name in ["voice", "functions"] {
        assert!(warnings.contains(&format!("`{name}` is not a field")), "{warnings}");
    }
}

#[tokio::test]
async fn the_chat_model_is_listed() {
    let model = Model::start(Vec::new()).await;
    let mut with_chat = Setup::default();
    model.give(&mut with_chat);
    for (setup, expected) in [
        (Setup::default(), json!([])),
        (with_chat, json!([{"id": "small", "name": "small", "provider": "open_ai"}])),
    ] {
        let service = Service::start(setup).await;
        let url = format!("http://{}/v1/agent/settings/think/models", service.address);
        let answer = client().get(url).send().await.expect("an answer").bytes().await.expect("a body");
        let answer: Value = serde_json::from_slice(&answer).expect("JSON");
        assert_eq!(answer["models"], expected);
    }
}
