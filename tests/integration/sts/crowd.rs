//! Many sessions at once, most of them silent.

use serde_json::{Value, json};

use super::room::{Caller, recording};
use super::service::{Service, Setup};
use super::voices::{self, Voice};
use crate::speech::word_errors;

#[tokio::test]
async fn two_hundred_idle_sessions_and_four_that_talk_are_held() {
    let voice = Voice::start().await;
    let mut setup = Setup { recognize: Some(voices::ears(&[])), ..Setup::default() };
    voice.give(&mut setup);
    let service = Service::start(setup).await;
    let mut callers = Vec::new();
    let mut last = String::new();
    for _ in 0..200 {
        let (id, start) = service.session(json!({"greeting": "Hello."})).await;
        callers.push(Caller::join(&service, &start).await);
        last = id;
    }
    for caller in &mut callers {
        assert_eq!(caller.listen().await, "Hello.");
        caller.keep_alive().await;
    }
    // Beside them, four callers talk at once: each gets an answer to the question in its own room.
    let mut talks = tokio::task::JoinSet::new();
    for (document, question) in TALKS {
        let (id, start) = service.session(json!({"greeting": "Hello.", "documents": [document()]})).await;
        service.ready(&id).await;
        let mut caller = Caller::join(&service, &start).await;
        talks.spawn(async move {
            caller.listen().await;
            caller.voice.clear();
            caller.speak(&recording(question.1)).await;
            let said = caller.find(|m| m["type"] == "ConversationText" && m["role"] == "user").await;
            assert!(word_errors(question.0, said["content"].as_str().expect("text")) <= 1, "{said}");
            (document()["content"].clone(), caller.listen().await, caller.voice.len())
        });
    }
    let mut ticks = tokio::time::interval(std::time::Duration::from_secs(15));
    loop {
        let talk = tokio::select! {
            talk = talks.join_next() => talk,
            _ = ticks.tick() => {
                for caller in &mut callers {
                    caller.keep_alive().await;
                }
                continue;
            }
        };
        let Some(talk) = talk else { break };
        let (expected, answer, voice) = talk.expect("no panic");
        assert_eq!(answer, expected.as_str().expect("text"));
        // At least a second of it, 16-bit at 24 kHz.
        assert!(voice > 48_000, "{voice} bytes of voice");
    }
    // Each still answers.
    for caller in &mut callers {
        caller.write("Hello").await;
    }
    for caller in &mut callers {
        assert!(caller.listen().await.starts_with("Hello!"));
    }
    assert_eq!(service.status(&last).await["status"], "active");
}

const COLD_HEARTED: (&str, &str) =
    ("Unless to be rather cold-hearted and rather selfish is to be ill-disposed.", "austen_0890.wav");

type Talk = (fn() -> Value, (&'static str, &'static str));

/// A session's document, and a question that it answers.
const TALKS: [Talk; 4] = [
    (|| document("The quick brown fox and the lazy dog", "Foxes live behind the house."), voices::FOX),
    (
        || document("A rather cold-hearted, rather selfish, ill-disposed man", "His name is John Dashwood."),
        COLD_HEARTED,
    ),
    (|| document("Who might have been made amiable", "They are found in the next village."), voices::AMIABLE),
    (|| document("Hello world", "It is a program for beginners."), ("Hello world.", "en_hello_world.wav")),
];

fn document(title: &str, content: &str) -> Value {
    json!({"title": title, "type": "text", "content": content})
}
