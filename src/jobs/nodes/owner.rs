//! Looks after the jobs that this node accepted: brings what the broker has lost, fetches results, reports ends.
//!
//! Each look compares the row of a job with its record, so it does not matter which event was missed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::broker::{Held, Place};
use super::failure::Failure;
use super::record::{Audio, Progress, Record, Stored};
use super::sharing::Nodes;
use super::submission::{Introduced, introduce, withdraw};
use crate::jobs::capacity::Resource;
use crate::jobs::error::Error;
use crate::jobs::ledger::{Entry, Open};
use crate::jobs::shared::Shared;
use crate::jobs::spool::Unread;
use crate::jobs::store::{Finished, JobId, Phase, Source, Stamp};
use crate::telemetry::metrics;

/// Between two looks at all jobs, unless something happens.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);
/// Pause after an error.
const PAUSE: Duration = Duration::from_secs(1);
/// Jobs looked at side by side.
const AT_ONCE: usize = 16;

pub async fn run(shared: &Arc<Shared>, nodes: &Arc<Nodes>, stop: &CancellationToken) {
    let mut events = nodes.events.lock().await;
    let mut generation = None;
    let mut next_look = Instant::now();
    while !stop.is_cancelled() {
        tokio::select! {
            () = stop.cancelled() => return,
            Some(id) = events.recv() => {
                // Several at once; repetitions cost one look.
                let mut ids = BTreeSet::from([id]);
                while let Ok(id) = events.try_recv() {
                    ids.insert(id);
                }
                stop.run_until_cancelled(look_at(shared, nodes, ids)).await;
            }
            () = nodes.ended.notified() => {
                stop.run_until_cancelled(report_ends(shared, nodes)).await;
            }
            () = tokio::time::sleep_until(next_look) => {
                let looked = stop.run_until_cancelled(look_at_all(shared, nodes, &mut generation)).await;
                next_look = Instant::now() + match looked {
                    Some(Ok(())) => LOOK_INTERVAL,
                    Some(Err(error)) => {
                        tracing::warn!(error = &error as &dyn std::error::Error, "cannot look after the jobs of this node");
                        PAUSE
                    }
                    None => return,
                };
            }
        }
    }
}

async fn look_at(shared: &Arc<Shared>, nodes: &Arc<Nodes>, ids: impl IntoIterator<Item = JobId>) {
    let looks = futures_util::stream::iter(ids).for_each_concurrent(AT_ONCE, |id| async move {
        note(id, look(shared, nodes, id, false).await);
    });
    looks.await;
}

fn note(id: JobId, looked: Result<(), Error>) {
    if let Err(error) = looked {
        // It is looked at again.
        tracing::warn!(%id, error = &error as &dyn std::error::Error, "cannot look after a job");
    }
}

async fn report_ends(shared: &Arc<Shared>, nodes: &Arc<Nodes>) {
    match nodes.ledger.open_jobs().await {
        Ok(open) => {
            let ended = open.into_iter().filter(|open| matches!(open.phase, Phase::Delivered | Phase::Dead));
            look_at(shared, nodes, ended.map(|open| open.id)).await;
        }
        Err(error) => {
            tracing::error!(error = &error as &dyn std::error::Error, "cannot read jobs");
            tokio::time::sleep(PAUSE).await;
        }
    }
}

async fn look_at_all(
    shared: &Arc<Shared>,
    nodes: &Arc<Nodes>,
    known: &mut Option<Uuid>,
) -> Result<(), Error> {
    let generation = nodes.broker.generation().await?;
    if known.is_some_and(|known| known != generation) {
        tracing::warn!("the broker has lost its stores: the jobs of this node are brought again");
    }
    if *known != Some(generation) {
        for (tenant, key, submission) in nodes.ledger.submissions().await? {
            nodes.broker.note(tenant, key, submission, None).await?;
        }
        *known = Some(generation);
    }
    let open: Vec<Open> = nodes.ledger.open_jobs().await?;
    let mut looks = futures_util::stream::iter(open)
        .map(|Open { id, .. }| async move { (id, look(shared, nodes, id, true).await) })
        .buffer_unordered(AT_ONCE);
    while let Some((id, looked)) = looks.next().await {
        match looked {
            // The broker is away: so it is for the others.
            Err(Error::Broker(failure @ (Failure::Away | Failure::Broker(_)))) => return Err(failure.into()),
            looked => note(id, looked),
        }
    }
    Ok(())
}

