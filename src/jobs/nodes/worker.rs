//! Takes jobs of any node out of the queue and does them.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use sha2::{Digest as _, Sha256};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::broker::{Held, Offer, Place};
use super::claim::Claim;
use super::failure::Failure;
use super::record::{Audio, Orphaned, Progress, Record, Stored};
use super::sharing::Nodes;
use crate::clock::from_unix_ms;
use crate::jobs::runner::{After, Work, transcribe};
use crate::jobs::shared::Shared;
use crate::jobs::spool::Unread;
use crate::jobs::store::Finished;
use crate::jobs::watch::Watch;
use crate::telemetry::metrics;

/// The longest that a job goes unnoticed whose offer nobody heard of, and the pause after an error.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Pause before a job runs whose owner has to bring its audio first.
const AUDIO_PAUSE: Duration = Duration::from_secs(2);
/// Pause before a job is looked at again whose record a newer program wrote.
const UNKNOWN_PAUSE: Duration = Duration::from_secs(60);

pub async fn run(shared: &Arc<Shared>, nodes: &Arc<Nodes>, work: &Arc<dyn Work>, stop: &CancellationToken) {
    let places = u32::try_from(shared.config.concurrency.clamp(1, 1024)).unwrap_or(1);
    let slots = Slots { free: Arc::new(Semaphore::new(places as usize)), places };
    let mut runs = JoinSet::new();
    while !stop.is_cancelled() {
        let slot = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            slot = slots.one() => slot,
        };
        let taken = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            taken = nodes.broker.take() => taken,
        };
        match taken {
            Ok(Some(offer)) => {
                let parts = (shared.clone(), nodes.clone(), work.clone());
                runs.spawn(one(parts, offer, slots.clone(), slot, stop.clone()));
                continue;
            }
            Ok(None) => {}
            Err(Failure::Away) => {}
            Err(failure) => {
                tracing::warn!(
                    error = &failure as &dyn std::error::Error,
                    "the queue of jobs cannot be read"
                );
            }
        }
        drop(slot);
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = nodes.offered.notified() => {}
            () = tokio::time::sleep(LOOK_INTERVAL) => {}
        }
        while runs.try_join_next().is_some() {}
    }
    // Each run sees `stop` and puts its job back.
    while runs.join_next().await.is_some() {}
}

/// Jobs at once.
#[derive(Clone)]
struct Slots {
    free: Arc<Semaphore>,
    places: u32,
}

impl Slots {
    async fn one(&self) -> Option<OwnedSemaphorePermit> {
        self.free.clone().acquire_owned().await.ok()
    }

    /// All of them: nothing else runs, and nothing is begun meanwhile.
    async fn all(&self) -> Option<OwnedSemaphorePermit> {
        self.free.clone().acquire_many_owned(self.places).await.ok()
    }
}

/// Does something while the queue is kept from handing the job to another.
async fn holding<T>(offer: &dyn Offer, lease: Duration, doing: impl Future<Output = T>) -> T {
    let mut doing = std::pin::pin!(doing);
    loop {
        tokio::select! {
            done = &mut doing => return done,
            () = tokio::time::sleep(lease / 3) => offer.progress().await,
        }
    }
}

async fn one(
    (shared, nodes, work): (Arc<Shared>, Arc<Nodes>, Arc<dyn Work>),
    offer: Box<dyn Offer>,
    slots: Slots,
    slot: Option<OwnedSemaphorePermit>,
    stop: CancellationToken,
) {
    let id = offer.id();
    let Some(_marked) = nodes.working(id) else {
        // The queue has handed out a job again that is being done here.
        offer.again(nodes.lease).await;
        return;
    };
    let mut hold = Hold { slots, slot };
    let claimed = tokio::select! {
        biased;
        () = stop.cancelled() => return,
        claimed = claim(&nodes, offer, &mut hold) => claimed,
    };
    let Some(claim) = claimed else { return };
    let claim = Arc::new(claim);
    tracing::info!(%id, epoch = claim.epoch(), node = nodes.me.node, "job claimed");
    let outcome = tokio::select! {
        // Never ends before the other does, but for a claim that is lost, which the other sees too.
        outcome = perform(&shared, &nodes, &work, &claim, &stop) => outcome,
        () = async { claim.keep().await; std::future::pending().await } => "lost",
    };
    tracing::info!(%id, epoch = claim.epoch(), node = nodes.me.node, outcome, "job run");
    metrics::JOBS_RUNS.with(&[("outcome", outcome)]).increment(1);
}

/// The places that a run takes.
struct Hold {
    slots: Slots,
    slot: Option<OwnedSemaphorePermit>,
}

