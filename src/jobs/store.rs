//! A job as it is stored, and the interface to the database.
//!
//! Only the methods of [`Store`] change states. Each is atomic, and durable when it returns. A change that
//! comes too late, for a job that has left the state it starts from, does nothing: if two workers finish one
//! job, the first one counts.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, SystemTime};

use futures_util::future::BoxFuture;
use reqwest::Method;
use url::Url;
use uuid::Uuid;

use super::capacity::{Bounds, Refusal, Usage};
use super::error::Error;

/// The id of the request that made the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub Uuid);

impl std::fmt::Display for JobId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// The state of a job, as its client sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// Waits to be transcribed.
    Queued,
    Running,
    /// The result exists; it is being sent, or waits to be sent again.
    Delivering,
    /// The receiver has it.
    Delivered,
    /// The receiver did not accept it, and it is not sent again automatically.
    Dead,
}

impl State {
    pub const ALL: [Self; 5] = [Self::Queued, Self::Running, Self::Delivering, Self::Delivered, Self::Dead];

    pub fn name(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Delivering => "delivering",
            Self::Delivered => "delivered",
            Self::Dead => "dead",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }
}

/// The state of a job in full detail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    Queued,
    Running,
    /// Between attempts to deliver.
    Waiting,
    Sending,
    Delivered,
    Dead,
}

impl Phase {
    pub const ALL: [Self; 6] =
        [Self::Queued, Self::Running, Self::Waiting, Self::Sending, Self::Delivered, Self::Dead];

    pub fn name(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Sending => "sending",
            Self::Delivered => "delivered",
            Self::Dead => "dead",
        }
    }

    pub fn state(self) -> State {
        match self {
            Self::Queued => State::Queued,
            Self::Running => State::Running,
            Self::Waiting | Self::Sending => State::Delivering,
            Self::Delivered => State::Delivered,
            Self::Dead => State::Dead,
        }
    }
}

/// A job as it is submitted. No `Debug`: addresses may hold passwords, queries names.
#[derive(Clone)]
pub struct Order {
    pub id: JobId,
    pub accepted: SystemTime,
    pub tenant: u64,
    /// The id of the API key; the receiver gets it.
    pub key: String,
    /// The request's query, for [`super::Work`] to read.
    pub query: String,
    /// Whether the result has words.
    pub words: bool,
    pub source: Source,
    /// With user and password, if the receiver requires them.
    pub callback: Url,
    /// POST or PUT.
    pub method: Method,
    /// Marks repetitions of one submission.
    pub idempotency: Option<Idempotency>,
}

/// A client that does not know whether its submission arrived sends it again under the same key, and gets the
/// job that the first one made.
#[derive(Debug, Clone)]
pub struct Idempotency {
    pub key: String,
    /// SHA-256 of the whole submission: anything else under the same key is a mistake.
    pub fingerprint: [u8; 32],
}

/// An event, which no work precedes. No `Debug`: addresses may hold passwords, bodies names.
#[derive(Clone)]
pub struct Announcement {
    /// The `webhook-id`.
    pub id: JobId,
    pub tenant: u64,
    /// The id of an API key, or nothing; the receiver gets it.
    pub key: String,
    /// With user and password, if the receiver requires them. It gets a POST.
    pub callback: Url,
    /// JSON.
    pub body: Vec<u8>,
}

/// A job that was made under an idempotency key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Submission {
    pub id: JobId,
    /// As in [`Idempotency`].
    pub fingerprint: [u8; 32],
}

impl Submission {
    /// The answer to another submission with `fingerprint` under the same key.
    pub fn again(self, fingerprint: [u8; 32]) -> Acceptance {
        if self.fingerprint == fingerprint { Acceptance::Known(self.id) } else { Acceptance::Conflict }
    }
}

/// The answer to an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acceptance {
    Taken,
    /// The same was submitted before, as this job.
    Known(JobId),
    /// Something else was submitted before under the same idempotency key.
    Conflict,
    /// There is no room.
    Refused(Refusal),
}

/// This many deaths of the process in a row do not make a job suspect that ran at each of them, if its audio
/// was not being decoded.
pub const INTERRUPTIONS_MAX: u32 = 5;

