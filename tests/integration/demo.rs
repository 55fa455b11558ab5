//! The demo backend, with a double of the voice-agent service behind it.

use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use hyper::{Method, StatusCode};
use serde_json::{Value, json};
use sha1::Sha1;
use verbatim::demo::{self, Config, Demo, Error, Secret};
use verbatim::http::{self, Failure, Router, json as reply_json};

use crate::server::{Door, answer, client, read, refusal};

const SESSION: &str = "sess_0123456789ab";
const ROOM: &str = "sts-7d4f3a52-9f0e-4d4c-8a21-3f5b6c7d8e9f";
const KEY: &str = "sesame";

#[derive(Clone, Copy, PartialEq)]
enum Mood {
    Well,
    /// Every action but `start` fails.
    Failing,
    Busy,
    Silent,
}

/// What reached the double: the body's bytes, and `Authorization`.
type Log = Arc<Mutex<Vec<(Vec<u8>, String)>>>;

/// The voice-agent service, as the contract has it: knows one session.
async fn double(mood: Mood, log: Log) -> Door {
    let agent = move |request: http::Request| {
        let log = log.clone();
        async move {
            let key =
                request.headers.get("authorization").map_or("", |key| key.to_str().expect("text")).to_owned();
            let body = request.body.collect().await?;
            log.lock().expect("no panic").push((body.bytes().to_vec(), key));
            let bad = |status, code: &'static str| Failure::new(status, code, "No.");
            if mood == Mood::Silent {
                std::future::pending::<()>().await;
            }
            let action: Value = serde_json::from_slice(&body.bytes())
                .map_err(|_| bad(StatusCode::BAD_REQUEST, "INVALID_JSON"))?;
            match (mood, action["action"].as_str()) {
                (Mood::Busy, _) => Err(Failure::busy(std::time::Duration::from_secs(7))),
                (_, Some("start")) => {
                    let reply = json!({"ok": true, "session_id": SESSION, "room_name": ROOM});
                    Ok(reply_json(StatusCode::OK, &reply))
                }
                (Mood::Failing, _) => Err(Failure::internal("broken")),
                _ if action["session_id"] != SESSION => Err(bad(StatusCode::NOT_FOUND, "SESSION_NOT_FOUND")),
                _ => Ok(reply_json(StatusCode::OK, &json!({"ok": true, "session_id": SESSION}))),
            }
        }
    };
    Door::open(Router::new().route(Method::POST, "/STS/interactiveAgent", agent), http::Config::default())
        .await
}

struct Backend {
    door: Door,
    site: Door,
    sts: Door,
    log: Log,
}

impl Backend {
    async fn start(mood: Mood, config: Config) -> Self {
        let log = Log::default();
        let sts = double(mood, log.clone()).await;
        let config = Config {
            api_key: Some(Secret::from(KEY)),
            sts_base_url: format!("http://{}/", sts.address),
            sts_timeout_ms: if mood == Mood::Silent { 100 } else { 10_000 },
            ..config
        };
        let demo = Demo::new(&config).expect("a demo");
        let door = Door::open(demo::router(&demo), http::Config::default()).await;
        let site = Door::open(demo::site(&demo), http::Config::default()).await;
        Self { door, site, sts, log }
    }

    async fn well() -> Self {
        Self::start(Mood::Well, Config::default()).await
    }

    fn post(&self, path: &str) -> reqwest::RequestBuilder {
        client().post(format!("http://{}{path}", self.door.address)).header("x-api-key", KEY)
    }

    fn send(&self, path: &str, body: &Value) -> reqwest::RequestBuilder {
        self.post(path).header("content-type", "application/json").body(body.to_string())
    }

    async fn call(&self) -> (u16, String) {
        let form = "CallSid=CA1&From=%2B12025550143&To=%2B15005550006";
        let response =
            client().post(format!("http://{}/webhooks/twilio/incoming-call", self.door.address)).body(form);
        let response = response.send().await.expect("an answer");
        let status = response.status().as_u16();
        assert_eq!(response.headers()["content-type"], "text/xml");
        (status, response.text().await.expect("text"))
    }

    /// The actions that reached the service since the last look.
    fn actions(&self) -> Vec<Value> {
        let log = std::mem::take(&mut *self.log.lock().expect("no panic"));
        log.iter().map(|(body, _)| serde_json::from_slice(body).expect("JSON")).collect()
    }
}

