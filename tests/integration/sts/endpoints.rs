//! Chat and speech over interfaces of OpenAI's form, with a scripted double of each.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use hyper::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use verbatim::audio::{Pcm, RateConverter};
use verbatim::http::{self, Failure, Response, Router};
use verbatim::secret::Secret;
use verbatim::sts::config::Interface;

use super::doubles::{self, Asked};
use super::room::{Caller, recording};
use super::service::{Service, Setup};
use super::voices::{self, Voice};
use crate::server::Door;
use crate::speech::word_errors;

/// The model's reaction to a question.
pub enum Turn {
    /// Sends these events, each when the test has allowed one more.
    Events(Vec<Value>),
    /// Sends these events as the others, then breaks off.
    BreaksAfter(Vec<Value>),
    Fails,
    /// Breaks off before it said anything.
    Breaks,
}

pub struct Model {
    asked: Asked,
    /// So many more events may go out.
    pub allowed: Arc<Semaphore>,
    pub url: String,
    _door: Door,
}

impl Model {
    pub async fn start(turns: Vec<Turn>) -> Self {
        let asked = Asked::default();
        let allowed = Arc::new(Semaphore::new(0));
        let turns = Arc::new(Mutex::new(VecDeque::from(turns)));
        let (noted, may) = (asked.clone(), allowed.clone());
        let complete = move |request: http::Request| {
            let (noted, may, turns) = (noted.clone(), may.clone(), turns.clone());
            async move {
                let body = request.body.collect().await?;
                let body = String::from_utf8(body.bytes().to_vec()).expect("text");
                noted.lock().expect("no test panics here").push((request.headers, body));
                let turn = turns.lock().expect("no test panics here").pop_front();
                let is_whole = matches!(turn, Some(Turn::Events(_)));
                let events = match turn {
                    Some(Turn::Events(events) | Turn::BreaksAfter(events)) => events,
                    Some(Turn::Breaks) => Vec::new(),
                    Some(Turn::Fails) | None => {
                        return Err(Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "BROKEN", "No."));
                    }
                };
                let done = is_whole.then(|| Ok(Frame::data(Bytes::from_static(b"data: [DONE]\n\n"))));
                let parts = stream::iter(events).then(move |event| {
                    let may = may.clone();
                    async move {
                        may.acquire().await.expect("open").forget();
                        Ok(Frame::data(Bytes::from(format!("data: {event}\n\n"))))
                    }
                });
                Ok(Response::new(StreamBody::new(parts.chain(stream::iter(done))).boxed_unsync()))
            }
        };
        let router = Router::new().route(Method::POST, "/v1/chat/completions", complete.clone()).route(
            Method::POST,
            "/v1/responses",
            complete,
        );
        let door = Door::open(router, http::Config::default()).await;
        Self { asked, allowed, url: format!("http://{}/v1", door.address), _door: door }
    }

    pub(super) fn give(&self, setup: &mut Setup) {
        setup.config.chat.base_url = Some(self.url.clone());
        setup.config.chat.api_key = Some(Secret::from("chat-key"));
        setup.config.chat.model = "small".into();
    }

    pub(super) fn question(&self, index: usize) -> Value {
        let asked = self.asked.lock().expect("no test panics here");
        serde_json::from_str(&asked[index].1).expect("JSON")
    }
}

pub fn text(content: &str) -> Value {
    json!({"choices": [{"index": 0, "delta": {"content": content}}]})
}

