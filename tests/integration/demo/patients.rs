//! Verification of patients: by speech, by forms, by four digits.

use serde_json::{Value, json};
use verbatim::demo::Config;

use super::{Backend, KEYED, Mood, SESSION};
use crate::server::{answer, client, refusal};

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
        // A person's identity never reaches the agent, in whichever field it stands.
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
    let status = json!({"action": "status", "session_id": SESSION});
    for (form_name, bound, sent, category) in [
        ("healthcare_signup", None, json!(null), "form"),
        ("healthcare_signup", Some("+12025550199"), json!("+12025550199"), "form"),
        ("intake", Some("+12025550143"), json!(null), "patient_information"),
        // A number in the request proves nothing, and does no harm.
        ("intake", Some("+12025550143"), json!("+12025550199"), "patient_information"),
    ] {
        backend.bind(bound);
        let (code, reply) = answer(backend.send(KEYED[4], &submission(form_name, sent))).await;
        assert_eq!((code, &reply["verified"], &reply["category"]), (200, &json!(true), &json!(category)));
        let verification = json!({
            "action": "verification", "session_id": SESSION, "category": category, "verified": true,
            "details": {"form_name": form_name},
        });
        let completion = json!({
            "action": "completion", "session_id": SESSION, "status": "completed", "updated_fields": ["name"],
        });
        // Only the service knows which number is bound, and whether it has the session.
        let actions = backend.actions();
        assert_eq!(actions.contains(&status), form_name == "intake" || bound.is_none(), "{form_name}");
        let changes: Vec<_> = actions.into_iter().filter(|action| action["action"] != "status").collect();
        assert_eq!(changes, [verification, completion]);
    }
    for (field, value) in [("ssn_last4", "9044"), ("date_of_birth", "1984-03-10")] {
        let mut body = submission("healthcare_signup", json!(null));
        body[field] = json!(value);
        assert_eq!(refusal(backend.send(KEYED[4], &body)).await, (403, "NOT_VERIFIED".into()), "{field}");
    }
    for field in ["session_id", "form_name", "ssn_last4", "date_of_birth"] {
        let mut body = submission("intake", json!(null));
        body[field] = Value::Null;
        assert_eq!(refusal(backend.send(KEYED[4], &body)).await, (400, "INVALID_FIELD".into()), "{field}");
    }
    for (field, value) in [("caller_number", json!(5)), ("form_name", json!([])), ("message", json!({}))] {
        let mut body = submission("intake", json!(null));
        body[field] = value;
        assert_eq!(refusal(backend.send(KEYED[4], &body)).await, (400, "INVALID_FIELD".into()), "{field}");
    }
    // Nothing is verified that cannot be completed.
    let deep = (0..20).fold(json!({}), |inner, _| json!({ "a": inner }));
    for (field, value, refused) in [
        ("updated_fields", deep, (400, "INVALID_FIELD")),
        ("updated_fields", json!({"a": "x".repeat(40_000)}), (413, "PAYLOAD_TOO_LARGE")),
        ("status", json!("s".repeat(300)), (413, "PAYLOAD_TOO_LARGE")),
    ] {
        let mut body = submission("healthcare_signup", json!(null));
        body[field] = value;
        assert_eq!(
            refusal(backend.send(KEYED[4], &body)).await,
            (refused.0, refused.1.to_owned()),
            "{field}"
        );
    }
    assert!(backend.actions().is_empty());
}

