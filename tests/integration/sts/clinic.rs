//! The demo backend beside the real voice-agent service, each knowing the other by its address alone, and
//! doubles of what neither is: the telephony provider and a website.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::{Value, json};
use sha1::Sha1;
use tokio::net::TcpListener;
use url::form_urlencoded;
use verbatim::audio::g711::mulaw_to_linear;
use verbatim::audio::{Pcm, RateConverter};
use verbatim::demo::{self, Demo};
use verbatim::http;
use verbatim::secret::Secret;

use super::doubles::{self, Double};
use super::phone::{Call, twiml};
use super::room::{Caller, recording};
use super::service::{Service, Setup};
use super::voices::{self, Voice};
use crate::server::{Door, answer, client};
use crate::speech::word_errors;

const KEY: &str = "sesame";
const SIGNING: &str = "provider-token";
const FROM: &str = "+12025550143";
const TO: &str = "+15005550006";

struct Clinic {
    service: Service,
    backend: Door,
    site: Door,
    provider: Double,
    _website: Door,
}

impl Clinic {
    async fn open(mut setup: Setup, records: &str) -> Self {
        static PAGES: &[(&str, &str)] = &[(
            "/",
            "<title>The quick brown fox and the lazy dog</title><p>He was not an ill-disposed young man.</p>",
        )];
        let (website, website_door) = doubles::website(PAGES).await;
        let provider = doubles::provider().await;
        // Each is configured with the other's address, so one address is known before its server runs.
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        setup.config.verification.hook_url = Some(format!("http://{address}/api/hooks/voice-verify"));
        setup.config.verification.hook_api_key = Some(Secret::from(KEY));
        setup.config.twilio.base_url.clone_from(&provider.url);
        setup.config.twilio.account_sid = Some("AC1".into());
        setup.config.twilio.auth_token = Some(Secret::from(SIGNING));
        setup.config.twilio.from = Some(TO.into());
        let service = Service::start(setup).await;
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), records).expect("written");
        let config = demo::Config {
            api_key: Some(Secret::from(KEY)),
            sts_base_url: format!("http://{}", service.address),
            website_url: website,
            records: Some(file.path().to_owned()),
            twilio_auth_token: Some(Secret::from(SIGNING)),
            ..demo::Config::default()
        };
        let demo = Demo::new(&config).expect("a demo");
        let backend = Door::on(listener, demo::router(&demo), http::Config::default());
        let site = Door::open(demo::site(&demo), http::Config::default()).await;
        Self { service, backend, site, provider, _website: website_door }
    }

    async fn usual() -> Self {
        Self::open(Setup::default(), include_str!("../../../src/demo/records.json")).await
    }

    fn post(&self, path: &str, body: &Value) -> reqwest::RequestBuilder {
        client()
            .post(format!("http://{}{path}", self.backend.address))
            .header("x-api-key", KEY)
            .header("content-type", "application/json")
            .body(body.to_string())
    }

    /// The answer of a route that must succeed.
    async fn act(&self, path: &str, body: Value) -> Value {
        let (status, reply) = answer(self.post(path, &body)).await;
        assert_eq!(status, 200, "{path}: {reply}");
        reply
    }

    async fn event(&self, name: &str, body: Value) -> (u16, Value) {
        let request = client()
            .post(format!("http://{}/events/{name}", self.site.address))
            .header("content-type", "application/json")
            .body(body.to_string());
        answer(request).await
    }

    /// A session that the demo starts for a call; its id and the TwiML.
    async fn ring(&self) -> (String, String) {
        let url = format!("http://{}/webhooks/twilio/incoming-call", self.backend.address);
        let (status, xml) = twiml(signed(&url, &[("CallSid", "CA1"), ("From", FROM), ("To", TO)])).await;
        assert_eq!(status, 200, "{xml}");
        let at = xml.find("session_id=").expect("a session") + "session_id=".len();
        (xml[at..at + "sess_".len() + 12].to_owned(), xml)
    }
}

/// A form as the provider posts it.
fn signed(url: &str, form: &[(&str, &str)]) -> reqwest::RequestBuilder {
    let mut mac = Hmac::<Sha1>::new_from_slice(SIGNING.as_bytes()).expect("any length");
    mac.update(url.as_bytes());
    // Sorted by name already.
    for (name, value) in form {
        mac.update(name.as_bytes());
        mac.update(value.as_bytes());
    }
    let body = form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish();
    client()
        .post(url)
        .header("content-type", "application/x-www-form-urlencoded")
        .header("x-twilio-signature", STANDARD.encode(mac.finalize().into_bytes()))
        .body(body)
}