/// A suspected job that is due waits this long for a moment in which nothing else runs. After that, no other
/// job is begun before it.
pub const SUSPECT_PATIENCE: Duration = Duration::from_secs(60);

/// Where the audio is.
#[derive(Clone)]
pub enum Source {
    /// On disk; its length.
    Spooled { bytes: u64 },
    /// To be fetched when the job runs.
    Url(String),
}

/// Length and hash of a job's audio when the job was accepted: a file that differs has been damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    pub bytes: u64,
    /// `None` for jobs of a format that stored none: for those the length has to do.
    pub sha256: Option<[u8; 32]>,
}

/// A job to run now.
pub struct Run {
    pub id: JobId,
    pub accepted: SystemTime,
    pub tenant: u64,
    pub query: String,
    pub words: bool,
    /// `None`: the audio is on disk.
    pub url: Option<String>,
    /// The audio on disk; meaningless for a job with a `url`.
    pub stamp: Stamp,
    /// How often it failed, or ended the process.
    pub failures: u32,
}

/// The outcome of a run.
#[derive(Clone)]
pub struct Finished {
    /// The receiver gets exactly these bytes, each time.
    pub body: Vec<u8>,
    /// That of `body`; `None` for JSON.
    pub media_type: Option<String>,
    /// The code of the error in `body`; `None` for a transcript.
    pub error: Option<String>,
}

impl Finished {
    /// A job that ends with the error in `body`.
    pub fn failed(body: Vec<u8>, error: String) -> Self {
        Self { body, media_type: None, error: Some(error) }
    }
}

/// A result to send now.
pub struct Delivery {
    pub id: JobId,
    pub tenant: u64,
    pub key: String,
    pub callback: Url,
    pub method: Method,
    /// Host and port of `callback`.
    pub receiver: String,
    pub body: Vec<u8>,
    /// That of `body`; `None` for JSON.
    pub media_type: Option<String>,
    /// Attempts before this one, since the job was made or last redriven.
    pub tried: u32,
    /// Attempts before this one, in total.
    pub attempts: u32,
    pub finished: SystemTime,
}

/// The next step after an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    Delivered,
    Again { at: SystemTime, error: String },
    Dead { error: String },
}

/// A job's status. No addresses but the receiver's host.
#[derive(Clone)]
pub struct Job {
    pub id: JobId,
    pub tenant: u64,
    pub state: State,
    pub receiver: String,
    pub accepted: SystemTime,
    /// When it runs or is sent next, if it waits for that.
    pub due: Option<SystemTime>,
    pub runs: u32,
    pub attempts: u32,
    /// The code of the last error, of transcription or of delivery.
    pub error: Option<String>,
    /// When the result was stored.
    pub finished: Option<SystemTime>,
    /// When it was delivered, or given up.
    pub ended: Option<SystemTime>,
    /// The result, if it is kept.
    pub result: Option<Vec<u8>>,
    /// That of the result, if it is not JSON.
    pub media_type: Option<String>,
}

/// Attempts of one job that are remembered: the newest.
pub const ATTEMPTS_MAX: u32 = 50;

/// One attempt to deliver a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// From 1, over all attempts of the job.
    pub number: u32,
    /// When it ended.
    pub ended: SystemTime,
    /// The code of its error; `None` if the receiver has the result.
    pub error: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Census {
    /// How many jobs are in each phase.
    pub phases: HashMap<Phase, u64>,
    /// When the oldest job was accepted that has not ended.
    pub oldest: Option<SystemTime>,
    /// Audio that waits.
    pub audio_bytes: u64,
}

pub type Answer<'a, T> = BoxFuture<'a, Result<T, Error>>;

/// A database of jobs. Times are arguments, so that tests own the clock.
///
/// After an error, the change was not made, except after [`Error::Unsure`] and [`Error::Interrupted`]: then
/// that is unknown, and the change may be repeated. A claim that fails has claimed nothing, whatever the
/// error.
pub trait Store: Send + Sync {
    /// The job that `tenant` submitted under this idempotency key, if it did.
    fn submitted(&self, tenant: u64, idempotency_key: String) -> Answer<'_, Option<Submission>>;

