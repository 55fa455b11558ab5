//! Sections 4.5, 4.6 and 6: telephone calls, and the verification of callers.

use hyper::StatusCode;
use serde_json::{Value, json};
use url::form_urlencoded;
use verbatim::secret::Secret;

use super::doors::{CALLER, Program};
use super::sessions::{joined, with_links};
use super::table::{Row, row};
use crate::server::{answer, client, refusal};
use crate::socket::connect;
use crate::sts::doubles::{self, Double};
use crate::sts::phone::twiml;
use crate::sts::room::Caller;
use crate::sts::service::{Service, Setup};

const FROM: &str = CALLER.0;
const TO: &str = "+15005550006";
pub const SESSION: &str = "sess_0123456789ab";
const ROOM: &str = "sts-7d4f3a52-9f0e-4d4c-8a21-3f5b6c7d8e9f";

/// A voice-agent service that agrees to everything, and notes it.
pub async fn voice_service() -> Double {
    Double::start("/STS/interactiveAgent", |_| {
        (StatusCode::OK, json!({"ok": true, "session_id": SESSION, "room_name": ROOM}))
    })
    .await
}

/// The demo backend alone, before `service`.
pub async fn demo_before(service: &Double, more: &[(&str, String)]) -> Program {
    let mut settings = vec![
        ("STS_API_BASE_URL", service.url.clone()),
        ("DEMO_API_KEY", super::doors::DEMO_KEY.to_owned()),
        ("DEMO_FRONTEND_BASE_URL", "https://pages.example".to_owned()),
        ("DEMO_WEBSITE_URL", "https://clinic.example".to_owned()),
    ];
    settings.extend_from_slice(more);
    Program::start(&["demo", "--listen", "127.0.0.1:0"], &settings).await
}

/// The actions that reached the double.
pub fn actions(service: &Double) -> Vec<Value> {
    service.bodies().iter().map(|body| serde_json::from_str(body).expect("JSON")).collect()
}

/// The provider's webhook for a call from `from`.
fn incoming(program: &Program, from: &str) -> reqwest::RequestBuilder {
    let mut form = form_urlencoded::Serializer::new(String::new());
    form.extend_pairs([("CallSid", "CA1"), ("From", from), ("To", TO)]);
    client().post(format!("http://{}/webhooks/twilio/incoming-call", program.demo)).body(form.finish())
}

/// The address that a call is redirected to.
async fn redirected(program: &Program, from: &str) -> url::Url {
    let (status, xml) = twiml(incoming(program, from)).await;
    assert_eq!(status, 200, "{xml}");
    let (_, rest) = xml.split_once("<Redirect").unwrap_or_else(|| panic!("{xml}"));
    let (_, rest) = rest.split_once('>').expect("its start");
    let (address, _) = rest.split_once("</Redirect>").expect("its end");
    address.replace("&amp;", "&").parse().expect("an address")
}

fn parameter(url: &url::Url, name: &str) -> String {
    let pair = url.query_pairs().find(|(known, _)| known == name);
    pair.unwrap_or_else(|| panic!("no {name} in {url}")).1.into_owned()
}

/// The actions of one call from [`FROM`].
pub async fn call_actions() -> Vec<Value> {
    let service = voice_service().await;
    let demo = demo_before(&service, &[]).await;
    redirected(&demo, FROM).await;
    actions(&service)
}

pub fn rows() -> Vec<Row> {
    let mut rows = inbound();
    rows.extend(bridging());
    rows.extend(verification());
    rows
}

