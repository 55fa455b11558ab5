//! Cold transfers: to numbers that the operator lists, of telephone callers only.

use serde_json::{Value, json};

use super::phone::{Call, twiml};
use super::room::{Caller, recording};
use super::service::{Service, Setup};
use crate::server::client;

const OFFICE: &str = "+14155550100";

async fn service(heard: Vec<&'static str>) -> Service {
    let mut setup = Setup { heard, ..Setup::default() };
    setup.config.transfer.numbers = vec![OFFICE.into()];
    Service::start(setup).await
}

/// The provider's question what comes after the stream.
async fn after(service: &Service, start: &Value, room: &str) -> String {
    let id = start["session_id"].as_str().expect("an id");
    let url = format!("http://{}/api/twilio/stream-ended?session_id={id}&room_name={room}", service.address);
    let (status, xml) = twiml(client().post(&url).body("CallSid=CA1")).await;
    assert_eq!(status, 200, "{xml}");
    xml
}

fn room(start: &Value) -> &str {
    start["room_name"].as_str().expect("a name")
}

#[tokio::test]
async fn a_call_is_handed_over_to_a_number_that_is_listed() {
    let service = service(Vec::new()).await;
    let (id, start) = service.session(json!({"channel": "phone", "greeting": "Welcome."})).await;
    let transfer = |to: &str| json!({"action": "transfer", "session_id": id, "to": to});
    let (status, refused) = service.action(transfer(OFFICE)).await;
    assert_eq!((status, &refused["err_code"]), (409, &json!("NO_TELEPHONE_CALL")), "{refused}");
    let mut call = Call::dial(&service, &start, "anonymous").await;
    call.until("mark").await;
    let (status, refused) = service.action(transfer("+14155550199")).await;
    assert_eq!((status, &refused["err_code"]), (403, &json!("TRANSFER_NOT_ALLOWED")), "{refused}");
    assert!(after(&service, &start, room(&start)).await.contains("<Hangup/>"));
    let reply = service.act(transfer(OFFICE)).await;
    assert_eq!(reply["transfer_to"], OFFICE);
    // Two sentences, and the stream ends.
    call.until("mark").await;
    call.until("mark").await;
    let status = service.until(&id, |status| status["status"] == "ended").await;
    assert_eq!(status["end_reason"], "transferred");
    assert!(status["transferred_at"].is_string());
    assert!(after(&service, &start, room(&start)).await.contains(&format!("<Dial>{OFFICE}</Dial>")));
    assert!(after(&service, &start, "sts-0").await.contains("<Hangup/>"));
}

#[tokio::test]
async fn a_caller_who_asks_for_a_person_is_handed_over_if_the_start_says_to_whom() {
    let service = service(vec!["Let me talk to a real person."]).await;
    let start = json!({"channel": "phone", "greeting": "Welcome.", "transfer_to": OFFICE});
    let (id, start) = service.session(start).await;
    let mut call = Call::dial(&service, &start, "anonymous").await;
    call.until("mark").await;
    call.speak(&recording("en_quick_brown_fox.wav")).await;
    call.until("mark").await;
    call.until("mark").await;
    let status = service.until(&id, |status| status["status"] == "ended").await;
    assert_eq!(status["end_reason"], "transferred");
    assert!(after(&service, &start, room(&start)).await.contains(OFFICE));
}

#[tokio::test]
async fn a_browser_is_not_handed_over() {
    let service = service(Vec::new()).await;
    let (id, start) = service.session(json!({"greeting": "Welcome.", "transfer_to": OFFICE})).await;
    let mut caller = Caller::greeted(&service, &start).await;
    let (status, refused) = service.action(json!({"action": "transfer", "session_id": id})).await;
    assert_eq!((status, &refused["err_code"]), (409, &json!("NO_TELEPHONE_CALL")));
    caller.write("I want to talk to a real person.").await;
    assert!(caller.listen().await.contains("can't connect you"));
    // A number that is not listed is left out, and the start says so.
    let (_, start) = service.session(json!({"transfer_to": "+14155550199"})).await;
    assert!(start["warnings"].to_string().contains("transfer_to"), "{start}");
}
