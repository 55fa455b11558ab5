//! A broker that is gone, empty, or stands still.

use super::media::Media;
use super::*;

/// The seconds of `Retry-After`, of an answer that must be 503.
async fn refused(cluster: &Cluster, node: &Node, receiver: &Receiver) -> u64 {
    let response = cluster.submission(node, receiver, RAW).body(say(1)).send().await.expect("an answer");
    assert_eq!(response.status(), 503);
    let wait = response.headers()["retry-after"].to_str().expect("text").parse().expect("seconds");
    assert!((1..=120).contains(&wait), "{wait}");
    wait
}

#[tokio::test]
async fn without_the_broker_what_was_accepted_goes_on_and_nothing_is_lost_with_its_disk() {
    let (mut receiver, mut media) = (Receiver::start(&[]).await, Media::start().await);
    let Some(mut cluster) = Cluster::start(&[receiver.allowed(), media.allowed()]).await else { return };
    let (door, worker) = (cluster.door("door").await, cluster.worker("worker").await);
    // One that is running, and more behind it than run at once.
    let running = cluster.submit_url(&door, &receiver, &media.url()).await;
    let asked = media.asked().await;
    let mut held = Vec::new();
    let mut ids = vec![running];
    for _ in 0..3 {
        ids.push(cluster.submit_url(&door, &receiver, &media.url()).await);
        held.push(media.asked().await);
    }
    for _ in 0..5 {
        ids.push(cluster.submit(&door, &receiver).await);
    }
    cluster.broker.kill();
    cluster.broker.lose_the_disk();
    door.logs("the connection to the broker is lost").await;
    refused(&cluster, &door, &receiver).await;
    let (status, _) = answer(client().get(door.program.url("/readyz"))).await;
    assert_eq!(status, 503, "a node without a model can do nothing now");
    let (status, _) = answer(client().get(worker.program.url("/readyz"))).await;
    assert_eq!(status, 200, "one with a model still transcribes for those who wait");
    let request = client().post(worker.program.url(&format!("/v1/listen?{RAW}"))).bearer_auth(&cluster.key);
    let (status, body) = answer(request.body(say(1))).await;
    assert_eq!(status, 200, "{body}");

    cluster.broker.restart().await;
    // Those that were running run again, or end with what they have.
    drop((asked, held));
    let serve = tokio::spawn(async move {
        loop {
            Media::answer(media.asked().await, &say(1)).await;
        }
    });
    delivered(&mut receiver, &ids).await;
    for id in &ids {
        cluster.job_in(&door, id, "delivered").await;
        cluster.job_in(&worker, id, "delivered").await;
    }
    ids.push(cluster.submit(&worker, &receiver).await);
    delivered(&mut receiver, &ids[ids.len() - 1..]).await;
    serve.abort();
}

#[tokio::test]
async fn a_broker_that_stands_still_is_noticed_and_used_again_when_it_goes_on() {
    let mut receiver = Receiver::start(&[]).await;
    let Some(cluster) = Cluster::start(&[receiver.allowed()]).await else { return };
    let (door, worker) = (cluster.door("door").await, cluster.worker("worker").await);
    let mut ids = vec![cluster.submit(&door, &receiver).await];
    delivered(&mut receiver, &ids).await;
    cluster.broker.signal("-STOP");
    // The first may take the time of an answer, later ones are refused at once.
    refused(&cluster, &door, &receiver).await;
    refused(&cluster, &worker, &receiver).await;
    cluster.broker.signal("-CONT");
    let id = loop {
        let response =
            cluster.submission(&door, &receiver, RAW).body(say(1)).send().await.expect("an answer");
        match response.status().as_u16() {
            200 => {
                let body: Value =
                    serde_json::from_slice(&response.bytes().await.expect("a body")).expect("JSON");
                break body["request_id"].as_str().expect("an id").to_owned();
            }
            status => assert_eq!(status, 503),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    ids.push(id);
    delivered(&mut receiver, &ids[1..]).await;
}

/// What a client was refused runs nowhere.
#[tokio::test]
async fn a_job_that_was_refused_is_never_delivered() {
    let mut receiver = Receiver::start(&[]).await;
    let Some(mut cluster) = Cluster::start(&[receiver.allowed()]).await else { return };
    let node = cluster.worker("node").await;
    cluster.broker.signal("-STOP");
    for _ in 0..3 {
        refused(&cluster, &node, &receiver).await;
    }
    assert_eq!(files(node.state.path()), 0, "it was withdrawn");
    cluster.broker.signal("-CONT");
    cluster.broker.kill();
    cluster.broker.restart().await;
    let id = loop {
        let response =
            cluster.submission(&node, &receiver, RAW).body(say(2)).send().await.expect("an answer");
        if response.status() == 200 {
            let body: Value = serde_json::from_slice(&response.bytes().await.expect("a body")).expect("JSON");
            break body["request_id"].as_str().expect("an id").to_owned();
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    let received = receiver.next().await;
    assert_eq!(received.headers["webhook-id"], id);
    assert!(receiver.is_done());
}
