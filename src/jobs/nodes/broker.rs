//! What nodes need of the broker that they share. `nats.rs` implements it on NATS JetStream; tests simulate it.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use uuid::Uuid;

use super::failure::Failure;
use super::record::Record;
use crate::jobs::store::{JobId, Submission};

pub type Reply<'a, T> = BoxFuture<'a, Result<T, Failure>>;

/// A record as it was read: a change succeeds only if the broker still has this revision.
#[derive(Clone)]
pub struct Held {
    pub record: Record,
    pub revision: u64,
}

/// A job that was submitted under an idempotency key, and since when the broker knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Known {
    pub submission: Submission,
    pub since: SystemTime,
    pub revision: u64,
}

/// Where bytes are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Place {
    Audio,
    Results,
}

/// A job in the queue, handed to this node and to no other until the time of a lease has passed without a sign of
/// progress.
pub trait Offer: Send + Sync {
    fn id(&self) -> JobId;

    /// A sign of progress. May get lost.
    fn progress(&self) -> BoxFuture<'_, ()>;

    /// Takes the job out of the queue.
    fn done(&self) -> Reply<'_, ()>;

    /// Puts the job back into the queue. May get lost: then it is back after the time of a lease.
    fn again(&self, after: Duration) -> BoxFuture<'_, ()>;
}

pub trait Broker: Send + Sync {
    /// Whether the last thing asked of the broker was done; `Err` has the time since it was not.
    fn is_well(&self) -> Result<(), Duration>;

    /// An id of the broker's stores: another one means that they were lost and made anew.
    fn generation(&self) -> Reply<'_, Uuid>;

    fn record(&self, id: JobId) -> Reply<'_, Option<Held>>;

    /// The revision; `None` if there is a record.
    fn create<'a>(&'a self, id: JobId, record: &Record) -> Reply<'a, Option<u64>>;

    /// The new revision; `None` if the record has changed since `revision`.
    fn update<'a>(&'a self, id: JobId, record: &Record, revision: u64) -> Reply<'a, Option<u64>>;

    fn remove(&self, id: JobId) -> Reply<'_, ()>;

    /// The submission under `key`, if there is one.
    fn submitted(&self, tenant: u64, key: String) -> Reply<'_, Option<Known>>;

    /// Notes a submission under `key`, in place of the one of that revision, or of none. False if there is another.
    fn note(
        &self,
        tenant: u64,
        key: String,
        submission: Submission,
        instead_of: Option<u64>,
    ) -> Reply<'_, bool>;

    /// Forgets the submission of that revision.
    fn forget(&self, tenant: u64, key: String, revision: u64) -> Reply<'_, ()>;

    fn put(&self, place: Place, name: String, bytes: Bytes) -> Reply<'_, ()>;

    fn get(&self, place: Place, name: String) -> Reply<'_, Option<Bytes>>;

    fn delete(&self, place: Place, name: String) -> Reply<'_, ()>;

    /// Puts a job into the queue. `anew`: it was there before, and is not any more.
    fn offer(&self, id: JobId, tenant: u64, anew: bool) -> Reply<'_, ()>;

    /// Whether the job is in the queue, or handed to a node.
    fn is_offered(&self, id: JobId, tenant: u64) -> Reply<'_, bool>;

    /// The next job of the queue, tenants in turn; `None` if there is none now.
    fn take(&self) -> Reply<'_, Option<Box<dyn Offer>>>;

    /// Tells `node` that something has happened to one of its jobs. May get lost.
    fn tell(&self, node: String, id: JobId) -> BoxFuture<'_, ()>;
}