/// Makes the record of a job agree with its row, and the other way round. `thorough`: also looks whether the queue has
/// the job.
async fn look(shared: &Arc<Shared>, nodes: &Arc<Nodes>, id: JobId, thorough: bool) -> Result<(), Error> {
    if nodes.is_submitting(id) {
        return Ok(());
    }
    let Some(entry) = nodes.ledger.entry(id).await? else { return Ok(()) };
    if !entry.is_confirmed {
        // The process ended, or the disk failed, while the job was being accepted.
        return match bring(shared, nodes, &entry).await? {
            Introduced::Taken => Ok(nodes.ledger.confirm(id).await?),
            Introduced::Known(_) => withdraw(shared, nodes, &entry).await,
            Introduced::Unfinished => Ok(()),
        };
    }
    let Some(held) = nodes.broker.record(id).await? else {
        metrics::CLUSTER_JOBS.with(&[("event", "brought_again")]).increment(1);
        bring(shared, nodes, &entry).await?;
        return Ok(());
    };
    if held.record.owner != nodes.me.node {
        tracing::error!(%id, owner = held.record.owner, "another node says that it has accepted this node's job");
        return Ok(());
    }
    match (entry.phase, &held.record.progress) {
        (Phase::Queued | Phase::Running, Progress::Queued { .. } | Progress::Running { .. }) => {
            if held.record.audio == Audio::Wanted {
                bring_audio(shared, nodes, &entry, &held).await?;
            }
            if thorough && !nodes.broker.is_offered(id, entry.tenant).await? {
                metrics::CLUSTER_JOBS.with(&[("event", "offered_again")]).increment(1);
                nodes.broker.offer(id, entry.tenant, true).await?;
            }
        }
        (Phase::Queued | Phase::Running, Progress::Finished { result, .. }) => {
            collect(shared, nodes, &entry, &held, result).await?;
        }
        (Phase::Queued | Phase::Running, _) => {
            // The database is older than the record: a copy was put back.
            tracing::warn!(%id, "a job is done again, because the database has lost its result");
            requeue(shared, nodes, &entry, &held).await?;
        }
        (Phase::Waiting | Phase::Sending, Progress::Delivering { .. }) => {}
        (Phase::Waiting | Phase::Sending, _) => {
            nodes.broker.update(id, &held.record.known_to_owner(&entry), held.revision).await?;
            nodes.broker.delete(Place::Audio, id.to_string()).await?;
        }
        (Phase::Delivered | Phase::Dead, _) => {
            let result = held.record.result().map(|result| result.object.clone());
            if nodes.broker.update(id, &held.record.known_to_owner(&entry), held.revision).await?.is_some() {
                if let Some(object) = result {
                    nodes.broker.delete(Place::Results, object).await?;
                }
                nodes.ledger.close(id).await?;
            }
        }
    }
    Ok(())
}

/// The audio of a job that waits; `None` for a job by URL, and for one that needs it no more.
async fn audio(shared: &Shared, entry: &Entry) -> Result<Option<Bytes>, Unread> {
    match (&entry.source, entry.phase) {
        (Source::Spooled { bytes }, Phase::Queued | Phase::Running) => {
            let stamp = Stamp { bytes: *bytes, sha256: entry.sha256 };
            shared.audio.read(entry.id, stamp).await.map(Some)
        }
        _ => Ok(None),
    }
}

