//! Sessions of a node that dies, or that comes back.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::sessions::{Pair, act, action, join, next, start};
use super::{LEASE, PATIENCE, node, state, until_judged};
use crate::program::Program;
use crate::server::client;
use crate::socket::Said;

/// Asks `node` until the session is there, as clients do that are told when to come again. Returns the status and how often
/// the answer was 503.
async fn until_taken(node: &Program, key: &str, id: &str) -> (Value, usize) {
    let asked = json!({"action": "status", "session_id": id});
    let wait = async {
        let mut refused = 0;
        loop {
            let request = client().post(node.url("/STS/interactiveAgent")).bearer_auth(key);
            let request = request.header("content-type", "application/json").body(asked.to_string());
            let answer = request.send().await.expect("an answer");
            if answer.status() == 200 {
                let body = answer.bytes().await.expect("a whole body");
                return (serde_json::from_slice(&body).expect("JSON"), refused);
            }
            assert_eq!(answer.status(), 503);
            let after = answer.headers()["retry-after"].to_str().expect("text").parse().expect("seconds");
            assert!((1..=LEASE.as_secs()).contains(&after), "{after}");
            refused += 1;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.expect("it is taken over")
}

#[tokio::test]
async fn the_sessions_of_a_dead_node_go_on_elsewhere() {
    let Some(pair) = Pair::start(&[]).await else { return };
    let Pair { broker, states, a, b, key } = pair;
    let more = json!({
        "greeting": "Welcome to Acme.", "tenant_id": "t1",
        "documents": [{"title": "Hours", "type": "text", "content": "We are open from nine to five."}],
    });
    let (id, started) = start(&a, &key, more).await;
    let verified = json!({"action": "verification", "session_id": id, "category": "c", "verified": true});
    act(&a, &key, verified).await;
    let ready = async {
        let asked = json!({"action": "status", "session_id": id});
        while act(&a, &key, asked.clone()).await["knowledge"]["passages"].as_u64().unwrap_or_default() == 0 {}
    };
    tokio::time::timeout(PATIENCE, ready).await.expect("it is read");
    let third = state(Some(states[0].path()));
    let c = node(&broker, "c", third.path(), &[]).await;
    until_judged(&c, &key, 200).await;
    // What was written last reaches the broker a little later than the client its answer.
    tokio::time::sleep(Duration::from_millis(300)).await;

    let begun = Instant::now();
    a.kill();
    // Both at once: one of them takes it over, and the other one learns where it is.
    let (by_b, by_c) = tokio::join!(until_taken(&b, &key, &id), until_taken(&c, &key, &id));
    eprintln!("taken over after {:?}", begun.elapsed());
    let url = |status: &Value| {
        let url = status["websocket_url"].as_str().expect("an address");
        url.split("/STS/").next().expect("a base").to_owned()
    };
    assert_eq!(url(&by_b.0), url(&by_c.0));
    let owner = [&b, &c].into_iter().find(|node| url(&by_b.0) == format!("ws://{}", node.address));
    let owner = owner.expect("one of the two");
    for status in [&by_b.0, &by_c.0] {
        assert_eq!(status["verification"]["c"]["verified"], true, "{status}");
        assert_eq!(status["tenant_id"], "t1");
        assert!(status["knowledge"]["passages"].as_u64() > Some(0), "{status}");
    }
    let count = |node: &Program| node.log().matches("session taken over from another node").count();
    assert_eq!((count(&b) + count(&c), count(owner)), (1, 1));
    // The caller comes back with the token of before.
    let mut socket = join(&b, &started).await;
    assert_eq!(next(&mut socket, "ConversationText").await["content"], "Welcome to Acme.");

    // The dead node comes back, and leaves the session where it is.
    let a = node(&broker, "a", states[0].path(), &[]).await;
    let completed = json!({"action": "completion", "session_id": id, "message": "Done."});
    act(&a, &key, completed).await;
    for node in [&a, &b, &c] {
        let status = act(node, &key, json!({"action": "status", "session_id": id})).await;
        assert_eq!(
            (url(&status), &status["completion"]["message"]),
            (url(&by_b.0), &json!("Done.")),
            "{status}"
        );
    }
}

/// A node that stands still for longer than its lease has lost its sessions, and notices when it goes on.
#[tokio::test]
async fn a_node_that_stood_still_gives_up_what_others_took() {
    let Some(Pair { broker: _broker, states: _states, a, b, key }) = Pair::start(&[]).await else { return };
    let (id, started) = start(&a, &key, json!({"greeting": "Hello."})).await;
    let mut stale = join(&a, &started).await;
    a.stands_still(Duration::from_millis(100), async {
        // Its connections stand too, so only the lease tells: asking it would take for ever.
        tokio::time::sleep(LEASE * 2).await;
        until_taken(&b, &key, &id).await;
    })
    .await;
    let sent_away = async {
        loop {
            match stale.said().await {
                Said::Message(_) | Said::Audio(_) => {}
                other => return other,
            }
        }
    };
    let end = tokio::time::timeout(PATIENCE, sent_away).await.expect("the caller is sent away");
    assert!(!matches!(end, Said::Message(_)), "{end:?}");
    let status = act(&a, &key, json!({"action": "status", "session_id": id})).await;
    let url = status["websocket_url"].as_str().expect("an address");
    assert!(url.starts_with(&format!("ws://{}/", b.address)), "{url}");
}

/// A node that stops on purpose leaves its sessions to the others.
#[tokio::test]
async fn a_node_that_stops_leaves_its_sessions_to_others() {
    let Some(Pair { broker: _broker, states: _states, a, b, key }) = Pair::start(&[]).await else { return };
    let (id, _) = start(&a, &key, json!({"tenant_id": "t2"})).await;
    a.stop().await;
    let (status, _) = until_taken(&b, &key, &id).await;
    assert_eq!(status["tenant_id"], "t2", "{status}");
}

/// Without the broker a node serves its own sessions, and says of others that it cannot tell.
#[tokio::test]
async fn without_the_broker_a_node_serves_its_own_sessions() {
    let Some(Pair { mut broker, states: _states, a, b, key }) = Pair::start(&[]).await else { return };
    let (old, _) = start(&a, &key, json!({})).await;
    broker.kill();
    let (new, started) = start(&a, &key, json!({"greeting": "Hello."})).await;
    act(&a, &key, json!({"action": "status", "session_id": old})).await;
    let mut socket = join(&a, &started).await;
    next(&mut socket, "ConversationText").await;
    let (status, reply) = action(&b, &key, &json!({"action": "status", "session_id": new})).await;
    assert_eq!(status, 503, "{reply}");
    broker.restart().await;
    // The others learn of what began meanwhile.
    let told = async {
        let asked = json!({"action": "status", "session_id": new});
        while action(&b, &key, &asked).await.0 != 200 {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(PATIENCE, told).await.expect("the other node learns of it");
}
