//! Deliveries to the receiver of a callback: their contents, their headers, their number.

use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::json;
use sha2::Sha256;
use uuid::Uuid;
use verbatim::jobs::{self, SigningSecret};

use super::{allow, job_in, quick, server, taken, text, to, verbatim, with_callback};
use crate::receiver::{Received, Receiver};
use crate::server::{RAW, Setup, TestServer, refusal, say};

/// The header of the signature, made from the documented recipe alone.
fn signature(secret: &str, received: &Received) -> String {
    let secret = STANDARD.decode(secret.trim().strip_prefix("whsec_").expect("a secret")).expect("Base64");
    let mut mac = Hmac::<Sha256>::new_from_slice(&secret).expect("a key");
    let (id, timestamp) = (&received.headers["webhook-id"], &received.headers["webhook-timestamp"]);
    mac.update(format!("{id}.{timestamp}.").as_bytes());
    mac.update(&received.body);
    format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
}

#[tokio::test]
async fn the_receiver_can_tell_who_sends() {
    let mut receiver = Receiver::start(&[]).await;
    let server = server(&[&receiver]).await;
    let callback = format!("http://user:p%40ss@127.0.0.1:{}/", receiver.port);
    for method in ["PUT", "put", "Post"] {
        let request = with_callback(&server, &callback, &format!("{RAW}&callback_method={method}"), say(7));
        let id = taken(request).await.to_string();
        let received = receiver.next().await;
        assert_eq!(received.method, method.to_ascii_uppercase());
        let headers = &received.headers;
        assert_eq!(headers["content-type"], "application/json");
        assert_eq!(headers["authorization"], format!("Basic {}", STANDARD.encode("user:p@ss")));
        assert_eq!(headers["dg-token"], server.key[4..12]);
        assert_eq!((&headers["webhook-id"], &headers["idempotency-key"]), (&id, &id));
        assert_eq!(headers["verbatim-attempt"], "1");
        let secret = text(&verbatim(&server, &["jobs", "secret"]).await.stdout);
        assert_eq!(headers["webhook-signature"], signature(&secret, &received));
    }
    for method in ["GET", "", "DELETE"] {
        let request = with_callback(&server, &callback, &format!("{RAW}&callback_method={method}"), say(7));
        assert_eq!(refusal(request).await, (400, "INVALID_QUERY_PARAMETER".into()), "{method}");
    }
}

#[tokio::test]
async fn a_configured_secret_signs() {
    let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let mut receiver = Receiver::start(&[]).await;
    let jobs = jobs::Config { secret: Some(secret.parse::<SigningSecret>().unwrap()), ..quick() };
    let server = TestServer::start(Setup { fetch: allow(&[&receiver]), jobs, ..Setup::default() }).await;
    taken(with_callback(&server, &to(&receiver), RAW, say(7))).await;
    let received = receiver.next().await;
    assert_eq!(received.headers["webhook-signature"], signature(secret, &received));
}

#[test]
fn the_configured_secret_is_not_shown() {
    let state = tempfile::tempdir().unwrap();
    let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let run = |secret: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_verbatim"));
        command.arg("config").env("XDG_CONFIG_HOME", state.path()).env("VERBATIM_JOBS__SECRET", secret);
        command.env("VERBATIM_JOBS__RETRY_DELAYS_SECONDS", "1, 2.5").output().unwrap()
    };
    let shown = text(&run(secret).stdout);
    assert!(shown.contains("# jobs.secret is set, and not shown"), "{shown}");
    assert!(shown.contains("jobs.retry_delays_seconds = [1.0, 2.5]"), "{shown}");
    assert!(!shown.contains("MfKQ9r8GKYqr"), "{shown}");
    let refused = run("whsec_short");
    assert_eq!(refused.status.code(), Some(2));
    assert!(!text(&refused.stderr).contains("short"), "{}", text(&refused.stderr));
}

