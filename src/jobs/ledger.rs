//! What the embedded database notes for a cluster: which jobs the broker has to know of, and whether it does.

use std::time::SystemTime;

use super::capacity::Bounds;
use super::store::{Acceptance, Answer, Finished, Idempotency, JobId, Order, Phase, Source, Submission};

/// A job that this node accepted, and that the broker has to know of. No `Debug`: addresses may hold passwords.
#[derive(Clone)]
pub struct Entry {
    pub id: JobId,
    pub phase: Phase,
    pub accepted: SystemTime,
    pub due: SystemTime,
    pub tenant: u64,
    pub key: String,
    /// Empty once the result exists, as the address of the audio is.
    pub query: String,
    pub words: bool,
    pub source: Source,
    pub sha256: Option<[u8; 32]>,
    /// Empty once the result is delivered.
    pub callback: String,
    pub method: String,
    pub receiver: String,
    pub idempotency: Option<Idempotency>,
    /// Whether the broker has acknowledged it.
    pub is_confirmed: bool,
    pub runs: u32,
    pub failures: u32,
    pub attempts: u32,
    pub error: Option<String>,
    pub finished: Option<SystemTime>,
    pub ended: Option<SystemTime>,
}

/// A job's place among those that the broker has to know of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Open {
    pub id: JobId,
    pub phase: Phase,
    /// As in [`Entry`].
    pub is_confirmed: bool,
}

/// Errors are those of [`super::Store`].
pub trait Ledger: Send + Sync {
    /// As [`super::Store::accept`], for a job that the broker has not acknowledged yet.
    fn accept_unconfirmed(
        &self,
        order: Order,
        sha256: Option<[u8; 32]>,
        bounds: Bounds,
    ) -> Answer<'_, Acceptance>;

    /// The broker has acknowledged the job.
    fn confirm(&self, id: JobId) -> Answer<'_, ()>;

    /// Forgets a job that was never acknowledged. Returns whether it was one.
    fn withdraw(&self, id: JobId) -> Answer<'_, bool>;

    /// Puts jobs that wait here, and that the broker has never heard of, among those that it has to know of.
    fn enrol(&self) -> Answer<'_, ()>;

    /// All jobs that the broker has to know of, those that ended included until [`Ledger::close`]; oldest first.
    fn open_jobs(&self) -> Answer<'_, Vec<Open>>;

    fn entry(&self, id: JobId) -> Answer<'_, Option<Entry>>;

    /// A result that some node computed: queued or running to waiting, due at once. The first result counts: returns
    /// whether this is it.
    fn settle(&self, id: JobId, now: SystemTime, finished: Finished, runs: u32) -> Answer<'_, bool>;

    /// The broker knows that the job has ended.
    fn close(&self, id: JobId) -> Answer<'_, ()>;

    /// All idempotency keys that stand for jobs of this node, with their tenants.
    fn submissions(&self) -> Answer<'_, Vec<(u64, String, Submission)>>;
}