const KEYED: [&str; 7] = [
    "/api/interactive-agent",
    "/api/hooks/voice-verify",
    "/api/client/form-event",
    "/api/client/form-even",
    "/api/client/verify-and-submit",
    "/api/client/verify-patient-info-demo",
    "/api/client/form-completed",
];

#[tokio::test]
async fn every_route_but_health_and_the_webhooks_asks_for_the_key() {
    let backend = Backend::well().await;
    for path in KEYED {
        let url = format!("http://{}{path}", backend.door.address);
        for keys in [&[][..], &["wrong"], &[""], &["verbatim-demo-key"], &[KEY, KEY]] {
            let request =
                keys.iter().fold(client().post(&url), |request, key| request.header("x-api-key", *key));
            assert_eq!(refusal(request.body("{}")).await, (401, "INVALID_AUTH".into()), "{path} {keys:?}");
        }
        let get = client().get(&url).header("x-api-key", KEY);
        assert_eq!(refusal(get).await.0, 405, "{path}");
    }
    let health = client().get(format!("http://{}/health", backend.door.address));
    assert_eq!(answer(health).await, (200, json!({"status": "ok"})));
    assert!(backend.actions().is_empty());
}

#[tokio::test]
async fn the_proxy_passes_bodies_and_answers_as_they_are() {
    let config = Config { sts_api_key: Some(Secret::from("org_1")), ..Config::default() };
    let backend = Backend::start(Mood::Well, config).await;
    let body = format!("{{ \"session_id\" : \"{SESSION}\",\n \"action\":\"status\", \"x\": 1.0e2 }} ");
    let (status, reply) =
        read(backend.post(KEYED[0]).body(body.clone()).send().await.expect("an answer")).await;
    assert_eq!((status, reply), (200, json!({"ok": true, "session_id": SESSION})));
    assert_eq!(*backend.log.lock().expect("no panic"), [(body.into_bytes(), "Bearer org_1".to_owned())]);
    for (body, expected) in
        [("not JSON", (400, "INVALID_JSON")), (r#"{"action": "status"}"#, (404, "SESSION_NOT_FOUND"))]
    {
        let response = backend.post(KEYED[0]).body(body).send().await.expect("an answer");
        let status = response.status().as_u16();
        let reply: Value = serde_json::from_str(&response.text().await.expect("text")).expect("JSON");
        assert_eq!((status, reply["err_code"].as_str().expect("text")), expected);
    }
    let backend = Backend::start(Mood::Failing, Config::default()).await;
    let response = backend.post(KEYED[0]).body(r#"{"action": "status"}"#).send().await.expect("an answer");
    assert_eq!(response.status(), 500);
}

#[tokio::test]
async fn trouble_with_the_service_is_told_apart() {
    let event = json!({"session_id": SESSION, "page": "/forms"});
    let paths = ["/api/interactive-agent", "/api/client/form-event"];
    let backend = Backend::start(Mood::Silent, Config::default()).await;
    for path in paths {
        assert_eq!(refusal(backend.send(path, &event)).await, (504, "STS_TIMEOUT".into()));
    }
    let backend = Backend::start(Mood::Failing, Config::default()).await;
    assert_eq!(refusal(backend.send(paths[1], &event)).await, (502, "STS_UNAVAILABLE".into()));
    let backend = Backend::start(Mood::Busy, Config::default()).await;
    for path in paths {
        let response = backend.send(path, &event).send().await.expect("an answer");
        assert_eq!(
            (response.status().as_u16(), &response.headers()["retry-after"]),
            (503, &"7".parse().expect(""))
        );
    }
    let Backend { door, sts, site: _site, log: _log } = Backend::well().await;
    sts.stop().await;
    for path in paths {
        let request = client().post(format!("http://{}{path}", door.address)).header("x-api-key", KEY);
        assert_eq!(refusal(request.body(event.to_string())).await, (502, "STS_UNAVAILABLE".into()));
    }
}

async fn hook(backend: &Backend, body: Value) -> (bool, Value) {
    let (status, mut reply) = answer(backend.send(KEYED[1], &body)).await;
    assert_eq!(status, 200, "{reply}");
    (reply["verified"].as_bool().expect("a flag"), reply["details"]["sms_catalog_key"].take())
}

fn said(utterance: &str) -> Value {
    json!({"session_id": SESSION, "utterance": utterance, "category": "patient_information"})
}

#[tokio::test]
async fn the_hook_understands_what_is_said() {
    let backend = Backend::well().await;
    for (utterance, key) in [
        ("Four five six seven.", json!("patient_information")),
        ("double four three one, please", json!("patient_information")),
        ("0812", json!("forms")),
        ("P-1003, zero eight one two", json!("forms")),
        ("one two three four", Value::Null),
        ("four five six", Value::Null),
        ("4567 4431", Value::Null),
        ("", Value::Null),
    ] {
        assert_eq!(hook(&backend, said(utterance)).await, (!key.is_null(), key), "{utterance}");
    }
    for field in ["session_id", "category"] {
        let mut body = said("4567");
        body[field] = Value::Null;
        assert_eq!(refusal(backend.send(KEYED[1], &body)).await, (400, "INVALID_FIELD".into()));
    }
    let mut other = said("4567");
    other["category"] = json!("billing");
    assert_eq!(refusal(backend.send(KEYED[1], &other)).await, (403, "CATEGORY_NOT_ALLOWED".into()));
    let any = Config { voice_verify_allowed_categories: vec!["*".into()], ..Config::default() };
    assert!(hook(&Backend::start(Mood::Well, any).await, other).await.0);
    assert!(backend.actions().is_empty());
}

#[tokio::test]
async fn the_hook_may_ask_for_the_patient_id_too() {
    let config = Config { voice_verify_require_patient_id: true, ..Config::default() };
    let backend = Backend::start(Mood::Well, config).await;
    for (utterance, verified) in [
        ("four five six seven", false),
        ("patient one zero zero one, four five six seven", true),
        ("4567, and my id is P-1001", true),
        ("1002 4567", false),
    ] {
        assert_eq!(hook(&backend, said(utterance)).await.0, verified, "{utterance}");
    }
    let mut with_id = said("4567");
    for (id, verified) in [("P-1001", true), ("P-1002", false)] {
        with_id["patient_id"] = json!(id);
        assert_eq!(hook(&backend, with_id.clone()).await.0, verified);
    }
}

#[tokio::test]
async fn a_form_event_becomes_page_context() {
    let backend = Backend::well().await;
    for path in &KEYED[2..4] {
        let page = json!({
            "page": "/forms", "step": 2, "form_name": "healthcare_signup", "locale": "en",
            "sections": [{"title": "You", "fields": [
                {"name": "name", "filled": true}, {"name": "ssn_last4", "filled": true},
            ]}],
        });
        let mut body = page.clone();
        body["session_id"] = json!(SESSION);
        // Who somebody is does not reach the agent, wherever it stands.
        body["ssn_last4"] = json!("4567");
        body["sections"][0]["fields"][1]["value"] = json!("4567");
        body["sections"][0]["identity"] = json!({});
        let mut page = page.clone();
        page["sections"][0]["identity"] = json!({});
        body["sections"][0]["identity"]["dateOfBirth"] = json!("1984-03-09");
        assert_eq!(answer(backend.send(path, &body)).await.0, 200);
        let expected = json!({"action": "page_context", "session_id": SESSION, "page_context": page});
        assert_eq!(backend.actions(), [expected]);
        for body in [
            json!({"page": "/forms"}),
            json!({"session_id": SESSION}),
            json!({"session_id": SESSION, "page": 1}),
            json!({"session_id": SESSION, "page": "/", "sections": "all"}),
            json!({"session_id": 7, "page": "/"}),
        ] {
            assert_eq!(refusal(backend.send(path, &body)).await, (400, "INVALID_FIELD".into()), "{body}");
        }
        assert_eq!(refusal(backend.send(path, &json!([]))).await, (400, "INVALID_JSON".into()));
    }
    assert!(backend.actions().is_empty());
    let unknown = backend.send(KEYED[2], &json!({"session_id": "sess_ffffffffffff", "page": "/"}));
    let response = unknown.send().await.expect("an answer");
    assert_eq!(response.status(), 404);
    assert!(response.text().await.expect("text").contains("SESSION_NOT_FOUND"));
}

fn submission(form_name: &str, caller_number: Value) -> Value {
    json!({
        "session_id": SESSION, "form_name": form_name, "caller_number": caller_number,
        "ssn_last4": "4567", "date_of_birth": "1984-03-09", "updated_fields": ["name"],
    })
}

#[tokio::test]
async fn verify_and_submit_verifies_and_then_completes() {
    let backend = Backend::well().await;
    for (form_name, number, category) in [
        ("healthcare_signup", json!(null), "form"),
        ("healthcare_signup", json!("+12025550199"), "form"),
        ("intake", json!("+12025550143"), "patient_information"),
    ] {
        let (status, reply) = answer(backend.send(KEYED[4], &submission(form_name, number))).await;
        assert_eq!((status, &reply["verified"], &reply["category"]), (200, &json!(true), &json!(category)));
        let verification = json!({
            "action": "verification", "session_id": SESSION, "category": category, "verified": true,
            "details": {"form_name": form_name},
        });
        let completion = json!({
            "action": "completion", "session_id": SESSION, "status": "completed", "updated_fields": ["name"],
        });
        assert_eq!(backend.actions(), [verification, completion]);
    }
    // Whoever does not sign up must call from their own number, to the letter.
    for number in ["+12025550199", "+12025550178", "12025550143", "+1 202 555 0143"] {
        let mut body = submission("intake", json!(number));
        body["session_id"] = json!(format!("sess_{number}"));
        let request = backend.send(KEYED[4], &body);
        assert_eq!(refusal(request).await, (403, "NOT_VERIFIED".into()), "{number}");
    }
    for (field, value) in [("ssn_last4", "9044"), ("date_of_birth", "1984-03-10")] {
        let mut body = submission("healthcare_signup", json!(null));
        body[field] = json!(value);
        assert_eq!(refusal(backend.send(KEYED[4], &body)).await, (403, "NOT_VERIFIED".into()), "{field}");
    }
    for field in ["session_id", "form_name", "ssn_last4", "date_of_birth", "caller_number"] {
        let mut body = submission("intake", json!("+12025550143"));
        body[field] = Value::Null;
        assert_eq!(refusal(backend.send(KEYED[4], &body)).await, (400, "INVALID_FIELD".into()), "{field}");
    }
    assert!(backend.actions().is_empty());
}

#[tokio::test]
async fn patients_are_known_by_four_digits_and_their_id() {
    let backend = Backend::well().await;
    for (id, ssn, key) in [
        (json!(null), "4567", Some("patient_information")),
        (json!("P-1003"), "0812", Some("forms")),
        (json!("P-1002"), "4567", None),
        (json!(null), "1234", None),
    ] {
        let body = json!({"session_id": SESSION, "ssn_last4": ssn, "patient_id": id});
        let request = backend.send(KEYED[5], &body);
        let Some(key) = key else {
            assert_eq!(refusal(request).await, (403, "NOT_VERIFIED".into()));
            continue;
        };
        assert_eq!(answer(request).await.1["details"], json!({"sms_catalog_key": key}));
        let expected = json!({
            "action": "verification", "session_id": SESSION, "category": "patient_information",
            "verified": true, "details": {"sms_catalog_key": key},
        });
        assert_eq!(backend.actions(), [expected]);
    }
    for ssn in [json!("456"), json!("45678"), json!("four"), json!(4567), json!(null)] {
        let body = json!({"session_id": SESSION, "ssn_last4": ssn});
        assert_eq!(refusal(backend.send(KEYED[5], &body)).await, (400, "INVALID_FIELD".into()), "{ssn}");
    }
    assert!(backend.actions().is_empty());
}

#[tokio::test]
async fn nobody_guesses_four_digits_on_and_on() {
    let backend = Backend::well().await;
    let typed =
        |session: &str, ssn: &str| backend.send(KEYED[5], &json!({"session_id": session, "ssn_last4": ssn}));
    // Being right is no guess too many.
    for _ in 0..10 {
        assert_eq!(answer(typed(SESSION, "4567")).await.0, 200);
    }
    for digits in ["1111", "2222"] {
        assert_eq!(refusal(typed(SESSION, digits)).await.0, 403);
    }
    assert!(!hook(&backend, said("three three three three")).await.0);
    let mut form = submission("intake", json!("+12025550143"));
    form["ssn_last4"] = json!("4444");
    assert_eq!(refusal(backend.send(KEYED[4], &form)).await.0, 403);
    assert!(!hook(&backend, said("five five five five")).await.0);
    // The same count for all ways to be wrong; and now the right one is refused too.
    backend.actions();
    let locked = || (429, "TOO_MANY_ATTEMPTS".to_owned());
    let response = typed(SESSION, "4567").send().await.expect("an answer");
    assert!(response.headers().contains_key("retry-after"));
    assert_eq!(refusal(typed(SESSION, "4567")).await, locked());
    assert_eq!(refusal(backend.send(KEYED[1], &said("four five six seven"))).await, locked());
    assert_eq!(refusal(backend.send(KEYED[4], &submission("intake", json!("+12025550143")))).await, locked());
    assert!(backend.actions().is_empty());
    // Other sessions go on, until all of them together have guessed too much.
    assert_eq!(refusal(typed("sess_000000000000", "1111")).await.0, 403);
    let mut guesses = 0;
    while refusal(typed(&format!("sess_{guesses:012x}"), "1111")).await.0 == 403 {
        guesses += 1;
        assert!(guesses < 200, "all codes can be tried");
    }
}

#[tokio::test]
async fn completion_asks_for_no_credentials() {
    let backend = Backend::well().await;
    let body = json!({"session_id": SESSION, "status": "submitted", "message": "Thanks.", "updated_fields": {"a": 1}});
    let reply = json!({"ok": true, "session_id": SESSION, "completed": true});
    assert_eq!(answer(backend.send(KEYED[6], &body)).await, (200, reply));
    let mut expected = body;
    expected["action"] = json!("completion");
    assert_eq!(backend.actions(), [expected]);
    assert_eq!(refusal(backend.send(KEYED[6], &json!({}))).await, (400, "INVALID_FIELD".into()));
}

#[tokio::test]
async fn a_call_is_started_bound_and_redirected() {
    let config = Config { frontend_base_url: "https://pages.example/".into(), ..Config::default() };
    let backend = Backend::start(Mood::Well, config).await;
    let (status, xml) = backend.call().await;
    let expected = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?><Response><Redirect method=\"POST\">\
         http://{}/api/twilio/incoming-call?session_id={SESSION}&amp;room_name={ROOM}\
         &amp;to=%2B15005550006&amp;from=%2B12025550143</Redirect></Response>",
        backend.sts.address
    );
    assert_eq!((status, xml), (200, expected));
    let actions = backend.actions();
    let [start, bind] = actions.as_slice() else { panic!("{actions:?}") };
    assert_eq!((&start["action"], &start["channel"]), (&json!("start"), &json!("phone")));
    assert_eq!(start["website_url"], "https://example.com");
    assert!(start["verification_rules"]["patient_information"]["voice_prompt"].is_string());
    assert!(start["verification_rules"]["patient_information"]["voice_prompt_short"].is_string());
    for key in ["forms", "patient_information", "privacy", "default"] {
        let url = start["link_catalog"][key]["url"].as_str().expect("an address");
        assert!(url.starts_with("https://pages.example/"), "{url}");
    }
    let expected = json!({"action": "bind_caller", "session_id": SESSION, "caller_number": "+12025550143"});
    assert_eq!(*bind, expected);
}

#[tokio::test]
async fn a_caller_without_a_number_is_not_bound_and_their_words_are_escaped() {
    let backend = Backend::well().await;
    let url = format!("http://{}/webhooks/twilio/incoming-call", backend.door.address);
    let form = "CallSid=CA1&From=sip%3A%3Ca%26b%22%3E%40c&To=%2B15005550006";
    let xml = client().post(&url).body(form).send().await.expect("an answer").text().await.expect("text");
    assert!(xml.contains("from=sip%3A%3Ca%26b%22%3E%40c</Redirect>"), "{xml}");
    assert_eq!(backend.actions().len(), 1);
    assert_eq!(refusal(client().post(&url).body("From=x")).await, (400, "INVALID_FIELD".into()));
}

#[tokio::test]
async fn a_call_that_gets_no_session_hears_an_apology() {
    for mood in [Mood::Busy, Mood::Silent] {
        let (status, xml) = Backend::start(mood, Config::default()).await.call().await;
        assert_eq!(status, 200);
        assert!(xml.contains("<Say>") && xml.contains("<Hangup/>") && !xml.contains("Redirect"), "{xml}");
    }
    // Not bound, but there is a session to talk to.
    let (status, xml) = Backend::start(Mood::Failing, Config::default()).await.call().await;
    assert!(status == 200 && xml.contains("<Redirect"), "{xml}");
}

#[tokio::test]
async fn call_status_is_echoed() {
    let backend = Backend::well().await;
    let url = format!("http://{}/webhooks/twilio/call-status", backend.door.address);
    let reply = answer(client().post(&url).body("CallSid=CA1&CallStatus=completed&From=%2B1")).await;
    assert_eq!(reply, (200, json!({"ok": true, "call_sid": "CA1", "call_status": "completed"})));
}

#[tokio::test]
async fn with_a_token_the_provider_must_sign() {
    let config = Config {
        twilio_auth_token: Some(Secret::from("12345")),
        public_url: Some("https://demo.example".into()),
        ..Config::default()
    };
    let backend = Backend::start(Mood::Well, config).await;
    let sign = |text: &str| {
        let mut mac = Hmac::<Sha1>::new_from_slice(b"12345").expect("any length");
        mac.update(text.as_bytes());
        STANDARD.encode(mac.finalize().into_bytes())
    };
    for path in ["/webhooks/twilio/incoming-call", "/webhooks/twilio/call-status"] {
        let request = || {
            let url = format!("http://{}{path}", backend.door.address);
            client().post(url).body("From=%2B12025550143&CallSid=CA1&CallStatus=ringing")
        };
        let signed = format!("{path}CallSidCA1CallStatusringingFrom+12025550143");
        for base in ["https://demo.example", "https://demo.example:443"] {
            let signature = sign(&format!("{base}{signed}"));
            let response = request().header("x-twilio-signature", signature).send().await.expect("an answer");
            assert_eq!(response.status(), 200, "{base}{path}");
        }
        let wrong = sign(&format!("https://other.example{signed}"));
        for signature in [None, Some(""), Some("!"), Some(wrong.as_str())] {
            let request = signature.iter().fold(request(), |r, value| r.header("x-twilio-signature", *value));
            assert_eq!(refusal(request).await, (403, "INVALID_SIGNATURE".into()), "{signature:?}");
        }
    }
}

#[tokio::test]
async fn pages_tell_the_agent_of_themselves_by_the_link_that_was_sent() {
    let backend = Backend::well().await;
    let url = |path: &str| format!("http://{}{path}", backend.site.address);
    for path in ["/", "/forms", "/patients", "/privacy", "/page.js"] {
        let response = client().get(url(path)).send().await.expect("an answer");
        assert_eq!(response.status(), 200, "{path}");
        assert!(response.headers()["content-security-policy"].to_str().expect("text").contains("'self'"));
        assert!(!response.text().await.expect("text").contains(KEY));
    }
    backend.call().await;
    let actions = backend.actions();
    let link = actions[0]["link_catalog"]["forms"]["url"].as_str().expect("an address").to_owned();
    let (page, visit) = link.split_once("?visit=").expect("a visit");
    assert_eq!(page, "http://localhost:3000/forms");
    let event = |name: &str, body: Value| {
        client()
            .post(url(&format!("/events/{name}")))
            .header("content-type", "application/json")
            .body(body.to_string())
    };
    let told = event("form-event", json!({"visit": visit, "page": "/forms", "step": "opened"}));
    assert_eq!(answer(told).await.0, 200);
    let context = json!({"page": "/forms", "step": "opened"});
    let expected = json!({"action": "page_context", "session_id": SESSION, "page_context": context});
    assert_eq!(backend.actions(), [expected]);
    let submit = json!({"visit": visit, "form_name": "healthcare_signup", "ssn_last4": "4567", "date_of_birth": "1984-03-09"});
    assert_eq!(answer(event("verify-and-submit", submit)).await.1["completed"], true);
    let verify = json!({"visit": visit, "ssn_last4": "4567", "patient_id": ""});
    assert_eq!(answer(event("verify-patient-info-demo", verify)).await.1["verified"], true);
    assert_eq!(answer(event("form-completed", json!({"visit": visit}))).await.0, 200);
    assert_eq!(backend.actions().len(), 4);
    let lost = event("form-event", json!({"visit": "0", "page": "/"}));
    assert_eq!(refusal(lost).await, (404, "VISIT_NOT_FOUND".into()));
    assert_eq!(refusal(event("other", json!({}))).await.0, 404);
    let text = client().post(url("/events/form-event")).body("{}");
    assert_eq!(refusal(text).await, (415, "UNSUPPORTED_MEDIA_TYPE".into()));
}

#[test]
fn the_built_in_key_is_for_loopback_only() {
    for (listen, site, key, works) in [
        ("127.0.0.1:0", None, None, true),
        ("[::1]:0", None, Some(""), true),
        ("0.0.0.0:0", None, None, false),
        ("127.0.0.1:0", Some("0.0.0.0:0"), None, false),
        ("192.0.2.1:0", None, Some("verbatim-demo-key"), false),
        ("0.0.0.0:0", None, Some(KEY), true),
    ] {
        let config = Config {
            listen: listen.parse().expect("an address"),
            site_listen: site.map(|site: &str| site.parse().expect("an address")),
            api_key: key.map(Secret::from),
            ..Config::default()
        };
        match Demo::new(&config) {
            Ok(_) => assert!(works, "{listen} {key:?}"),
            Err(error) => {
                assert!(!works && matches!(error, Error::BuiltInKey(_)), "{listen} {key:?}: {error}")
            }
        }
    }
}

#[test]
fn the_story_shows_no_key_that_is_a_secret() {
    let story = |key: Option<&str>| {
        let config = Config { api_key: key.map(Secret::from), ..Config::default() };
        demo::story(&config, "http://127.0.0.1:1")
    };
    assert!(story(None).contains("-H 'X-API-Key: verbatim-demo-key'"));
    let with_secret = story(Some(KEY));
    assert!(!with_secret.contains(KEY) && with_secret.contains("$DEMO_API_KEY"), "{with_secret}");
}

#[tokio::test]
async fn what_the_pages_name_is_there() {
    let backend = Backend::well().await;
    let url = |path: &str| format!("http://{}{path}", backend.site.address);
    for path in ["/", "/forms", "/patients", "/privacy"] {
        let page = client().get(url(path)).send().await.expect("an answer").text().await.expect("text");
        // Every address that a page names leads to something, and every input has a label and a name.
        for name in ["href=\"", "src=\""] {
            for (at, _) in page.match_indices(name) {
                let target = page[at + name.len()..].split('"').next().expect("its end");
                let answer = client().get(url(target)).send().await.expect("an answer");
                assert_eq!(answer.status(), 200, "{target} of {path}");
            }
        }
        assert_eq!(page.matches("<input").count(), page.matches("<label").count(), "{path}");
        assert_eq!(page.matches("<input").count(), page.matches("<input name=\"").count(), "{path}");
        assert_eq!(page.matches("src=\"/page.js\"").count(), 1, "{path}");
        // What its form is sent to is there.
        for (at, _) in page.match_indices("data-event=\"") {
            let event = page[at + "data-event=\"".len()..].split('"').next().expect("its end");
            let request = client()
                .post(url(&format!("/events/{event}")))
                .header("content-type", "application/json")
                .body("{}");
            assert_eq!(refusal(request).await, (400, "INVALID_FIELD".into()), "{event} of {path}");
        }
    }
}

#[test]
fn people_may_come_from_a_file_and_mistakes_quote_nobody() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let open = |text: &str| {
        std::fs::write(file.path(), text).expect("writable");
        Demo::new(&Config { records: Some(file.path().to_owned()), ..Config::default() })
    };
    assert!(open(r#"{"profiles": [], "patients": []}"#).is_ok());
    let error = open(r#"{"profiles": [{"caller_number": 4711}]}"#).err().expect("no records").to_string();
    assert!(error.contains("line 1") && !error.contains("4711"), "{error}");
    for address in ["localhost:8000", "ftp://a.example", ""] {
        let config = Config { sts_base_url: address.into(), ..Config::default() };
        assert!(matches!(Demo::new(&config), Err(Error::Address("demo.sts_base_url"))), "{address}");
    }
}

#[test]
fn pages_are_served_where_the_front_end_is_on_this_machine() {
    for (frontend, expected) in [
        ("http://localhost:3000", Some("127.0.0.1:3000")),
        ("http://[::1]:4000/", Some("[::1]:4000")),
        ("http://127.0.0.1", Some("127.0.0.1:80")),
        ("https://localhost:3000", None),
        ("http://pages.example", None),
        ("http://192.0.2.1:3000", None),
    ] {
        let config = Config { frontend_base_url: frontend.into(), ..Config::default() };
        assert_eq!(
            config.site_address().map(|address| address.to_string()).as_deref(),
            expected,
            "{frontend}"
        );
    }
}
