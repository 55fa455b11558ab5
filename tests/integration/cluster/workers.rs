//! Workers that die, and workers that come back.

use super::media::Media;
use super::*;

#[tokio::test]
async fn the_job_of_a_worker_that_dies_is_done_by_another() {
    let (mut receiver, mut media) = (Receiver::start(&[]).await, Media::start().await);
    let Some(cluster) = Cluster::start(&[receiver.allowed(), media.allowed()]).await else { return };
    let (door, first) = (cluster.door("door").await, cluster.worker("first").await);
    let id = cluster.submit_url(&door, &receiver, &media.url()).await;
    let _asked = media.asked().await;
    cluster.job_in(&door, &id, "running").await;
    first.kill();
    let second = cluster.worker("second").await;
    Media::answer(media.asked().await, &say(1)).await;
    delivered(&mut receiver, std::slice::from_ref(&id)).await;
    let job = cluster.job_in(&second, &id, "delivered").await;
    assert_eq!((&job["runs"], &job["attempts"]), (&2.into(), &1.into()), "{job}");
    assert!(receiver.is_done());
}

/// A worker that stood still for longer than its lease finds its job taken, and its own result counts for nothing.
#[tokio::test]
async fn a_worker_that_stood_still_has_lost_its_job() {
    let (mut receiver, mut media) = (Receiver::start(&[]).await, Media::start().await);
    let Some(cluster) = Cluster::start(&[receiver.allowed(), media.allowed()]).await else { return };
    let (door, first) = (cluster.door("door").await, cluster.worker("first").await);
    let id = cluster.submit_url(&door, &receiver, &media.url()).await;
    let to_the_first = media.asked().await;
    first.program.signal("-STOP");
    let second = cluster.worker("second").await;
    let to_the_second = media.asked().await;
    // Both have the job now, and the first comes back while the second works.
    Media::answer(to_the_first, &say(1)).await;
    first.program.signal("-CONT");
    first.logs("the claim on a job is lost").await;
    assert!(receiver.is_done(), "nothing is delivered by a worker that has lost its job");
    Media::answer(to_the_second, &say(1)).await;
    delivered(&mut receiver, std::slice::from_ref(&id)).await;
    cluster.job_in(&door, &id, "delivered").await;
    assert!(receiver.is_done(), "it is delivered once");
    assert_eq!(second.logged("job claimed").get(&id), Some(&1));
}

/// The owner dies when others have its job; it delivers once it is back.
#[tokio::test]
async fn the_node_that_accepted_a_job_delivers_it_after_its_own_death() {
    let (mut receiver, mut media) = (Receiver::start(&[]).await, Media::start().await);
    let Some(cluster) = Cluster::start(&[receiver.allowed(), media.allowed()]).await else { return };
    let (door, worker) = (cluster.door("door").await, cluster.worker("worker").await);
    let id = cluster.submit_url(&door, &receiver, &media.url()).await;
    let asked = media.asked().await;
    let state = door.kill();
    Media::answer(asked, &say(1)).await;
    cluster.job_in(&worker, &id, "delivering").await;
    let door = cluster.node("door", state, &["--device", "none"]).await;
    delivered(&mut receiver, std::slice::from_ref(&id)).await;
    cluster.job_in(&door, &id, "delivered").await;
    assert!(receiver.is_done());
}

#[tokio::test]
async fn a_worker_that_is_told_to_stop_gives_its_job_back_at_once() {
    let (mut receiver, mut media) = (Receiver::start(&[]).await, Media::start().await);
    let Some(cluster) = Cluster::start(&[receiver.allowed(), media.allowed()]).await else { return };
    let (door, first) = (cluster.door("door").await, cluster.worker("first").await);
    let id = cluster.submit_url(&door, &receiver, &media.url()).await;
    let _asked = media.asked().await;
    first.program.stop().await;
    let second = cluster.worker("second").await;
    Media::answer(media.asked().await, &say(1)).await;
    delivered(&mut receiver, std::slice::from_ref(&id)).await;
    let job = cluster.job_in(&second, &id, "delivered").await;
    assert_eq!(job["runs"], 1, "a run that was given back does not count: {job}");
}