fn unescaped(xml: &str) -> String {
    xml.replace("&amp;", "&").replace("&quot;", "\"").replace("&lt;", "<").replace("&gt;", ">")
}

/// Status and code of a refusal that is the voice service's, with the id that it gave the request.
async fn passed_on(request: reqwest::RequestBuilder) -> (u16, String) {
    let response = request.send().await.expect("an answer");
    let status = response.status().as_u16();
    let body: Value = serde_json::from_str(&response.text().await.expect("text")).expect("JSON");
    (status, body["err_code"].as_str().expect("a code").to_owned())
}

/// The audio that a telephone received, by this crate's recogniser.
async fn understood(mulaw: &[u8]) -> String {
    let samples: Vec<f32> = mulaw.iter().map(|code| f32::from(mulaw_to_linear(*code)) / 32_768.0).collect();
    let mut converter = RateConverter::new(8_000, 16_000).expect("usual rates");
    let mut samples = converter.push(&samples);
    samples.extend(converter.finish());
    voices::heard(Pcm::new(samples)).await
}

/// The status that comes about while the call goes on: its marks are given back meanwhile.
async fn on_the_line(call: &mut Call, status: impl Future<Output = Value>) -> Value {
    voices::patiently(async {
        tokio::select! {
            status = status => status,
            _ = async { loop { call.until("mark").await; } } => unreachable!("a call goes on"),
        }
    })
    .await
}

