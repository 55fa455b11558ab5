//! Webhooks of sessions: signed and repeated as callbacks are, to addresses that may be reached, without holding a talk up.

use std::collections::HashMap;

use serde_json::{Value, json};
use verbatim::fetch;
use verbatim::jobs::{self, SigningSecret};

use super::doubles;
use super::endpoints::{Model, Turn, text, tool};
use super::room::Caller;
use super::service::{Service, Setup};
use crate::receiver::{Received, Receiver};

const WEBHOOK_SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

fn secret() -> SigningSecret {
    WEBHOOK_SECRET.parse().expect("a secret")
}

/// Delivers at once, and again at once.
fn setup(receiver: &Receiver) -> Setup {
    let jobs = jobs::Config {
        secret: Some(secret()),
        retry_delays_seconds: vec![0.01; 5],
        disk_free_bytes_min: 0,
        ..jobs::Config::default()
    };
    let fetch = fetch::Config { allow: vec!["127.0.0.1".into()], ..fetch::Config::default() };
    let mut setup = Setup { jobs: Some(jobs), fetch: Some(fetch), ..Setup::default() };
    setup.config.webhook.url = Some(format!("http://127.0.0.1:{}/events", receiver.port));
    setup
}

/// The event of a request, whose signature is right.
fn event(received: &Received) -> Value {
    let header = |name: &str| received.headers.get(name).expect(name).clone();
    let timestamp = header("webhook-timestamp").parse().expect("seconds");
    let signature = secret().sign(&header("webhook-id"), timestamp, &received.body);
    assert_eq!(header("webhook-signature"), signature);
    assert_eq!(header("content-type"), "application/json");
    received.json()
}

#[tokio::test]
async fn a_sessions_life_is_told_in_signed_events() {
    let provider = doubles::provider().await;
    // The first attempt fails.
    let mut receiver = Receiver::start(&["500 Oops"]).await;
    let mut setup = setup(&receiver);
    doubles::send_by(&provider.url, &mut setup);
    let service = Service::start(setup).await;
    let (id, start) = service
        .session(json!({
            "client_reference_id": "order-7", "caller_number": "+14155552671", "greeting": "Welcome.",
            "link_catalog": {"forms": "https://front.example/forms"},
            "verification_rules": {"patient_information": {"sms_catalog_key": "forms"}},
        }))
        .await;
    let (failed, started) = (receiver.next().await, receiver.next().await);
    assert_eq!(failed.headers["webhook-id"], started.headers["webhook-id"]);
    assert_eq!(started.headers["verbatim-attempt"], "2");
    let told = event(&started);
    assert_eq!((&told["type"], &told["data"]["session_id"]), (&json!("session.started"), &json!(id)));
    assert_eq!(told["data"]["client_reference_id"], "order-7");

    service
        .act(json!({"action": "verification", "session_id": id, "category": "patient_information", "verified": true}))
        .await;
    let both: HashMap<String, Value> = [receiver.next().await, receiver.next().await]
        .iter()
        .map(|received| {
            (event(received)["type"].as_str().expect("text").to_owned(), event(received)["data"].clone())
        })
        .collect();
    assert_eq!(both["session.verified"]["category"], "patient_information");
    assert_eq!(both["session.message_sent"]["sms_catalog_key"], "forms");

    let mut caller = Caller::greeted(&service, &start).await;
    caller.write("Goodbye!").await;
    assert_eq!(caller.goodbye().await, 4000);
    let ended = event(&receiver.next().await);
    assert_eq!((&ended["type"], &ended["data"]["reason"]), (&json!("session.ended"), &json!("goodbye")));
    let summary = &ended["data"]["summary"];
    assert_eq!((&summary["by"], &summary["verified"]), (&json!("embedded"), &json!(["patient_information"])));
    assert_eq!((&summary["messages_sent"], &summary["caller_turns"]), (&json!(["forms"]), &json!(1)));
    assert_eq!(service.status(&id).await["summary"], *summary);
    for told in [&told, &ended] {
        assert!(!told.to_string().contains("4155552671"), "{told}");
    }
    assert!(receiver.is_done());
}

#[tokio::test]
async fn a_session_has_a_receiver_of_its_own_within_the_rules_of_addresses() {
    let (operators, mut own) = (Receiver::start(&[]).await, Receiver::start(&[]).await);
    let mut setup = setup(&operators);
    setup.config.webhook.url = None;
    let service = Service::start(setup).await;
    let url = format!("http://127.0.0.1:{}/mine", own.port);
    let (id, _) = service.session(json!({"webhook_url": url})).await;
    let received = own.next().await;
    assert_eq!((received.path.as_str(), &event(&received)["data"]["session_id"]), ("/mine", &json!(id)));
    for url in ["http://10.0.0.1/x", "http://169.254.169.254/", "ftp://a.example/", "not an address"] {
        let (status, refused) = service.action(json!({"action": "start", "webhook_url": url})).await;
        assert_eq!((status, &refused["err_code"]), (400, &json!("INVALID_FIELD")), "{url}: {refused}");
    }
}

#[tokio::test]
async fn a_talk_is_not_held_up_by_a_receiver_that_never_answers() {
    let receiver = Receiver::start(&["", "", "", "", ""]).await;
    let service = Service::start(setup(&receiver)).await;
    let (id, start) = service.session(json!({"greeting": "Welcome."})).await;
    let mut caller = Caller::greeted(&service, &start).await;
    caller.write("Goodbye!").await;
    assert_eq!(caller.goodbye().await, 4000);
    assert_eq!(service.status(&id).await["status"], "ended");
}

#[tokio::test]
async fn the_chat_model_writes_the_summary_if_there_is_one() {
    let mut receiver = Receiver::start(&[]).await;
    let farewell = vec![text("Bye then."), tool("end_call", "{}")];
    let summary = vec![text("The caller"), text(" said goodbye.")];
    let model = Model::start(vec![Turn::Events(farewell), Turn::Events(summary)]).await;
    model.allowed.add_permits(100);
    let mut setup = setup(&receiver);
    model.give(&mut setup);
    let service = Service::start(setup).await;
    let (id, start) = service.session(json!({"greeting": "Welcome."})).await;
    assert_eq!(event(&receiver.next().await)["type"], "session.started");
    let mut caller = Caller::greeted(&service, &start).await;
    caller.write("I must go.").await;
    assert_eq!(caller.goodbye().await, 4000);
    let ended = event(&receiver.next().await);
    assert_eq!(ended["data"]["reason"], "goodbye");
    assert_eq!(ended["data"]["summary"]["text"], "The caller said goodbye.");
    assert_eq!(ended["data"]["summary"]["by"], "chat");
    let status = service.until(&id, |status| status["summary"]["by"] == "chat").await;
    assert_eq!(status["summary"]["caller_turns"], 1);
}
