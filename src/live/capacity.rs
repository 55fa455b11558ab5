//! The number of streams that the engine can serve in time, from what the streams so far have cost.
//!
//! A stream's windows take so much of the devices' time for each second of its audio. That shrinks as more streams come,
//! since their windows share batches, so the estimate grows with the load until the devices can batch no more. Where
//! windows come late all the same, the streams that are open are too many already.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Seconds of streams' audio after which a measurement has lost half of its weight.
const HALF_LIFE_SECONDS: f64 = 300.0;
/// Seconds of streams' audio before the measurement is used.
const MIN_SECONDS: f64 = 10.0;
/// The part of the devices' time that windows may take: beyond it, they wait for each other.
const USABLE: f64 = 0.8;
/// The part of the longest lag of an admitted stream that is still acceptable.
const ACCEPTABLE_LAG: f64 = 0.5;

/// What streams cost. All models' streams count together: they share the devices.
#[derive(Default)]
pub struct Capacity(Mutex<Cost>);

#[derive(Debug, Clone, Copy, Default)]
struct Cost {
    /// Seconds of audio that came, newer ones weighing more.
    audio: f64,
    /// Seconds of the devices that its windows took.
    busy: f64,
}

/// The present state of the streams and of the engine.
pub struct Present {
    /// Devices that work side by side; 0 if none works.
    pub devices: usize,
    /// Seconds of a device for each second of a stream, as the cost of single windows suggests. For the first moments.
    pub expected: f64,
    /// Open streams.
    pub streams: usize,
    /// The most streams by configuration.
    pub streams_max: usize,
    /// The lag of the latest windows of the stream that is latest, and the most that new streams are admitted at; seconds.
    pub lag: f64,
    pub lag_max: f64,
}

impl Capacity {
    fn cost(&self) -> MutexGuard<'_, Cost> {
        // A panic elsewhere leaves whole numbers.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// So many seconds of a stream's audio came.
    pub fn heard(&self, seconds: f64) {
        let mut cost = self.cost();
        let kept = 0.5_f64.powf(seconds / HALF_LIFE_SECONDS);
        *cost = Cost { audio: cost.audio * kept + seconds, busy: cost.busy * kept };
    }

    /// A window of a stream took so many seconds of a device.
    pub fn spent(&self, busy: f64) {
        self.cost().busy += busy;
    }

    /// Streams that can be served in time.
    pub fn streams(&self, present: &Present) -> usize {
        if present.devices == 0 {
            return 0;
        }
        let Cost { audio, busy } = *self.cost();
        let each = if audio < MIN_SECONDS { present.expected } else { busy / audio };
        let room = USABLE * present.devices as f64 / each.max(1e-9);
        // Saturates.
        let estimate = (room as usize).clamp(1, present.streams_max.max(1));
        let is_late = present.lag > ACCEPTABLE_LAG * present.lag_max;
        if is_late { estimate.min(present.streams.max(1)) } else { estimate }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRESENT: Present =
        Present { devices: 1, expected: 0.095, streams: 4, streams_max: 1000, lag: 0.1, lag_max: 5.0 };

    /// Minutes of so many streams, each second of which costs `busy`.
    fn after(capacity: &Capacity, streams: usize, busy: f64) {
        for _ in 0..600 * streams {
            capacity.heard(1.0);
            capacity.spent(busy);
        }
    }

    #[test]
    fn it_follows_what_streams_cost() {
        let capacity = Capacity::default();
        assert_eq!(capacity.streams(&PRESENT), 8, "nothing is measured yet");
        after(&capacity, 1, 0.048);
        assert_eq!(capacity.streams(&PRESENT), 16);
        assert_eq!(capacity.streams(&Present { devices: 2, ..PRESENT }), 33);
        // More of them share batches.
        after(&capacity, 8, 0.0098);
        assert_eq!(capacity.streams(&PRESENT), 81);
        assert_eq!(capacity.streams(&Present { streams_max: 50, ..PRESENT }), 50);
    }

    #[test]
    fn late_windows_say_that_there_are_enough_streams() {
        let capacity = Capacity::default();
        after(&capacity, 4, 0.0098);
        let late = Present { lag: 3.0, ..PRESENT };
        assert_eq!((capacity.streams(&PRESENT), capacity.streams(&late)), (81, 4));
        assert_eq!(capacity.streams(&Present { devices: 0, ..late }), 0, "the engine does not work");
    }

    #[test]
    fn silent_streams_are_bounded_by_the_configuration_alone() {
        let capacity = Capacity::default();
        after(&capacity, 1, 0.0);
        assert_eq!(capacity.streams(&PRESENT), 1000);
    }
}
