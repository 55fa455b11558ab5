//! Device time by stage of the model's work.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A stage of the model's work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    Mel,
    Encoder,
    /// Keys and values of the audio.
    CacheFill,
    /// With the rows of its bucket.
    Prefill(usize),
    /// With the rows of its bucket.
    Step(usize),
    /// The pass that word times come from.
    Alignment,
}

/// Totals by stage since the start; clones share them.
#[derive(Debug, Clone, Default)]
pub struct StageTimes(Arc<Mutex<Vec<(Stage, u64, Duration)>>>);

impl StageTimes {
    /// Each stage that occurred, with its number of times and its time.
    pub fn totals(&self) -> Vec<(Stage, u64, Duration)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Adds one occurrence of `stage`, which took `time`.
    pub fn add(&self, stage: Stage, time: Duration) {
        let mut totals = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match totals.iter_mut().find(|(known, ..)| *known == stage) {
            Some((_, count, total)) => (*count, *total) = (*count + 1, *total + time),
            None => totals.push((stage, 1, time)),
        }
    }
}

/// Whether both are the same collection.
impl PartialEq for StageTimes {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}
