//! Keys and tokens: made, renamed and revoked on any node, known on all.

use std::path::Path;
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use verbatim::keys::{NewKey, Scopes, Store, public_id};

use super::{Broker, SECRET, judged, node, state, until_judged};
use crate::commands::{home, run, verbatim};
use crate::program::Program;
use crate::server::{answer, client};

/// The bound that nodes keep.
const SECOND: Duration = Duration::from_secs(1);
const ROUNDS: usize = 15;

/// A key that makes keys, as `verbatim keys` makes it on a node's machine.
fn manager(state: &Path) -> (String, String) {
    let scopes = Scopes::parse(["member"]).expect("scopes");
    let store = Store::open(state).expect("keys");
    let (key, secret) = store.insert(NewKey { scopes, ..NewKey::of_a_client("boss") }).expect("a key");
    (secret.expose().to_owned(), public_id::of_organisation(key.tenant).to_string())
}

async fn manage(node: &Program, key: &str, method: Method, path: &str, body: Value) -> Value {
    let request = client().request(method, node.url(path)).bearer_auth(key).body(body.to_string());
    let (status, reply) = answer(request).await;
    assert_eq!(status, 200, "{path}: {reply}");
    reply
}

/// A new key of the project, and its id.
async fn make(node: &Program, key: &str, project: &str) -> (String, String) {
    let asked = json!({"comment": "made", "scopes": ["usage:write"]});
    let made = manage(node, key, Method::POST, &format!("/v1/projects/{project}/keys"), asked).await;
    let text = |name: &str| made[name].as_str().expect(name).to_owned();
    (text("key"), text("api_key_id"))
}

async fn revoke(node: &Program, key: &str, project: &str, id: &str) {
    let path = format!("/v1/projects/{project}/keys/{id}");
    manage(node, key, Method::DELETE, &path, Value::Null).await;
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

#[tokio::test]
async fn a_key_made_or_revoked_on_one_node_is_so_on_the_other_within_a_second() {
    let Some(broker) = Broker::start().await else { return };
    let first = state(None);
    let second = state(Some(first.path()));
    let (boss, project) = manager(first.path());
    let a = node(&broker, "a", first.path(), &[]).await;
    let b = node(&broker, "b", second.path(), &[]).await;
    until_judged(&b, &boss, 200).await;

    let (mut made, mut revoked) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let (key, id) = make(&a, &boss, &project).await;
        made.push(until_judged(&b, &key, 200).await);
        // By the other node this time.
        revoke(&b, &boss, &project, &id).await;
        revoked.push(until_judged(&a, &key, 401).await);
        assert_eq!(judged(&b, &key).await, 401);
    }
    let (made_max, revoked_max) = (made.iter().max().copied(), revoked.iter().max().copied());
    let (made, revoked) = (median(made), median(revoked));
    eprintln!("made {made:?} (max {made_max:?}), revoked {revoked:?} (max {revoked_max:?})");
    assert!(made < SECOND && revoked < SECOND, "{made:?}, {revoked:?}");

    // The command line of a node's machine knows nothing of the cluster, and counts.
    let home = home();
    let command = |arguments: &[&str]| {
        let mut command = verbatim(&home, arguments);
        let (code, out, error) = run(command.env("VERBATIM_STATE_DIR", second.path()));
        assert_eq!(code, Some(0), "{error}");
        out.trim().to_owned()
    };
    let key = command(&["keys", "create", "--label", "by hand"]);
    let known = until_judged(&a, &key, 200).await;
    command(&["keys", "revoke", &key[4..12]]);
    let refused = until_judged(&a, &key, 401).await;
    eprintln!("by the command line: made {known:?}, revoked {refused:?}");

    let name = json!({"name": "Acme GmbH"});
    manage(&a, &boss, Method::PATCH, &format!("/v1/projects/{project}"), name).await;
    let named = async {
        let path = format!("/v1/projects/{project}");
        while manage(&b, &boss, Method::GET, &path, Value::Null).await["name"] != "Acme GmbH" {}
    };
    tokio::time::timeout(super::PATIENCE, named).await.expect("it is renamed everywhere");
}

