//! A window inside the engine: as it was submitted, in a slot, and with its text.

use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::error::Error;
use super::fairness::Flow;
use super::model::Hypothesis;
use super::window::{Recognition, Window};

/// A submitted window, with the channel for its answer.
pub struct Entry {
    pub window: Window,
    pub reply: oneshot::Sender<Result<Recognition, Error>>,
    pub queued_at: Instant,
    /// Sent to check the model; not counted in metrics or load.
    pub is_probe: bool,
}

impl Entry {
    pub fn flow(&self) -> Flow {
        Flow::of(self.window.class, self.window.tenant)
    }
}

/// The window in a slot.
pub struct Occupant {
    pub entry: Entry,
    /// Index into the options' temperatures.
    pub attempt: usize,
    /// The best of the attempts that were not good enough.
    pub best: Option<Hypothesis>,
    pub started_at: Instant,
    /// `None` while it is being encoded.
    pub encoded_at: Option<Instant>,
    /// Its share of the model's time.
    pub busy: Duration,
}

impl Occupant {
    pub fn is_encoded(&self) -> bool {
        self.encoded_at.is_some()
    }
}

/// A window that has left its slot with an accepted text.
pub struct Recognised {
    pub occupant: Occupant,
    pub hypothesis: Hypothesis,
}