fn inbound() -> Vec<Row> {
    vec![
        row("4.5", "the provider posts From, To and CallSid as a form, and gets TwiML", async |doors| {
            let response = incoming(&doors.program, FROM).send().await.expect("an answer");
            assert_eq!(
                (response.status().as_u16(), &response.headers()["content-type"]),
                (200, &"text/xml".parse().expect("a value"))
            );
            let url = format!("http://{}/webhooks/twilio/incoming-call", doors.program.demo);
            assert_eq!(refusal(client().post(url).body("From=x")).await, (400, "INVALID_FIELD".into()));
        }),
        row("4.5", "the start payload has channel phone", async |doors| {
            let start = &doors.call_actions().await[0];
            assert_eq!((&start["action"], &start["channel"]), (&json!("start"), &json!("phone")));
        }),
        row("4.5", "the start payload has the website_url", async |doors| {
            assert_eq!(doors.call_actions().await[0]["website_url"], "https://clinic.example");
        }),
        row("4.5", "the start payload's link_catalog has addresses on the demo's front end", async |doors| {
            let catalog = doors.call_actions().await[0]["link_catalog"].clone();
            for (key, link) in catalog.as_object().expect("an object") {
                let url = link["url"].as_str().expect("an address");
                assert!(url.starts_with("https://pages.example/"), "{key}: {url}");
            }
        }),
        row("4.7", "link_catalog has forms, patient pages, privacy and a default", async |doors| {
            let catalog = doors.call_actions().await[0]["link_catalog"].clone();
            for key in ["forms", "patient_information", "privacy", "default"] {
                assert!(catalog[key]["url"].is_string(), "{key}: {catalog}");
            }
        }),
        row("4.5", "the start payload has verification_rules with both prompts", async |doors| {
            let rule = doors.call_actions().await[0]["verification_rules"]["patient_information"].clone();
            assert!(rule["voice_prompt"].is_string() && rule["voice_prompt_short"].is_string(), "{rule}");
        }),
        row("4.5", "then bind_caller is sent with the same session_id and the From number", async |doors| {
            let bind = doors.call_actions().await[1].clone();
            assert_eq!(bind, json!({"action": "bind_caller", "session_id": SESSION, "caller_number": FROM}));
        }),
        row("4.5", "the reply redirects to {sts_base_url}/api/<telephony>/incoming-call", async |doors| {
            let redirect = redirected(&doors.program, FROM).await;
            assert_eq!(redirect.origin().ascii_serialization(), format!("http://{}", doors.program.address));
            assert_eq!(redirect.path(), "/api/twilio/incoming-call");
        }),
        row("4.5", "the redirect carries session_id, room_name, to and from", async |doors| {
            let redirect = redirected(&doors.program, FROM).await;
            let status = doors.program.status(&json!(parameter(&redirect, "session_id"))).await;
            assert_eq!(status["room_name"], parameter(&redirect, "room_name"));
            assert_eq!(
                (parameter(&redirect, "to").as_str(), parameter(&redirect, "from").as_str()),
                (TO, FROM)
            );
        }),
        row(
            "4.5 decided",
            "a caller without a number is not bound, and is connected all the same",
            async |doors| {
                let redirect = redirected(&doors.program, "anonymous").await;
                let status = doors.program.status(&json!(parameter(&redirect, "session_id"))).await;
                assert_eq!(status["caller_number"], Value::Null);
            },
        ),
        row(
            "4.5 decided",
            "a call that gets no session hears an apology instead of a fault of the line",
            async |_| {
                let busy =
                    |_: &str| (StatusCode::SERVICE_UNAVAILABLE, json!({"err_code": "Service Unavailable"}));
                let service = Double::start("/STS/interactiveAgent", busy).await;
                let demo = demo_before(&service, &[]).await;
                let (status, xml) = twiml(incoming(&demo, FROM)).await;
                assert!(status == 200 && xml.contains("<Say>") && xml.contains("<Hangup/>"), "{xml}");
            },
        ),
    ]
}

fn bridging() -> Vec<Row> {
    vec![
        row("4.5", "the voice service connects the redirected call to the session's room", async |doors| {
            let redirect = redirected(&doors.program, FROM).await;
            let (status, xml) = twiml(client().post(redirect.clone()).body("CallSid=CA1")).await;
            assert_eq!(status, 200, "{xml}");
            let stream = format!("<Stream url=\"ws://{}/api/twilio/media\">", doors.program.address);
            assert!(xml.contains("<Connect>") && xml.contains(&stream), "{xml}");
            assert!(xml.contains(&parameter(&redirect, "session_id")), "{xml}");
        }),
        row("4.5", "the call's leg joins the room, where the agent greets the caller", async |doors| {
            let redirect = redirected(&doors.program, FROM).await;
            let session = json!(parameter(&redirect, "session_id"));
            let (_, xml) = twiml(client().post(redirect).body("CallSid=CA1")).await;
            let (_, token) = xml.split_once("name=\"token\" value=\"").expect("a token");
            let token = token.split('"').next().expect("its end");
            let mut call =
                connect(doors.program.address, "/api/twilio/media", &[]).await.socket.expect("agreed");
            let format = json!({"encoding": "audio/x-mulaw", "sampleRate": 8000, "channels": 1});
            let start = json!({"event": "start", "sequenceNumber": "1", "streamSid": "MZ1", "start": {
                "streamSid": "MZ1", "callSid": "CA1", "tracks": ["inbound"],
                "customParameters": {"token": token}, "mediaFormat": format}});
            call.text(&start.to_string()).await;
            let greeted = |status: &Value| status["transcript"][0]["role"] == "assistant";
            let status = doors.program.until(&session, greeted).await;
            assert_eq!(status["participants"][0]["kind"], "phone");
            assert_eq!(status["call"]["call_sid"], "CA1");
        }),
        row(
            "4.5 decided",
            "a redirect whose session and room do not fit is answered with an apology",
            async |doors| {
                let one = redirected(&doors.program, FROM).await;
                let other = doors.program.session(json!({"channel": "phone"})).await;
                let room = other["room_name"].as_str().expect("text");
                let url = one.as_str().replace(&parameter(&one, "room_name"), room);
                let (status, xml) = twiml(client().post(url).body("CallSid=CA1")).await;
                assert!(status == 200 && xml.contains("<Say>") && !xml.contains("<Stream"), "{xml}");
            },
        ),
        row("6", "a call status change is echoed: the call's identifier and status", async |doors| {
            let url = format!("http://{}/webhooks/twilio/call-status", doors.program.demo);
            let (status, reply) =
                answer(client().post(url).body("CallSid=CA7&CallStatus=completed&From=%2B1")).await;
            assert_eq!(
                (status, &reply["call_sid"], &reply["call_status"]),
                (200, &json!("CA7"), &json!("completed"))
            );
        }),
    ]
}