    /// Accepts a job whose audio has this hash, unless its tenant's idempotency key is known, or `bounds`
    /// leave no room for it.
    fn accept(&self, order: Order, sha256: Option<[u8; 32]>, bounds: Bounds) -> Answer<'_, Acceptance>;

    /// Accepts an event as a result that is due at once, unless `bounds` leave no room for it.
    fn announce(&self, announcement: Announcement, now: SystemTime, bounds: Bounds)
    -> Answer<'_, Acceptance>;

    /// Jobs that have not ended, and bytes of audio that wait: of all tenants, and of this one.
    fn held(&self, tenant: u64) -> Answer<'_, Usage>;

    /// To be called after a process has ended: results that were being sent are due again, and running jobs
    /// are queued.
    ///
    /// A process that died while it decoded a job's audio may have died of it: the job waits, longer each
    /// time, and runs alone from then on. If the process dies that way again before the audio has once been
    /// decoded to its end, the job has failed once. At any other point the process more likely died of
    /// something else, such as a kill, and the job keeps its place in the line. Only a job that ran at more
    /// than [`INTERRUPTIONS_MAX`] deaths in a row is suspected all the same, so that no job can end the
    /// process for ever.
    fn recover(&self, now: SystemTime) -> Answer<'_, ()>;

    /// Records whether the audio of this running job is being decoded.
    fn set_decoding(&self, id: JobId, is_decoding: bool) -> Answer<'_, ()>;

    /// Jobs whose audio is still needed.
    fn with_audio(&self) -> Answer<'_, HashSet<JobId>>;

    /// Claims the next job: of the tenant with the fewest running jobs, the one that has waited longest. A
    /// job suspected of ending the process runs alone, so that it takes no other with it: it is claimed when
    /// nothing runs, and others are claimed in the meantime until it has waited for [`SUSPECT_PATIENCE`].
    fn claim(&self, now: SystemTime) -> Answer<'_, Option<Run>>;

    /// Running to queued, as if it had not been begun.
    fn give_back(&self, id: JobId, due: SystemTime) -> Answer<'_, ()>;

    /// Running to queued, with one more failure.
    fn run_again(&self, id: JobId, due: SystemTime, error: String) -> Answer<'_, ()>;

    /// Running to waiting, due at once. The query and the address of the audio are deleted.
    fn finish(&self, id: JobId, now: SystemTime, finished: Finished) -> Answer<'_, ()>;

    /// Claims the next result that is due, except for these receivers and tenants.
    fn claim_delivery(
        &self,
        now: SystemTime,
        busy_receivers: Vec<String>,
        busy_tenants: Vec<u64>,
    ) -> Answer<'_, Option<Delivery>>;

    /// Sending to `next`. A delivered result is deleted at once, or by [`Store::purge`] if it is kept.
    fn attempted(&self, id: JobId, now: SystemTime, next: Next, keep_result: bool) -> Answer<'_, ()>;

    /// Sending to waiting, due at `now`, after an attempt that was cut short.
    fn unsent(&self, id: JobId, now: SystemTime) -> Answer<'_, ()>;

    /// When the next job is due in `phase`, after `now`.
    fn next_due(&self, phase: Phase, now: SystemTime) -> Answer<'_, Option<SystemTime>>;

    fn job(&self, id: JobId) -> Answer<'_, Option<Job>>;

    /// The last [`ATTEMPTS_MAX`] attempts to deliver a job's result, oldest first. Those that older versions of this
    /// program made are not known.
    fn attempts(&self, id: JobId) -> Answer<'_, Vec<Attempt>>;

    /// The newest first, without results.
    fn list(&self, state: Option<State>, limit: u32) -> Answer<'_, Vec<Job>>;

    /// Sends a dead job's result again from the start of the schedule, and a waiting one at once. Returns
    /// whether the job was either.
    fn redrive(&self, id: JobId, now: SystemTime) -> Answer<'_, bool>;

    /// Deletes results delivered before `results` and jobs that ended before `jobs`.
    fn purge(&self, results: SystemTime, jobs: SystemTime) -> Answer<'_, ()>;

    /// Counts for monitoring.
    fn census(&self) -> Answer<'_, Census>;
}
