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
//! Everything acknowledged is on disk, so a job outlives the process, however the process ends. A job that
//! was running at that moment runs again, alone if its audio may have ended the process (`watch.rs`). Its
//! result is stored once, before it is sent, and the same bytes are sent until the receiver accepts them. So
//! a receiver gets each result **at least once**, and recognises a repetition by its `webhook-id`.
//!
//! [`Jobs`] is the handle that doors use. [`Jobs::run`] does the work: `runner.rs` transcribes through
//! the [`Work`] that is handed in, `delivery.rs` sends, `keeper.rs` throws away. None of them knows HTTP
//! as spoken to clients, nor what a result looks like. [`Store`] is what they need of a database, `spool.rs` has
//! the audio, and `quarantine.rs` what the two do not agree about. `room.rs` says how much may wait, `drain_rate.rs`
//! when there will be room again.
#![doc = include_str!("README.md")]

mod attempt;
mod delivery;
mod drain_rate;
mod keeper;
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

pub use room::{Bounds, Refusal, Resource, Usage};
pub use runner::{Again, Fault, Input, Setback, Task, Work};
pub use signature::{HIDDEN, SecretError, SigningSecret};
pub use sqlite::Sqlite;
pub use store::{
    Acceptance, Answer, Census, Delivery, Finished, INTERRUPTIONS_MAX, Idempotency, Job, JobId, Next, Order,
    Phase, Run, SUSPECT_PATIENCE, Source, Stamp, State, Store, Submission,
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
use drain_rate::DrainRate;
use spool::{Audio, Spool};
use world::World;

/// How jobs are accepted, run and delivered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Accept requests with `callback`. Default true. If false, several servers may share a state directory.
    pub enabled: bool,
    /// Jobs transcribed at once. Each holds its audio in memory, which counts in `engine.max_held_seconds`.
    /// Default 4.
    pub concurrency: usize,
    /// Runs before a job is given up that fails, or whose decoding ends the process. The receiver then gets
    /// an error object. Default 5.
    pub runs_max: u32,
    /// A run that takes longer counts as failed, including its wait for memory. If the time is up while the
    /// process stands still, it begins anew. Default 3 600 000, an hour.
    pub run_timeout_ms: u64,
    /// Jobs not delivered yet. Beyond this many, clients get 503; an organisation beyond its share of them
    /// gets 429. Default 10 000.
    pub pending_max: u64,
    /// Bytes of audio on disk, bounded in the same way. Default 16 GiB.
    pub spool_bytes_max: u64,
    /// Free space to leave on that disk in any case, in bytes. Default 1 GiB.
    pub disk_free_bytes_min: u64,
    /// Secrets that results are signed with: `whsec_…`, 24 to 64 bytes in Base64. Several, separated by
    /// spaces, sign side by side while receivers change over. Default: generated once and kept in the state
    /// directory; `verbatim jobs secret` prints it.
    pub secret: Option<SigningSecret>,
    /// Pauses between delivery attempts; after the last attempt the job is dead. Each pause is a random part
    /// of the value here (full jitter). Seconds, default 5 s, 5 min, 30 min, 2 h, 5 h, 10 h, 10 h, the
    /// schedule that the Standard Webhooks specification recommends.
    pub retry_delays_seconds: Vec<f64>,
    /// Time limit for an attempt, from the DNS look-up to the end of the receiver's answer. Default 15 000.
    pub delivery_timeout_ms: u64,
    /// Results in flight at once. Default 256.
    pub deliveries: usize,
    /// Results in flight to one host at once; only one while the host fails. Default 8.
    pub deliveries_per_host: usize,
    /// How long a delivered result is kept and shown by `GET /v1/listen/jobs/{request_id}`. Seconds, default
    /// 0: deleted on delivery.
    pub result_retention_seconds: u64,
    /// How long a job is remembered after it ended; a dead one can be redelivered for that long. Also how
    /// long audio without a job is kept in quarantine. Seconds, default 604 800, a week.
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
    /// The request is valid, but there is no room for its job now.
    #[error("there is no room for another job")]
    Full { retry_after: Duration },
    /// The tenant holds its share of the room; there is room for others.
    #[error("the organisation holds its share of the room for jobs")]
    OverShare { retry_after: Duration },
    #[error("something else was submitted under the same idempotency key")]
    Conflict,
    #[error("cannot use `{path}` for jobs")]
    File { path: PathBuf, source: io::Error },
    /// Too little disk space, memory or file descriptors, or no right to write. Nothing was changed.
    #[error("the machine is short of disk space, memory or file descriptors")]
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
    /// The next opening of the database will show whether the change was made.
    #[error("the job database did not confirm a change")]
    Unsure(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error(
        "the job database `{}` is damaged ({problem}): put back a copy of it; or move it away with its -wal file, \
         and the server starts without those jobs and sets their audio aside",
        path.display()
    )]
    Damaged { path: PathBuf, problem: String },
    #[error("the job database is of format {found}, and this program knows formats up to {known}")]
    Newer { found: i64, known: i64 },
    /// It is unknown how far the thread came.
    #[error("a thread that works on jobs failed")]
    Interrupted,
}