#[tokio::test]
async fn a_call_from_its_ring_to_its_end() {
    let voice = Voice::start().await;
    // The fox and the digits are recordings; there is none of the question between them.
    let ears = voices::ears(&[None, Some("What are my test results?"), None]);
    let mut setup = Setup { recognize: Some(ears), ..Setup::default() };
    voice.give(&mut setup);
    let records = r#"{"profiles": [], "patients": [
        {"patient_id": "P-1", "ssn_last4": "1234", "sms_catalog_key": "forms"},
        {"patient_id": "P-2", "ssn_last4": "9876", "sms_catalog_key": "privacy"}]}"#;
    let clinic = Clinic::open(setup, records).await;
    let service = &clinic.service;

    // The provider posts a form, is redirected, and is given a stream to connect.
    let (id, xml) = clinic.ring().await;
    let redirect = xml.split_once("<Redirect method=\"POST\">").expect("a redirect").1;
    let redirect = unescaped(redirect.split_once("</Redirect>").expect("its end").0);
    let (status, xml) = twiml(signed(&redirect, &[("CallSid", "CA1"), ("From", FROM), ("To", TO)])).await;
    assert_eq!(status, 200, "{xml}");
    let status = service.ready(&id).await;
    assert_eq!(status["caller_number"], FROM);
    assert_eq!(status["channel"], "phone");
    assert_eq!(status["knowledge"]["website"]["status"], "ready", "{}", status["knowledge"]);

    // It is greeted, and asks: μ-law both ways, heard by our own recogniser at either end.
    let digits = voices::one_to_four().await;
    let mut call = Call::connect(service, &xml).await;
    let listens = |status: &Value| status["agent"]["state"] == "listening";
    on_the_line(&mut call, service.until(&id, listens)).await;
    let lines = |count| {
        move |status: &Value| status["transcript"].as_array().is_some_and(|lines| lines.len() >= count)
    };
    let status = service.until(&id, lines(1)).await;
    assert_eq!(status["transcript"][0]["text"], "Welcome to the demo clinic. How can I help you?");
    call.heard.clear();
    call.speak(&recording(voices::FOX.1)).await;
    let status = on_the_line(&mut call, service.until(&id, lines(3))).await;
    let question = status["transcript"][1]["text"].as_str().expect("text");
    assert!(word_errors(voices::FOX.0, question) <= 1, "{question}");
    assert_eq!(status["transcript"][2]["text"], voices::MAN.0);
    let answer = call.heard.clone();

    // The caller asks for secured information, says four digits, and the demo's hook recognises them.
    call.speak(&recording(voices::FOX.1)).await;
    let status = service.until(&id, |status| status["pending_verification"] == "patient_information").await;
    assert_eq!(status["verification"], json!({}));
    call.until("mark").await;
    service.until(&id, |status| status["agent"]["state"] == "listening").await;
    call.speak(&digits).await;
    let verified = |status: &Value| status["verification"]["patient_information"]["verified"] == true;
    let status = service.until(&id, verified).await;
    assert_eq!(status["verification"]["patient_information"]["source"], "hook");
    assert!(!status["transcript"].to_string().to_lowercase().contains("three"), "{}", status["transcript"]);

    // The text message contains a link; the agent sees what the caller does on that page, and speaks of it.
    let status = service.until(&id, |status| status["sms"]["sent"][0]["status"] == "sent").await;
    assert_eq!(status["sms"]["sent"][0]["sms_catalog_key"], "forms");
    let sms: Vec<(String, String)> =
        form_urlencoded::parse(clinic.provider.bodies()[0].as_bytes()).into_owned().collect();
    let field = |name: &str| sms.iter().find(|(known, _)| known == name).expect(name).1.clone();
    assert_eq!((field("To").as_str(), field("From").as_str()), (FROM, TO));
    let visit = field("Body").split_once("/forms?visit=").expect("a link").1.to_owned();
    let sections = json!([{"title": "You", "fields": [{"name": "ssn_last4", "value": "1234", "filled": true}, {"name": "city", "filled": false}]}]);
    let page = json!({"visit": visit, "page": "/forms", "step": "2", "form_name": "healthcare_signup", "sections": sections});
    assert_eq!(clinic.event("form-event", page).await.0, 200);
    let speaks_of = |what: &'static str| {
        move |status: &Value| {
            let lines = status["transcript"].as_array().cloned().unwrap_or_default();
            lines.iter().any(|line| line["role"] == "assistant" && line["text"].to_string().contains(what))
        }
    };
    let status = on_the_line(
        &mut call,
        service.until(&id, speaks_of("step 2 of healthcare signup. What is still missing is city")),
    )
    .await;
    assert_eq!(status["page_context"]["form_name"], "healthcare_signup");
    assert!(!status["page_context"].to_string().contains("1234"), "{}", status["page_context"]);

    // The completion is announced, and the caller hangs up.
    let completion = json!({"session_id": id, "message": "Your form has arrived."});
    clinic.act("/api/client/form-completed", completion).await;
    on_the_line(&mut call, service.until(&id, speaks_of("Your form has arrived."))).await;
    assert_eq!(service.status(&id).await["status"], "completed");
    call.send(json!({"event": "stop", "streamSid": "MZ1", "stop": {"callSid": "CA1"}})).await;
    let status = service.until(&id, |status| status["status"] == "ended").await;
    let answer = understood(&answer).await;
    assert!(word_errors(voices::MAN.0, &answer) <= 1, "{answer}");
    assert_eq!(status["end_reason"], "hung_up");
    let url = format!("http://{}/webhooks/twilio/call-status", clinic.backend.address);
    let reply = crate::server::answer(signed(&url, &[("CallSid", "CA1"), ("CallStatus", "completed")])).await;
    assert_eq!(reply, (200, json!({"ok": true, "call_sid": "CA1", "call_status": "completed"})));
}

