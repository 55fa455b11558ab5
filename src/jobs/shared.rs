//! The state that the handles and the tasks share, and how a job is accepted into it.

use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;

use super::capacity::{Bounds, Refusal, Resource};
use super::config::Config;
use super::drain_rate::DrainRate;
use super::entrance::Entrance;
use super::error::Error;
use super::nodes::Nodes;
use super::signature::SigningSecret;
use super::spool::Audio;
use super::store::{Acceptance, Idempotency, JobId, Order, Store};
use super::world::World;
use crate::fetch::Fetcher;
use crate::share::Refused;
use crate::telemetry::metrics;

/// The state behind all handles and tasks.
pub struct Shared {
    pub store: Arc<dyn Store>,
    pub audio: Arc<dyn Audio>,
    pub world: Arc<dyn World>,
    pub secret: SigningSecret,
    pub fetcher: Fetcher,
    pub config: Config,
    pub bounds: Bounds,
    pub drain_rate: DrainRate,
    pub entrance: Entrance,
    /// A job may be ready to run.
    pub queued: Notify,
    /// A result may be ready for delivery.
    pub finished: Notify,
    /// `None` for a server that works alone.
    pub nodes: Option<Arc<Nodes>>,
    pub _lock: File,
}

impl Shared {
    pub async fn submit(self: Arc<Self>, order: Order, audio: Option<Bytes>) -> Result<JobId, Error> {
        let (id, tenant) = (order.id, order.tenant);
        let bytes = audio.as_ref().map_or(0, |audio| audio.len() as u64);
        // Before the audio is written: a full disk must not refuse a job that exists.
        if let Some(Idempotency { key, fingerprint }) = &order.idempotency {
            let known = self.store.submitted(tenant, key.clone()).await;
            if let Some(known) = known.map_err(|error| self.for_client(error, bytes))? {
                return self.answered(tenant, known.again(*fingerprint), id);
            }
        }
        let sha256 = match audio {
            Some(audio) => {
                let written = self.audio.write(id, audio).await;
                Some(written.map_err(|error| self.for_client(error, bytes))?)
            }
            None => None,
        };
        let refused = match self.store.accept(order, sha256, self.bounds.clone()).await {
            Ok(Acceptance::Taken) => {
                metrics::JOBS_ACCEPTED.with(&[]).increment(1);
                self.queued.notify_one();
                return Ok(id);
            }
            Ok(acceptance) => self.answered(tenant, acceptance, id),
            // The row may exist, now or when the database is opened again, so its audio stays. If it belongs
            // to no job, the next start sets it aside.
            Err(error @ (Error::Unsure(_) | Error::Interrupted)) => return Err(error),
            Err(error) => Err(self.for_client(error, bytes)),
        };
        self.audio.remove(id);
        refused
    }

    /// The job that the order `id` resulted in.
    pub fn answered(&self, tenant: u64, acceptance: Acceptance, id: JobId) -> Result<JobId, Error> {
        match acceptance {
            Acceptance::Taken => Ok(id),
            Acceptance::Known(known) => Ok(known),
            Acceptance::Conflict => Err(Error::Conflict),
            Acceptance::Refused(refusal) => Err(self.refused(tenant, refusal)),
        }
    }

    /// The error for the client; its cause goes to the log.
    pub fn for_client(&self, error: Error, bytes: u64) -> Error {
        let Error::Exhausted(cause) = error else { return error };
        tracing::warn!(error = &*cause as &dyn std::error::Error, "a job is refused");
        self.no_disk(bytes)
    }

    /// Refuses for lack of disk space. The wait is for space that jobs give back; nothing else on the disk is
    /// known.
    pub fn no_disk(&self, bytes: u64) -> Error {
        count_refusal("disk");
        Error::Full { retry_after: self.drain_rate.wait(Resource::Bytes, None, bytes, self.world.now()) }
    }

    pub fn refused(&self, tenant: u64, refusal: Refusal) -> Error {
        self.refused_for(refusal, self.wait(tenant, &refusal))
    }

    /// The time until there is room for a job of `tenant` that was refused.
    pub fn wait(&self, tenant: u64, refusal: &Refusal) -> Duration {
        let whose = match refusal.why {
            Refused::Full => None,
            Refused::OverShare => Some(tenant),
        };
        self.drain_rate.wait(refusal.of, whose, refusal.short, self.world.now())
    }

    /// Refuses; the client may retry after `retry_after`.
    pub fn refused_for(&self, refusal: Refusal, retry_after: Duration) -> Error {
        match refusal.why {
            Refused::Full => {
                count_refusal("room");
                Error::Full { retry_after }
            }
            Refused::OverShare => {
                count_refusal("share");
                Error::OverShare { retry_after }
            }
        }
    }
}

fn count_refusal(reason: &'static str) {
    metrics::JOBS_REFUSED.with(&[("reason", reason)]).increment(1);
}
