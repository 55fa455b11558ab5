//! Whether the server accepts work, and how many requests are in progress.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

/// Whether the server accepts work. Cheap to clone; all clones are one.
#[derive(Clone, Default)]
pub struct Readiness(Arc<AtomicU8>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// The model is not loaded yet.
    Starting,
    Ready,
    /// The server is stopping: work in progress finishes, new work goes elsewhere.
    Draining,
}

impl Readiness {
    pub fn set(&self, state: State) {
        self.0.store(state as u8, Ordering::Release);
    }

    pub fn state(&self) -> State {
        match self.0.load(Ordering::Acquire) {
            state if state == State::Ready as u8 => State::Ready,
            state if state == State::Draining as u8 => State::Draining,
            _ => State::Starting,
        }
    }
}

/// Counts the requests in progress.
#[derive(Clone, Default)]
pub(super) struct Activity(Arc<AtomicUsize>);

/// A request in progress, until it is dropped.
pub(super) struct Active(Arc<AtomicUsize>);

impl Activity {
    pub(super) fn begin(&self) -> Active {
        self.0.fetch_add(1, Ordering::Relaxed);
        Active(self.0.clone())
    }

    pub(super) fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
