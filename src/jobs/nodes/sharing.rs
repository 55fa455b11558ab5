//! What the tasks of a node share.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, mpsc};
use uuid::Uuid;

use super::broker::Broker;
use super::failure::Failure;
use super::nats::Events;
use super::record::Worker;
use crate::jobs::error::Error;
use crate::jobs::ledger::Ledger;
use crate::jobs::store::{Job, JobId, State};
use crate::jobs::world::World;

/// The shortest and the longest time that clients are told to wait for a broker that is away.
const AWAY: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(30));
/// How long the status of a job that waits here may take to be seen elsewhere.
const STATUS_PATIENCE: Duration = Duration::from_secs(1);

/// What a node works with.
pub type Parts = (Arc<dyn Broker>, Arc<dyn Ledger>, Arc<dyn World>);

/// This node, and what it needs of the others.
pub struct Nodes {
    pub broker: Arc<dyn Broker>,
    pub ledger: Arc<dyn Ledger>,
    pub world: Arc<dyn World>,
    pub me: Worker,
    /// A worker that does not renew its claim for this long has lost it.
    pub lease: Duration,
    pub offered: Arc<Notify>,
    pub events: tokio::sync::Mutex<mpsc::Receiver<JobId>>,
    /// A job of this node has ended.
    pub ended: Notify,
    /// Jobs that are being accepted.
    submitting: Mutex<HashSet<JobId>>,
    /// Jobs that this node works on.
    active: Mutex<HashSet<JobId>>,
}

/// A job among those that something is being done with, until it is dropped.
pub struct Marked<'a> {
    among: &'a Mutex<HashSet<JobId>>,
    id: JobId,
}

impl Drop for Marked<'_> {
    fn drop(&mut self) {
        lock(self.among).remove(&self.id);
    }
}

impl Nodes {
    pub fn new((broker, ledger, world): Parts, node: String, lease: Duration, events: Events) -> Self {
        Self {
            broker,
            ledger,
            world,
            me: Worker { node, incarnation: Uuid::new_v4() },
            lease,
            offered: events.offered,
            events: tokio::sync::Mutex::new(events.own),
            ended: Notify::new(),
            submitting: Mutex::default(),
            active: Mutex::default(),
        }
    }

    /// # Errors
    /// [`Error::Away`] if the broker is, as far as is known.
    pub fn check(&self) -> Result<(), Error> {
        self.broker.is_well().map_err(|since| Error::Away { retry_after: since.clamp(AWAY.0, AWAY.1) })
    }

    /// The error for the client; its cause goes to the log. A broker that has been away for long may stay so: the wait
    /// is as long again.
    pub fn away(&self, failure: &Failure) -> Error {
        tracing::warn!(error = failure as &dyn std::error::Error, "a job is refused");
        let since = self.broker.is_well().err().unwrap_or_default();
        Error::Away { retry_after: since.clamp(AWAY.0, AWAY.1) }
    }

    /// Marks a job as being accepted.
    pub fn submitting(&self, id: JobId) -> Marked<'_> {
        lock(&self.submitting).insert(id);
        Marked { among: &self.submitting, id }
    }

    pub fn is_submitting(&self, id: JobId) -> bool {
        lock(&self.submitting).contains(&id)
    }

    /// Marks a job as worked on; `None` if it is already.
    pub fn working(&self, id: JobId) -> Option<Marked<'_>> {
        lock(&self.active).insert(id).then(|| Marked { among: &self.active, id })
    }

    /// The status of a job that another node may have accepted. `own`: as this node's database has it.
    ///
    /// # Errors
    /// [`Error::Away`], for a job that is not this node's.
    pub async fn status(&self, id: JobId, own: Option<Job>) -> Result<Option<Job>, Error> {
        let Some(own) = own else {
            let found = self.broker.record(id).await.map_err(|failure| self.away(&failure))?;
            return Ok(found.map(|held| held.record.job(id)));
        };
        if own.state != State::Queued || self.check().is_err() {
            return Ok(Some(own));
        }
        // The row waits for the result; the record says how far its worker is.
        let found = tokio::time::timeout(STATUS_PATIENCE, self.broker.record(id)).await;
        Ok(Some(match found {
            Ok(Ok(Some(held))) => {
                let seen = held.record.job(id);
                Job { state: seen.state, due: seen.due, runs: seen.runs, error: seen.error, ..own }
            }
            _ => own,
        }))
    }
}

fn lock(marks: &Mutex<HashSet<JobId>>) -> MutexGuard<'_, HashSet<JobId>> {
    // Inserting and removing leave a whole set.
    marks.lock().unwrap_or_else(PoisonError::into_inner)
}
