//! A worker's claim on a job.
//!
//! The claim holds while the worker renews it within the time of a lease. A worker that cannot renew it stops, by its
//! own clock, counted from before it sent the last renewal. Another node that finds the job running waits for the time
//! of a lease, by its own clock, and takes the job over if the record has not changed meanwhile. So no clocks are
//! compared, and the two do not overlap. Should they still, as after a process that stood still, the epoch of the
//! record refuses the older one's result.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::broker::{Broker, Held, Offer};
use super::failure::Failure;
use super::record::{Record, Worker};
use crate::jobs::error::Error;
use crate::jobs::store::{Answer, JobId};
use crate::jobs::watch::Marks;

/// Renewals within the time of a lease.
const RENEWALS: u32 = 3;
/// Of the lease, what a timer may be late.
const MARGIN: u32 = 10;
/// A change is tried this often against others of the same claim.
const TRIES_MAX: usize = 50;
const TRY_PAUSE: Duration = Duration::from_millis(20);
/// Between two attempts to reach a broker that fails.
const BROKER_PAUSE: Duration = Duration::from_millis(500);

pub struct Claim {
    broker: Arc<dyn Broker>,
    pub offer: Box<dyn Offer>,
    worker: Worker,
    epoch: u64,
    lease: Duration,
    held: tokio::sync::Mutex<Held>,
    until: Mutex<Instant>,
    lost: CancellationToken,
}

/// Why a change of a claimed record was not made.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// Another worker has the job.
    #[error("the claim is lost")]
    Lost,
    /// It is unknown whether the change was made. It may be repeated.
    #[error(transparent)]
    Failed(#[from] Failure),
}

impl Claim {
    /// `sent`: when the change was sent that made `held` this worker's.
    pub fn new(
        broker: Arc<dyn Broker>,
        offer: Box<dyn Offer>,
        worker: Worker,
        held: Held,
        (sent, lease): (Instant, Duration),
    ) -> Self {
        let epoch = held.record.epoch;
        let until = Mutex::new(sent + lease - lease / MARGIN);
        let lost = CancellationToken::new();
        Self { broker, offer, worker, epoch, lease, held: tokio::sync::Mutex::new(held), until, lost }
    }

    pub fn id(&self) -> JobId {
        self.offer.id()
    }

    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    pub async fn record(&self) -> Record {
        self.held.lock().await.record.clone()
    }

    /// Changes the record, unless another worker has the job. If the change was made before and its answer was lost,
    /// it is not made again.
    ///
    /// # Errors
    /// [`Refused`].
    pub async fn change(&self, change: impl Fn(&Record) -> Record) -> Result<(), Refused> {
        let mut held = self.held.lock().await;
        for _ in 0..TRIES_MAX {
            if self.lost.is_cancelled() {
                return Err(Refused::Lost);
            }
            let next = change(&held.record);
            let sent = Instant::now();
            if let Some(revision) = self.broker.update(self.id(), &next, held.revision).await? {
                *held = Held { record: next, revision };
                if held.record.is_of(&self.worker, self.epoch) {
                    self.holds_since(sent);
                }
                return Ok(());
            }
            match self.broker.record(self.id()).await? {
                // An earlier change of this claim whose answer was lost.
                Some(found) if found.record == next => {
                    *held = found;
                    return Ok(());
                }
                Some(found) if found.record.is_of(&self.worker, self.epoch) => *held = found,
                _ => {
                    self.lost.cancel();
                    return Err(Refused::Lost);
                }
            }
            tokio::time::sleep(TRY_PAUSE).await;
        }
        Err(Failure::Away.into())
    }

    /// As [`Self::change`], until it is known to be made; false if another worker has the job, or after `stop`.
    pub async fn insist(&self, stop: &CancellationToken, change: impl Fn(&Record) -> Record) -> bool {
        loop {
            match self.change(&change).await {
                Ok(()) => return true,
                Err(Refused::Lost) => return false,
                Err(Refused::Failed(failure)) => {
                    tracing::warn!(id = %self.id(), error = &failure as &dyn std::error::Error, "the broker does not note a job's state");
                }
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => return false,
                () = self.lost.cancelled() => return false,
                () = tokio::time::sleep(BROKER_PAUSE) => {}
            }
        }
    }

    fn holds_since(&self, sent: Instant) {
        *self.until.lock().unwrap_or_else(PoisonError::into_inner) = sent + self.lease - self.lease / MARGIN;
    }

    fn until(&self) -> Instant {
        *self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Renews the claim for as long as this is awaited, or until another worker has the job.
    pub async fn keep(&self) {
        let mut pause = self.lease / RENEWALS;
        loop {
            tokio::select! {
                () = self.lost.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
            }
            self.offer.progress().await;
            pause = match self.change(Record::renewed).await {
                Ok(()) => self.lease / RENEWALS,
                Err(Refused::Lost) => return,
                Err(Refused::Failed(_)) => BROKER_PAUSE,
            };
        }
    }

    /// Ends when the worker has to stop: its claim has not been renewed in time, or another has the job.
    pub async fn ends(&self) {
        loop {
            let until = self.until();
            if until <= Instant::now() {
                return;
            }
            tokio::select! {
                () = self.lost.cancelled() => return,
                () = tokio::time::sleep_until(until) => {}
            }
        }
    }
}

impl Marks for Claim {
    fn set_decoding(&self, is_decoding: bool) -> Answer<'_, ()> {
        Box::pin(async move {
            match self.change(|record| record.decoding(is_decoding)).await {
                // The run is about to be dropped.
                Ok(()) | Err(Refused::Lost) => Ok(()),
                Err(Refused::Failed(failure)) => Err(Error::Broker(failure)),
            }
        })
    }
}
