//! Several built programs that share keys and sessions through a real NATS broker.
//!
//! `apt-get install nats-server`, or `NATS_SERVER=PATH`. Without it the tests are skipped with a message; with
//! `TEST_ALL_SDKS` set, as in CI, that is a failure.

mod broker;
mod keys;
mod sessions;
mod takeover;

use std::ffi::OsStr;
use std::path::Path;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use verbatim::keys::Store;

use crate::program::Program;
use crate::server::client;
use broker::Broker;

/// A node whose lease is this long is given up soon.
const LEASE: Duration = Duration::from_secs(2);
/// All nodes of a cluster sign results with the same one.
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const PATIENCE: Duration = Duration::from_secs(60);

/// The state directory of a first node, or of one that has the secrets of `first`.
fn state(first: Option<&Path>) -> TempDir {
    let folder = TempDir::new().expect("a folder");
    match first {
        Some(first) => {
            for file in ["keys.pepper", "keys.signing"] {
                std::fs::copy(first.join(file), folder.path().join(file)).expect("a secret");
            }
        }
        None => drop(Store::open(folder.path()).expect("a store")),
    }
    folder
}

/// Starts the node `name` on `state`, with more settings.
async fn node(broker: &Broker, name: &str, state: &Path, more: &[(&str, &str)]) -> Program {
    let arguments = ["--model", "synthetic:tiny", "--tokens", "4", "--device", "cpu"].map(OsStr::new);
    let (address, lease) = (broker.address(), LEASE.as_millis().to_string());
    let settings = [
        ("VERBATIM_CLUSTER__NATS", address.as_str()),
        ("VERBATIM_CLUSTER__NODE", name),
        ("VERBATIM_CLUSTER__LEASE_MS", lease.as_str()),
        ("VERBATIM_JOBS__SECRET", SECRET),
        ("VERBATIM_STS__SPEECH__EMBEDDED", "none"),
        ("VERBATIM_SPEAK__ENABLED", "false"),
    ];
    Program::serve(state, &arguments, &[&settings[..], more].concat()).await
}

/// How a node judges a key or a token at present.
async fn judged(node: &Program, key: &str) -> u16 {
    let answer = client().get(node.url("/v1/auth/token")).bearer_auth(key).send().await;
    answer.expect("an answer").status().as_u16()
}

/// The time until a node judges `key` so.
async fn until_judged(node: &Program, key: &str, status: u16) -> Duration {
    let begun = Instant::now();
    let wait = async {
        while judged(node, key).await != status {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.expect("it is judged so in time");
    begun.elapsed()
}
