//! When waiting windows are encoded. A device encodes several in little more time than one, so while it decodes others,
//! windows wait until a few slots are free, for a short time at most. Pure: callers pass the time.

use std::time::{Duration, Instant};

/// Windows are encoded together in so many parts of the slots, ...
const PART_OF_SLOTS: usize = 16;
/// ... or once one of them could have been encoded for so long: a few steps.
const WAIT_MAX: Duration = Duration::from_millis(20);

pub struct Batching {
    /// So many free slots are enough.
    enough: usize,
    /// Since when a window waits while a slot is free.
    since: Option<Instant>,
}

/// The worker's state, as far as it matters here.
#[derive(Debug, Clone, Copy)]
pub struct Situation {
    pub free_slots: usize,
    pub waiting_windows: usize,
    /// A live window is among them.
    pub is_urgent: bool,
    /// Other windows are being decoded.
    pub is_decoding: bool,
}

impl Batching {
    /// `encode_batch`: the most windows that are encoded together.
    pub fn new(slots: usize, encode_batch: usize) -> Self {
        Self { enough: (slots / PART_OF_SLOTS).clamp(1, encode_batch.max(1)), since: None }
    }

    /// Whether to encode waiting windows now. Call it in each round.
    pub fn is_due(&mut self, situation: Situation, now: Instant) -> bool {
        let Situation { free_slots, waiting_windows, is_urgent, is_decoding } = situation;
        if free_slots == 0 || waiting_windows == 0 {
            self.since = None;
            return false;
        }
        let since = *self.since.get_or_insert(now);
        free_slots >= self.enough
            || is_urgent
            || !is_decoding
            || now.saturating_duration_since(since) >= WAIT_MAX
    }

    /// Records that windows are being encoded.
    pub fn admitted(&mut self) {
        self.since = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUSY: Situation =
        Situation { free_slots: 1, waiting_windows: 50, is_urgent: false, is_decoding: true };

    fn after(start: Instant, millis: u64) -> Instant {
        start + Duration::from_millis(millis)
    }

    #[test]
    fn a_busy_device_waits_for_a_few_free_slots_and_not_for_long() {
        let start = Instant::now();
        let mut batching = Batching::new(64, 8);
        assert!(!batching.is_due(BUSY, start));
        assert!(!batching.is_due(Situation { free_slots: 3, ..BUSY }, after(start, 10)));
        assert!(batching.is_due(Situation { free_slots: 4, ..BUSY }, after(start, 11)));
        batching.admitted();
        assert!(!batching.is_due(BUSY, after(start, 30)));
        assert!(!batching.is_due(BUSY, after(start, 49)));
        assert!(batching.is_due(BUSY, after(start, 50)));
        // Until windows are encoded, they stay due.
        assert!(batching.is_due(BUSY, after(start, 51)));
    }

    #[test]
    fn the_wait_begins_with_the_first_free_slot_and_the_first_window() {
        let start = Instant::now();
        let mut batching = Batching::new(64, 8);
        for none in [Situation { free_slots: 0, ..BUSY }, Situation { waiting_windows: 0, ..BUSY }] {
            assert!(!batching.is_due(none, start));
            assert!(!batching.is_due(BUSY, after(start, 100)));
            assert!(!batching.is_due(BUSY, after(start, 119)));
            assert!(batching.is_due(BUSY, after(start, 120)));
        }
    }

    #[test]
    fn an_idle_device_and_live_windows_wait_for_nothing() {
        let now = Instant::now();
        let mut batching = Batching::new(64, 8);
        assert!(batching.is_due(Situation { is_decoding: false, ..BUSY }, now));
        assert!(batching.is_due(Situation { is_urgent: true, ..BUSY }, now));
    }

    #[test]
    fn where_windows_are_encoded_one_by_one_and_where_slots_are_few_none_waits() {
        let now = Instant::now();
        assert!(Batching::new(64, 1).is_due(BUSY, now));
        assert!(Batching::new(8, 8).is_due(BUSY, now));
        // Never for more slots than are filled at once.
        assert!(Batching::new(512, 8).is_due(Situation { free_slots: 8, ..BUSY }, now));
    }
}
