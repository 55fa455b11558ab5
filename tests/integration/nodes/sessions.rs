//! Sessions of one node, asked for at another: actions, rooms, telephone calls, ends, events.

use serde_json::{Value, json};

use super::{Broker, node, state, until_judged};
use crate::program::Program;
use crate::receiver::Receiver;
use crate::server::{answer, client, new_key};
use crate::socket::{Said, Socket, connect};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// Status and answer of an action, or of a start.
pub async fn action(node: &Program, key: &str, body: &Value) -> (u16, Value) {
    let request = client().post(node.url("/STS/interactiveAgent")).bearer_auth(key);
    answer(request.header("content-type", "application/json").body(body.to_string())).await
}

/// The answer to an action that must succeed.
pub async fn act(node: &Program, key: &str, body: Value) -> Value {
    let (status, reply) = action(node, key, &body).await;
    assert_eq!(status, 200, "{body}: {reply}");
    reply
}

/// A session whose room is on its node, and its id.
pub async fn start(node: &Program, key: &str, mut more: Value) -> (String, Value) {
    more["action"] = "start".into();
    let reply = act(node, key, more).await;
    (reply["session_id"].as_str().expect("an id").to_owned(), reply)
}

/// Two nodes and a key that both know.
pub struct Pair {
    pub broker: Broker,
    pub states: [tempfile::TempDir; 2],
    pub a: Program,
    pub b: Program,
    pub key: String,
}

impl Pair {
    pub async fn start(more: &[(&str, &str)]) -> Option<Self> {
        let broker = Broker::start().await?;
        let first = state(None);
        let second = state(Some(first.path()));
        let key = new_key(first.path());
        let a = node(&broker, "a", first.path(), more).await;
        let b = node(&broker, "b", second.path(), more).await;
        until_judged(&b, &key, 200).await;
        Some(Self { broker, states: [first, second], a, b, key })
    }
}

/// Joins the room of `started` at a node, whichever its address names.
pub async fn join(node: &Program, started: &Value) -> Socket {
    let url = started["websocket_url"].as_str().expect("an address");
    let path = url.find("/STS/rooms/").map(|at| &url[at..]).expect("a room");
    let handshake = connect(node.address, path, &[]).await;
    assert_eq!(handshake.status, 101, "{}", handshake.body);
    let mut socket = handshake.socket.expect("agreed");
    let welcome = socket.message().await;
    assert_eq!((&welcome["type"], &welcome["session_id"]), (&json!("Welcome"), &started["session_id"]));
    socket
}

/// The next message of a kind.
pub async fn next(socket: &mut Socket, kind: &str) -> Value {
    let wait = async {
        loop {
            match socket.said().await {
                Said::Message(message) if message["type"] == kind => return message,
                Said::Message(_) | Said::Audio(_) => {}
                other => panic!("{other:?} instead of {kind}"),
            }
        }
    };
    tokio::time::timeout(super::PATIENCE, wait).await.expect(kind)
}

#[tokio::test]
async fn any_node_answers_for_a_session() {
    let Some(Pair { broker: _broker, states, a, b, key }) = Pair::start(&[]).await else { return };
    let (id, started) = start(&a, &key, json!({"greeting": "Welcome.", "tenant_id": "t1"})).await;
    // Clients come to the node that has the room, past a balancer.
    let url = started["websocket_url"].as_str().expect("an address");
    assert!(url.starts_with(&format!("ws://{}/", a.address)), "{url}");

    let page = json!({"action": "page_context", "session_id": id, "page_context": {"title": "Orders"}});
    assert_eq!(act(&b, &key, page).await["page_context_version"], 1);
    let verified = json!({"action": "verification", "session_id": id, "category": "c", "verified": true});
    act(&b, &key, verified).await;
    for node in [&a, &b] {
        let status = act(node, &key, json!({"action": "status", "session_id": id})).await;
        assert_eq!(status["session_id"], *id);
        assert_eq!(status["verification"]["c"]["verified"], true, "{status}");
        let url = status["websocket_url"].as_str().expect("an address");
        assert!(url.starts_with(&format!("ws://{}/", a.address)), "{url}");
    }

    // Another organisation learns nothing, whichever node it asks.
    let stranger = new_key(states[0].path());
    until_judged(&a, &stranger, 200).await;
    until_judged(&b, &stranger, 200).await;
    for node in [&a, &b] {
        for session in [id.as_str(), "sess_000000000000", "*", "a.b", ">"] {
            let asked = json!({"action": "status", "session_id": session});
            let (status, reply) = action(node, &stranger, &asked).await;
            assert_eq!(
                (status, &reply["err_code"]),
                (404, &json!("SESSION_NOT_FOUND")),
                "{session}: {reply}"
            );
        }
    }
    // A request that is wrong is refused as by the session's own node.
    let wrong = json!({"action": "transfer", "session_id": id});
    let (own, other) = (action(&a, &key, &wrong).await, action(&b, &key, &wrong).await);
    assert_eq!((own.0, &own.1["err_code"]), (other.0, &other.1["err_code"]));
    assert!(own.0 >= 400, "{}", own.1);
}

