//! Every action: its effect, its refusals, its authorisation, and its state after a restart.

use serde_json::{Value, json};
use verbatim::sts::Auth;

use super::service::{Service, Setup};
use crate::formatting::operations;
use crate::server::{answer, client, refusal};
use crate::socket::connect;

fn is_id(text: &str) -> bool {
    text.strip_prefix("sess_").is_some_and(|hex| {
        hex.len() == 12 && hex.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    })
}

#[tokio::test]
async fn what_a_start_says_in_vain_is_warned_of() {
    let service = Service::start(Setup::default()).await;
    for (start, expected) in [
        (json!({"greeting": "Hello.", "caller_number": null, "session_id": "none"}), &[][..]),
        (
            json!({"greetings": "Hello.", "voice": {"name": "x"}}),
            &["`greetings` is not a field", "`voice` is not a field"],
        ),
        (json!({"website_url": "not an address"}), &["`website_url` was not read: the address is not that"]),
        (
            json!({"website_url": "ftp://a.example/"}),
            &["`website_url` was not read: the address is not that"],
        ),
        (
            json!({"website_url": "http://u:p@a.example/"}),
            &["`website_url` was not read: the address is not"],
        ),
        (
            json!({"website_url": "http://10.0.0.1/"}),
            &["`website_url` was not read: the address is not a public"],
        ),
    ] {
        let (id, reply) = service.session(start.clone()).await;
        let warnings = reply["warnings"].as_array().expect("an array");
        assert_eq!(warnings.len(), expected.len(), "{start}: {reply}");
        for (warning, expected) in warnings.iter().zip(expected) {
            assert!(warning.as_str().expect("text").starts_with(expected), "{warning}");
        }
        assert_eq!(service.status(&id).await["warnings"], reply["warnings"]);
    }
    let (_, reply) = answer(service.post("/api/livekit/sts", &json!({"greting": "Hello."}))).await;
    assert_eq!(reply["warnings"], json!(["`greting` is not a field of a start and was left out"]));
}

/// As the contract's demo starts a phone call.
fn demo_start() -> Value {
    json!({
        "channel": "phone",
        "link_catalog": {"forms": "https://front.example/forms", "default": {"url": "https://front.example/"}},
        "verification_rules": {"patient_information": {
            "voice_prompt": "Please say the last four digits.", "voice_prompt_short": "The digits, please.",
            "sms_catalog_key": "forms",
        }},
    })
}

#[tokio::test]
async fn every_route_is_described() {
    let service = Service::start(Setup::default()).await;
    let mut described = operations(&verbatim::sts::openapi::paths());
    let mut routes = service.routes.clone();
    described.sort();
    routes.sort();
    assert_eq!(described, routes);
}

#[tokio::test]
async fn a_start_makes_a_session_with_a_room() {
    let service = Service::start(Setup::default()).await;
    let (id, reply) = service.session(json!({"instructions": "Be kind.", "tenant_id": "t1"})).await;
    assert!(is_id(&id), "{id}");
    let room = reply["room_name"].as_str().expect("a name");
    assert!(uuid::Uuid::parse_str(room.strip_prefix("sts-").expect("its form")).is_ok(), "{room}");
    let url = reply["websocket_url"].as_str().expect("for web");
    assert!(url.starts_with(&format!("ws://{}/STS/rooms/{room}?access_token=", service.address)), "{url}");

    let status = service.status(&id).await;
    assert_eq!((&status["session_id"], &status["room_name"]), (&json!(id), &json!(room)));
    assert_eq!((&status["status"], &status["channel"]), (&json!("created"), &json!("web")));
    assert_eq!(status["tenant_id"], "t1");
    assert_eq!(status["verification"], json!({}));
    assert_eq!(status["page_context"], Value::Null);
    assert_eq!(status["pending_sms"], json!([]));

    let (_, phone) = service.session(demo_start()).await;
    assert!(phone.get("websocket_url").is_none(), "{phone}");
}

