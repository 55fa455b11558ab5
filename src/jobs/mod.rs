//! Jobs: transcriptions, and texts to speak, whose results are delivered later, to an address that the client names.
//!
//! ```text
//! submit ─▶ audio on disk ─▶ row on disk ─▶ acknowledged
//!                                │
//!            queued ─▶ running ─▶ delivering ─▶ delivered
//!               ▲         │           │  ▲
//!               └─────────┘           ▼  │ retry
//!          busy, stopped, crashed    dead
//! ```
//! Everything acknowledged is on disk, so a job outlives the process, however the process ends. A job that
//! was running at that moment runs again, alone if its audio may have ended the process (`watch.rs`). Its
//! result is stored once, before it is sent, and the same bytes are sent until the receiver accepts them. So
//! a receiver gets each result **at least once**, and recognises a repetition by its `webhook-id`.
//!
//! [`Jobs`] is the handle that doors use. [`Jobs::run`] does the work: `runner.rs` transcribes through
//! the [`Work`] that is handed in, `delivery.rs` sends, `keeper.rs` throws away. None of them knows HTTP
//! as spoken to clients, nor what a result looks like. [`Store`] is what they need of a database, `spool.rs` has
//! the audio, and `reconcile.rs` makes the two agree. `capacity.rs` says how much may wait, `entrance.rs` who may submit,
//! `drain_rate.rs` when there will be room again. `nodes/` shares jobs with other servers.
//!
//! [clusters]: crate::cluster
#![doc = include_str!("README.md")]

mod attempt;
mod capacity;
mod config;
mod delivery;
mod drain_rate;
mod entrance;
mod error;
mod keeper;
mod ledger;
mod nodes;
mod quarantine;
mod reconcile;
mod runner;
mod schedule;
mod shared;
mod signature;
#[cfg(test)]
mod simulation;
mod spool;
mod sqlite;
mod store;
#[cfg(test)]
mod tests;
mod waiting;
mod watch;
mod world;

pub use capacity::{Bounds, Refusal, Resource, Usage};
pub use config::Config;
pub use entrance::Coming;
pub use error::Error;
pub use nodes::Failure;
pub use runner::{Again, Fault, Input, Setback, Task, Work};
pub use signature::{HIDDEN, SecretError, SigningSecret};
pub use sqlite::Sqlite;
pub use store::{
    ATTEMPTS_MAX, Acceptance, Announcement, Answer, Attempt, Census, Delivery, Finished, INTERRUPTIONS_MAX,
    Idempotency, Job, JobId, Next, Order, Phase, Run, SUSPECT_PATIENCE, Source, Stamp, State, Store,
    Submission,
};
pub use watch::Watch;

use std::fs::TryLockError;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use url::Url;

use crate::cluster::Cluster;
use crate::fetch::{self, Fetcher, without_user};
use crate::share::{Asker, Tenants};
use crate::state;
use crate::telemetry::metrics;
use drain_rate::DrainRate;
use entrance::Entrance;
use ledger::Ledger as _;
use nodes::{Nats, Nodes};
use shared::Shared;
use spool::Spool;

const LOCK: &str = "jobs.lock";
/// A cheap handle on the jobs of one state directory. Only one process holds one.
#[derive(Clone)]
pub struct Jobs {
    shared: Arc<Shared>,
}

impl Jobs {
    /// Opens the jobs of `state_dir` and puts the jobs of an ended process back in line. Audio that belongs
    /// to no job is set aside.
    ///
    /// # Errors
    /// Any but [`Error::Full`], [`Error::OverShare`] and [`Error::Conflict`].
    pub async fn open(
        state_dir: &Path,
        config: &Config,
        fetcher: Fetcher,
        tenants: Tenants,
    ) -> Result<Self, Error> {
        Self::open_among(None, state_dir, config, fetcher, tenants).await
    }

