//! How fast the voice works, as measured.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Characters a second before anything was measured: the embedded voice on two processors.
const FIRST: f64 = 30.0;
/// The weight of the latest piece, once there were some.
const WEIGHT: f64 = 0.1;
/// Slower than any voice: half an hour for a text of the greatest length.
const SLOWEST: f64 = 1.0;

/// Characters a second, averaged over the last pieces.
#[derive(Default)]
pub struct Pace(Mutex<Measured>);

#[derive(Default)]
struct Measured {
    pieces: f64,
    average: f64,
}

impl Pace {
    pub fn add(&self, characters: u64, took: Duration) {
        let latest = characters as f64 / took.as_secs_f64().max(0.001);
        let mut measured = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        measured.pieces += 1.0;
        let weight = WEIGHT.max(1.0 / measured.pieces);
        measured.average += weight * (latest - measured.average);
    }

    /// Of a piece that is being spoken; more than nothing.
    pub fn characters_per_second(&self) -> f64 {
        let measured = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if measured.pieces > 0.0 { measured.average.max(SLOWEST) } else { FIRST }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_pieces_count_at_once_and_later_ones_are_averaged() {
        let pace = Pace::default();
        assert_eq!(pace.characters_per_second(), FIRST);
        pace.add(10, Duration::from_secs(1));
        assert_eq!(pace.characters_per_second(), 10.0);
        pace.add(30, Duration::from_secs(1));
        assert_eq!(pace.characters_per_second(), 20.0);
        for _ in 0..100 {
            pace.add(100, Duration::from_secs(1));
        }
        assert!((pace.characters_per_second() - 100.0).abs() < 1.0);
        for _ in 0..100 {
            pace.add(0, Duration::ZERO);
        }
        assert_eq!(pace.characters_per_second(), SLOWEST);
    }
}