#[tokio::test]
async fn the_web_session_is_a_start_for_a_browser() {
    let service = Service::start(Setup::default()).await;
    let body = json!({
        "instructions": "Be kind.", "greeting": "Hello!",
        "documents": [{"title": "Hours", "type": "text", "content": "We open at nine."}],
    });
    let (status, reply) = answer(service.post("/api/livekit/sts", &body)).await;
    assert_eq!(status, 200, "{reply}");
    assert!(is_id(reply["session_id"].as_str().expect("an id")));
    assert!(reply["websocket_url"].as_str().is_some_and(|url| url.starts_with("ws://")));
    let status = service.status(reply["session_id"].as_str().expect("an id")).await;
    assert_eq!(status["channel"], "web");
    let refused = refusal(service.post("/api/livekit/sts", &json!({"greeting": 1}))).await;
    assert_eq!(refused, (400, "INVALID_FIELD".into()));
}

#[tokio::test]
async fn steps_change_the_session() {
    let service = Service::start(Setup::default()).await;
    let (id, _) = service.session(demo_start()).await;
    let step = |action: &str, more: Value| {
        let mut body = json!({"action": action, "session_id": id});
        body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        body
    };

    let verified = json!({"category": "patient_information", "verified": true, "details": {"sms_catalog_key": "default"}});
    let reply = service.act(step("verification", verified.clone())).await;
    assert_eq!((&reply["category"], &reply["verified"]), (&json!("patient_information"), &json!(true)));
    // There is no number to send the link to yet.
    let status = service.status(&id).await;
    assert_eq!(status["verification"]["patient_information"]["verified"], true);
    assert_eq!(status["pending_sms"][0]["status"], "awaiting_number");
    assert_eq!(status["pending_sms"][0]["sms_catalog_key"], "default");

    let reply = service.act(step("bind_caller", json!({"caller_number": "+1 (415) 555-2671"}))).await;
    assert_eq!(reply["caller_number"], "+14155552671");
    service.act(step("verification", verified)).await;
    let status = service.status(&id).await;
    assert_eq!(status["caller_number"], "+14155552671");
    assert_eq!(status["pending_sms"].as_array().map(Vec::len), Some(1), "once, whatever happens twice");

    let page = json!({"page": "signup", "step": 2, "sections": [{"name": "Address", "complete": false}]});
    for version in 1..=2 {
        let reply = service.act(step("page_context", json!({"page_context": page}))).await;
        assert_eq!(reply["page_context_version"], version);
    }
    assert_eq!(service.status(&id).await["page_context"], page);

    let completion = json!({"status": "submitted", "message": "All done.", "updated_fields": ["email"]});
    service.act(step("completion", completion)).await;
    let status = service.status(&id).await;
    assert_eq!(status["status"], "completed");
    assert_eq!(status["completion"]["status"], "submitted");
    assert_eq!(status["completion"]["updated_fields"], json!(["email"]));
    // A flow may be completed again, with nothing said about it.
    service.act(step("completion", json!({}))).await;
    assert_eq!(service.status(&id).await["completion"]["status"], "completed");
    // A verification may be taken back.
    service.act(step("verification", json!({"category": "patient_information", "verified": "false"}))).await;
    assert_eq!(service.status(&id).await["verification"]["patient_information"]["verified"], false);
}

