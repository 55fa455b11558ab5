//! Jobs: transcriptions whose results are delivered later, to an address that the client names.
//!
//! ```text
//! submit ─▶ audio on disk ─▶ row on disk ─▶ acknowledged
//!                                │
//!            queued ─▶ running ─▶ delivering ─▶ delivered
//!               ▲         │           │  ▲
//!               └─────────┘           ▼  │ retry
//!          busy, stopped, crashed    dead
//! ```
//! What is acknowledged is on disk, so a job outlives the process, however that ends. A job that was
//! running then is run again, alone where its audio may have ended the process (`watch.rs`). The result is stored
//! before it is sent, once, and sent in those very bytes until the receiver takes it. So a receiver gets each
//! result **at least once**, and knows a second one by its `webhook-id`.
//!
//! [`Jobs`] is the handle that doors use. [`Jobs::run`] does the work: `runner.rs` transcribes through
//! the [`Work`] that is handed in, `delivery.rs` sends, `keeper.rs` throws away. None of them knows HTTP
//! as spoken to clients, nor what a result looks like. [`Store`] is what they need of a database, `spool.rs` has
//! the audio, and `quarantine.rs` what the two do not agree about. `room.rs` says how much may wait, `pace.rs`
//! when there will be room again.
#![doc = include_str!("README.md")]

mod attempt;
mod delivery;
mod keeper;
mod pace;
mod quarantine;
mod room;
mod runner;
mod schedule;
mod signature;
#[cfg(test)]
mod simulation;
mod spool;
mod sqlite;
mod store;
#[cfg(test)]
mod tests;
mod watch;
mod world;

pub use room::{Bounds, Held, Refusal, Resource};
pub use runner::{Again, Fault, Input, Setback, Task, Work};
pub use signature::{HIDDEN, SecretError, SigningSecret};
pub use sqlite::Sqlite;
pub use store::{
    Acceptance, Answer, Census, Delivery, Finished, INTERRUPTIONS_MAX, Idempotency, Job, JobId, Next, Order,
    Phase, Run, Source, Stamp, State, Store,
};
pub use watch::Watch;

use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use url::Url;

use crate::fetch::{self, Fetcher, without_user};
use crate::share::{Refused, Tenants};
use crate::state;
use crate::telemetry::metrics;
use pace::Pace;
use spool::{Audio, Spool};
use world::World;

/// How jobs are taken, run and delivered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Take requests with `callback`. Default true. Off, several servers may share a state directory.
    pub enabled: bool,
    /// Jobs transcribed at once. Each holds its audio in memory. Default 4.
    pub concurrency: usize,
    /// How often a job is tried that fails, or whose audio ends the process when it is decoded. After that the
    /// receiver gets an error object. Default 5.
    pub runs_max: u32,
    /// A run that takes longer counts as failed. Default 3 600 000, an hour.
    pub run_timeout_ms: u64,
    /// Jobs that are not delivered yet; beyond them clients get 503, and beyond its share of them an organisation
    /// gets 429. Default 10 000.
    pub pending_max: u64,
    /// Bytes of audio on disk, bounded in the same way. Default 16 GiB.
    pub spool_bytes_max: u64,
    /// What is left free on that disk all the same. Default 1 GiB.
    pub disk_free_bytes_min: u64,
    /// What results are signed with: `whsec_…`, 24 to 64 bytes in Base64. Several, separated by spaces,
    /// sign side by side while receivers change over. Default: made once and kept in the state directory;
    /// `verbatim jobs secret` prints it.
    pub secret: Option<SigningSecret>,
    /// Pauses between attempts to deliver; after the last one the job is dead. Each is a random part of
    /// what stands here (full jitter). Seconds, default 5 s, 5 min, 30 min, 2 h, 5 h, 10 h, 10 h, which is
    /// the schedule that the Standard Webhooks specification recommends.
    pub retry_delays_seconds: Vec<f64>,
    /// From the look-up to the end of the receiver's answer. Default 15 000.
    pub delivery_timeout_ms: u64,
    /// Results on their way at once. Default 256.
    pub deliveries: usize,
    /// Results on their way to one host at once; one alone while the host fails. Default 8.
    pub deliveries_per_host: usize,
    /// How long a delivered result is kept, and shown by `GET /v1/listen/jobs/{request_id}`. Seconds,
    /// default 0: it is thrown away when it is delivered.
    pub result_retention_seconds: u64,
    /// How long it is known that there was a job; of dead ones, how long they can be delivered after all. And how
    /// long audio is kept that was found to belong to no job. Seconds, default 604 800, a week.
    pub job_retention_seconds: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            enabled: true,
            concurrency: 4,
            runs_max: 5,
            run_timeout_ms: 3_600_000,
            pending_max: 10_000,
            spool_bytes_max: 16 << 30,
            disk_free_bytes_min: 1 << 30,
            secret: None,
            retry_delays_seconds: vec![5.0, 300.0, 1800.0, 7200.0, 18_000.0, 36_000.0, 36_000.0],
            delivery_timeout_ms: 15_000,
            deliveries: 256,
            deliveries_per_host: 8,
            result_retention_seconds: 0,
            job_retention_seconds: 604_800,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nothing is wrong with the request: there is no room for its job now.
    #[error("there is no room for one more job")]
    Full { retry_after: Duration },
    /// The tenant holds its share of that room; others may still come.
    #[error("the organisation holds its share of the room for jobs")]
    OverShare { retry_after: Duration },
    #[error("something else was submitted under the same idempotency key")]
    Conflict,
    #[error("cannot use `{path}` for jobs")]
    File { path: PathBuf, source: io::Error },
    /// Disk space, memory, file descriptors, or the right to write. Nothing was changed.
    #[error("the machine is short of what jobs need")]
    Exhausted(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error(
        "another server keeps its jobs in `{}`: give this one a state_dir of its own, or set jobs.enabled = false",
        .0.display()
    )]
    Locked(PathBuf),
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// Nothing was changed.
    #[error("the job database failed")]
    Store(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// Whether the change was made will be known when the database is opened again.
    #[error("the job database failed to say that a change is on the disk")]
    Unsure(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error(
        "the job database `{}` is damaged ({problem}): put back a copy of it; or move it away with its -wal file, \
         and the server starts without those jobs and sets their audio aside",
        path.display()
    )]
    Damaged { path: PathBuf, problem: String },
    #[error("the job database is of format {found}, and this program knows formats up to {known}")]
    Newer { found: i64, known: i64 },
    /// It is not known how far it came.
    #[error("a thread that works on jobs failed")]
    Interrupted,
}

