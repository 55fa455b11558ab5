//! How a job is accepted: on the disk here, and acknowledged by the broker.
//!
//! A job that the broker does not acknowledge is withdrawn. Nothing of it can run by then, because it gets into the
//! queue last, after it has been confirmed here.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::broker::Place;
use super::failure::Failure;
use super::record::Record;
use super::sharing::Nodes;
use crate::jobs::error::Error;
use crate::jobs::ledger::Entry;
use crate::jobs::shared::Shared;
use crate::jobs::store::{Acceptance, Idempotency, JobId, Order, Source, Submission};
use crate::telemetry::metrics;

/// An idempotency key may stand for a job without a record for this long: its node may be about to make one.
const UNFINISHED_MAX: Duration = Duration::from_secs(120);
/// How long a client waits whose submission is just being accepted for it elsewhere.
const UNFINISHED_RETRY: Duration = Duration::from_secs(2);

/// How the broker takes a job.
pub enum Introduced {
    Taken,
    /// Its idempotency key stands for another job.
    Known(Submission),
    /// Its idempotency key stands for a job that is just being accepted.
    Unfinished,
}

/// The job that `tenant` submitted under this idempotency key, to any node.
///
/// # Errors
/// [`Error::Away`] if that cannot be told; those of the database.
pub async fn known(
    shared: &Shared,
    nodes: &Nodes,
    tenant: u64,
    key: &str,
) -> Result<Option<Submission>, Error> {
    if let Some(own) = shared.store.submitted(tenant, key.to_owned()).await? {
        return match nodes.ledger.entry(own.id).await? {
            Some(entry) if !entry.is_confirmed => Err(Error::Away { retry_after: UNFINISHED_RETRY }),
            _ => Ok(Some(own)),
        };
    }
    nodes.check()?;
    match find(nodes, tenant, key).await {
        Ok(Found::Nothing | Found::Abandoned(_)) => Ok(None),
        Ok(Found::Job(submission)) => Ok(Some(submission)),
        Ok(Found::Unfinished(_)) => Err(Error::Away { retry_after: UNFINISHED_RETRY }),
        Err(failure) => Err(nodes.away(&failure)),
    }
}

/// What an idempotency key stands for.
enum Found {
    Nothing,
    Job(Submission),
    /// Its record is not there yet.
    Unfinished(Submission),
    /// Its record never came. The revision of the key.
    Abandoned(u64),
}

async fn find(nodes: &Nodes, tenant: u64, key: &str) -> Result<Found, Failure> {
    let Some(known) = nodes.broker.submitted(tenant, key.to_owned()).await? else {
        return Ok(Found::Nothing);
    };
    if nodes.broker.record(known.submission.id).await?.is_some() {
        return Ok(Found::Job(known.submission));
    }
    let age = nodes.world.now().duration_since(known.since).unwrap_or_default();
    Ok(match age > UNFINISHED_MAX {
        true => Found::Abandoned(known.revision),
        false => Found::Unfinished(known.submission),
    })
}

