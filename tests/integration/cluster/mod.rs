//! Several built programs and a real nats-server: what nodes promise together.

mod accepting;
mod broker;
mod media;
mod outages;
mod workers;

use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use crate::checkpoint::Checkpoint;
use crate::program::Program;
use crate::receiver::{Receiver, callback_parameter};
use crate::server::{RAW, answer, client, new_key, say};
use broker::Broker;

const PATIENCE: Duration = Duration::from_secs(120);
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
/// Short, so that a worker is given up soon.
const LEASE_MS: &str = "5000";

/// What the nodes of a test share.
struct Cluster {
    broker: Broker,
    model: TempDir,
    /// Its keys are those of every node.
    keys: TempDir,
    key: String,
    allowed: String,
}

struct Node {
    program: Program,
    state: TempDir,
    name: &'static str,
}

impl Cluster {
    /// `None` if there is no broker to run.
    async fn start(allowed: &[String]) -> Option<Self> {
        let broker = Broker::start().await?;
        let (model, keys) = (TempDir::new().expect("a folder"), TempDir::new().expect("a folder"));
        Checkpoint::random(1).write_hugging_face(model.path());
        let key = new_key(keys.path());
        Some(Self { broker, model, keys, key, allowed: allowed.join(",") })
    }

    /// A node with a model.
    async fn worker(&self, name: &'static str) -> Node {
        self.node(name, TempDir::new().expect("a folder"), &[]).await
    }

    /// A node that only accepts.
    async fn door(&self, name: &'static str) -> Node {
        self.node(name, TempDir::new().expect("a folder"), &["--device", "none"]).await
    }

    /// The node of a state directory that another process had before.
    async fn node(&self, name: &'static str, state: TempDir, more: &[&str]) -> Node {
        for file in std::fs::read_dir(self.keys.path()).expect("a folder") {
            let file = file.expect("readable");
            let copy = state.path().join(file.file_name());
            if file.file_type().expect("known").is_file() && !copy.exists() {
                std::fs::copy(file.path(), copy).expect("copied");
            }
        }
        let mut arguments = vec![OsStr::new("--model"), self.model.path().as_os_str()];
        arguments.extend(more.iter().map(OsStr::new));
        let broker = self.broker.url();
        let settings = [
            ("VERBATIM_FETCH_ALLOW", self.allowed.as_str()),
            ("VERBATIM_CLUSTER__NATS", broker.as_str()),
            ("VERBATIM_CLUSTER__NODE", name),
            ("VERBATIM_CLUSTER__LEASE_MS", LEASE_MS),
            ("VERBATIM_CLUSTER__TIMEOUT_MS", "3000"),
            ("VERBATIM_JOBS__SECRET", SECRET),
            ("VERBATIM_JOBS__RETRY_DELAYS_SECONDS", "0.01,0.01,0.01"),
        ];
        let program = Program::serve(state.path(), &arguments, &settings).await;
        Node { program, state, name }
    }

    fn submission(&self, node: &Node, receiver: &Receiver, query: &str) -> reqwest::RequestBuilder {
        let callback = callback_parameter(&format!("http://127.0.0.1:{}/", receiver.port));
        client().post(node.program.url(&format!("/v1/listen?{query}&{callback}"))).bearer_auth(&self.key)
    }

    /// Submits a second of audio, and gives the job's id.
    async fn submit(&self, node: &Node, receiver: &Receiver) -> String {
        taken(self.submission(node, receiver, RAW).body(say(1))).await
    }

    /// Submits the audio of an address.
    async fn submit_url(&self, node: &Node, receiver: &Receiver, url: &str) -> String {
        let body = serde_json::json!({"url": url}).to_string();
        let request = self.submission(node, receiver, RAW).header("content-type", "application/json");
        taken(request.body(body)).await
    }

    /// The job as `node` shows it, once it is in `state`.
    async fn job_in(&self, node: &Node, id: &str, state: &str) -> Value {
        let poll = async {
            loop {
                let request = client().get(node.program.url(&format!("/v1/listen/jobs/{id}")));
                let (status, body) = answer(request.bearer_auth(&self.key)).await;
                assert_eq!(status, 200, "{body}");
                if body["state"] == state {
                    return body;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(PATIENCE, poll).await.expect("in time")
    }
}

async fn taken(request: reqwest::RequestBuilder) -> String {
    let (status, body) = answer(request).await;
    assert_eq!(status, 200, "{body}");
    body["request_id"].as_str().expect("an id").to_owned()
}

impl Node {
    /// Kills it, and gives what is on its disk.
    fn kill(self) -> TempDir {
        self.program.kill();
        self.state
    }

    /// The entries of its log with this message, for each job.
    fn logged(&self, message: &str) -> HashMap<String, usize> {
        let mut found = HashMap::new();
        for line in self.program.log().lines() {
            let entry: Value = serde_json::from_str(line).expect("JSON");
            if entry["message"] == message
                && let Some(id) = entry["id"].as_str()
            {
                *found.entry(id.to_owned()).or_default() += 1;
            }
        }
        found
    }

    /// Waits until its log has a message.
    async fn logs(&self, message: &str) {
        let wait = async {
            while !self.program.log().contains(message) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let waited = tokio::time::timeout(PATIENCE, wait).await;
        assert!(waited.is_ok(), "{}: no `{message}` in\n{}", self.name, self.program.log());
    }
}

/// Takes results until each of `ids` has one; fails if one job has two different ones.
async fn delivered(receiver: &mut Receiver, ids: &[String]) -> HashMap<String, Vec<u8>> {
    let mut bodies: HashMap<String, Vec<u8>> = HashMap::new();
    while !ids.iter().all(|id| bodies.contains_key(id)) {
        let received = receiver.next().await;
        let id = received.headers["webhook-id"].clone();
        assert!(received.json()["results"].is_object(), "given up: {}", received.json());
        let first = bodies.entry(id).or_insert_with(|| received.body.clone());
        assert_eq!(*first, received.body);
    }
    bodies
}

fn files(state: &Path) -> usize {
    std::fs::read_dir(state.join("jobs-audio")).map_or(0, Iterator::count)
}