const LOCK: &str = "jobs.lock";
/// The longest that a change by another process (`verbatim jobs retry`) goes unnoticed, and the pause after a
/// database error.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// A cheap handle on the jobs of one state directory. Only one process holds one.
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
    drain_rate: DrainRate,
    /// A job may be ready to run.
    queued: Notify,
    /// A result may be ready for delivery.
    finished: Notify,
    _lock: File,
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
            drain_rate: DrainRate::default(),
            queued: Notify::new(),
            finished: Notify::new(),
            _lock: lock,
        };
        Ok(Self { shared: Arc::new(shared) })
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

    /// Checks whether a job of `tenant` with this many bytes of audio would be accepted now.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::OverShare`], or a database error.
    pub async fn has_room(&self, tenant: u64, bytes: u64) -> Result<(), Error> {
        let shared = &self.shared;
        let held = shared.store.held(tenant).await.map_err(|error| shared.told(error, bytes))?;
        shared.bounds.may_take(held, bytes).map_err(|refusal| shared.refused(tenant, refusal))?;
        if shared.audio.has_room(bytes) { Ok(()) } else { Err(shared.no_disk(bytes)) }
    }

    /// Whether `tenant` has submitted a job under this idempotency key. If so, the repeated submission needs
    /// no room.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub async fn is_known(&self, tenant: u64, idempotency_key: &str) -> Result<bool, Error> {
        let known = self.shared.store.submitted(tenant, idempotency_key.to_owned()).await;
        known.map(|known| known.is_some()).map_err(|error| self.shared.told(error, 0))
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
        let submission = tokio::spawn(async move { shared.submit(order, audio).await });
        submission.await.unwrap_or(Err(Error::Interrupted))
    }

    /// The job `id` of `tenant`.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub async fn job(&self, id: JobId, tenant: u64) -> Result<Option<Job>, Error> {
        let mut job = self.shared.store.job(id).await?.filter(|job| job.tenant == tenant);
        if let Some(job) = &mut job
            && self.shared.config.result_retention_seconds == 0
        {
            job.result = None;
        }
        Ok(job)
    }

    /// Runs and delivers jobs until `stop`. Then running jobs go back in line, and deliveries in flight may
    /// finish, for no longer than one attempt may take. Dropping the future has the effect of a crash.
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
        // Before the audio is written: a full disk must not refuse a job that exists.
        if let Some(Idempotency { key, fingerprint }) = &order.idempotency {
            let known = self.store.submitted(tenant, key.clone()).await;
            if let Some(known) = known.map_err(|error| self.told(error, bytes))? {
                return self.answered(tenant, known.again(*fingerprint), id);
            }
        }
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
            Ok(acceptance) => self.answered(tenant, acceptance, id),
            // The row may exist, now or when the database is opened again, so its audio stays. If it belongs
            // to no job, the next start sets it aside.
            Err(error @ (Error::Unsure(_) | Error::Interrupted)) => return Err(error),
            Err(error) => Err(self.told(error, bytes)),
        };
        self.audio.remove(id);
        refused
    }

    /// The job that the order `id` resulted in.
    fn answered(&self, tenant: u64, acceptance: Acceptance, id: JobId) -> Result<JobId, Error> {
        match acceptance {
            Acceptance::Taken => Ok(id),
            Acceptance::Known(known) => Ok(known),
            Acceptance::Conflict => Err(Error::Conflict),
            Acceptance::Refused(refusal) => Err(self.refused(tenant, refusal)),
        }
    }

    /// The error for the client; its cause goes to the log.
    fn told(&self, error: Error, bytes: u64) -> Error {
        let Error::Exhausted(cause) = error else { return error };
        tracing::warn!(error = &*cause as &dyn std::error::Error, "a job is refused");
        self.no_disk(bytes)
    }

    /// Refuses for lack of disk space. The wait is for space that jobs give back; nothing else on the disk is
    /// known.
    fn no_disk(&self, bytes: u64) -> Error {
        count_refusal("disk");
        Error::Full { retry_after: self.drain_rate.wait(Resource::Bytes, None, bytes, self.world.now()) }
    }

    fn refused(&self, tenant: u64, refusal: Refusal) -> Error {
        let Refusal { why, of, short } = refusal;
        let wait = |whose| self.drain_rate.wait(of, whose, short, self.world.now());
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

/// Waits until `wake`, until `at`, or for [`LOOK_INTERVAL`], whichever comes first. Cancel-safe.
async fn rest(world: &dyn World, wake: &Notify, at: Option<SystemTime>) {
    let left = at.map_or(LOOK_INTERVAL, |at| at.duration_since(world.now()).unwrap_or_default());
    let _ = tokio::time::timeout(left.min(LOOK_INTERVAL), wake.notified()).await;
}

/// Repeats `action` until the database accepts it. `None` if stopped before that.
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