    /// As [`Self::open`], as a node of `cluster`: other nodes may do the jobs that this one accepts.
    ///
    /// # Errors
    /// As [`Self::open`]; [`Error::NoSecret`], [`Error::Broker`].
    pub async fn open_among(
        cluster: Option<Cluster>,
        state_dir: &Path,
        config: &Config,
        fetcher: Fetcher,
        tenants: Tenants,
    ) -> Result<Self, Error> {
        if cluster.is_some() && config.secret.is_none() {
            return Err(Error::NoSecret);
        }
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| Error::File { path, source }
        };
        state::make_directory(state_dir).map_err(failed(state_dir))?;
        let lock_path = state_dir.join(LOCK);
        let lock = state::make_file(&lock_path).map_err(failed(&lock_path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(Error::Locked(state_dir.to_owned())),
            Err(TryLockError::Error(source)) => return Err(failed(&lock_path)(source)),
        }
        let secret = match &config.secret {
            Some(secret) => secret.clone(),
            None => SigningSecret::of(state_dir)?,
        };
        let store = Sqlite::open(state_dir)?;
        store.check(state_dir)?;
        let spool = Spool::open(state_dir, config.disk_free_bytes_min)?;
        let now = SystemTime::now();
        store.recover(now).await?;
        // The lock is held and nothing runs yet, so no file is about to get its row, and none is being read.
        let findings = reconcile::reconcile(&store, &spool, now).await?;
        reconcile::report(&findings, store.is_new(), spool.quarantine(), config.job_retention_seconds);
        state::sync_directory(state_dir).map_err(failed(state_dir))?;
        let nodes = match cluster {
            Some(cluster) => {
                store.enrol().await?;
                let (node, lease) = (cluster.node().to_owned(), cluster.config().lease_ms);
                let kept = Duration::from_secs(config.job_retention_seconds);
                let (nats, events) = Nats::open(cluster, kept).await?;
                let parts: nodes::Parts =
                    (Arc::new(nats), Arc::new(store.clone()), Arc::new(fetcher.clone()));
                Some(Arc::new(Nodes::new(parts, node, Duration::from_millis(lease), events)))
            }
            None => None,
        };
        let shared = Shared {
            store: Arc::new(store),
            audio: Arc::new(spool),
            world: Arc::new(fetcher.clone()),
            secret,
            fetcher,
            bounds: config.bounds(tenants),
            config: config.clone(),
            drain_rate: DrainRate::default(),
            entrance: Entrance::default(),
            queued: Notify::new(),
            finished: Notify::new(),
            nodes,
            _lock: lock,
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Whether jobs can be accepted, as far as the broker of a cluster is concerned.
    pub fn is_reachable(&self) -> bool {
        self.shared.nodes.as_ref().is_none_or(|nodes| nodes.check().is_ok())
    }

    /// Checks whether results may be sent to `callback`, as far as is known now.
    ///
    /// # Errors
    /// [`fetch::Error`].
    pub async fn check_callback(&self, callback: &Url) -> Result<(), fetch::Error> {
        self.shared.fetcher.check(&without_user(callback)).await
    }

    /// The value of `webhook-signature` for messages that belong to no job; `timestamp` is in seconds since
    /// 1970.
    pub fn sign(&self, id: &str, timestamp: u64, body: &[u8]) -> String {
        self.shared.secret.sign(id, timestamp, body)
    }

    /// Lets a client in that is about to submit a job of `tenant` with this many bytes of audio. One that retries after
    /// `Retry-After` goes ahead of new ones. The job has its place until the answer is dropped.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::OverShare`], or a database error.
    pub async fn enter(&self, tenant: u64, bytes: u64, asker: Asker) -> Result<Coming, Error> {
        if let Some(nodes) = &self.shared.nodes {
            nodes.check()?;
        }
        self.shared.enter(tenant, bytes, asker).await
    }

    /// Whether a job of `tenant` with this many bytes of audio would be accepted now.
    #[cfg(test)]
    pub async fn has_room(&self, tenant: u64, bytes: u64) -> Result<(), Error> {
        let shared = &self.shared;
        let held = shared.store.held(tenant).await.map_err(|error| shared.for_client(error, bytes))?;
        shared.bounds.may_take(held, bytes).map_err(|refusal| shared.refused(tenant, refusal))?;
        if shared.audio.has_room(bytes) { Ok(()) } else { Err(shared.no_disk(bytes)) }
    }

    /// Whether `tenant` has submitted a job under this idempotency key. If so, the repeated submission needs
    /// no room.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub async fn is_known(&self, tenant: u64, idempotency_key: &str) -> Result<bool, Error> {
        if let Some(nodes) = &self.shared.nodes {
            let known = nodes::known(&self.shared, nodes, tenant, idempotency_key).await?;
            return Ok(known.is_some());
        }
        let known = self.shared.store.submitted(tenant, idempotency_key.to_owned()).await;
        known.map(|known| known.is_some()).map_err(|error| self.shared.for_client(error, 0))
    }

    /// Accepts a job. When this returns, the job is on disk with its `audio`, `None` for an order by URL. If
    /// the future is dropped, the job may be accepted all the same. Returns the id of the job: this one, or
    /// the one that the same submission made before.
    ///
    /// # Errors
    /// After [`Error::Unsure`] and [`Error::Interrupted`] it is unknown whether the job was accepted. After
    /// any other error it was not, and nothing is left of it.
    pub async fn submit(&self, order: Order, audio: Option<Bytes>) -> Result<JobId, Error> {
        let shared = self.shared.clone();
        // In a task of its own: a client that disconnects must not stop it between the file and the row.
        let submission = tokio::spawn(async move {
            match shared.nodes.clone() {
                Some(nodes) => nodes::submit(&shared, &nodes, order, audio).await,
                None => shared.submit(order, audio).await,
            }
        });
        submission.await.unwrap_or(Err(Error::Interrupted))
    }

    /// Accepts an event to be delivered as results are: signed, repeated, within the tenants' shares. It is on disk when
    /// this returns, and counts as a job that waits for its delivery.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::OverShare`], or a database error.
    pub async fn announce(&self, announcement: Announcement) -> Result<(), Error> {
        let (shared, tenant) = (&self.shared, announcement.tenant);
        let accepted = shared.store.announce(announcement, SystemTime::now(), shared.bounds.clone()).await;
        if let Acceptance::Refused(refusal) = accepted.map_err(|error| shared.for_client(error, 0))? {
            return Err(shared.refused(tenant, refusal));
        }
        metrics::JOBS_ACCEPTED.with(&[]).increment(1);
        shared.finished.notify_one();
        Ok(())
    }

    /// The job `id` of `tenant`.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub async fn job(&self, id: JobId, tenant: u64) -> Result<Option<Job>, Error> {
        let mut job = self.shared.store.job(id).await?;
        if let Some(nodes) = &self.shared.nodes {
            job = nodes.status(id, job).await?;
        }
        job = job.filter(|job| job.tenant == tenant);
        if let Some(job) = &mut job
            && self.shared.config.result_retention_seconds == 0
        {
            job.result = None;
        }
        Ok(job)
    }

