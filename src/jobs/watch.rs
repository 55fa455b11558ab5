//! A note in the database while a job's audio is being decoded.
//!
//! Decoders read what clients send. Should one of them end the process, with a fault in a codec or a file that
//! unpacks into more memory than there is, the note is found at the next start, and the job is suspected. Without
//! it, every kill and every deploy would count against the jobs that happened to run.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::insist;
use super::store::{JobId, Store};

/// Belongs to one run of a job.
#[derive(Clone)]
pub struct Watch {
    store: Arc<dyn Store>,
    id: JobId,
}

impl Watch {
    pub(super) fn new(store: Arc<dyn Store>, id: JobId) -> Self {
        Self { store, id }
    }

    /// Awaits `decoding`, which is not begun before the note is on the disk. Where this future is dropped, the note
    /// stays until the job's run ends.
    pub async fn over<T>(&self, decoding: impl Future<Output = T>) -> T {
        self.note(true).await;
        let done = decoding.await;
        self.note(false).await;
        done
    }

    /// Where the database fails, the run waits for it, as it would have to do at its end.
    async fn note(&self, is_decoding: bool) {
        let never = CancellationToken::new();
        insist(&never, || self.store.set_decoding(self.id, is_decoding)).await;
    }
}
