//! Rooms of a LiveKit server whose connections break: signalling, the server itself, and callers who leave.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::livekit::{Caller, KEY, Media};
use super::service::{Service, Setup};
use super::voices::FOX;

/// The agent's network path to the server, which only the agent uses.
struct Way {
    address: SocketAddr,
    cut: watch::Sender<()>,
    /// Connections so far.
    count: watch::Receiver<usize>,
    _accepts: JoinSet<()>,
}

impl Way {
    async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let (cut, is_cut) = watch::channel(());
        let (counted, count) = watch::channel(0);
        let mut accepts = JoinSet::new();
        accepts.spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                counted.send_modify(|count| *count += 1);
                let mut is_cut = is_cut.clone();
                is_cut.mark_unchanged();
                tokio::spawn(async move {
                    let mut far = TcpStream::connect(server).await.expect("it is there");
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
                        _ = is_cut.changed() => {}
                    }
                });
            }
        });
        Self { address, cut, count, _accepts: accepts }
    }
}

fn knows_the_fox(setup: &Value) -> Value {
    let mut start = setup.clone();
    start["documents"] = json!([{"title": "Pangram", "type": "text", "content": FOX.0}]);
    start
}

async fn ask(caller: &mut Caller, agent: &str) {
    caller.tell(json!({"type": "What does the quick brown fox do?"})).await;
    assert_eq!(caller.line(agent).await["text"], FOX.0, "and no second greeting");
}

#[tokio::test]
async fn signalling_that_breaks_is_resumed_and_callers_notice_nothing() {
    let Some(media) = Media::start().await else { return };
    let way = Way::to(media.address).await;
    let mut setup = Setup::default();
    media.give(&mut setup);
    setup.config.livekit.url = Some(format!("ws://{}", way.address));
    setup.config.livekit.client_url = Some(format!("ws://{}", media.address));
    let service = Service::start(setup).await;
    let (id, reply) = service.session(knows_the_fox(&json!({"greeting": "Hello there."}))).await;
    let mut caller = Caller::join(&reply).await;
    let agent = format!("agent-{id}");
    assert_eq!(caller.line(&agent).await["text"], "Hello there.");
    caller.message("AgentAudioDone").await;
    let seats = service.status(&id).await["participants"].clone();
    assert_eq!(seats.as_array().map(Vec::len), Some(1), "{seats}");

    for _ in 0..2 {
        let mut count = way.count.clone();
        count.mark_unchanged();
        way.cut.send(()).expect("the path is up");
        // The talk needs no signalling.
        ask(&mut caller, &agent).await;
        tokio::time::timeout(Duration::from_secs(60), count.changed())
            .await
            .expect("in time")
            .expect("it is resumed");
        ask(&mut caller, &agent).await;
        let status = service.status(&id).await;
        assert_eq!((&status["participants"], &status["room"]["state"]), (&seats, &json!("ready")));
    }
    assert_eq!(service.status(&id).await["status"], "active");
}

#[tokio::test]
async fn a_server_that_was_killed_and_is_back_goes_on_with_the_talk() {
    let Some(mut media) = Media::start().await else { return };
    let mut setup = Setup::default();
    media.give(&mut setup);
    let service = Service::start(setup).await;
    let (id, reply) = service.session(knows_the_fox(&json!({"greeting": "Hello there."}))).await;
    let mut caller = Caller::join(&reply).await;
    let agent = format!("agent-{id}");
    assert_eq!(caller.line(&agent).await["text"], "Hello there.");
    media.kill().await;
    service.until(&id, |status| status["room"]["state"] == "connecting").await;
    media.restart().await;
    let one = |status: &Value| status["participants"].as_array().is_some_and(|all| all.len() == 1);
    service.until(&id, |status| status["room"]["state"] == "ready" && one(status)).await;
    ask(&mut caller, &agent).await;
    assert_eq!(service.status(&id).await["status"], "active");
}

#[tokio::test]
async fn a_server_that_does_not_come_back_ends_the_session() {
    let Some(mut media) = Media::start().await else { return };
    let mut setup = Setup::default();
    media.give(&mut setup);
    let service = Service::start(setup).await;
    let (id, _) = service.session(json!({"greeting": "Hello there."})).await;
    service.until(&id, |status| status["room"]["state"] == "ready").await;
    media.kill().await;
    let status = service.until(&id, |status| status["status"] == "ended").await;
    assert_eq!((&status["end_reason"], &status["room"]["state"]), (&json!("room_failed"), &json!("failed")));
}

/// An address that can be given away before it is known whose it is.
struct Forward {
    address: SocketAddr,
    to: Arc<OnceLock<SocketAddr>>,
    _accepts: JoinSet<()>,
}

impl Forward {
    async fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let to = Arc::new(OnceLock::<SocketAddr>::new());
        let target = to.clone();
        let mut accepts = JoinSet::new();
        accepts.spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                let Some(target) = target.get().copied() else { continue };
                tokio::spawn(async move {
                    let mut far = TcpStream::connect(target).await.expect("it is there");
                    let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
                });
            }
        });
        Self { address, to, _accepts: accepts }
    }
}

#[tokio::test]
async fn a_webhook_ends_the_session_of_a_caller_who_has_left() {
    let forward = Forward::open().await;
    let url = format!("http://{}/api/livekit/webhook", forward.address);
    let hooks = json!({"api_key": KEY, "urls": [url]});
    let Some(media) = Media::start_with(|config| config["webhook"] = hooks).await else { return };
    let mut setup = Setup::default();
    media.give(&mut setup);
    // Without the webhook it would take this long.
    setup.config.rejoin_seconds = 600;
    let service = Service::start(setup).await;
    forward.to.set(service.address).expect("once");
    let (id, reply) = service.session(json!({"greeting": "Hello there."})).await;
    let mut caller = Caller::join(&reply).await;
    caller.message("AgentAudioDone").await;
    let left = Instant::now();
    caller.tell(json!({"leave": true})).await;
    let status = service.until(&id, |status| status["status"] == "ended").await;
    assert_eq!(status["end_reason"], "left");
    assert!(left.elapsed() < Duration::from_secs(100), "{:?}", left.elapsed());
}

#[tokio::test]
async fn webhooks_that_the_server_did_not_sign_are_refused() {
    let service = Service::start(Setup::default()).await;
    let event = json!({"event": "room_finished", "room": {"name": "sts-1"}});
    for authorization in ["", "Bearer x", "a.b.c"] {
        let request = service.post("/api/livekit/webhook", &event).header("authorization", authorization);
        let status = request.send().await.expect("an answer").status();
        assert_eq!(status, 401, "{authorization}");
    }
}