/// Makes the offered job this worker's, or sees to it that it comes to another.
async fn claim(nodes: &Nodes, offer: Box<dyn Offer>, hold: &mut Hold) -> Option<Claim> {
    let (id, me) = (offer.id(), &nodes.me);
    // When this worker tried to begin which epoch, if it does not know whether it has.
    let mut tried: Option<(Instant, u64)> = None;
    loop {
        let held = match nodes.broker.record(id).await {
            Ok(Some(held)) => held,
            Ok(None) => {
                // Its owner brings both again.
                let _ = offer.done().await;
                return None;
            }
            Err(failure @ (Failure::Newer(_) | Failure::Unreadable)) => {
                tracing::error!(%id, error = &failure as &dyn std::error::Error, "a job is left to others");
                offer.again(UNKNOWN_PAUSE).await;
                return None;
            }
            // The queue hands it out again after the time of a lease.
            Err(_) => return None,
        };
        let now = nodes.world.now();
        let next = match &held.record.progress {
            Progress::Queued { due_ms } => {
                if let Ok(wait) = from_unix_ms(*due_ms).duration_since(now)
                    && !wait.is_zero()
                {
                    offer.again(wait).await;
                    return None;
                }
                if held.record.audio == Audio::Wanted {
                    offer.again(AUDIO_PAUSE).await;
                    return None;
                }
                if held.record.is_suspect() && !hold.is_alone() {
                    // It may end the process, and shall take no other job with it.
                    holding(offer.as_ref(), nodes.lease, hold.get_alone()).await;
                    continue;
                }
                held.record.begun(me)
            }
            Progress::Running { worker, .. } if worker == me => {
                if let Some((sent, epoch)) = tried
                    && epoch == held.record.epoch
                    && sent.elapsed() < nodes.lease
                {
                    return Some(nodes.claim(offer, held, sent));
                }
                // This worker stopped when it could not renew its claim.
                held.record.given_back(now)
            }
            Progress::Running { worker, .. } if worker.node == me.node => orphaned(&held, now),
            Progress::Running { .. } => {
                let before = held.revision;
                hold.slot = None;
                holding(offer.as_ref(), nodes.lease, tokio::time::sleep(nodes.lease)).await;
                hold.get_one().await;
                match nodes.broker.record(id).await {
                    Ok(Some(held)) if held.revision == before => orphaned(&held, now),
                    Ok(_) => {
                        // Its worker lives. Should it die later, the queue hands the job out again.
                        offer.again(nodes.lease).await;
                        return None;
                    }
                    Err(_) => return None,
                }
            }
            _ => {
                // The job is done, and its message was left behind.
                let _ = offer.done().await;
                return None;
            }
        };
        let sent = Instant::now();
        match nodes.broker.update(id, &next, held.revision).await {
            Ok(Some(revision)) if next.is_of(me, next.epoch) => {
                return Some(nodes.claim(offer, Held { record: next, revision }, sent));
            }
            // It is free now, or somebody else was first.
            Ok(_) => {}
            Err(_) => tried = Some((sent, next.epoch)),
        }
    }
}

fn orphaned(held: &Held, now: SystemTime) -> Record {
    let (record, how) = held.record.orphaned(now);
    if let Progress::Running { worker, .. } = &held.record.progress {
        let is_suspect = matches!(how, Orphaned::Suspected { .. });
        tracing::warn!(node = worker.node, epoch = held.record.epoch, is_suspect, "a job's worker is gone");
        metrics::CLUSTER_JOBS.with(&[("event", "taken_over")]).increment(1);
    }
    record
}

impl Nodes {
    fn claim(&self, offer: Box<dyn Offer>, held: Held, sent: Instant) -> Claim {
        Claim::new(self.broker.clone(), offer, self.me.clone(), held, (sent, self.lease))
    }
}

impl Hold {
    fn is_alone(&self) -> bool {
        self.slot.as_ref().is_some_and(|slot| slot.num_permits() == self.slots.places as usize)
    }

    async fn get_alone(&mut self) {
        self.slot = None;
        self.slot = self.slots.all().await;
    }

    async fn get_one(&mut self) {
        if self.slot.is_none() {
            self.slot = self.slots.one().await;
        }
    }
}

