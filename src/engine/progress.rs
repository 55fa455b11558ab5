//! How far the models of a device have come within their calls: a call that is slow because other programs have the
//! processor goes on, and one that hangs does not.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Counts what a model has computed, in steps that take it a fraction of a second each. A model that never counts is
/// judged by the time of its calls alone.
#[derive(Debug, Clone, Default)]
pub struct Progress(Arc<AtomicU64>);

impl Progress {
    pub fn step(&self) {
        self.0.fetch_add(1, Relaxed);
    }
}

/// The progress of all models on one device, of which one computes at a time.
#[derive(Debug, Default)]
pub struct DeviceProgress(Mutex<Vec<Weak<AtomicU64>>>);

impl DeviceProgress {
    /// Counts that of another model, as long as it is there.
    pub fn add(&self, progress: &Progress) {
        let mut models = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        models.retain(|model| model.strong_count() > 0);
        models.push(Arc::downgrade(&progress.0));
    }

    /// Another number whenever any of them has gone on.
    pub fn steps(&self) -> u64 {
        let models = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let steps = models.iter().filter_map(Weak::upgrade).map(|model| model.load(Relaxed));
        steps.fold(0, u64::wrapping_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_model_that_goes_on_is_seen_and_those_that_are_gone_are_not_kept() {
        let device = DeviceProgress::default();
        let (first, second) = (Progress::default(), Progress::default());
        device.add(&first);
        device.add(&second);
        let before = device.steps();
        first.clone().step();
        assert_ne!(device.steps(), before);
        drop(first);
        device.add(&Progress::default());
        assert_eq!(device.0.lock().expect("no panic").len(), 2, "the second and the third");
    }
}