/// Makes a job known to the broker, which does not know it or knows it no more, and puts it into the queue.
async fn bring(shared: &Shared, nodes: &Nodes, entry: &Entry) -> Result<Introduced, Error> {
    let read = audio(shared, entry).await;
    let introduced = match (entry.is_confirmed, introduce(nodes, entry, read.ok().flatten()).await?) {
        // The key may stand for another job, which another node took while the broker knew nothing. Both were
        // acknowledged, so both are done.
        (true, Introduced::Known(_) | Introduced::Unfinished) => {
            let keyless = Entry { idempotency: None, ..entry.clone() };
            let read = audio(shared, entry).await;
            introduce(nodes, &keyless, read.ok().flatten()).await?
        }
        (_, introduced) => introduced,
    };
    if matches!(introduced, Introduced::Taken) && matches!(entry.phase, Phase::Queued | Phase::Running) {
        nodes.broker.offer(entry.id, entry.tenant, true).await?;
    }
    Ok(introduced)
}

/// Brings the audio that a worker missed, or says that it is lost.
async fn bring_audio(shared: &Shared, nodes: &Nodes, entry: &Entry, held: &Held) -> Result<(), Error> {
    let record = match audio(shared, entry).await {
        Ok(audio) => {
            if let Some(audio) = audio {
                nodes.broker.put(Place::Audio, entry.id.to_string(), audio).await?;
            }
            held.record.with_audio(Audio::There)
        }
        Err(Unread::Gone | Unread::Altered) => held.record.with_audio(Audio::Lost),
        // It can be read later.
        Err(Unread::Failed(error)) => {
            tracing::warn!(id = %entry.id, %error, "cannot read a job's audio for now");
            return Ok(());
        }
    };
    nodes.broker.update(entry.id, &record, held.revision).await?;
    Ok(())
}

/// Stores the result, which the receiver then gets from here. The first one counts.
async fn collect(
    shared: &Arc<Shared>,
    nodes: &Nodes,
    entry: &Entry,
    held: &Held,
    result: &Stored,
) -> Result<(), Error> {
    let id = entry.id;
    let bytes = nodes.broker.get(Place::Results, result.object.clone()).await?;
    let Some(bytes) = bytes.filter(|bytes| Sha256::digest(bytes).as_slice() == result.sha256) else {
        tracing::warn!(%id, "a job is done again, because the broker has lost its result");
        return requeue(shared, nodes, entry, held).await;
    };
    let record: &Record = &held.record;
    let finished = Finished {
        body: bytes.into(),
        media_type: result.media_type.clone(),
        error: record.error_of_result(),
    };
    let now = nodes.world.now();
    if nodes.ledger.settle(id, now, finished, record.runs).await? {
        shared.audio.remove(id);
        if let Source::Spooled { bytes } = entry.source {
            shared.drain_rate.note(Resource::Bytes, entry.tenant, bytes, now);
        }
        shared.finished.notify_one();
    }
    // If this fails, the next look does it.
    if let Some(entry) = nodes.ledger.entry(id).await? {
        nodes.broker.update(id, &record.known_to_owner(&entry), held.revision).await?;
        nodes.broker.delete(Place::Audio, id.to_string()).await?;
    }
    Ok(())
}

async fn requeue(shared: &Shared, nodes: &Nodes, entry: &Entry, held: &Held) -> Result<(), Error> {
    let record = held.record.queued(nodes.world.now());
    // As the row has them: the record of a job that has ended holds no addresses.
    let Record { query, url, callback, .. } = Record::new(entry, &nodes.me.node);
    let record = Record { query, url, callback, audio: Audio::Wanted, ..record };
    if let Some(revision) = nodes.broker.update(entry.id, &record, held.revision).await? {
        bring_audio(shared, nodes, entry, &Held { record, revision }).await?;
        nodes.broker.offer(entry.id, entry.tenant, true).await?;
    }
    Ok(())
}
