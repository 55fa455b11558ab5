//! Any node accepts, any node with a model works, every node knows.

use std::process::Command;

use super::*;
use crate::server::refusal;

#[tokio::test]
async fn a_node_without_a_model_accepts_what_another_does() {
    let mut receiver = Receiver::start(&[]).await;
    let Some(cluster) = Cluster::start(&[receiver.allowed()]).await else { return };
    let (door, worker) = (cluster.door("door").await, cluster.worker("worker").await);
    let mut ids = Vec::new();
    for _ in 0..10 {
        ids.push(cluster.submit(&door, &receiver).await);
    }
    delivered(&mut receiver, &ids).await;
    for id in &ids {
        let own = cluster.job_in(&door, id, "delivered").await;
        let seen = cluster.job_in(&worker, id, "delivered").await;
        assert_eq!((&own["runs"], &own["attempts"]), (&1.into(), &1.into()), "{own}");
        assert_eq!((&seen["runs"], &seen["attempts"]), (&1.into(), &1.into()), "{seen}");
        assert_eq!(own["finished"], seen["finished"]);
    }
    assert_eq!(worker.logged("job claimed").len(), ids.len());
    assert!(door.logged("job claimed").is_empty());
    assert_eq!((files(door.state.path()), files(worker.state.path())), (0, 0), "no audio stays");

    // What it cannot do, it says.
    let request = client().post(door.program.url(&format!("/v1/listen?{RAW}"))).bearer_auth(&cluster.key);
    let (status, body) = answer(request.body(say(1))).await;
    assert_eq!(status, 503, "{body}");
    assert!(body["err_msg"].as_str().is_some_and(|text| text.contains("no model")), "{body}");
    let (status, _) = answer(client().get(door.program.url("/readyz"))).await;
    assert_eq!(status, 200, "it takes jobs");
    // Nothing that was delivered is left in the broker: neither words nor addresses.
    door.program.stop().await;
    worker.program.stop().await;
}

#[tokio::test]
async fn an_idempotency_key_holds_on_every_node() {
    let mut receiver = Receiver::start(&[]).await;
    let Some(cluster) = Cluster::start(&[receiver.allowed()]).await else { return };
    let (one, other) = (cluster.worker("one").await, cluster.worker("other").await);
    let submit = |node: &Node, number: i16, key: &str| {
        cluster.submission(node, &receiver, RAW).header("idempotency-key", key.to_owned()).body(say(number))
    };
    let id = taken(submit(&one, 1, "order-7")).await;
    assert_eq!(taken(submit(&other, 1, "order-7")).await, id);
    assert_eq!(refusal(submit(&other, 2, "order-7")).await, (422, "IDEMPOTENCY_KEY_REUSED".into()));
    // At once on both: one job, or the later client is told to come again.
    let sent = tokio::join!(answer(submit(&one, 3, "order-8")), answer(submit(&other, 3, "order-8")));
    let mut taken_as: Vec<String> = Vec::new();
    for (status, body) in [sent.0, sent.1] {
        match status {
            200 => taken_as.push(body["request_id"].as_str().expect("an id").to_owned()),
            status => assert_eq!(status, 503, "{body}"),
        }
    }
    taken_as.dedup();
    assert_eq!(taken_as.len(), 1, "{taken_as:?}");
    assert_eq!(taken(submit(&other, 3, "order-8")).await, taken_as[0]);
    delivered(&mut receiver, &[id, taken_as[0].clone()]).await;
    assert!(receiver.is_done());
}

#[tokio::test]
async fn a_broker_that_cannot_serve_is_refused_at_the_start() {
    let Some(broker) = Broker::start_with(false).await else { return };
    let state = TempDir::new().expect("a folder");
    let start = async |url: String, secret: &'static str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_verbatim"));
        command.args(["serve", "--listen", "127.0.0.1:0", "--device", "none"]);
        command.env("VERBATIM_STATE_DIR", state.path()).env("XDG_CONFIG_HOME", state.path());
        command.env("VERBATIM_CLUSTER__NATS", url).env("VERBATIM_CLUSTER__CONNECT_TIMEOUT_MS", "2000");
        if !secret.is_empty() {
            command.env("VERBATIM_JOBS__SECRET", secret);
        }
        let output =
            tokio::task::spawn_blocking(move || command.output()).await.expect("no panic").expect("it runs");
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let error = start(broker.url(), SECRET).await;
    assert!(error.contains("has no JetStream") && error.contains("-js"), "{error}");
    let error = start(broker.url(), "").await;
    assert!(error.contains("jobs.secret"), "{error}");
    let error = start(format!("nats://user:sesame@{}", broker.address), SECRET).await;
    assert!(error.contains("cluster.nats") && !error.contains("sesame"), "{error}");
    let url = broker.url();
    drop(broker);
    let error = start(url.clone(), SECRET).await;
    assert!(error.contains("cannot connect to the broker") && error.contains(&url), "{error}");
}