#[tokio::test]
async fn a_failed_delivery_is_tried_again_with_the_same_bytes() {
    let mut receiver = Receiver::start(&["500 Oops", "503 Busy\r\nretry-after: 0", "404 Not yet"]).await;
    let server = server(&[&receiver]).await;
    let id = taken(with_callback(&server, &to(&receiver), RAW, say(7))).await;
    let first = receiver.next().await;
    for attempt in 2..=4 {
        let next = receiver.next().await;
        assert_eq!((&next.body, &next.headers["webhook-id"]), (&first.body, &id.to_string()));
        assert_eq!(next.headers["verbatim-attempt"], attempt.to_string());
    }
    let done = job_in(&server, id, "delivered").await;
    assert_eq!((&done["runs"], &done["attempts"]), (&json!(1), &json!(4)));
}

#[tokio::test]
async fn a_receiver_that_is_gone_or_elsewhere_makes_a_dead_job_which_can_be_sent_again() {
    let mut elsewhere = Receiver::start(&[]).await;
    let redirect = format!("302 Found\r\nlocation: http://127.0.0.1:{}/", elsewhere.port);
    let mut receiver = Receiver::start(&["410 Gone", &redirect, &redirect, &redirect, &redirect]).await;
    let server = server(&[&receiver, &elsewhere]).await;

    let gone = taken(with_callback(&server, &to(&receiver), RAW, say(7))).await;
    let first = receiver.next().await;
    let dead = job_in(&server, gone, "dead").await;
    assert_eq!((&dead["attempts"], &dead["last_error"]), (&json!(1), &json!("STATUS_410")));

    let moved = taken(with_callback(&server, &to(&receiver), RAW, say(8))).await;
    let dead = job_in(&server, moved, "dead").await;
    assert_eq!((&dead["attempts"], &dead["last_error"]), (&json!(4), &json!("STATUS_302")));
    assert!(elsewhere.is_done());
    for _ in 0..4 {
        receiver.next().await;
    }

    let list = text(&verbatim(&server, &["jobs", "list", "--state", "dead"]).await.stdout);
    assert!(list.contains(&gone.to_string()) && list.contains(&moved.to_string()), "{list}");
    let shown = text(&verbatim(&server, &["jobs", "show", &gone.to_string()]).await.stdout);
    assert!(shown.contains("STATUS_410") && shown.contains(&receiver.allowed()), "{shown}");
    assert!(!shown.contains("/done") && !shown.contains("Number"), "{shown}");

    assert!(verbatim(&server, &["jobs", "retry", &gone.to_string()]).await.status.success());
    assert_eq!(receiver.next().await.body, first.body);
    job_in(&server, gone, "delivered").await;
    assert!(!verbatim(&server, &["jobs", "retry", &gone.to_string()]).await.status.success());
    assert!(!verbatim(&server, &["jobs", "show", &Uuid::nil().to_string()]).await.status.success());
}

#[tokio::test]
async fn a_receiver_that_hangs_holds_up_nobody_else() {
    let mut hangs = Receiver::start(&[""; 100]).await;
    let mut healthy = Receiver::start(&[]).await;
    let jobs =
        jobs::Config { deliveries: 8, deliveries_per_host: 3, delivery_timeout_ms: 600_000, ..quick() };
    let setup = Setup { fetch: allow(&[&hangs, &healthy]), jobs, ..Setup::default() };
    let server = TestServer::start(setup).await;
    let mut ids = Vec::new();
    for _ in 0..20 {
        ids.push(taken(with_callback(&server, &to(&hangs), RAW, say(1))).await);
    }
    for _ in 0..3 {
        hangs.next().await;
    }
    // All results are there, three are on their way, and none of those is done.
    for id in ids {
        job_in(&server, id, "delivering").await;
    }
    for number in 0..5 {
        let id = taken(with_callback(&server, &to(&healthy), RAW, say(number))).await;
        assert_eq!(healthy.next().await.headers["webhook-id"], id.to_string());
    }
    assert!(hangs.is_done(), "no more than three to one host");
}

#[tokio::test]
async fn a_receiver_that_is_too_slow_is_tried_again() {
    let mut receiver = Receiver::start(&[""]).await;
    let jobs = jobs::Config { delivery_timeout_ms: 50, ..quick() };
    let server = TestServer::start(Setup { fetch: allow(&[&receiver]), jobs, ..Setup::default() }).await;
    let id = taken(with_callback(&server, &to(&receiver), RAW, say(7))).await;
    assert_eq!(receiver.next().await.body, receiver.next().await.body);
    assert_eq!(job_in(&server, id, "delivered").await["last_error"], "TIMEOUT");
}
