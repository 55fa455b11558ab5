//! Text messages: retried until the provider accepts them, reported as sent then, and promised only if they can be sent.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hyper::header::{HeaderValue, RETRY_AFTER};
use hyper::{Method, StatusCode};
use serde_json::{Value, json};
use verbatim::http::{self, Router};

use super::doubles;
use super::room::Caller;
use super::service::{Service, Setup};
use crate::server::Door;

const TAKEN: (u16, Option<&str>) = (201, None);

/// The provider's `Messages` resource: answers as is written down, and then takes everything.
struct Provider {
    url: String,
    /// The time and the body of a request.
    asked: Arc<Mutex<Vec<(Instant, String)>>>,
    _door: Door,
}

impl Provider {
    async fn start(script: &[(u16, Option<&'static str>)]) -> Self {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let script = Arc::new(Mutex::new(VecDeque::from(script.to_vec())));
        let noted = asked.clone();
        let handler = move |request: http::Request| {
            let (noted, script) = (noted.clone(), script.clone());
            async move {
                let body = request.body.collect().await?;
                let body = String::from_utf8(body.bytes().to_vec()).expect("text");
                noted.lock().expect("no test panics here").push((Instant::now(), body));
                let (status, retry_after) =
                    script.lock().expect("no test panics here").pop_front().unwrap_or(TAKEN);
                let fate = if status == 200 { "failed" } else { "queued" };
                let body = json!({"sid": "SM1", "status": fate, "error_code": 30008});
                let mut response = http::json(StatusCode::from_u16(status).expect("a status"), &body);
                if let Some(seconds) = retry_after {
                    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static(seconds));
                }
                Ok(response)
            }
        };
        let router = Router::new().route(Method::POST, "/2010-04-01/Accounts/AC1/Messages.json", handler);
        let door = Door::open(router, http::Config::default()).await;
        Self { url: format!("http://{}", door.address), asked, _door: door }
    }

    fn give(&self) -> Setup {
        let mut setup = Setup::default();
        doubles::send_by(&self.url, &mut setup);
        setup
    }

    fn count(&self) -> usize {
        self.asked.lock().expect("no test panics here").len()
    }

    /// Between one attempt and the next.
    fn waits(&self) -> Vec<Duration> {
        let asked = self.asked.lock().expect("no test panics here");
        asked.windows(2).map(|pair| pair[1].0 - pair[0].0).collect()
    }

    fn last(&self) -> String {
        self.asked.lock().expect("no test panics here").last().expect("asked").1.clone()
    }
}

fn start() -> Value {
    json!({"caller_number": "+14155552671", "link_catalog": {"forms": "https://front.example/forms"}})
}

async fn verified(service: &Service) -> String {
    let (id, _) = service.session(start()).await;
    verify(service, &id).await;
    id
}

async fn verify(service: &Service, id: &str) -> Value {
    let details = json!({"sms_catalog_key": "forms"});
    let verification = json!({"action": "verification", "session_id": id, "category": "c", "verified": true, "details": details});
    service.act(verification).await
}

/// The status after a failed attempt, before the next one.
async fn waiting(service: &Service, id: &str, attempts: u64, error: &str) {
    let is_waiting = |status: &Value| {
        let message = &status["pending_sms"][0];
        message["attempts"] == attempts && message["status"] == "queued"
    };
    let status = service.until(id, is_waiting).await;
    assert_eq!(status["pending_sms"][0]["error"], error);
    assert_eq!((&status["sms"]["sent"], &status["sms"]["failed"]), (&json!([]), &json!([])));
}

#[tokio::test]
async fn what_the_provider_has_not_taken_is_tried_again_and_not_called_sent() {
    let provider = Provider::start(&[(500, None), (429, Some("3"))]).await;
    let service = Service::start(provider.give()).await;
    let id = verified(&service).await;
    waiting(&service, &id, 1, "status 500").await;
    waiting(&service, &id, 2, "status 429").await;
    let status = service.until(&id, |status| status["sms"]["sent"][0]["status"] == "sent").await;
    assert_eq!(status["sms"]["sent"][0]["attempts"], 3);
    assert_eq!((&status["pending_sms"], &status["sms"]["failed"]), (&json!([]), &json!([])));
    assert_eq!(status["sms"]["sent"][0]["error"], Value::Null);
    let waits = provider.waits();
    assert_eq!(waits.len(), 2);
    assert!(waits[0] >= Duration::from_millis(950) && waits[1] >= Duration::from_millis(2950), "{waits:?}");
    // A second verification asks for the same message, which is there already.
    verify(&service, &id).await;
    assert_eq!(service.status(&id).await["sms"]["sent"].as_array().map(Vec::len), Some(1));
    assert_eq!(provider.count(), 3);
}

#[tokio::test]
async fn a_message_that_waits_outlives_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let provider = Provider::start(&[(503, Some("2"))]).await;
    let service = Service::start_in(folder.path(), provider.give()).await;
    let id = verified(&service).await;
    waiting(&service, &id, 1, "status 503").await;
    service.stop().await;
    let service = Service::start_in(folder.path(), provider.give()).await;
    service.until(&id, |status| status["sms"]["sent"][0]["status"] == "sent").await;
    let waits = provider.waits();
    assert!(waits.len() == 1 && waits[0] >= Duration::from_millis(1950), "{waits:?}");
}