#[tokio::test]
async fn only_the_number_that_is_bound_counts() {
    let owner = "+12025550143";
    // Except at sign-up, a caller must call from exactly their own number.
    for bound in
        [None, Some("+12025550199"), Some("+12025550178"), Some("12025550143"), Some("+1 202 555 0143")]
    {
        let backend = Backend::well().await;
        backend.bind(bound);
        for sent in [json!(null), json!(owner)] {
            let request = backend.send(KEYED[4], &submission("intake", sent));
            assert_eq!(refusal(request).await, (403, "NOT_VERIFIED".into()), "{bound:?}");
        }
        let actions = backend.actions();
        assert!(actions.iter().all(|action| action["action"] == "status"), "{actions:?}");
    }
    // By the site's own page as well.
    let backend = Backend::well().await;
    let url = format!("http://{}/events/verify-and-submit", backend.site.address);
    let submit = || {
        let request = crate::server::client().post(&url).header("content-type", "application/json");
        request.body(submission("intake", json!(owner)).to_string())
    };
    assert_eq!(refusal(submit()).await, (403, "NOT_VERIFIED".into()));
    backend.bind(Some(owner));
    assert_eq!(answer(submit()).await.0, 200);
}

#[tokio::test]
async fn what_proves_a_caller_is_not_passed_on() {
    let backend = Backend::well().await;
    let mut body = submission("healthcare_signup", json!(null));
    body["message"] = json!("Signed up with 4567, born 1984-03-09.");
    body["updated_fields"] = json!({"name": "Jo", "ssn_last4": "4567", "dob": "1984-03-09"});
    assert_eq!(answer(backend.send(KEYED[4], &body)).await.0, 200);
    let completion = &backend.changes()[1];
    assert_eq!(completion["updated_fields"], json!({"name": "Jo"}));
    assert_eq!(completion["message"], "Signed up with ••••, born ••••.");
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
        assert_eq!(backend.changes(), [expected]);
    }
    backend.actions();
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
    // A right answer doesn't count towards the limit.
    for _ in 0..10 {
        assert_eq!(answer(typed(SESSION, "4567")).await.0, 200);
    }
    for digits in ["1111", "2222"] {
        assert_eq!(refusal(typed(SESSION, digits)).await.0, 403);
    }
    assert!(!hook(&backend, said("three three three three")).await.0);
    backend.bind(Some("+12025550143"));
    let mut form = submission("intake", json!(null));
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
    assert_eq!(refusal(backend.send(KEYED[4], &submission("intake", json!(null)))).await, locked());
    assert!(backend.actions().iter().all(|action| action["action"] == "status"));
}

/// A guess at four digits as a page of the site sends it, which a proxy says that `address` asked for.
async fn guessed(backend: &Backend, session: &str, ssn: &str, address: &str) -> (u16, Value) {
    let request = client()
        .post(format!("http://{}/events/verify-patient-info-demo", backend.site.address))
        .header("content-type", "application/json")
        .header("x-forwarded-for", address)
        .body(json!({"session_id": session, "ssn_last4": ssn}).to_string());
    let response = request.send().await.expect("an answer");
    let status = response.status().as_u16();
    (status, serde_json::from_str(&response.text().await.expect("text")).expect("JSON"))
}

#[tokio::test]
async fn sessions_that_are_invented_guess_nothing_and_lock_no_other_out() {
    let backend = Backend::well().await;
    // Right and wrong digits look the same, and none of them count.
    for n in 0..200 {
        let (session, ssn) = (format!("sess_{n:012x}"), if n % 2 == 0 { "1111" } else { "4567" });
        let (status, reply) = guessed(&backend, &session, ssn, "192.0.2.1").await;
        assert_eq!((status, &reply["err_code"]), (404, &json!("SESSION_NOT_FOUND")), "{ssn}");
    }
    assert_eq!(guessed(&backend, SESSION, "1111", "192.0.2.1").await.0, 403);
    assert_eq!(guessed(&backend, SESSION, "4567", "192.0.2.1").await.0, 200);
    // By the hook, which is called for all callers, they count for the address that calls.
    let session = |n: usize| json!({"session_id": format!("sess_{n:012x}"), "utterance": "1111", "category": "patient_information"});
    let mut made = 0;
    while answer(backend.send(KEYED[1], &session(made))).await.0 == 200 {
        made += 1;
        assert!(made < 200, "all codes can be tried");
    }
    assert_eq!(made, 100);
    // The session that the backend knows goes on.
    assert!(hook(&backend, said("four five six seven")).await.0);
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
