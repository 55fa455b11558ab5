//! Answers whose status is sent long before their end, in the log of requests.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use verbatim::keys::{NewKey, Scopes, Store, public_id};

use crate::openai::{BOUNDARY, file, form};
use crate::server::{FAILS, Setup, TestServer, answer, client, until_known};

const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_stream_of_events_is_logged_as_it_ended() {
    let (open, gate) = mpsc::channel();
    let server = TestServer::start(Setup { gate: Some(gate), ..Setup::default() }).await;
    let scopes = Scopes::parse(["member"]).expect("scopes");
    let store = Store::open(server.state.path()).expect("keys");
    let (key, secret) = store.insert(NewKey { scopes, ..NewKey::of_a_client("boss") }).expect("a key");
    until_known(&server.url(""), secret.expose()).await;
    let requests = server.url(&format!("/v1/projects/{}/requests", public_id::of_organisation(key.tenant)));
    let events = async |audio: Vec<u8>| {
        let body = form(&[("stream", b"true"), ("file", &audio)]);
        let kind = format!("multipart/form-data; boundary={BOUNDARY}");
        let request = client().post(server.url("/v1/audio/transcriptions")).bearer_auth(secret.expose());
        let answer = request.header("content-type", kind).body(body).send().await.expect("an answer");
        assert_eq!(answer.status(), 200);
        answer
    };
    let logged = async |expected: Value| {
        let begun = Instant::now();
        loop {
            let (_, page) = answer(client().get(&requests).bearer_auth(secret.expose())).await;
            let entries = page["requests"].as_array().expect("a list").iter();
            let codes: Vec<&Value> = entries.map(|entry| &entry["code"]).collect();
            if json!(codes) == expected {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "{codes:?} instead of {expected}");
        }
    };
    // Two windows, of which one is recognised before the client leaves.
    open.send(()).expect("the model waits");
    let mut first = events(file(7, 40.0)).await;
    assert!(first.chunk().await.expect("readable").is_some());
    drop(first);
    logged(json!([499])).await;
    drop(open);
    let failed = events(file(FAILS, 1.0)).await.text().await.expect("events");
    assert!(failed.contains("error"), "{failed}");
    logged(json!([500, 499])).await;
    let whole = events(file(8, 1.0)).await.text().await.expect("events");
    assert!(whole.contains("Number 8."), "{whole}");
    logged(json!([200, 500, 499])).await;
}