#[tokio::test]
async fn a_token_is_good_on_all_nodes_and_ends_with_its_key() {
    let Some(broker) = Broker::start().await else { return };
    let first = state(None);
    let second = state(Some(first.path()));
    let (boss, project) = manager(first.path());
    let a = node(&broker, "a", first.path(), &[]).await;
    let b = node(&broker, "b", second.path(), &[]).await;
    let (key, id) = make(&a, &boss, &project).await;
    until_judged(&b, &key, 200).await;
    let grant = client().post(b.url("/v1/auth/grant")).bearer_auth(&key).body(r#"{"ttl_seconds": 600}"#);
    let (status, granted) = answer(grant).await;
    assert_eq!(status, 200, "{granted}");
    let token = granted["access_token"].as_str().expect("a token");
    for node in [&a, &b] {
        assert_eq!(judged(node, token).await, 200);
    }
    revoke(&a, &boss, &project, &id).await;
    assert_eq!(judged(&a, token).await, 401);
    until_judged(&b, token, 401).await;
}

#[tokio::test]
async fn changes_without_a_broker_are_kept_and_told_later() {
    let Some(mut broker) = Broker::start().await else { return };
    let first = state(None);
    let second = state(Some(first.path()));
    let (boss, project) = manager(first.path());
    let a = node(&broker, "a", first.path(), &[]).await;
    let b = node(&broker, "b", second.path(), &[]).await;
    let (old, old_id) = make(&a, &boss, &project).await;
    until_judged(&b, &old, 200).await;

    broker.kill();
    // Both go on with what they know.
    revoke(&b, &boss, &project, &old_id).await;
    assert_eq!((judged(&a, &old).await, judged(&b, &old).await), (200, 401));
    let (new, _) = make(&a, &boss, &project).await;
    assert_eq!((judged(&a, &new).await, judged(&b, &new).await), (200, 401));
    // A node may be stopped meanwhile: its changes are on its disk.
    a.stop().await;
    broker.restart().await;
    let a = node(&broker, "a", first.path(), &[]).await;
    until_judged(&b, &new, 200).await;
    until_judged(&a, &old, 401).await;
    assert_eq!(judged(&b, &old).await, 401);
}

/// A node that was away while a key was revoked, and the broker's disk was replaced, still knows the key as valid. It must
/// learn better from the others, and must not teach them.
#[tokio::test]
async fn neither_a_node_that_was_away_nor_an_empty_broker_brings_a_revoked_key_back() {
    let Some(mut broker) = Broker::start().await else { return };
    let first = state(None);
    let second = state(Some(first.path()));
    let (boss, project) = manager(first.path());
    let a = node(&broker, "a", first.path(), &[]).await;
    let b = node(&broker, "b", second.path(), &[]).await;
    let (key, id) = make(&a, &boss, &project).await;
    let (kept, _) = make(&a, &boss, &project).await;
    until_judged(&b, &key, 200).await;
    until_judged(&b, &kept, 200).await;
    b.kill();
    revoke(&a, &boss, &project, &id).await;
    broker.kill();
    broker.empty();
    broker.restart().await;
    // The one that was away comes first, where it can.
    let b = node(&broker, "b", second.path(), &[]).await;
    until_judged(&b, &key, 401).await;
    for node in [&a, &b] {
        assert_eq!((judged(node, &key).await, judged(node, &kept).await), (401, 200));
    }
    // A third node learns from the broker alone.
    let third = state(Some(first.path()));
    let c = node(&broker, "c", third.path(), &[]).await;
    until_judged(&c, &kept, 200).await;
    assert_eq!(judged(&c, &key).await, 401);
}

#[tokio::test]
async fn a_node_with_other_secrets_is_refused_with_the_remedy() {
    let Some(broker) = Broker::start().await else { return };
    let first = state(None);
    let _a = node(&broker, "a", first.path(), &[]).await;
    let (stranger, home) = (state(None), home());
    let model = ["--model", "synthetic:tiny", "--tokens", "4", "--device", "cpu", "--listen", "127.0.0.1:0"];
    let mut command = verbatim(&home, &[&["serve"][..], &model[..]].concat());
    command.env("VERBATIM_STATE_DIR", stranger.path()).env("VERBATIM_CLUSTER__NATS", broker.address());
    command.env("VERBATIM_JOBS__SECRET", SECRET);
    let ended = tokio::task::spawn_blocking(move || run(&mut command)).await.expect("no panic");
    assert!(ended.0 != Some(0) && ended.2.contains("keys.pepper") && ended.2.contains("copy"), "{ended:?}");
}
