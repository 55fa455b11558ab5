//! The built program on SIGTERM: first it leaves, then it closes.

use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::checkpoint::Checkpoint;
use crate::program::Program;
use crate::server::{RAW, answer, client, new_key, say};
use crate::socket::{self, Said, connect};

/// A server that would stay for an hour, and a key.
async fn start(state: &Path, model: &Path) -> (Program, String) {
    Checkpoint::random(1).write_hugging_face(model);
    let key = new_key(state);
    let settings = [("VERBATIM_SHUTDOWN__GRACE_SECONDS", "3600"), ("VERBATIM_STS__AUTH", "loopback")];
    (Program::start_with(state, model, &settings).await, key)
}

#[tokio::test]
async fn a_server_that_is_told_to_stop_says_so_while_its_port_is_open() {
    let (state, model) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let (program, key) = start(state.path(), model.path()).await;
    let listen = format!("/v1/listen?{RAW}");
    let stream = async || socket::listen(program.address, &key, RAW).await;
    let mut begun = stream().await.socket.expect("agreed");
    begun.audio(&say(1)).await;

    program.signal("-TERM");
    let get = |path: &str| client().get(program.url(path));
    while answer(get("/readyz")).await.0 == 200 {
        tokio::task::yield_now().await;
    }
    // Each on a new connection, which is still accepted.
    assert_eq!(answer(get("/livez")).await.0, 200);
    assert_eq!(answer(get("/health")).await, (200, json!({"status": "ok", "ready": false})));
    assert_eq!(answer(get("/v1/status")).await.1["system_health"], "Degraded");
    for request in [
        get("/readyz"),
        get("/v1/listen/jobs/00000000-0000-0000-0000-000000000000"),
        get("/openapi.json"),
        client().post(program.url(&listen)).bearer_auth(&key).body(say(1)),
        client().post(program.url("/STS/interactiveAgent")).body(r#"{"action":"start"}"#),
    ] {
        let response = request.send().await.expect("an answer");
        assert_eq!(response.status(), 503, "{}", response.url());
        let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
        assert!(header("retry-after").is_some_and(|after| after.parse::<u64>().is_ok_and(|after| after > 0)));
        assert_eq!(header("connection"), Some("close"), "{}", response.url());
    }
    assert_eq!(stream().await.status, 503);
    assert_eq!(connect(program.address, "/v1/agent/converse", &[]).await.status, 503);

    // The stream that had begun is served to its end.
    begun.control("CloseStream").await;
    let (messages, end) = begun.rest().await;
    assert_eq!(messages.last().map(|message| &message["type"]), Some(&Value::from("Metadata")));
    assert_eq!(end, Said::Close(1000, String::new()));
    // A second signal comes from a person who has waited long enough.
    program.signal("-TERM");
    assert_eq!(program.ends().await, Some(143));
}

#[tokio::test]
async fn ctrl_c_waits_for_no_load_balancer() {
    let (state, model) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let (program, _) = start(state.path(), model.path()).await;
    program.signal("-INT");
    assert_eq!(program.ends().await, Some(0));
}
