//! What is kept of a job, and what a database must do with it.
//!
//! All states change by the methods of [`Store`] alone, each one of which is atomic, and durable when it
//! returns. A change that comes too late, for a job that is no longer in the state it starts from, does
//! nothing: of two workers who finish one job the first one counts.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, SystemTime};

use futures_util::future::BoxFuture;
use reqwest::Method;
use url::Url;
use uuid::Uuid;

use super::Error;
use super::room::{Bounds, Refusal, Usage};

/// The id of the request that made the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub Uuid);

impl std::fmt::Display for JobId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// Where a job is, as its client sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// Waits to be transcribed.
    Queued,
    Running,
    /// The result is there; it is being sent, or waits to be sent again.
    Delivering,
    /// The receiver has it.
    Delivered,
    /// The receiver did not take it, and it is not sent again by itself.
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

/// Where a job is, to the letter.
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

/// A job as it is taken. No `Debug`: addresses may hold passwords, queries names.
#[derive(Clone)]
pub struct Order {
    pub id: JobId,
    pub accepted: SystemTime,
    pub tenant: u64,
    /// The id of the key that it came under; the receiver is told.
    pub key: String,
    /// What was asked for, for [`super::Work`] to read.
    pub query: String,
    /// Whether the result shall have words.
    pub words: bool,
    pub source: Source,
    /// With user and password, where the receiver wants them.
    pub callback: Url,
    /// POST or PUT.
    pub method: Method,
    /// What the client tells its submissions apart by.
    pub idempotency: Option<Idempotency>,
}

/// A client that does not know whether its submission arrived sends it again with the same key, and gets the job
/// that it made the first time.
#[derive(Debug, Clone)]
pub struct Idempotency {
    pub key: String,
    /// SHA-256 of all that was asked for: the same key with anything else is a mistake.
    pub fingerprint: [u8; 32],
}

/// A job that was made under an idempotency key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Submission {
    pub id: JobId,
    /// As in [`Idempotency`].
    pub fingerprint: [u8; 32],
}

impl Submission {
    /// What a second submission with `fingerprint` under the same key gets.
    pub fn again(self, fingerprint: [u8; 32]) -> Acceptance {
        if self.fingerprint == fingerprint { Acceptance::Known(self.id) } else { Acceptance::Conflict }
    }
}

/// What became of an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acceptance {
    Taken,
    /// The same was submitted before, and is this job.
    Known(JobId),
    /// Something else was submitted before under the same idempotency key.
    Conflict,
    /// There is no room.
    Refused(Refusal),
}

/// So many deaths of the process in a row may be others' doing that a job ran at, while its audio was not being
/// decoded.
pub const INTERRUPTIONS_MAX: u32 = 5;

/// A suspected job that is due waits so long for a moment in which nothing else runs. After that no other job is
/// begun until it has had its run.
pub const SUSPECT_PATIENCE: Duration = Duration::from_secs(60);

/// Where the audio is.
#[derive(Clone)]
pub enum Source {
    /// On disk, so many bytes of it.
    Spooled { bytes: u64 },
    /// To be fetched when the job runs.
    Url(String),
}

/// Audio as it was when its job was taken: a file that is otherwise now has been damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    pub bytes: u64,
    /// `None` for jobs of a format that kept none: for those the length has to do.
    pub sha256: Option<[u8; 32]>,
}

/// A job to be run now.
pub struct Run {
    pub id: JobId,
    pub accepted: SystemTime,
    pub tenant: u64,
    pub query: String,
    pub words: bool,
    /// `None`: the audio is on disk.
    pub url: Option<String>,
    /// The audio on disk; means nothing for a job with a `url`.
    pub stamp: Stamp,
    /// How often it failed, or ended the process.
    pub failures: u32,
}

/// What a run came to.
pub struct Finished {
    /// What the receiver gets, in these bytes each time.
    pub body: Vec<u8>,
    /// The kind of error that `body` tells of; `None` where it is a transcript.
    pub error: Option<String>,
}

/// A result to be sent now.
pub struct Delivery {
    pub id: JobId,
    pub tenant: u64,
    pub key: String,
    pub callback: Url,
    pub method: Method,
    /// Host and port of `callback`.
    pub receiver: String,
    pub body: Vec<u8>,
    /// Attempts before this one, since the job was made or told to be sent again.
    pub tried: u32,
    /// Attempts before this one, in all.
    pub attempts: u32,
    pub finished: SystemTime,
}

/// What comes after an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    Delivered,
    Again { at: SystemTime, error: String },
    Dead { error: String },
}