#[tokio::test]
async fn every_route_does_to_the_real_service_what_it_says() {
    let clinic = Clinic::usual().await;
    let proxy = "/api/interactive-agent";
    let start =
        json!({"action": "start", "tenant_id": "t1", "link_catalog": {"forms": "https://a.example/f"}});
    let started = clinic.act(proxy, start).await;
    let id = started["session_id"].as_str().expect("an id").to_owned();
    let status = json!({"action": "status", "session_id": id});
    // The proxy changes nothing on its way.
    let direct = clinic.service.act(status.clone()).await;
    let proxied = clinic.act(proxy, status).await;
    assert_eq!((&direct["tenant_id"], &direct["revision"]), (&proxied["tenant_id"], &proxied["revision"]));
    let mut caller = Caller::join(&clinic.service, &started).await;
    caller.listen().await;

    for path in ["/api/client/form-event", "/api/client/form-even"] {
        let page = json!({"page": path, "step": 1, "form_name": "healthcare_signup",
            "sections": {"identity": {"ssn_last4": "4567", "filled": true}}});
        let mut body = page.clone();
        body["session_id"] = json!(id);
        clinic.act(path, body).await;
        let shown = json!({"page": path, "step": 1, "form_name": "healthcare_signup",
            "sections": {"identity": {"filled": true}}});
        // The agent's own room hears of it.
        assert_eq!(caller.message("PageContextUpdated").await["page_context"], shown);
        assert_eq!(clinic.service.status(&id).await["page_context"], shown);
    }

    let submit = json!({"session_id": id, "form_name": "healthcare_signup", "ssn_last4": "4567",
        "date_of_birth": "1984-03-09", "updated_fields": ["name"]});
    clinic.act("/api/client/verify-and-submit", submit).await;
    assert_eq!(caller.message("VerificationUpdated").await["category"], "form");
    assert_eq!(caller.message("CompletionNotice").await["updated_fields"], json!(["name"]));
    let status = clinic.service.status(&id).await;
    assert_eq!(status["verification"]["form"]["verified"], true);
    assert_eq!(status["status"], "completed");

    let patient = json!({"session_id": id, "ssn_last4": "0812", "patient_id": "P-1003"});
    clinic.act("/api/client/verify-patient-info-demo", patient).await;
    let status = clinic.service.status(&id).await;
    let verification = &status["verification"]["patient_information"];
    assert_eq!((&verification["verified"], &verification["source"]), (&json!(true), &json!("action")));
    assert_eq!(status["pending_sms"][0]["sms_catalog_key"], "forms");
    // A number that is bound now gets the waiting message.
    clinic.act(proxy, json!({"action": "bind_caller", "session_id": id, "caller_number": FROM})).await;
    clinic.service.until(&id, |status| status["sms"]["sent"][0]["status"] == "sent").await;

    let done = json!({"session_id": id, "status": "submitted", "message": "All done."});
    clinic.act("/api/client/form-completed", done).await;
    assert_eq!(clinic.service.status(&id).await["completion"]["status"], "submitted");
    let hook =
        json!({"session_id": id, "utterance": "double four three one", "category": "patient_information"});
    assert_eq!(clinic.act("/api/hooks/voice-verify", hook).await["verified"], true);
    let health = client().get(format!("http://{}/health", clinic.backend.address));
    assert_eq!(answer(health).await.0, 200);
}

#[tokio::test]
async fn what_the_real_service_refuses_the_demo_refuses() {
    let clinic = Clinic::usual().await;
    let unknown = "sess_000000000000";
    let bodies = [
        ("/api/interactive-agent", json!({"action": "status", "session_id": unknown})),
        ("/api/client/form-event", json!({"session_id": unknown, "page": "/"})),
        ("/api/client/form-even", json!({"session_id": unknown, "page": "/"})),
        (
            "/api/client/verify-and-submit",
            json!({"session_id": unknown, "form_name": "healthcare_signup", "ssn_last4": "4567", "date_of_birth": "1984-03-09"}),
        ),
        ("/api/client/verify-patient-info-demo", json!({"session_id": unknown, "ssn_last4": "4567"})),
        ("/api/client/form-completed", json!({"session_id": unknown})),
    ];
    for (path, body) in &bodies {
        assert_eq!(passed_on(clinic.post(path, body)).await, (404, "SESSION_NOT_FOUND".into()), "{path}");
    }
    // An ended session no longer changes.
    let started = clinic.act("/api/interactive-agent", json!({"action": "start"})).await;
    let mut caller = Caller::join(&clinic.service, &started).await;
    caller.listen().await;
    caller.write("Goodbye!").await;
    assert_eq!(caller.goodbye().await, 4000);
    for (path, mut body) in bodies.into_iter().skip(1) {
        body["session_id"] = started["session_id"].clone();
        assert_eq!(passed_on(clinic.post(path, &body)).await, (409, "SESSION_ENDED".into()), "{path}");
    }
    for (body, code) in [(json!({"action": "dance"}), "UNKNOWN_ACTION"), (json!({}), "INVALID_FIELD")] {
        assert_eq!(passed_on(clinic.post("/api/interactive-agent", &body)).await, (400, code.into()));
    }
    let deep = (0..20).fold(json!({}), |inner, _| json!({ "a": inner }));
    let page = json!({"session_id": started["session_id"], "page": "/", "more": deep});
    let refused = passed_on(clinic.post("/api/client/form-event", &page)).await;
    assert_eq!(refused, (400, "INVALID_FIELD".into()));
}

