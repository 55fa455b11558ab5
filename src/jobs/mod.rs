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
//! running then is run again, alone; what it came to is stored before it is sent, once, and sent in those very
//! bytes until the receiver takes it. So a receiver gets each result **at least once**, and knows a
//! second one by its `webhook-id`.
//!
//! [`Jobs`] is the handle that doors use. [`Jobs::run`] does the work: `runner.rs` transcribes through
//! the [`Work`] that is handed in, `delivery.rs` sends, `keeper.rs` throws away. None of them knows HTTP
//! as spoken to clients, nor what a result looks like. [`Store`] is what they need of a database.

mod attempt;
mod delivery;
mod keeper;
mod runner;
mod schedule;
mod signature;
#[cfg(test)]
mod simulation;
mod spool;
mod sqlite;
mod store;
mod world;

pub use runner::{Again, Input, Setback, Task, Work};
pub use signature::{HIDDEN, SecretError, SigningSecret};
pub use sqlite::Sqlite;
pub use store::{
    Acceptance, Answer, Census, Delivery, Finished, Idempotency, Job, JobId, Next, Order, Phase, Run, Source,
    State, Store,
};

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
use crate::state;
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
    /// How often a job is tried that fails, or that is alone running when the process dies. After that the
    /// receiver gets an error object. Default 5.
    pub runs_max: u32,
    /// A run that takes longer counts as failed. Default 3 600 000, an hour.
    pub run_timeout_ms: u64,
    /// Jobs that are not delivered yet; beyond them clients are told to come again. Default 10 000.
    pub pending_max: u64,
    /// Audio on disk; beyond it clients are told to come again. Default 16 GiB.
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
    /// How long it is known that there was a job; of dead ones, how long they can be delivered after all.
    /// Seconds, default 604 800, a week.
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
    #[error("as many jobs, or as much of their audio, wait as may")]
    Full { retry_after: Duration },
    #[error("something else was submitted under the same idempotency key")]
    Conflict,
    #[error("cannot use `{path}` for jobs")]
    File { path: PathBuf, source: io::Error },
    #[error(
        "another server keeps its jobs in `{}`: give this one a state_dir of its own, or set jobs.enabled = false",
        .0.display()
    )]
    Locked(PathBuf),
    #[error(transparent)]
    Secret(#[from] SecretError),
    #[error("the job database failed")]
    Store(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("the job database is of format {found}, and this program knows formats up to {known}")]
    Newer { found: i64, known: i64 },
    #[error("a thread that works on jobs failed")]
    Interrupted,
}

const LOCK: &str = "jobs.lock";
const SPOOL: &str = "jobs-audio";
/// About how long it takes until one of many jobs is done and makes room.
const FULL_RETRY: Duration = Duration::from_secs(30);
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
    /// Something may be there to run.
    queued: Notify,
    /// Something may be there to deliver.
    finished: Notify,
    _lock: File,
}

impl Jobs {
    /// Opens the jobs of `state_dir`, and puts those back in line that a process left when it ended.
    ///
    /// # Errors
    /// Any but [`Error::Full`].
    pub async fn open(state_dir: &Path, config: &Config, fetcher: Fetcher) -> Result<Self, Error> {
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
        let store = Arc::new(Sqlite::open(state_dir)?);
        let path = state_dir.join(SPOOL);
        let spool = Spool::open(&path, config.disk_free_bytes_min).map_err(failed(&path))?;
        store.recover(SystemTime::now()).await?;
        spool.sweep(&store.with_audio().await?).map_err(failed(&path))?;
        state::sync_directory(state_dir).map_err(failed(state_dir))?;
        let shared = Shared {
            store,
            audio: Arc::new(spool),
            world: Arc::new(fetcher.clone()),
            secret,
            fetcher,
            config: config.clone(),
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

    /// Whether a job with so many bytes of audio would be taken now.
    ///
    /// # Errors
    /// [`Error::Full`], or where that cannot be known.
    pub async fn has_room(&self, bytes: u64) -> Result<(), Error> {
        let shared = &self.shared;
        let (jobs, held) = shared.store.pending().await?;
        let fits = jobs < shared.config.pending_max && fits(held, bytes, shared.config.spool_bytes_max);
        if fits && shared.audio.has_room(bytes) { Ok(()) } else { Err(full("room")) }
    }

    /// Takes a job. When this returns it is on disk, with `audio`, which an order by URL has none of.
    /// Where the future is dropped the job may be taken all the same. Returns the job: this one, or the one that the
    /// same submission made before.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::Conflict`], [`Error::File`]: it is not taken. [`Error::Store`]: that is not known.
    pub async fn submit(&self, order: Order, audio: Option<Bytes>) -> Result<JobId, Error> {
        let shared = self.shared.clone();
        // A task of its own: a client that leaves must not stop it between the file and the row.
        let submission = tokio::spawn(async move { shared.submit(order, audio).await });
        submission.await.unwrap_or(Err(Error::Interrupted))
    }

    /// The job `id` of `tenant`.
    ///
    /// # Errors
    /// [`Error::Store`].
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

impl Shared {
    async fn submit(self: Arc<Self>, order: Order, audio: Option<Bytes>) -> Result<JobId, Error> {
        let id = order.id;
        if let Some(audio) = audio {
            self.audio.write(id, audio).await?;
        }
        let (pending_max, bytes_max) = (self.config.pending_max, self.config.spool_bytes_max);
        // Where this fails the job may be there all the same: its audio stays, until the next start sweeps away
        // what belongs to no job.
        let refused = match self.store.accept(order, pending_max, bytes_max).await? {
            Acceptance::Taken => {
                metrics::counter!("verbatim_jobs_accepted_total").increment(1);
                self.queued.notify_one();
                return Ok(id);
            }
            Acceptance::Known(known) => Ok(known),
            Acceptance::Conflict => Err(Error::Conflict),
            Acceptance::Full => Err(full("room")),
        };
        self.audio.remove(id);
        refused
    }
}

fn fits(held: u64, more: u64, limit: u64) -> bool {
    held.saturating_add(more) <= limit
}

fn full(reason: &'static str) -> Error {
    metrics::counter!("verbatim_jobs_refused_total", "reason" => reason).increment(1);
    Error::Full { retry_after: FULL_RETRY }
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
