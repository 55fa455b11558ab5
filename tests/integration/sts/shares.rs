//! Organisations that share the service: none takes all sessions, nor all that they may hold.

use serde_json::{Value, json};
use verbatim::sts::Auth;

use super::ended::{gauge, leave, recorder};
use super::service::{Service, Setup};
use crate::server::{answer, read};

/// Asks for keys of all.
fn setup() -> Setup {
    let mut setup = Setup { is_loopback: false, ..Setup::default() };
    setup.config.auth = Auth::Required;
    setup
}

/// Status, seconds of `Retry-After` if present, and body.
async fn start(service: &Service, key: &str, start: &Value) -> (u16, Option<u64>, Value) {
    let mut start = start.clone();
    start["action"] = "start".into();
    let response = service.request(&start).bearer_auth(key).send().await.expect("an answer");
    let after = response.headers().get("retry-after").map(|after| after.to_str().expect("text"));
    let after = after.map(|after| after.parse().expect("seconds"));
    let (status, body) = read(response).await;
    (status, after, body)
}

#[tokio::test]
async fn a_busy_organisation_leaves_sessions_to_others() {
    let mut setup = setup();
    setup.config.sessions_max = 5;
    setup.config.idle_seconds = 60;
    let service = Service::start(setup).await;
    let [busy, quiet] = &service.keys;
    let mut started = Vec::new();
    for _ in 0..4 {
        let (status, _, body) = start(&service, busy, &json!({"greeting": "Hello."})).await;
        assert_eq!(status, 200, "{body}");
        started.push(body);
    }
    let (status, after, body) = start(&service, busy, &json!({})).await;
    assert_eq!((status, &body["err_code"]), (429, &json!("TOO_MANY_REQUESTS")));
    // The first of its sessions ends after a minute if nothing happens.
    assert!(after.is_some_and(|after| (1..=60).contains(&after)), "{after:?}");
    assert_eq!(start(&service, quiet, &json!({})).await.0, 200);

    // Once some of its own sessions have ended, there is room for it again.
    for started in &started[..2] {
        leave(&service, started).await;
    }
    assert_eq!(start(&service, busy, &json!({})).await.0, 200);
}

#[tokio::test]
async fn a_client_that_comes_again_when_it_was_told_to_gets_in() {
    let mut setup = setup();
    setup.config.sessions_max = 1;
    setup.config.idle_seconds = 3;
    let service = Service::start(setup).await;
    let [one, other] = &service.keys;
    let (status, _, started) = start(&service, one, &json!({})).await;
    assert_eq!(status, 200, "{started}");
    // When it has read all that it was given, nothing happens in it any more.
    let look = json!({"action": "status", "session_id": started["session_id"]});
    while answer(service.request(&look).bearer_auth(one)).await.1["knowledge"]["ready"] != true {}
    let (status, after, _) = start(&service, other, &json!({})).await;
    let after = after.expect("a time");
    assert!(status == 503 && (1..=3).contains(&after), "{status}, {after}");
    // The server's word is what is tried here.
    tokio::time::sleep(std::time::Duration::from_secs(after)).await;
    assert_eq!(start(&service, other, &json!({})).await.0, 200);
}

#[tokio::test]
async fn what_sessions_hold_is_bounded_and_shared() {
    let (recorder, metrics) = recorder();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let mut setup = setup();
    setup.config.held_bytes_max = 8 << 20;
    let service = Service::start(setup).await;
    let [busy, quiet] = &service.keys;
    let of = |bytes: usize| {
        let content = "We are open from nine to five. ".repeat(bytes / 31);
        json!({"greeting": "Hello.", "documents": [{"title": "Hours", "type": "text", "content": content}]})
    };
    let (large, small) = (of(500_000), of(50_000));
    let mut started = Vec::new();
    let (status, after) = loop {
        let (status, after, body) = start(&service, busy, &large).await;
        if status != 200 {
            break (status, after);
        }
        started.push(body);
        assert!(started.len() < 16, "eight MiB do not hold sixteen times half a megabyte");
    };
    assert_eq!((status, after), (429, Some(120)), "no session of its own ends before half an hour is over");
    assert!(!started.is_empty() && gauge(&metrics, "sts_held_bytes") <= (8 << 20) as f64);
    let (status, _, body) = start(&service, quiet, &small).await;
    assert_eq!(status, 200, "{body}");

    for started in &started {
        leave(&service, started).await;
    }
    assert_eq!(start(&service, busy, &large).await.0, 200);
}
