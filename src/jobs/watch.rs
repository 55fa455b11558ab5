//! A mark in the database while a job's audio is being decoded.
//!
//! Decoders read untrusted data. If one of them ends the process, by a fault in a codec or a file that
//! unpacks into more memory than there is, the next start finds the mark and suspects the job. Without it,
//! every kill and every deployment would count against the jobs that happened to run.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::store::{Answer, JobId, Store};
use super::waiting::insist;

/// Where the mark of one running job is kept.
pub trait Marks: Send + Sync {
    fn set_decoding(&self, is_decoding: bool) -> Answer<'_, ()>;
}

/// Belongs to one run of a job.
#[derive(Clone)]
pub struct Watch(Arc<dyn Marks>);

struct Row {
    store: Arc<dyn Store>,
    id: JobId,
}

impl Marks for Row {
    fn set_decoding(&self, is_decoding: bool) -> Answer<'_, ()> {
        self.store.set_decoding(self.id, is_decoding)
    }
}

impl Watch {
    pub(super) fn new(store: Arc<dyn Store>, id: JobId) -> Self {
        Self(Arc::new(Row { store, id }))
    }

    pub(super) fn with(marks: Arc<dyn Marks>) -> Self {
        Self(marks)
    }

    /// Awaits `decoding`, which begins once the mark is on the disk. If this future is dropped, the mark
    /// stays until the job's run ends.
    pub async fn over<T>(&self, decoding: impl Future<Output = T>) -> T {
        self.note(true).await;
        let done = decoding.await;
        self.note(false).await;
        done
    }

    /// If the database fails, the run waits for it, as it would have to at its end.
    async fn note(&self, is_decoding: bool) {
        let never = CancellationToken::new();
        insist(&never, || self.0.set_decoding(is_decoding)).await;
    }
}
