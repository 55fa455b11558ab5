//! HAProxy before two servers, with the configuration of `docker/cluster`: what clients notice while nodes come and go.
//!
//! `./setup deployment` installs it. Without it the test is skipped with a message; with `TEST_ALL_SDKS` set, as in CI, that
//! is a failure.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;
use tokio::net::TcpStream;

use crate::checkpoint::Checkpoint;
use crate::program::Program;
use crate::server::{RAW, client, new_key, say};
use crate::socket::{self, Said};

/// Another program may take a port between its choice and HAProxy's start.
const PORTS_TRIED: usize = 5;
const REQUESTS: usize = 12;

struct Balancer {
    process: Child,
    address: SocketAddr,
}

impl Drop for Balancer {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    folders.map(|folder| folder.join("haproxy")).find(|path| path.exists())
}

impl Balancer {
    /// The configuration, with nodes at addresses instead of a name.
    fn configure(folder: &Path, nodes: &[SocketAddr]) -> PathBuf {
        let source = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("docker/cluster/haproxy.cfg");
        let text = std::fs::read_to_string(source).expect("readable");
        let (before, _) = text.split_once("  server-template ").expect("the last line names the nodes");
        let lines = nodes.iter().enumerate().map(|(n, node)| format!("  server node{n} {node}\n"));
        let path = folder.join("haproxy.cfg");
        std::fs::write(&path, before.to_owned() + &lines.collect::<String>()).expect("written");
        path
    }

    async fn start(haproxy: &Path, nodes: &[SocketAddr]) -> Self {
        let folder = TempDir::new().unwrap();
        let configuration = Self::configure(folder.path(), nodes);
        for _ in 0..PORTS_TRIED {
            let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
            let address = free.local_addr().expect("an address");
            drop(free);
            let mut command = Command::new(haproxy);
            command.args([Path::new("-db"), Path::new("-f"), &configuration]);
            command.env("BIND", address.to_string()).stdout(Stdio::null()).stderr(Stdio::null());
            let mut started = Self { process: command.spawn().expect("it starts"), address };
            while started.process.try_wait().expect("a process").is_none() {
                if TcpStream::connect(address).await.is_ok() {
                    return started;
                }
                tokio::task::yield_now().await;
            }
        }
        panic!("HAProxy did not start");
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}

/// The requests for transcripts that a server has answered so.
fn answered(node: &Program, status: u16) -> usize {
    let log = node.log();
    let entries = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    entries.filter(|entry| entry["route"] == "/v1/listen" && entry["status"] == status).count()
}

#[tokio::test]
async fn clients_do_not_notice_that_a_node_leaves() {
    let Some(haproxy) = program() else {
        assert!(std::env::var_os("TEST_ALL_SDKS").is_none(), "run ./setup deployment");
        eprintln!("skipped: there is no HAProxy; run ./setup deployment");
        return;
    };
    let (state, model) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    Checkpoint::random(1).write_hugging_face(model.path());
    let key = new_key(state.path());
    // Servers without jobs may share a state directory, and so their keys. They leave for an hour.
    let settings = [("VERBATIM_JOBS__ENABLED", "false"), ("VERBATIM_SHUTDOWN__GRACE_SECONDS", "3600")];
    let first = Program::start_with(state.path(), model.path(), &settings).await;
    let second = Program::start_with(state.path(), model.path(), &settings).await;
    let balancer = Balancer::start(&haproxy, &[first.address, second.address]).await;
    let send =
        || client().post(balancer.url(&format!("/v1/listen?{RAW}"))).bearer_auth(&key).body(say(1)).send();

    for _ in 0..REQUESTS {
        assert_eq!(send().await.expect("an answer").status(), 200);
    }
    // A line of the log is written after the answer.
    while answered(&first, 200) + answered(&second, 200) < REQUESTS {
        tokio::task::yield_now().await;
    }
    let one = answered(&first, 200);
    assert!(one > 0 && one < REQUESTS, "{one} of {REQUESTS}");

    // One stream for each node, as the balancer counts connections.
    let mut streams = Vec::new();
    for _ in 0..2 {
        let mut stream = socket::listen(balancer.address, &key, RAW).await.socket.expect("agreed");
        stream.audio(&say(1)).await;
        streams.push(stream);
    }

    first.signal("-TERM");
    while client().get(first.url("/readyz")).send().await.expect("an answer").status() == 200 {
        tokio::task::yield_now().await;
    }
    // The balancer may not have noticed: then the node's 503 goes no further than to it.
    for _ in 0..REQUESTS {
        assert_eq!(send().await.expect("an answer").status(), 200);
    }
    assert_eq!(answered(&first, 200), one);
    // Both streams are served to their end.
    for mut stream in streams {
        stream.control("CloseStream").await;
        let (messages, end) = stream.rest().await;
        assert_eq!(messages.last().map(|message| &message["type"]), Some(&Value::from("Metadata")));
        assert_eq!(end, Said::Close(1000, String::new()));
    }

    // Where no node is left, clients learn when to come back, from the last node or from the balancer.
    second.signal("-TERM");
    while client().get(second.url("/readyz")).send().await.expect("an answer").status() == 200 {
        tokio::task::yield_now().await;
    }
    for gone in [None, Some((first, second))] {
        drop(gone);
        let response = send().await.expect("an answer");
        assert_eq!(response.status(), 503);
        let after = response.headers().get("retry-after").and_then(|value| value.to_str().ok());
        assert!(after.is_some_and(|after| after.parse::<u64>().is_ok_and(|after| after > 0)), "{after:?}");
        let body = response.bytes().await.expect("a body");
        let body: Value = serde_json::from_slice(&body).expect("JSON");
        assert!(body["err_code"].is_string() && body["err_msg"].is_string(), "{body}");
    }
}