#[tokio::test]
async fn a_form_is_verified_by_the_number_that_calls_and_no_other() {
    let clinic = Clinic::usual().await;
    let proxy = "/api/interactive-agent";
    let submit = |id: &str, number: &str| {
        json!({"session_id": id, "form_name": "intake", "caller_number": number, "ssn_last4": "4567",
            "date_of_birth": "1984-03-09"})
    };
    let path = "/api/client/verify-and-submit";
    let started = clinic.act(proxy, json!({"action": "start"})).await;
    let id = started["session_id"].as_str().expect("an id");
    let refused = (403, "NOT_VERIFIED".to_owned());
    assert_eq!(passed_on(clinic.post(path, &submit(id, FROM))).await, refused);
    for number in ["+12025550199", "+12025550178"] {
        clinic.act(proxy, json!({"action": "bind_caller", "session_id": id, "caller_number": number})).await;
        assert_eq!(passed_on(clinic.post(path, &submit(id, FROM))).await, refused, "{number}");
    }
    assert_eq!(clinic.service.status(id).await["verification"], json!({}));
    clinic.act(proxy, json!({"action": "bind_caller", "session_id": id, "caller_number": FROM})).await;
    clinic.act(path, submit(id, "+12025550199")).await;
    let status = clinic.service.status(id).await;
    assert_eq!(status["verification"]["patient_information"]["verified"], true);
    assert_eq!((&status["status"], &status["caller_number"]), (&json!("completed"), &json!(FROM)));
}

#[tokio::test]
async fn digits_are_not_guessed_by_voice_nor_by_calling_again() {
    let clinic = Clinic::usual().await;
    let service = &clinic.service;
    let start = json!({"caller_number": FROM, "verification_rules": {"patient_information": {}}});
    for call in 0..4 {
        let (id, started) = service.session(start.clone()).await;
        let mut caller = Caller::join(service, &started).await;
        caller.listen().await;
        service.ready(&id).await;
        caller.write("What are my test results?").await;
        let asked = caller.listen().await;
        if call == 3 {
            // Nine wrong answers of one number are enough, whichever session they came in.
            assert!(asked.contains("could not verify you"), "{asked}");
            assert_eq!(service.status(&id).await["pending_verification"], Value::Null);
            break;
        }
        assert!(asked.contains("verify you"), "{asked}");
        for attempt in 0..3 {
            caller.write(&format!("11{attempt}{attempt}")).await;
            let refused = caller.listen().await;
            assert_eq!(refused.contains("could not verify"), attempt == 2, "{refused}");
        }
        let status = service.status(&id).await;
        assert_eq!(status["verification"]["patient_information"]["locked"], true);
    }
}

#[tokio::test]
async fn a_link_leads_to_a_page_whose_events_reach_the_session() {
    let clinic = Clinic::usual().await;
    let (id, _) = clinic.ring().await;
    let status = clinic.service.status(&id).await;
    assert_eq!(status["caller_number"], FROM);
    let catalog = status["link_catalog"].as_array().expect("keys").clone();
    for key in ["default", "forms", "patient_information", "privacy"] {
        assert!(catalog.contains(&json!(key)), "{catalog:?}");
    }
    // By the patient's own page, with the id of the session, as one would be handed over from a call.
    let verify = json!({"session_id": id, "ssn_last4": "4567", "patient_id": ""});
    assert_eq!(clinic.event("verify-patient-info-demo", verify).await.0, 200);
    let status = clinic.service.until(&id, |status| status["sms"]["sent"][0]["status"] == "sent").await;
    assert_eq!(status["verification"]["patient_information"]["verified"], true);
    let sms = clinic.provider.bodies().concat();
    let body: String =
        form_urlencoded::parse(sms.as_bytes()).find(|(name, _)| name == "Body").expect("a text").1.into();
    let visit = body.split_once("/patients?visit=").expect("a link").1;
    let opened =
        json!({"visit": visit, "page": "/patients", "step": "opened", "form_name": "patient_information"});
    assert_eq!(clinic.event("form-event", opened).await.0, 200);
    assert_eq!(clinic.service.status(&id).await["page_context"]["page"], "/patients");
    assert_eq!(clinic.event("form-completed", json!({"visit": visit})).await.0, 200);
    assert_eq!(clinic.service.status(&id).await["status"], "completed");
}