/// As [`Shared::submit`].
///
/// # Errors
/// As there; [`Error::Away`] if the broker does not acknowledge the job, which is withdrawn.
pub async fn submit(
    shared: &Arc<Shared>,
    nodes: &Arc<Nodes>,
    order: Order,
    audio: Option<Bytes>,
) -> Result<JobId, Error> {
    let (id, tenant) = (order.id, order.tenant);
    let bytes = audio.as_ref().map_or(0, |audio| audio.len() as u64);
    if let Some(Idempotency { key, fingerprint }) = &order.idempotency
        && let Some(known) = known(shared, nodes, tenant, key).await?
    {
        return shared.answered(tenant, known.again(*fingerprint), id);
    }
    nodes.check()?;
    let _marked = nodes.submitting(id);
    let sha256 = match audio.clone() {
        Some(audio) => {
            let written = shared.audio.write(id, audio).await;
            Some(written.map_err(|error| shared.for_client(error, bytes))?)
        }
        None => None,
    };
    let fingerprint = order.idempotency.as_ref().map(|idempotency| idempotency.fingerprint);
    match nodes.ledger.accept_unconfirmed(order, sha256, shared.bounds.clone()).await {
        Ok(Acceptance::Taken) => {}
        Ok(acceptance) => {
            shared.audio.remove(id);
            return shared.answered(tenant, acceptance, id);
        }
        Err(error @ (Error::Unsure(_) | Error::Interrupted)) => return Err(error),
        Err(error) => {
            shared.audio.remove(id);
            return Err(shared.for_client(error, bytes));
        }
    }
    let Some(entry) = nodes.ledger.entry(id).await? else { return Err(Error::Interrupted) };
    let refusal = match introduce(nodes, &entry, audio).await {
        Ok(Introduced::Taken) => {
            // If this fails, the job is looked at again as one that was not confirmed, and found in the broker.
            nodes.ledger.confirm(id).await?;
            metrics::JOBS_ACCEPTED.with(&[]).increment(1);
            // On two disks: it may wait until the queue can be reached again.
            if let Err(failure) = nodes.broker.offer(id, tenant, false).await {
                tracing::warn!(%id, error = &failure as &dyn std::error::Error, "a job waits for the queue");
            }
            return Ok(id);
        }
        Ok(Introduced::Known(known)) => {
            let acceptance = fingerprint.map_or(Acceptance::Known(known.id), |own| known.again(own));
            shared.answered(tenant, acceptance, id)
        }
        Ok(Introduced::Unfinished) => Err(Error::Away { retry_after: UNFINISHED_RETRY }),
        Err(failure) => Err(nodes.away(&failure)),
    };
    withdraw(shared, nodes, &entry).await?;
    refusal
}

/// Makes a job known to the broker: its idempotency key, its audio, its record. Each step may be repeated.
///
/// # Errors
/// [`Failure`]: some of it may have been done.
pub async fn introduce(nodes: &Nodes, entry: &Entry, audio: Option<Bytes>) -> Result<Introduced, Failure> {
    let id = entry.id;
    if let Some(Idempotency { key, fingerprint }) = &entry.idempotency {
        let submission = Submission { id, fingerprint: *fingerprint };
        let note = |instead| nodes.broker.note(entry.tenant, key.clone(), submission, instead);
        if !note(None).await? {
            match find(nodes, entry.tenant, key).await? {
                Found::Unfinished(found) | Found::Job(found) if found.id == id => {}
                Found::Job(other) => return Ok(Introduced::Known(other)),
                Found::Abandoned(revision) if note(Some(revision)).await? => {}
                Found::Nothing if note(None).await? => {}
                Found::Unfinished(_) | Found::Abandoned(_) | Found::Nothing => {
                    return Ok(Introduced::Unfinished);
                }
            }
        }
    }
    if let Some(audio) = audio {
        nodes.broker.put(Place::Audio, id.to_string(), audio).await?;
    }
    let record = Record::new(entry, &nodes.me.node);
    if nodes.broker.create(id, &record).await?.is_none() {
        // Made before, by a request whose answer was lost.
        tracing::debug!(%id, "the broker has the record of a job already");
    }
    Ok(Introduced::Taken)
}

/// Takes back a job that was never acknowledged.
///
/// # Errors
/// Those of the database.
pub async fn withdraw(shared: &Shared, nodes: &Nodes, entry: &Entry) -> Result<(), Error> {
    let id = entry.id;
    if nodes.ledger.withdraw(id).await? {
        shared.audio.remove(id);
        // What cannot be removed lies there until it is too old: it is in no queue.
        let _ = nodes.broker.remove(id).await;
        if matches!(entry.source, Source::Spooled { .. }) {
            let _ = nodes.broker.delete(Place::Audio, id.to_string()).await;
        }
        if let Some(Idempotency { key, .. }) = &entry.idempotency
            && let Ok(Some(known)) = nodes.broker.submitted(entry.tenant, key.clone()).await
            && known.submission.id == id
        {
            let _ = nodes.broker.forget(entry.tenant, key.clone(), known.revision).await;
        }
    }
    Ok(())
}