/// Does the job, and says how it ended.
async fn perform(
    shared: &Arc<Shared>,
    nodes: &Arc<Nodes>,
    work: &Arc<dyn Work>,
    claim: &Arc<Claim>,
    stop: &CancellationToken,
) -> &'static str {
    let worked = tokio::select! {
        biased;
        () = stop.cancelled() => None,
        () = claim.ends() => return lost(claim),
        worked = attempt(shared, nodes, work, claim) => Some(worked),
    };
    match worked {
        None => {
            let now = nodes.world.now();
            let given_back = claim.change(|record| record.given_back(now)).await;
            claim.offer.again(Duration::ZERO).await;
            if given_back.is_err() { lost(claim) } else { "given_back" }
        }
        Some(Worked::Done(finished)) => finish(nodes, claim, stop, finished).await,
        Some(Worked::Again { after, error }) => {
            let due = nodes.world.now() + after;
            back(claim, stop, (after, "again"), |record| record.failed(due, error.clone())).await
        }
        Some(Worked::Busy { after }) => {
            let due = nodes.world.now() + after;
            back(claim, stop, (after, "busy"), |record| record.given_back(due)).await
        }
        Some(Worked::WithoutAudio) => {
            let due = nodes.world.now();
            let wanted = |record: &Record| record.given_back(due).with_audio(Audio::Wanted);
            let outcome = back(claim, stop, (AUDIO_PAUSE, "busy"), wanted).await;
            nodes.broker.tell(claim.record().await.owner, claim.id()).await;
            outcome
        }
    }
}

/// Puts the job back in line, as `change` says; the queue hands it out again after `wait`.
async fn back(
    claim: &Claim,
    stop: &CancellationToken,
    (wait, outcome): (Duration, &'static str),
    change: impl Fn(&Record) -> Record,
) -> &'static str {
    if !claim.insist(stop, change).await {
        return lost(claim);
    }
    claim.offer.again(wait).await;
    outcome
}

fn lost(claim: &Claim) -> &'static str {
    tracing::warn!(id = %claim.id(), epoch = claim.epoch(), "the claim on a job is lost");
    metrics::CLUSTER_JOBS.with(&[("event", "claim_lost")]).increment(1);
    "lost"
}

enum Worked {
    Done(Finished),
    Again {
        after: Duration,
        error: String,
    },
    Busy {
        after: Duration,
    },
    /// The broker has the audio no more.
    WithoutAudio,
}

async fn attempt(shared: &Arc<Shared>, nodes: &Nodes, work: &Arc<dyn Work>, claim: &Arc<Claim>) -> Worked {
    let record = claim.record().await;
    let run = record.run(claim.id());
    let audio = match (&record.url, record.audio) {
        (Some(_), _) => Ok(Bytes::new()),
        (None, Audio::Lost) => Err(Unread::Gone),
        (None, _) if record.owner == nodes.me.node => shared.audio.read(run.id, run.stamp).await,
        (None, _) => match nodes.broker.get(Place::Audio, run.id.to_string()).await {
            Ok(Some(bytes))
                if record.sha256.is_none_or(|sha256| Sha256::digest(&bytes).as_slice() == sha256) =>
            {
                Ok(bytes)
            }
            Ok(_) => return Worked::WithoutAudio,
            Err(failure) => {
                tracing::warn!(id = %run.id, error = &failure as &dyn std::error::Error, "a job's audio cannot be had for now");
                return Worked::Busy { after: LOOK_INTERVAL };
            }
        },
    };
    let watch = Watch::with(claim.clone());
    match transcribe(shared, work.as_ref(), run, watch, async { audio }).await {
        After::Finish(finished) => Worked::Done(finished),
        After::Again { after, error } => Worked::Again { after, error },
        After::Busy { after } => Worked::Busy { after },
    }
}

/// Hands the result to the broker: first the bytes, then the record, which counts.
async fn finish(nodes: &Nodes, claim: &Claim, stop: &CancellationToken, finished: Finished) -> &'static str {
    let outcome = if finished.error.is_some() { "failed" } else { "finished" };
    let Finished { body, media_type, error } = finished;
    let body = Bytes::from(body);
    let object = format!("{}.{}", claim.id(), claim.epoch());
    let result = Stored { object, sha256: Sha256::digest(&body).into(), media_type };
    while let Err(failure) = nodes.broker.put(Place::Results, result.object.clone(), body.clone()).await {
        tracing::warn!(id = %claim.id(), error = &failure as &dyn std::error::Error, "a result cannot be handed over for now");
        tokio::select! {
            biased;
            () = stop.cancelled() => return lost(claim),
            () = tokio::time::sleep(LOOK_INTERVAL) => {}
        }
    }
    let now = nodes.world.now();
    if !claim.insist(stop, |record| record.finished(result.clone(), error.clone(), now)).await {
        // After `stop`, the change may have been made. Otherwise another worker has the job, or had it: the first result
        // stands.
        if !stop.is_cancelled() {
            let _ = nodes.broker.delete(Place::Results, result.object).await;
            metrics::CLUSTER_JOBS.with(&[("event", "result_refused")]).increment(1);
        }
        return lost(claim);
    }
    if let Err(failure) = claim.offer.done().await {
        tracing::debug!(id = %claim.id(), error = &failure as &dyn std::error::Error, "the queue still has a job that is done");
    }
    nodes.broker.tell(claim.record().await.owner, claim.id()).await;
    outcome
}
