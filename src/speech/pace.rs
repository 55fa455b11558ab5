//! How fast the voice works, as measured.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Characters a second before anything was measured: the embedded voice on two processors.
const FIRST: f64 = 30.0;
/// The weight of the latest piece.
const WEIGHT: f64 = 0.1;
const WAIT_MAX: Duration = Duration::from_secs(60);

/// Characters a second, averaged over the last pieces.
pub struct Pace(Mutex<f64>);

impl Default for Pace {
    fn default() -> Self {
        Self(Mutex::new(FIRST))
    }
}

impl Pace {
    pub fn add(&self, characters: u64, took: Duration) {
        let latest = characters as f64 / took.as_secs_f64().max(0.001);
        let mut pace = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *pace += WEIGHT * (latest - *pace);
    }

    /// How long so many characters take, up to a minute.
    pub fn time_for(&self, characters: u64) -> Duration {
        let pace = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Duration::try_from_secs_f64(characters as f64 / pace.max(0.001))
            .map_or(WAIT_MAX, |time| time.min(WAIT_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_follows_what_is_measured_and_has_an_end() {
        let pace = Pace::default();
        assert_eq!(pace.time_for(60), Duration::from_secs(2));
        for _ in 0..100 {
            pace.add(100, Duration::from_secs(1));
        }
        assert!(pace.time_for(200).abs_diff(Duration::from_secs(2)) < Duration::from_millis(10));
        pace.add(0, Duration::ZERO);
        assert_eq!(pace.time_for(u64::MAX), WAIT_MAX);
    }
}
