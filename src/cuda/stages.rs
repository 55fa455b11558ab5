//! The stages of the work on windows, and the device's time for each.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A part of the work on a window. Numbers are rows of the launch, those that fill it up included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// Log-mel features, without the audio's copy to the device.
    Mel,
    Encoder,
    /// Keys and values of the audio.
    CacheFill,
    Prefill(usize),
    Step(usize),
    Alignment,
}

impl Stage {
    /// Whether it runs in the side queue.
    pub fn is_beside(self) -> bool {
        matches!(self, Self::Mel | Self::Encoder | Self::CacheFill)
    }
}

/// Counts and total times of stages, shared by all that measure and read them.
#[derive(Debug, Clone, Default)]
pub struct StageTimes(Arc<Mutex<HashMap<Stage, (u64, Duration)>>>);

impl StageTimes {
    /// For each stage that has run: how many times, and the device's time for all of them. The last few may be missing:
    /// they are added once they are known to be done, as later ones begin.
    pub fn totals(&self) -> Vec<(Stage, u64, Duration)> {
        let totals = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut totals: Vec<_> = totals.iter().map(|(&stage, &(count, time))| (stage, count, time)).collect();
        totals.sort_unstable();
        totals
    }

    /// Adds one run of `stage`, which took `time`.
    pub fn add(&self, stage: Stage, time: Duration) {
        let mut totals = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (count, total) = totals.entry(stage).or_default();
        *count += 1;
        *total += time;
    }
}

/// Equal if they are the same.
impl PartialEq for StageTimes {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_summed_by_stage_and_shared() {
        let times = StageTimes::default();
        let (shared, other) = (times.clone(), StageTimes::default());
        for (stage, microseconds) in
            [(Stage::Step(4), 5), (Stage::Mel, 7), (Stage::Step(4), 6), (Stage::Step(8), 1)]
        {
            shared.add(stage, Duration::from_micros(microseconds));
        }
        let of = |stage, count, microseconds| (stage, count, Duration::from_micros(microseconds));
        assert_eq!(
            times.totals(),
            [of(Stage::Mel, 1, 7), of(Stage::Step(4), 2, 11), of(Stage::Step(8), 1, 1)]
        );
        assert!(times == shared && times != other);
    }
}