const LOCK: &str = "jobs.lock";
/// The longest that a change by another process (`verbatim jobs retry`) goes unnoticed, or that work
/// rests after the database failed.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// A cheap handle on the jobs of one state directory. There is one such in all processes.
#[derive(Clone)]
pub struct Jobs {
    shared: Arc<Shared>,
}

struct Shared {
    store: Arc<dyn Store>,
    audio: Arc<dyn Audio>,
    world: Arc<dyn World>,
    secret: SigningSecret,
    fetcher: Fetcher,
    config: Config,
    bounds: Bounds,
    pace: Pace,
    /// Something may be there to run.
    queued: Notify,
    /// Something may be there to deliver.
    finished: Notify,
    _lock: File,
}

impl Jobs {
    /// Opens the jobs of `state_dir`, and puts those back in line that a process left when it ended. Audio that
    /// belongs to none of them is set aside.
    ///
    /// # Errors
    /// Any but [`Error::Full`], [`Error::OverShare`] and [`Error::Conflict`].
    pub async fn open(
        state_dir: &Path,
        config: &Config,
        fetcher: Fetcher,
        tenants: Tenants,
    ) -> Result<Self, Error> {
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
        // The lock is held and nothing runs yet: no file is between its writing and its row, and none is read.
        let findings = quarantine::reconcile(&store, &spool, now).await?;
        quarantine::report(&findings, store.is_new(), spool.quarantine(), config.job_retention_seconds);
        state::sync_directory(state_dir).map_err(failed(state_dir))?;
        let shared = Shared {
            store: Arc::new(store),
            audio: Arc::new(spool),
            world: Arc::new(fetcher.clone()),
            secret,
            fetcher,
            bounds: config.bounds(tenants),
            config: config.clone(),
            pace: Pace::default(),
            queued: Notify::new(),
            finished: Notify::new(),
            _lock: lock,
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Whether results may be sent to `callback`, as far as can be told now.
    ///
    /// # Errors
    /// [`fetch::Error`].
    pub async fn check_callback(&self, callback: &Url) -> Result<(), fetch::Error> {
        self.shared.fetcher.check(&without_user(callback)).await
    }

    /// The value of `webhook-signature` for what is sent beside jobs; `timestamp` is in seconds since 1970.
    pub fn sign(&self, id: &str, timestamp: u64, body: &[u8]) -> String {
        self.shared.secret.sign(id, timestamp, body)
    }

    /// Whether a job of `tenant` with so many bytes of audio would be taken now.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::OverShare`], or where that cannot be known.
    pub async fn has_room(&self, tenant: u64, bytes: u64) -> Result<(), Error> {
        let shared = &self.shared;
        let held = shared.store.held(tenant).await.map_err(|error| shared.told(error, bytes))?;
        shared.bounds.may_take(held, bytes).map_err(|refusal| shared.refused(tenant, refusal))?;
        if shared.audio.has_room(bytes) { Ok(()) } else { Err(shared.no_disk(bytes)) }
    }

    /// Takes a job. When this returns it is on disk, with `audio`, which an order by URL has none of.
    /// Where the future is dropped the job may be taken all the same. Returns the job: this one, or the one that the
    /// same submission made before.
    ///
    /// # Errors
    /// [`Error::Unsure`], [`Error::Interrupted`]: it is not known whether it is taken. Any other: it is not, and
    /// nothing is left of it.
    pub async fn submit(&self, order: Order, audio: Option<Bytes>) -> Result<JobId, Error> {
        let shared = self.shared.clone();
        // A task of its own: a client that leaves must not stop it between the file and the row.
        let submission = tokio::spawn(async move { shared.submit(order, audio).await });
        submission.await.unwrap_or(Err(Error::Interrupted))
    }

    /// The job `id` of `tenant`.
    ///
    /// # Errors
    /// Where the database cannot be read.
    pub async fn job(&self, id: JobId, tenant: u64) -> Result<Option<Job>, Error> {
        let mut job = self.shared.store.job(id).await?.filter(|job| job.tenant == tenant);
        if let Some(job) = &mut job
            && self.shared.config.result_retention_seconds == 0
        {
            job.result = None;
        }
        Ok(job)
    }

    /// Runs and delivers jobs until `stop`; then puts back what is running and lets go what is on its
    /// way, for no longer than one attempt may take. Where the future is dropped, it is as if the process
    /// had died.
    pub async fn run(&self, work: Arc<dyn Work>, stop: CancellationToken) {
        tokio::join!(
            runner::run(&self.shared, work, &stop),
            delivery::run(&self.shared, &stop),
            keeper::run(&self.shared, &stop)
        );
    }
}

impl Config {
    fn bounds(&self, tenants: Tenants) -> Bounds {
        Bounds { jobs: self.pending_max, bytes: self.spool_bytes_max, tenants }
    }
}

impl Shared {
    async fn submit(self: Arc<Self>, order: Order, audio: Option<Bytes>) -> Result<JobId, Error> {
        let (id, tenant) = (order.id, order.tenant);
        let bytes = audio.as_ref().map_or(0, |audio| audio.len() as u64);
        let sha256 = match audio {
            Some(audio) => {
                let written = self.audio.write(id, audio).await;
                Some(written.map_err(|error| self.told(error, bytes))?)
            }
            None => None,
        };
        let refused = match self.store.accept(order, sha256, self.bounds.clone()).await {
            Ok(Acceptance::Taken) => {
                metrics::JOBS_ACCEPTED.with(&[]).increment(1);
                self.queued.notify_one();
                return Ok(id);
            }
            Ok(Acceptance::Known(known)) => Ok(known),
            Ok(Acceptance::Conflict) => Err(Error::Conflict),
            Ok(Acceptance::Refused(refusal)) => Err(self.refused(tenant, refusal)),
            // The row may be there, now or when the database is opened again, so its audio stays. The next start
            // sets it aside if it belongs to no job.
            Err(error @ (Error::Unsure(_) | Error::Interrupted)) => return Err(error),
            Err(error) => Err(self.told(error, bytes)),
        };
        self.audio.remove(id);
        refused
    }

    /// An error as a client may act on it, and its cause in the log.
    fn told(&self, error: Error, bytes: u64) -> Error {
        let Error::Exhausted(cause) = error else { return error };
        tracing::warn!(error = &*cause as &dyn std::error::Error, "a job is refused");
        self.no_disk(bytes)
    }

    /// A refusal for want of disk space. Jobs give back their part of it; what else fills the disk is not known.
    fn no_disk(&self, bytes: u64) -> Error {
        count_refusal("disk");
        Error::Full { retry_after: self.pace.wait(Resource::Bytes, None, bytes, self.world.now()) }
    }

    fn refused(&self, tenant: u64, refusal: Refusal) -> Error {
        let Refusal { why, of, short } = refusal;
        let wait = |whose| self.pace.wait(of, whose, short, self.world.now());
        match why {
            Refused::Full => {
                count_refusal("room");
                Error::Full { retry_after: wait(None) }
            }
            Refused::OverShare => {
                count_refusal("share");
                Error::OverShare { retry_after: wait(Some(tenant)) }
            }
        }
    }
}

fn count_refusal(reason: &'static str) {
    metrics::JOBS_REFUSED.with(&[("reason", reason)]).increment(1);
}

/// Waits until `wake`, until `at`, or until [`LOOK_INTERVAL`] is over, whichever is first. Cancel-safe.
async fn rest(world: &dyn World, wake: &Notify, at: Option<SystemTime>) {
    let left = at.map_or(LOOK_INTERVAL, |at| at.duration_since(world.now()).unwrap_or_default());
    let _ = tokio::time::timeout(left.min(LOOK_INTERVAL), wake.notified()).await;
}

/// Does what must be done, however often the database fails first. `None`: stopped before it was.
async fn insist<'a, T>(stop: &CancellationToken, mut action: impl FnMut() -> Answer<'a, T>) -> Option<T> {
    loop {
        match action().await {
            Ok(done) => return Some(done),
            Err(error) => {
                tracing::error!(error = &error as &dyn std::error::Error, "cannot note a job's state")
            }
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => return None,
            () = tokio::time::sleep(LOOK_INTERVAL) => {}
        }
    }
}