    /// The jobs of all tenants, the newest first, without results.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub async fn list(&self, state: Option<State>, limit: u32) -> Result<Vec<Job>, Error> {
        self.shared.store.list(state, limit).await
    }

    /// A job of any tenant, with its result if it is still there.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub async fn any(&self, id: JobId) -> Result<Option<Job>, Error> {
        self.shared.store.job(id).await
    }

    /// The attempts to deliver a job's result, oldest first.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub async fn attempts(&self, id: JobId) -> Result<Vec<Attempt>, Error> {
        self.shared.store.attempts(id).await
    }

    /// How many jobs there are in each phase.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub async fn census(&self) -> Result<Census, Error> {
        self.shared.store.census().await
    }

    /// Sends a dead job's result again from the start of the schedule, and a waiting one at once. Returns
    /// whether the job was either.
    ///
    /// # Errors
    /// If the database cannot be changed.
    pub async fn redrive(&self, id: JobId) -> Result<bool, Error> {
        let is_due = self.shared.store.redrive(id, SystemTime::now()).await?;
        if is_due {
            self.shared.finished.notify_one();
        }
        Ok(is_due)
    }

    /// Runs and delivers jobs until `stop`. Then running jobs go back in line, and deliveries in flight may
    /// finish, for no longer than one attempt may take. Dropping the future has the effect of a crash.
    pub async fn run(&self, work: Arc<dyn Work>, stop: CancellationToken) {
        let shared = &self.shared;
        let working = async {
            match &shared.nodes {
                Some(nodes) => nodes::work(shared, nodes, &work, &stop).await,
                None => runner::run(shared, work.clone(), &stop).await,
            }
        };
        tokio::join!(working, self.look_after(&stop));
    }

    /// As [`Self::run`], for a node without a model: others do its jobs.
    pub async fn run_without_work(&self, stop: CancellationToken) {
        self.look_after(&stop).await;
    }

    async fn look_after(&self, stop: &CancellationToken) {
        let shared = &self.shared;
        let owning = async {
            if let Some(nodes) = &shared.nodes {
                nodes::own(shared, nodes, stop).await;
            }
        };
        tokio::join!(owning, delivery::run(shared, stop), keeper::run(shared, stop));
    }
}