pub fn tool(name: &str, arguments: &str) -> Value {
    let call = json!({"index": 0, "id": "call_1", "type": "function", "function": {"name": name, "arguments": arguments}});
    json!({"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]})
}

fn facts() -> Value {
    json!({
        "greeting": "Hello.", "instructions": "Be kind.", "caller_number": "+14155552671",
        "documents": [{"title": "Hours", "type": "text", "content": "We are open from nine to five."}],
        "link_catalog": {"forms": {"url": "https://front.example/forms", "title": "the form"}},
        "verification_rules": {"billing": {"voice_prompt": "Your digits, please.", "keywords": ["invoice"]}},
    })
}

#[tokio::test]
async fn a_chat_model_answers_sentence_by_sentence() {
    let model = Model::start(vec![Turn::Events(vec![
        text("We are open "),
        text("from nine to five. "),
        text("Do come by"),
        text("."),
    ])])
    .await;
    let mut setup = Setup::default();
    model.give(&mut setup);
    let service = Service::start(setup).await;
    let (id, start) = service.session(facts()).await;
    let status = service.ready(&id).await;
    assert_eq!(status["agent"]["engine"]["brain"], "endpoint");
    let page = json!({"page": "/forms", "step": 2});
    service.act(json!({"action": "page_context", "session_id": id, "page_context": page})).await;
    let mut caller = Caller::join(&service, &start).await;
    caller.listen().await;
    caller.write("When are you open?").await;
    // The first sentence is said while the second is not yet there.
    model.allowed.add_permits(2);
    let first = caller.find(|m| m["type"] == "ConversationText" && m["role"] == "assistant").await;
    assert_eq!(first["content"], "We are open from nine to five.");
    model.allowed.add_permits(2);
    assert_eq!(caller.listen().await, "Do come by.");

    let asked = model.question(0);
    assert_eq!((&asked["stream"], &asked["model"]), (&json!(true), &json!("small")));
    let messages = asked["messages"].as_array().expect("messages");
    let system = messages[0]["content"].as_str().expect("text");
    for part in ["Be kind.", "We are open from nine to five.", "\"step\":2", "billing"] {
        assert!(system.contains(part), "{part} is not in {system}");
    }
    assert!(!asked.to_string().contains("4155552671"), "the model gets no number");
    assert_eq!(messages[1], json!({"role": "assistant", "content": "Hello."}));
    assert_eq!(messages[2], json!({"role": "user", "content": "When are you open?"}));
    let tools: Vec<&str> = asked["tools"]
        .as_array()
        .expect("tools")
        .iter()
        .filter_map(|t| t["function"]["name"].as_str())
        .collect();
    // Without a provider no text message is offered.
    assert_eq!(tools, ["end_call", "verify"]);
    let key = model.asked.lock().expect("no test panics here")[0].0["authorization"].clone();
    assert_eq!(key, "Bearer chat-key");
    let status = service.status(&id).await;
    assert_eq!(status["transcript"][2]["text"], "We are open from nine to five. Do come by.");
}

#[tokio::test]
async fn what_a_model_asks_for_by_tools_code_decides() {
    let turn = |events| Turn::Events(events);
    let model = Model::start(vec![
        turn(vec![text("Let me see. "), tool("verify", r#"{"category": "billing"}"#)]),
        turn(vec![tool("verify", r#"{"category": "no such thing"}"#), text("It is fine.")]),
        turn(vec![tool("send_link", r#"{"key": "forms"}"#)]),
        turn(vec![
            tool("send_link", r#"{"key": "https://evil.example", "to": "+15005550009"}"#),
            text("Sent."),
        ]),
        turn(vec![tool("rm", "{}"), text("Nothing.")]),
        turn(vec![text("So long! "), tool("end_call", "{}")]),
    ])
    .await;
    let provider = doubles::provider().await;
    let mut setup = Setup::default();
    model.give(&mut setup);
    doubles::send_by(&provider.url, &mut setup);
    let service = Service::start(setup).await;
    let (id, start) = service.session(facts()).await;
    let mut caller = Caller::join(&service, &start).await;
    caller.listen().await;
    model.allowed.add_permits(100);
    caller.write("Can you look something up?").await;
    assert_eq!(caller.listen().await, "Let me see.");
    let tools = model.question(0)["tools"].to_string();
    assert!(tools.contains("send_link") && tools.contains("forms"), "{tools}");
    assert_eq!(caller.listen().await, "Your digits, please.");
    let status = service.status(&id).await;
    assert_eq!((&status["pending_verification"], &status["verification"]), (&json!("billing"), &json!({})));
    caller.write("Never mind.").await;
    caller.listen().await;
    caller.write("And now?").await;
    assert_eq!(caller.listen().await, "It is fine.");
    assert_eq!(service.status(&id).await["pending_verification"], Value::Null);
    caller.write("The form, please.").await;
    assert_eq!(caller.listen().await, "I'm sending you the link.");
    service.until(&id, |status| status["sms"]["sent"][0]["status"] == "sent").await;
    caller.write("Another one.").await;
    assert_eq!(caller.listen().await, "Sent.");
    caller.write("What else?").await;
    assert_eq!(caller.listen().await, "Nothing.");
    assert_eq!(provider.bodies().len(), 1);
    assert!(provider.bodies()[0].contains("To=%2B14155552671"));
    caller.write("I have to go.").await;
    assert_eq!(caller.listen().await, "So long!");
    assert_eq!(caller.goodbye().await, 4000);
    assert_eq!(service.status(&id).await["end_reason"], "goodbye");
}

#[tokio::test]
async fn without_the_model_the_embedded_responder_answers() {
    let model = Model::start(vec![Turn::Fails, Turn::Breaks]).await;
    let mut setup = Setup::default();
    model.give(&mut setup);
    let service = Service::start(setup).await;
    let (_, start) = service.session(facts()).await;
    let mut caller = Caller::greeted(&service, &start).await;
    for _ in 0..2 {
        caller.write("When are you open?").await;
        assert_eq!(caller.listen().await, "We are open from nine to five.");
    }
    assert_eq!(model.asked.lock().expect("no test panics here").len(), 2);
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_closed() {
    let model =
        Model::start(vec![Turn::BreaksAfter(vec![text("We are open from nine. "), text("On Sund")])]).await;
    model.allowed.add_permits(2);
    let mut setup = Setup::default();
    model.give(&mut setup);
    let service = Service::start(setup).await;
    let (_, start) = service.session(facts()).await;
    let mut caller = Caller::greeted(&service, &start).await;
    caller.write("When are you open?").await;
    assert_eq!(
        caller.listen().await,
        "We are open from nine. I'm sorry, I can't finish that answer. Please ask me again."
    );
}

#[tokio::test]
async fn a_slow_model_is_covered_and_then_given_up() {
    // No event may go out.
    let model = Model::start(vec![Turn::Events(vec![text("Too late.")])]).await;
    let mut setup = Setup::default();
    model.give(&mut setup);
    setup.config.chat.filler_ms = 50;
    setup.config.chat.timeout_ms = 300;
    let service = Service::start(setup).await;
    let (_, start) = service.session(facts()).await;
    let mut caller = Caller::greeted(&service, &start).await;
    caller.write("When are you open?").await;
    assert_eq!(caller.listen().await, "One moment. We are open from nine to five.");
}

#[tokio::test]
async fn a_model_is_spoken_to_over_responses_and_searches() {
    let delta = |text: &str| json!({"type": "response.output_text.delta", "delta": text});
    let item = json!({"type": "function_call", "call_id": "call_1", "name": "search", "arguments": ""});
    let done = json!({"type": "response.completed", "response": {}});
    let searches = vec![
        json!({"type": "response.created", "response": {}}),
        json!({"type": "response.output_item.added", "output_index": 0, "item": item}),
        json!({"type": "response.function_call_arguments.delta", "output_index": 0, "delta": "{\"query\":"}),
        json!({"type": "response.function_call_arguments.delta", "output_index": 0, "delta": "\"parking\"}"}),
        done.clone(),
    ];
    let answers = vec![delta("It is "), delta("free."), done];
    let model = Model::start(vec![Turn::Events(searches), Turn::Events(answers)]).await;
    model.allowed.add_permits(100);
    let mut setup = Setup::default();
    model.give(&mut setup);
    setup.config.chat.interface = Interface::Responses;
    let service = Service::start(setup).await;
    let mut material = facts();
    let rooms =
        (1..8).map(|n| json!({"title": format!("Room {n}"), "type": "text", "content": "It has a window."}));
    let parking = json!({"title": "Parking", "type": "text", "content": "Free behind the house."});
    material["documents"] = rooms.chain([parking]).collect();
    let (_, start) = service.session(material).await;
    let mut caller = Caller::greeted(&service, &start).await;
    caller.write("Can I leave my car with you?").await;
    assert_eq!(caller.listen().await, "It is free.");
    let asked = model.question(0);
    assert_eq!((&asked["stream"], &asked["store"]), (&json!(true), &json!(false)));
    assert!(asked["instructions"].as_str().is_some_and(|text| text.contains("Be kind.")), "{asked}");
    assert_eq!(asked["input"][1], json!({"role": "user", "content": "Can I leave my car with you?"}));
    assert!(asked["tools"].as_array().is_some_and(|tools| tools.iter().any(|tool| tool["name"] == "search")));
    let again = &model.question(1)["input"];
    assert_eq!(again[2]["type"], "function_call");
    assert_eq!(again[3]["call_id"], "call_1");
    let found = again[3]["output"].as_str().expect("text");
    assert!(found.contains("Parking: Free behind the house."), "{found}");
}

#[tokio::test]
async fn what_the_agent_says_our_own_recogniser_understands() {
    let voice = Voice::start().await;
    let mut setup = Setup { recognize: Some(voices::ears(&[])), ..Setup::default() };
    voice.give(&mut setup);
    let service = Service::start(setup).await;
    let documents = [
        ("The quick brown fox and the lazy dog", voices::MAN.0),
        ("Who might even have been made amiable", voices::COUNTRY.0),
    ];
    let documents =
        documents.map(|(title, content)| json!({"title": title, "type": "text", "content": content}));
    let (_, start) = service.session(json!({"greeting": "Hello.", "documents": documents})).await;
    let mut caller = Caller::greeted(&service, &start).await;
    for (question, answer) in [(voices::FOX, voices::MAN), (voices::AMIABLE, voices::COUNTRY)] {
        caller.voice.clear();
        caller.speak(&recording(question.1)).await;
        assert_eq!(caller.listen().await, answer.0, "to {}", question.0);
        let samples = caller.voice.as_chunks::<2>().0.iter();
        let samples: Vec<f32> =
            samples.map(|bytes| f32::from(i16::from_le_bytes(*bytes)) / 32_768.0).collect();
        let mut converter = RateConverter::new(24_000, 16_000).expect("usual rates");
        let mut samples = converter.push(&samples);
        samples.extend(converter.finish());
        let heard = voices::heard(Pcm::new(samples)).await;
        assert!(word_errors(answer.0, &heard) <= 1, "{heard}");
    }
    let asked = voice.asked.lock().expect("no test panics here");
    let (headers, body) = &asked[1];
    assert_eq!(headers["authorization"], "Bearer voice-key");
    let expected =
        json!({"model": "tts-1", "voice": "alloy", "input": voices::MAN.0, "response_format": "pcm"});
    assert_eq!(serde_json::from_str::<Value>(body).expect("JSON"), expected);
}

#[tokio::test]
async fn an_agent_whose_voice_fails_still_writes() {
    let voice = Voice::start().await;
    let mut setup = Setup::default();
    voice.give(&mut setup);
    let service = Service::start(setup).await;
    let (_, start) = service.session(json!({"greeting": "Unspeakable."})).await;
    let mut caller = Caller::join(&service, &start).await;
    assert_eq!(caller.listen().await, "Unspeakable.");
    assert!(caller.voice.is_empty());
}
