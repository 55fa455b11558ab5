//! Silence and time: questions to a silent caller, a polite end, a word before the time is over.

use serde_json::json;

use super::phone::Call;
use super::room::Caller;
use super::service::{Service, Setup};

const QUESTION: &str = "Are you still there?";

#[tokio::test]
async fn a_silent_telephone_is_asked_twice_and_then_left() {
    let mut setup = Setup::default();
    setup.config.silence_seconds = 1;
    let service = Service::start(setup).await;
    let (id, start) = service.session(json!({"channel": "phone", "greeting": "Welcome."})).await;
    let mut call = Call::dial(&service, &start, "anonymous").await;
    // One for each sentence; the goodbye has two.
    for _ in 0..5 {
        call.until("mark").await;
    }
    let status = service.until(&id, |status| status["status"] == "ended").await;
    assert_eq!(status["end_reason"], "goodbye");
    let lines = status["transcript"].as_array().expect("lines");
    let said: Vec<&str> = lines.iter().filter_map(|line| line["text"].as_str()).collect();
    assert_eq!(said, ["Welcome.", QUESTION, QUESTION, "I can't hear anybody. Goodbye!"]);
}

#[tokio::test]
async fn a_browser_is_asked_only_if_its_start_says_so() {
    let mut setup = Setup::default();
    setup.config.silence_seconds = 1;
    setup.config.nudges_max = 1;
    let service = Service::start(setup).await;
    let (_, silent) = service.session(json!({"greeting": "Welcome."})).await;
    let (_, asked) = service.session(json!({"greeting": "Welcome.", "silence_seconds": 1})).await;
    let mut unasked = Caller::greeted(&service, &silent).await;
    let mut caller = Caller::greeted(&service, &asked).await;
    assert_eq!(caller.listen().await, QUESTION);
    // An answer begins the count anew.
    caller.write("Yes, I am.").await;
    caller.listen().await;
    assert_eq!(caller.listen().await, QUESTION);
    assert!(caller.listen().await.ends_with("Goodbye!"));
    assert_eq!(caller.goodbye().await, 4000);
    // The other one has waited as long.
    unasked.write("Hello").await;
    assert_eq!(unasked.listen().await, "Hello! How can I help you?");
}

#[tokio::test]
async fn a_talk_has_a_word_before_its_end_and_a_goodbye() {
    let mut setup = Setup::default();
    setup.config.talk_warning_seconds = 5;
    let service = Service::start(setup).await;
    let (id, start) = service.session(json!({"greeting": "Welcome.", "max_duration_seconds": 10})).await;
    let mut caller = Caller::greeted(&service, &start).await;
    let warning = caller.listen().await;
    assert!(warning.starts_with("We have about") && warning.ends_with("left."), "{warning}");
    assert_eq!(caller.listen().await, "I'm sorry, our time is up. Goodbye!");
    assert_eq!(caller.goodbye().await, 4000);
    assert_eq!(service.status(&id).await["end_reason"], "too_long");
}