/// What is known of a job. No addresses but the receiver's host.
#[derive(Clone)]
pub struct Job {
    pub id: JobId,
    pub tenant: u64,
    pub state: State,
    pub receiver: String,
    pub accepted: SystemTime,
    /// When it is run or sent next, where it waits for that.
    pub due: Option<SystemTime>,
    pub runs: u32,
    pub attempts: u32,
    /// The kind of the last error, of transcription or of delivery.
    pub error: Option<String>,
    /// When the result was there.
    pub finished: Option<SystemTime>,
    /// When it was delivered, or given up.
    pub ended: Option<SystemTime>,
    /// The result, where it is kept.
    pub result: Option<Vec<u8>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Census {
    /// How many jobs are in each phase that has any.
    pub phases: HashMap<Phase, u64>,
    /// When the oldest job came that has not ended.
    pub oldest: Option<SystemTime>,
    /// Audio that waits.
    pub audio_bytes: u64,
}

pub type Answer<'a, T> = BoxFuture<'a, Result<T, Error>>;

/// A database of jobs. Times are given, so that tests own the clock.
///
/// A change that fails has not been made, but where the error is [`Error::Unsure`] or [`Error::Interrupted`]: then
/// that is not known, and it may be made again. A claim that fails has claimed nothing, whatever the error.
pub trait Store: Send + Sync {
    /// The job that `tenant` submitted under this idempotency key, if it did.
    fn submitted(&self, tenant: u64, idempotency_key: String) -> Answer<'_, Option<Submission>>;

    /// Takes a job whose audio has this hash, unless its tenant's idempotency key is known, or `bounds` leave no
    /// room for it.
    fn accept(&self, order: Order, sha256: Option<[u8; 32]>, bounds: Bounds) -> Answer<'_, Acceptance>;

    /// Jobs that have not ended, and bytes of audio that wait: of all tenants, and of this one.
    fn held(&self, tenant: u64) -> Answer<'_, Usage>;

    /// After a process has ended: results that were being sent are due, and jobs that were running wait again.
    ///
    /// A process that died while it decoded a job's audio may have died of that audio: the job waits, each time
    /// longer, and runs alone from now on. If the process dies in the same way again, before the audio was once
    /// decoded to its end, that is a failure of the job. In any other work the process more likely died of
    /// something else, such as a kill, and the job keeps its place in the line. Only a job that runs at more than
    /// [`INTERRUPTIONS_MAX`] deaths in a row is suspected all the same, so that nothing ends the process for ever.
    fn recover(&self, now: SystemTime) -> Answer<'_, ()>;

    /// The audio of this running job is being decoded, or no longer is.
    fn set_decoding(&self, id: JobId, is_decoding: bool) -> Answer<'_, ()>;

    /// Jobs whose audio is needed.
    fn with_audio(&self) -> Answer<'_, HashSet<JobId>>;

    /// The next job, now running: of the tenant that has the fewest running, the one that waited longest.
    /// A job that is suspected of ending the process runs alone, so that it takes no other with it: it is claimed
    /// when nothing runs, and others go on being claimed until it has waited for [`SUSPECT_PATIENCE`].
    fn claim(&self, now: SystemTime) -> Answer<'_, Option<Run>>;

    /// Running to queued, as if it had not been begun.
    fn give_back(&self, id: JobId, due: SystemTime) -> Answer<'_, ()>;

    /// Running to queued, with one failure more.
    fn run_again(&self, id: JobId, due: SystemTime, error: String) -> Answer<'_, ()>;

    /// Running to waiting, to be sent at once. What only the run needed is forgotten.
    fn finish(&self, id: JobId, now: SystemTime, finished: Finished) -> Answer<'_, ()>;

    /// The next result that is due, now being sent, but none for these receivers and tenants.
    fn claim_delivery(
        &self,
        now: SystemTime,
        busy_receivers: Vec<String>,
        busy_tenants: Vec<u64>,
    ) -> Answer<'_, Option<Delivery>>;

    /// Sending to what comes next. A delivered result is forgotten at once, or else at [`Store::purge`].
    fn attempted(&self, id: JobId, now: SystemTime, next: Next, keep_result: bool) -> Answer<'_, ()>;

    /// Sending to waiting, due at `now`, for an attempt that was broken off.
    fn unsent(&self, id: JobId, now: SystemTime) -> Answer<'_, ()>;

    /// When the next job is due in `phase`, after `now`.
    fn next_due(&self, phase: Phase, now: SystemTime) -> Answer<'_, Option<SystemTime>>;

    fn job(&self, id: JobId) -> Answer<'_, Option<Job>>;

    /// The newest first, without results.
    fn list(&self, state: Option<State>, limit: u32) -> Answer<'_, Vec<Job>>;

    /// Sends a dead job's result from the start of the schedule, and a waiting one's at once. Returns
    /// whether it was either.
    fn redrive(&self, id: JobId, now: SystemTime) -> Answer<'_, bool>;

    /// Forgets results delivered before `results` and jobs ended before `jobs`.
    fn purge(&self, results: SystemTime, jobs: SystemTime) -> Answer<'_, ()>;

    /// What there is, for those who watch.
    fn census(&self) -> Answer<'_, Census>;
}
