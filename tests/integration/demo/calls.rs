//! The telephony provider's webhooks.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::json;
use sha1::Sha1;
use verbatim::demo::Config;
use verbatim::secret::Secret;

use super::{Backend, Mood, ROOM, SESSION};
use crate::server::{answer, client, refusal};

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
async fn without_a_token_calls_are_taken_from_this_machine_alone() {
    let backend = Backend::well().await;
    let port = backend.door.address.port();
    for path in ["/webhooks/twilio/incoming-call", "/webhooks/twilio/call-status"] {
        let request = || {
            let url = format!("http://{}{path}", backend.door.address);
            client().post(url).body("From=%2B12025550143&CallSid=CA1&CallStatus=ringing")
        };
        let named = request().header("host", "demo.example");
        assert_eq!(refusal(named).await, (403, "INVALID_SIGNATURE".into()), "{path}");
        let page = request().header("origin", "https://evil.example");
        assert_eq!(refusal(page).await, (403, "ORIGIN_NOT_ALLOWED".into()), "{path}");
        let with_token = format!("http://{}{path}?access_token=x", backend.door.address);
        let page = client().post(with_token).header("origin", "https://evil.example").body("CallSid=CA1");
        assert_eq!(refusal(page).await, (403, "INVALID_SIGNATURE".into()), "{path}");
        assert!(backend.actions().is_empty());
        let local = request().header("host", format!("localhost:{port}"));
        assert_eq!(local.send().await.expect("an answer").status(), 200, "{path}");
        backend.actions();
    }
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