/// An ended session needs its links only for messages that are still to be sent.
#[tokio::test]
async fn a_message_that_waits_goes_out_after_the_end_and_after_a_restart() {
    let text = "Body=Here+is+the+link+you+asked+for%3A+https%3A%2F%2Ffront.example%2Fforms";
    for restarts in [false, true] {
        let folder = tempfile::tempdir().expect("a folder");
        let provider = Provider::start(&[(503, Some("5"))]).await;
        let mut service = Service::start_in(folder.path(), provider.give()).await;
        let (id, started) = service.session(start()).await;
        verify(&service, &id).await;
        waiting(&service, &id, 1, "status 503").await;
        let mut caller = Caller::join(&service, &started).await;
        caller.listen().await;
        caller.write("Goodbye!").await;
        assert_eq!(caller.goodbye().await, 4000);
        let status = service.status(&id).await;
        assert_eq!(
            (&status["status"], &status["pending_sms"][0]["status"]),
            (&json!("ended"), &json!("queued"))
        );
        if restarts {
            service.stop().await;
            service = Service::start_in(folder.path(), provider.give()).await;
        }
        let status = service.until(&id, |status| status["sms"]["sent"][0]["status"] == "sent").await;
        assert_eq!((&status["status"], &status["pending_sms"]), (&json!("ended"), &json!([])));
        assert_eq!(provider.count(), 2);
        assert!(provider.last().contains(text), "{}", provider.last());
    }
}

#[tokio::test]
async fn what_the_provider_will_not_take_has_failed() {
    for (answer, error) in [
        ((429, Some("3600")), "status 429"),
        ((404, None), "status 404"),
        ((302, None), "status 302"),
        // Taken, and failed.
        ((200, None), "code 30008"),
    ] {
        let provider = Provider::start(&[answer]).await;
        let service = Service::start(provider.give()).await;
        let id = verified(&service).await;
        let status = service.until(&id, |status| status["sms"]["failed"][0]["status"] == "failed").await;
        assert_eq!(status["sms"]["failed"][0]["error"], error);
        assert_eq!((&status["sms"]["sent"], &status["pending_sms"]), (&json!([]), &json!([])), "{answer:?}");
        assert_eq!(provider.count(), 1);
    }
}

#[tokio::test]
async fn without_a_provider_no_text_message_is_promised() {
    let folder = tempfile::tempdir().expect("a folder");
    let records = folder.path().join("records.json");
    std::fs::write(&records, r#"[{"digits": "1234", "sms_catalog_key": "forms"}]"#).expect("writable");
    let mut setup = Setup::default();
    setup.config.verification.records = Some(records);
    let service = Service::start(setup).await;
    let start = json!({
        "greeting": "Hello.", "caller_number": "+14155552671",
        "link_catalog": {"forms": {"url": "https://front.example/forms", "title": "the form"}},
        "verification_rules": {"patient_information": {"voice_prompt": "Your digits, please."}},
    });
    let (id, started) = service.session(start).await;
    service.ready(&id).await;
    let mut caller = Caller::join(&service, &started).await;
    caller.listen().await;
    caller.write("Can you text me the link to the form?").await;
    assert_eq!(caller.listen().await, "You can find the form at https://front.example/forms.");
    caller.write("What are my test results?").await;
    caller.listen().await;
    caller.key("1234").await;
    assert_eq!(caller.listen().await, "Thank you, you are verified.");
    // It is there to be seen, and waits.
    let status = service.status(&id).await;
    assert_eq!(
        (&status["sms"]["provider"], &status["pending_sms"][0]["status"]),
        (&json!("none"), &json!("queued"))
    );
    assert_eq!(status["sms"]["sent"], json!([]));
}

#[tokio::test]
async fn what_was_sent_is_not_promised_again() {
    let provider = Provider::start(&[TAKEN, (400, None)]).await;
    let service = Service::start(provider.give()).await;
    let links = json!({"forms": {"url": "https://front.example/f", "title": "the form"}, "privacy": "https://front.example/p"});
    let (id, started) = service
        .session(json!({"greeting": "Hello.", "caller_number": "+14155552671", "link_catalog": links}))
        .await;
    service.ready(&id).await;
    let mut caller = Caller::join(&service, &started).await;
    caller.listen().await;
    caller.write("Please text me the form.").await;
    assert_eq!(caller.listen().await, "I'll text you the link to the form.");
    service.until(&id, |status| status["sms"]["sent"][0]["status"] == "sent").await;
    caller.write("Please text me the form.").await;
    assert_eq!(
        caller.listen().await,
        "The text message with the link to the form was sent. You can find it at https://front.example/f."
    );
    caller.write("Please send me the privacy link.").await;
    assert_eq!(caller.listen().await, "I'll text you the link to privacy.");
    assert_eq!(caller.listen().await, "I'm sorry, the text message could not be sent.");
    caller.write("Please send me the privacy link.").await;
    assert_eq!(
        caller.listen().await,
        "The text message with the link to privacy could not be sent. You can find it at https://front.example/p."
    );
    assert_eq!(provider.count(), 2);
}
