//! Several servers of the same keys: what one has no room for goes on to another one, once.

use std::sync::mpsc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinHandle;
use verbatim::api;
use verbatim::engine;

use crate::server::{RAW, Setup, TestServer, answer, client, read, say_for, transcripts};

fn to(peers: &[&TestServer]) -> api::Config {
    let forward = api::forward::Config {
        peers: peers.iter().map(|peer| peer.url("/")).collect(),
        ..api::forward::Config::default()
    };
    api::Config { forward, ..api::Config::default() }
}

/// A server that is full and knows the keys of another one, the gate that lets it go on, and the request that fills it.
async fn full(
    api: api::Config,
    other: Option<&TestServer>,
) -> (TestServer, mpsc::Sender<()>, JoinHandle<(u16, Value)>) {
    let (open, gate) = mpsc::channel();
    let engine = engine::Config { max_held_seconds: 1.0, ..engine::Config::default() };
    let keys_of = other.map(|other| other.state.path().to_owned());
    let server =
        TestServer::start(Setup { gate: Some(gate), engine, api, keys_of, ..Setup::default() }).await;
    let first = tokio::spawn(answer(server.listen(RAW, say_for(5, 2.0))));
    while server.engine.held_seconds() == 0.0 {
        tokio::task::yield_now().await;
    }
    (server, open, first)
}

#[tokio::test]
async fn a_full_server_sends_requests_on_and_their_answers_pass() {
    let peer = TestServer::start(Setup::default()).await;
    let (server, open, first) = full(to(&[&peer]), Some(&peer)).await;
    // Both know the key.
    let key = &peer.key;
    let url = server.url(&format!("/v1/listen?{RAW}&tag=here"));
    let request = client().post(&url).header("authorization", format!("Token {key}")).body(say_for(7, 2.0));
    let response = request.send().await.expect("an answer");
    assert!(response.headers().contains_key("dg-model-name"), "the peer's headers pass");
    let id = response.headers()["dg-request-id"].to_str().expect("text").to_owned();
    let (status, body) = read(response).await;
    assert_eq!((status, transcripts(&body)), (200, vec!["Number 7."]), "{body}");
    assert_eq!(body["metadata"]["request_id"], id.as_str(), "the id of the server that did the work");
    assert_eq!((server.engine.counts().windows, peer.engine.counts().windows), (0, 1));
    // A refusal of the peer for a fault of the client's passes, too.
    let nonsense = client().post(&url).bearer_auth(key).body("nonsense");
    assert_eq!(answer(nonsense).await.0, 200, "raw samples are never nonsense");
    let broken = client().post(server.url("/v1/listen")).bearer_auth(key).body("nonsense, and no audio");
    assert_eq!(answer(broken).await.0, 415);
    // A request that has gone on once goes no further.
    let marked =
        client().post(&url).bearer_auth(key).header("x-verbatim-forwarded", "1").body(say_for(8, 2.0));
    let (status, body) = answer(marked).await;
    assert_eq!((status, &body["err_code"]), (503, &json!("Service Unavailable")));
    drop(open);
    assert_eq!(transcripts(&first.await.expect("no panic").1), ["Number 5."]);
}

#[tokio::test]
async fn if_all_are_full_the_client_waits_for_the_first_to_have_room() {
    let (peer, open_peer, first_peer) = full(api::Config::default(), None).await;
    let (server, open, first) = full(to(&[&peer]), Some(&peer)).await;
    let key = &peer.key;
    let request = client().post(server.url(&format!("/v1/listen?{RAW}"))).bearer_auth(key);
    let response = request.body(say_for(7, 2.0)).send().await.expect("an answer");
    assert_eq!(response.status(), 503);
    assert!(response.headers()["retry-after"].to_str().expect("text").parse::<u64>().expect("a number") >= 1);
    assert_eq!(peer.engine.counts().windows + server.engine.counts().windows, 0);
    drop((open, open_peer));
    for first in [first, first_peer] {
        assert_eq!(first.await.expect("no panic").0, 200);
    }
}

#[tokio::test]
async fn peers_that_are_not_there_cost_a_refusal_and_no_time() {
    let gone = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.local_addr().expect("bound")
    };
    let forward =
        api::forward::Config { peers: vec![format!("http://{gone}")], ..api::forward::Config::default() };
    let (server, open, first) = full(api::Config { forward, ..api::Config::default() }, None).await;
    let asked = answer(server.listen(RAW, say_for(7, 2.0)));
    let (status, _) = tokio::time::timeout(Duration::from_secs(10), asked).await.expect("at once");
    assert_eq!(status, 503);
    drop(open);
    assert_eq!(first.await.expect("no panic").0, 200);
}