#[tokio::test]
async fn a_room_can_be_entered_by_any_door() {
    let Some(Pair { broker: _broker, states: _states, a, b, key }) = Pair::start(&[]).await else { return };
    let (id, started) = start(&a, &key, json!({"greeting": "Welcome to Acme."})).await;
    let mut socket = join(&b, &started).await;
    // The caller is heard in the room of the other node, and hears its agent.
    let greeting = next(&mut socket, "ConversationText").await;
    assert_eq!(greeting["content"], "Welcome to Acme.");
    socket.text(r#"{"type": "InjectUserMessage", "content": "Hello?"}"#).await;
    let status = act(&a, &key, json!({"action": "status", "session_id": id})).await;
    assert_eq!(status["participants"].as_array().map(Vec::len), Some(1), "{status}");
    // A token for one room opens no other, at no node.
    let (_, other) = start(&b, &key, json!({})).await;
    let wrong =
        started["websocket_url"].as_str().expect("text").split("access_token=").nth(1).expect("a token");
    let room = other["room_name"].as_str().expect("a name");
    for node in [&a, &b] {
        let handshake = connect(node.address, &format!("/STS/rooms/{room}?access_token={wrong}"), &[]).await;
        assert_eq!(handshake.status, 401, "{}", handshake.body);
    }
    // When a caller leaves by one door, the seat at the other node is free.
    drop(socket);
    let left = async {
        loop {
            let status = act(&a, &key, json!({"action": "status", "session_id": id})).await;
            if status["participants"].as_array().is_some_and(Vec::is_empty) {
                return;
            }
        }
    };
    tokio::time::timeout(super::PATIENCE, left).await.expect("the seat is given up");
}

#[tokio::test]
async fn a_call_is_connected_with_the_node_that_has_the_session() {
    let Some(Pair { broker: _broker, states: _states, a, b, key }) = Pair::start(&[]).await else { return };
    let (id, started) = start(&a, &key, json!({"channel": "phone"})).await;
    let room = started["room_name"].as_str().expect("a name");
    let url = format!("/api/twilio/incoming-call?session_id={id}&room_name={room}&from=%2B14155552671");
    let answer = client().post(b.url(&url)).body("CallSid=CA1").send().await.expect("an answer");
    let xml = answer.text().await.expect("text");
    assert!(xml.contains(&format!("url=\"ws://{}/api/twilio/media\"", a.address)), "{xml}");
    let status = act(&b, &key, json!({"action": "status", "session_id": id})).await;
    assert!(!status["caller_number"].is_null(), "{status}");
    let nobody = client().post(b.url("/api/twilio/incoming-call?session_id=sess_0&room_name=x")).send().await;
    assert!(nobody.expect("an answer").text().await.expect("text").contains("<Hangup/>"));
}

#[tokio::test]
async fn events_are_sent_once_though_several_nodes_are_up() {
    let mut receiver = Receiver::start(&[""]).await;
    let (url, allowed) = (format!("http://127.0.0.1:{}/events", receiver.port), receiver.allowed());
    let more = [
        ("VERBATIM_STS__WEBHOOK__URL", url.as_str()),
        ("VERBATIM_FETCH_ALLOW", allowed.as_str()),
        ("VERBATIM_JOBS__SECRET", SECRET),
        ("VERBATIM_STS__REJOIN_SECONDS", "1"),
    ];
    let Some(Pair { broker: _broker, states: _states, a, b, key }) = Pair::start(&more).await else { return };
    let (id, started) = start(&a, &key, json!({})).await;
    let verified = json!({"action": "verification", "session_id": id, "category": "c", "verified": true});
    act(&b, &key, verified).await;
    let socket = join(&b, &started).await;
    drop(socket);
    let mut told = Vec::new();
    while told.last().is_none_or(|kind| kind != "session.ended") {
        let event = tokio::time::timeout(super::PATIENCE, receiver.next()).await.expect("an event").json();
        assert_eq!(event["data"]["session_id"], *id);
        told.push(event["type"].as_str().expect("a type").to_owned());
    }
    told.sort();
    assert_eq!(told, ["session.ended", "session.started", "session.verified"]);
    assert!(receiver.is_done());
    // The ended session is still known, everywhere.
    let status = act(&b, &key, json!({"action": "status", "session_id": id})).await;
    assert_eq!(status["status"], "ended", "{status}");
}

/// What lies in the broker's store is sealed.
#[tokio::test]
async fn the_broker_learns_neither_keys_nor_words() {
    let Some(pair) = Pair::start(&[]).await else { return };
    let words = "The safe stands behind the blue curtain.";
    start(&pair.a, &pair.key, json!({"instructions": words})).await;
    let mut files = vec![pair.broker.folder().to_owned()];
    let mut bytes = 0;
    while let Some(path) = files.pop() {
        if path.is_dir() {
            files.extend(
                std::fs::read_dir(&path).expect("readable").map(|entry| entry.expect("readable").path()),
            );
            continue;
        }
        let content = std::fs::read(&path).expect("readable");
        bytes += content.len();
        for secret in [words, &pair.key[12..]] {
            let found = content.windows(secret.len()).any(|window| window == secret.as_bytes());
            assert!(!found, "{}", path.display());
        }
    }
    assert!(bytes > 0);
}