/// A service that asks `hook`, and a caller whom it asks for digits.
async fn challenged(setup: Setup) -> (Service, String, Caller) {
    let service = Service::start(setup).await;
    let (id, start) = service.session(with_links()).await;
    let mut caller = Caller::greeted(&service, &start).await;
    caller.write("What are my test results?").await;
    caller.listen().await;
    (service, id, caller)
}

fn hooked(hook: &Double) -> Setup {
    let mut setup = Setup::default();
    setup.config.verification.hook_url = Some(format!("{}/hook", hook.url));
    setup.config.verification.hook_api_key = Some(Secret::from("hook-key"));
    setup
}

fn verification() -> Vec<Row> {
    vec![
        row(
            "6",
            "for a pending secured intent the hook gets { session_id, utterance, category }",
            async |_| {
                let hook = doubles::hook().await;
                let (_service, id, mut caller) = challenged(hooked(&hook)).await;
                caller.write("It is 9999.").await;
                caller.listen().await;
                let asked: Value = serde_json::from_str(&hook.bodies()[0]).expect("JSON");
                assert_eq!(
                    asked,
                    json!({"session_id": id, "utterance": "It is 9999.", "category": "patient_information"})
                );
            },
        ),
        row("4.6", "the hook is not asked before something secured is wanted", async |_| {
            let hook = doubles::hook().await;
            let service = Service::start(hooked(&hook)).await;
            let (_, start) = service.session(with_links()).await;
            let mut caller = Caller::greeted(&service, &start).await;
            caller.write("My code is 1234.").await;
            caller.listen().await;
            assert!(hook.bodies().is_empty(), "{:?}", hook.bodies());
        }),
        row("5", "the hook gets X-API-Key with the configured value", async |_| {
            let hook = doubles::hook().await;
            let (_service, _, mut caller) = challenged(hooked(&hook)).await;
            caller.write("1234").await;
            caller.listen().await;
            assert_eq!(hook.header("x-api-key").as_deref(), Some("hook-key"));
        }),
        row("4.6", "a reply with verified: true verifies the category", async |_| {
            let hook = doubles::hook().await;
            let (service, id, mut caller) = challenged(hooked(&hook)).await;
            caller.write("1234").await;
            caller.listen().await;
            let verified = &service.status(&id).await["verification"]["patient_information"];
            assert_eq!((&verified["verified"], &verified["source"]), (&json!(true), &json!("hook")));
        }),
        row("4.6", "the reply's details.sms_catalog_key chooses the SMS", async |_| {
            let answer = |_: &str| {
                (StatusCode::OK, json!({"verified": true, "details": {"sms_catalog_key": "default"}}))
            };
            let hook = Double::start("/hook", answer).await;
            let (service, id, mut caller) = challenged(hooked(&hook)).await;
            caller.write("1234").await;
            caller.listen().await;
            assert_eq!(service.status(&id).await["pending_sms"][0]["sms_catalog_key"], "default");
        }),
        row(
            "4.6 decided",
            "a hook that fails verifies nothing, and costs the caller no attempt",
            async |_| {
                let broken = |_: &str| (StatusCode::INTERNAL_SERVER_ERROR, json!({}));
                let hook = Double::start("/hook", broken).await;
                let (service, id, mut caller) = challenged(hooked(&hook)).await;
                caller.write("1234").await;
                caller.listen().await;
                let verification = service.status(&id).await["verification"]["patient_information"].clone();
                assert!(verification["verified"] != true, "{verification}");
                assert!(
                    verification["attempts"].as_u64().is_none_or(|attempts| attempts == 0),
                    "{verification}"
                );
            },
        ),
        row(
            "4.6",
            "the demo's hook and the voice service work together: digits that are said verify",
            async |doors| {
                let started = doors.program.session(with_links()).await;
                let mut caller = joined(doors, &started).await;
                caller.write("What are my test results?").await;
                caller.listen().await;
                caller.write("four five six seven").await;
                caller.listen().await;
                let status = doors.program.status(&started["session_id"]).await;
                assert_eq!(
                    status["verification"]["patient_information"]["source"], "hook",
                    "{}",
                    status["verification"]
                );
            },
        ),
        row("4.6", "without a hook an equivalent matcher runs in the process", async |_| {
            let records = tempfile::NamedTempFile::new().expect("a file");
            std::fs::write(records.path(), r#"[{"digits": "1234", "sms_catalog_key": "default"}]"#)
                .expect("written");
            let mut setup = Setup::default();
            setup.config.verification.records = Some(records.path().to_owned());
            let (service, id, mut caller) = challenged(setup).await;
            caller.write("one two three four").await;
            caller.listen().await;
            let status = service.status(&id).await;
            assert_eq!(status["verification"]["patient_information"]["source"], "inline");
            assert_eq!(status["pending_sms"][0]["sms_catalog_key"], "default");
        }),
    ]
}
