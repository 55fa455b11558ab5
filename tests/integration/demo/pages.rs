//! The demo's pages and its settings.

use serde_json::{Value, json};
use verbatim::demo::{self, Config, Demo, Error};
use verbatim::secret::Secret;

use super::{Backend, KEY, SESSION};
use crate::server::{answer, client, refusal};

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
    let with_charset = client()
        .post(url("/events/form-event"))
        .header("content-type", "Application/JSON; charset=utf-8")
        .body(json!({"session_id": SESSION, "page": "/"}).to_string());
    assert_eq!(answer(with_charset).await.0, 200);
    let context = json!({"page": "/forms", "step": "opened"});
    let expected = json!({"action": "page_context", "session_id": SESSION, "page_context": context});
    assert_eq!(backend.actions()[0], expected);
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
            twilio_auth_token: Some(Secret::from("12345")),
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
fn calls_are_taken_from_others_only_where_the_provider_signs_them() {
    for (listen, public_url, token, works) in [
        ("127.0.0.1:0", None, None, true),
        ("127.0.0.1:0", Some("http://localhost:8080"), None, true),
        ("127.0.0.1:0", Some("https://demo.example"), None, false),
        ("0.0.0.0:0", None, None, false),
        ("0.0.0.0:0", None, Some(""), false),
        ("0.0.0.0:0", None, Some("12345"), true),
        ("127.0.0.1:0", Some("https://demo.example"), Some("12345"), true),
    ] {
        let config = Config {
            listen: listen.parse().expect("an address"),
            public_url: public_url.map(str::to_owned),
            api_key: Some(Secret::from(KEY)),
            twilio_auth_token: token.map(Secret::from),
            ..Config::default()
        };
        let demo = Demo::new(&config);
        let is_unsigned = matches!(demo, Err(Error::Unsigned(_)));
        assert_eq!((demo.is_ok(), is_unsigned), (works, !works), "{listen} {public_url:?} {token:?}");
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
        // The route that its form is sent to exists.
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