#[tokio::test]
async fn what_means_nothing_is_refused_and_changes_nothing() {
    let service = Service::start(Setup::default()).await;
    let (id, _) = service.session(json!({})).await;
    let before = service.status(&id).await;
    let cases = [
        (json!({"action": "dance"}), 400, "UNKNOWN_ACTION"),
        (json!({}), 400, "INVALID_FIELD"),
        (json!([1]), 400, "INVALID_FIELD"),
        (json!({"action": "start", "caller_number": "12"}), 400, "INVALID_FIELD"),
        (json!({"action": "start", "documents": [{"type": "url"}]}), 400, "INVALID_FIELD"),
        (json!({"action": "start", "instructions": {}}), 400, "INVALID_FIELD"),
        (json!({"action": "status"}), 400, "INVALID_FIELD"),
        (json!({"action": "status", "session_id": "sess_000000000000"}), 404, "SESSION_NOT_FOUND"),
        (json!({"action": "status", "session_id": "../../etc/passwd"}), 404, "SESSION_NOT_FOUND"),
        (json!({"action": "bind_caller", "session_id": id}), 400, "INVALID_FIELD"),
        (
            json!({"action": "bind_caller", "session_id": id, "caller_number": "anonymous"}),
            400,
            "INVALID_FIELD",
        ),
        (json!({"action": "page_context", "session_id": id, "page_context": "x"}), 400, "INVALID_FIELD"),
        (
            json!({"action": "page_context", "session_id": id, "page_context": {"x": "y".repeat(40_000)}}),
            413,
            "PAYLOAD_TOO_LARGE",
        ),
        (json!({"action": "verification", "session_id": id, "category": "c"}), 400, "INVALID_FIELD"),
        (
            json!({"action": "verification", "session_id": id, "category": 5, "verified": true}),
            400,
            "INVALID_FIELD",
        ),
        (json!({"action": "completion", "session_id": id, "message": ["x"]}), 400, "INVALID_FIELD"),
        (json!({"action": "completion", "session_id": "sess_000000000000"}), 404, "SESSION_NOT_FOUND"),
    ];
    for (body, status, code) in cases {
        assert_eq!(refusal(service.request(&body)).await, (status, code.to_owned()), "{body}");
    }
    let url = format!("http://{}/STS/interactiveAgent", service.address);
    let bare = client().post(&url).body("{\"action\":\"start\"}");
    assert_eq!(refusal(bare).await.0, 415);
    let broken = client().post(&url).header("content-type", "application/json").body("{\"action\":");
    assert_eq!(refusal(broken).await, (400, "INVALID_JSON".into()));
    assert_eq!(refusal(client().get(&url)).await.0, 405);
    let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    let deep = client().post(&url).header("content-type", "application/json").body(deep);
    assert_eq!(refusal(deep).await, (400, "INVALID_JSON".into()));
    let after = service.status(&id).await;
    assert_eq!(before["revision"], after["revision"]);
}

#[tokio::test]
async fn a_public_server_wants_a_key_and_keeps_organisations_apart() {
    let mut setup = Setup { is_loopback: false, ..Setup::default() };
    setup.config.auth = Auth::Required;
    let service = Service::start(setup).await;
    let [one, other] = &service.keys;
    let start = json!({"action": "start"});
    assert_eq!(refusal(service.request(&start)).await, (401, "INVALID_AUTH".into()));
    assert_eq!(refusal(service.post("/api/livekit/sts", &json!({}))).await.0, 401);
    let (status, reply) = answer(service.request(&start).bearer_auth(one)).await;
    assert_eq!(status, 200, "{reply}");
    for action in [
        json!({"action": "status"}),
        json!({"action": "bind_caller", "caller_number": "+14155552671"}),
        json!({"action": "page_context", "page_context": {}}),
        json!({"action": "verification", "category": "c", "verified": true}),
        json!({"action": "completion"}),
    ] {
        let mut action = action;
        action["session_id"] = reply["session_id"].clone();
        assert_eq!(refusal(service.request(&action)).await.0, 401, "{action}");
        let of_other = refusal(service.request(&action).bearer_auth(other)).await;
        assert_eq!(of_other, (404, "SESSION_NOT_FOUND".into()), "{action}");
        assert_eq!(answer(service.request(&action).bearer_auth(one)).await.0, 200, "{action}");
    }
}

#[tokio::test]
async fn the_setting_decides_over_the_address() {
    let setup = |auth, is_loopback| {
        let mut setup = Setup { is_loopback, ..Setup::default() };
        setup.config.auth = auth;
        setup
    };
    let start = json!({"action": "start"});
    let service = Service::start(setup(Auth::Required, true)).await;
    assert_eq!(refusal(service.request(&start)).await.0, 401);
    let service = Service::start(setup(Auth::Off, false)).await;
    assert_eq!(answer(service.request(&start)).await.0, 200);
    // A malformed key is reported as a mistake.
    assert_eq!(refusal(service.request(&start).bearer_auth("org_x")).await.0, 401);
    // With a key, a session belongs to its organisation, and others can't reach it.
    let (_, reply) = answer(service.request(&start).bearer_auth(&service.keys[0])).await;
    let status = json!({"action": "status", "session_id": reply["session_id"]});
    assert_eq!(refusal(service.request(&status)).await.0, 404);
}

