//! The built program, killed at the worst moments.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use crate::checkpoint::Checkpoint;
use crate::program::Program;
use crate::receiver::{Receiver, callback_parameter};
use crate::server::{RAW, answer, client, new_key, say};

impl Program {
    async fn send(&self, key: &str, receiver: &Receiver) -> String {
        let callback = callback_parameter(&format!("http://127.0.0.1:{}/", receiver.port));
        let url = format!("http://{}/v1/listen?{RAW}&{callback}", self.address);
        let request = client().post(url).bearer_auth(key).body(say(1));
        let (status, body) = answer(request).await;
        assert_eq!(status, 200, "{body}");
        body["request_id"].as_str().expect("an id").to_owned()
    }

    /// As [`Self::send`]; `None` if nothing was acknowledged.
    async fn try_send(address: SocketAddr, key: &str, port: u16) -> Option<String> {
        let callback = callback_parameter(&format!("http://127.0.0.1:{port}/"));
        let url = format!("http://{address}/v1/listen?{RAW}&{callback}");
        let response = client().post(url).bearer_auth(key).body(say(1)).send().await.ok()?;
        assert_eq!(response.status(), 200);
        let body: Value = serde_json::from_slice(&response.bytes().await.ok()?).ok()?;
        Some(body["request_id"].as_str().expect("an id").to_owned())
    }
}

#[tokio::test]
async fn acknowledged_jobs_are_delivered_whatever_happens_to_the_process() {
    let (state, model) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    Checkpoint::random(1).write_hugging_face(model.path());
    let key = &new_key(state.path());
    let mut receiver = Receiver::start(&[""]).await;

    // Killed after the receiver got the result and before it answered: the same result is delivered again.
    let program = Program::start(state.path(), model.path(), &receiver.allowed()).await;
    let id = program.send(key, &receiver).await;
    let first = receiver.next().await;
    assert_eq!(first.headers["webhook-id"], id);
    program.kill();
    let program = Program::start(state.path(), model.path(), &receiver.allowed()).await;
    let second = receiver.next().await;
    assert_eq!((&second.headers["webhook-id"], &second.body), (&id, &first.body));

    // Killed as soon as jobs are acknowledged, queued or running.
    let mut ids = Vec::new();
    for _ in 0..4 {
        ids.push(program.send(key, &receiver).await);
    }
    program.kill();
    let program = Program::start(state.path(), model.path(), &receiver.allowed()).await;
    let mut delivered = Vec::new();
    while !ids.iter().all(|id| delivered.contains(id)) {
        let received = receiver.next().await;
        let id = &received.headers["webhook-id"];
        assert_eq!(received.json()["metadata"]["request_id"], *id);
        delivered.push(id.clone());
    }

    // One state directory is one server's.
    let mut other = Command::new(env!("CARGO_BIN_EXE_verbatim"));
    other.args(["serve", "--listen", "127.0.0.1:0"]).env("VERBATIM_STATE_DIR", state.path());
    other.env("XDG_CONFIG_HOME", state.path());
    let output = tokio::task::spawn_blocking(move || other.output()).await.unwrap().unwrap();
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("another server keeps its jobs"));

    // Told to stop with work to do, it stops well, and the work is done by the next one.
    for _ in 0..4 {
        ids.push(program.send(key, &receiver).await);
    }
    program.stop().await;
    let _program = Program::start(state.path(), model.path(), &receiver.allowed()).await;
    while !ids.iter().all(|id| delivered.contains(id)) {
        delivered.push(receiver.next().await.headers["webhook-id"].clone());
    }
}

/// Kills at random moments while jobs come in. `TEST_KILLS` and `TEST_SEED` for more of
/// it: a hundred kills see about a thousand jobs.
#[tokio::test]
async fn no_acknowledged_job_is_lost_to_kills_at_random() {
    let number =
        |name: &str, default| std::env::var(name).map_or(default, |text| text.parse().expect("a number"));
    let (kills, mut seed) = (number("TEST_KILLS", 3), number("TEST_SEED", 1));
    let (state, model) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    Checkpoint::random(1).write_hugging_face(model.path());
    let key = new_key(state.path());
    let mut receiver = Receiver::start(&[]).await;
    let mut acknowledged = HashSet::new();
    for _ in 0..kills {
        let program = Program::start(state.path(), model.path(), &receiver.allowed()).await;
        let (address, port, key) = (program.address, receiver.port, key.clone());
        let client = tokio::spawn(async move {
            let mut ids = Vec::new();
            while let Some(id) = Program::try_send(address, &key, port).await {
                ids.push(id);
            }
            ids
        });
        // Knuth's MMIX generator: any will do.
        seed = u64::wrapping_mul(seed, 6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        tokio::time::sleep(Duration::from_millis((seed >> 33) % 300)).await;
        program.kill();
        acknowledged.extend(client.await.unwrap());
    }
    let _program = Program::start(state.path(), model.path(), &receiver.allowed()).await;
    let mut delivered: HashMap<String, Vec<u8>> = HashMap::new();
    while !acknowledged.iter().all(|id| delivered.contains_key(id)) {
        let received = receiver.next().await;
        let id = received.headers["webhook-id"].clone();
        assert!(received.json()["results"].is_object(), "given up: {}", received.json());
        let first = delivered.entry(id).or_insert_with(|| received.body.clone());
        assert_eq!(*first, received.body);
    }
    println!("{} jobs, {kills} kills", acknowledged.len());
}