#[tokio::test]
async fn who_comes_through_a_proxy_is_not_local() {
    let service = Service::start(Setup::default()).await;
    let start = json!({"action": "start"});
    let port = service.address.port();
    for (name, value) in [
        ("forwarded", "for=192.0.2.60;proto=https"),
        ("x-forwarded-for", "192.0.2.60"),
        ("x-forwarded-for", "127.0.0.1"),
        ("x-real-ip", "192.0.2.60"),
        ("via", "1.1 proxy"),
        ("x-forwarded-port", "443"),
        ("cf-connecting-ip", "192.0.2.60"),
        ("host", "voice.example"),
    ] {
        let through = |request: reqwest::RequestBuilder| request.header(name, value);
        let refused = refusal(through(service.request(&start))).await;
        assert_eq!(refused, (401, "INVALID_AUTH".into()), "{name}: {value}");
        assert_eq!(refusal(through(service.post("/api/livekit/sts", &json!({})))).await.0, 401, "{name}");
        let with_key = through(service.request(&start)).bearer_auth(&service.keys[0]);
        assert_eq!(answer(with_key).await.0, 200, "{name}: {value}");
    }
    let handshake =
        connect(service.address, "/v1/agent/converse", &[("x-forwarded-for", "192.0.2.60")]).await;
    assert_eq!(handshake.status, 401);
    let named = service.request(&start).header("host", format!("localhost:{port}"));
    assert_eq!(answer(named).await.0, 200);
}

#[tokio::test]
async fn a_restart_loses_no_session() {
    let folder = tempfile::tempdir().expect("a folder");
    let service = Service::start_in(folder.path(), Setup::default()).await;
    let mut start = demo_start();
    start["documents"] = json!([{"title": "Hours", "type": "text", "content": "We open at nine."}]);
    let (id, _) = service.session(start).await;
    service.act(json!({"action": "verification", "session_id": id, "category": "patient_information", "verified": true})).await;
    service.act(json!({"action": "page_context", "session_id": id, "page_context": {"step": "two"}})).await;
    let before = service.ready(&id).await;
    service.stop().await;

    let service = Service::start_in(folder.path(), Setup::default()).await;
    let after = service.status(&id).await;
    assert_eq!(before, after);
    // The session continues: a number that is bound now gets the message that waited for it.
    service.act(json!({"action": "bind_caller", "session_id": id, "caller_number": "+14155552671"})).await;
    let status = service.status(&id).await;
    assert_eq!(status["pending_sms"][0]["status"], "queued");
    assert_eq!(status["pending_sms"][0]["to"], "+14155552671");
}

#[tokio::test]
async fn a_full_service_says_when_to_come_again() {
    let mut setup = Setup::default();
    setup.config.sessions_max = 2;
    let service = Service::start(setup).await;
    let start = json!({"action": "start"});
    for key in &service.keys {
        assert_eq!(answer(service.request(&start).bearer_auth(key)).await.0, 200);
    }
    // An organisation that holds none of them.
    let response = service.request(&start).send().await.expect("an answer");
    assert_eq!(response.status().as_u16(), 503);
    assert!(response.headers().contains_key("retry-after"));
}

#[tokio::test]
async fn a_session_that_nobody_uses_ends() {
    let mut setup = Setup::default();
    setup.config.idle_seconds = 0;
    let folder = tempfile::tempdir().expect("a folder");
    let service = Service::start_in(folder.path(), setup).await;
    let (id, _) = service.session(json!({})).await;
    service.stop().await;
    // A restart looks for those whose time is over at once.
    let service = Service::start_in(folder.path(), Setup::default()).await;
    let status = service.until(&id, |status| status["status"] == "ended").await;
    assert_eq!(status["end_reason"], "expired");
    let step = json!({"action": "completion", "session_id": id});
    assert_eq!(refusal(service.request(&step)).await, (409, "SESSION_ENDED".into()));
}
