//! Requests of the last 60 seconds, in slots of a second.

use std::time::{Duration, Instant};

/// One more than a minute has: a request of the first moment counts for all of 60 seconds.
const SLOTS: u64 = 61;

/// The requests of the last minute. Each counts for 60 seconds, and for up to one more.
pub struct Window {
    slots: [u32; SLOTS as usize],
    /// The second of the newest slot, from [`Self::begun`].
    newest: u64,
    begun: Option<Instant>,
}

impl Default for Window {
    fn default() -> Self {
        Self { slots: [0; SLOTS as usize], newest: 0, begun: None }
    }
}

impl Window {
    /// Forgets slots that are older than a minute, and returns the current second.
    fn advance(&mut self, now: Instant) -> u64 {
        let begun = *self.begun.get_or_insert(now);
        // Callers come in no strict order of time.
        let second = now.saturating_duration_since(begun).as_secs().max(self.newest);
        for passed in (self.newest + 1..=second).take(SLOTS as usize) {
            self.slots[(passed % SLOTS) as usize] = 0;
        }
        self.newest = second;
        second
    }

    pub fn add(&mut self, now: Instant) {
        let second = self.advance(now);
        let slot = &mut self.slots[(second % SLOTS) as usize];
        *slot = slot.saturating_add(1);
    }

    /// The time until one more request is within `most` per minute; `None` if it is now.
    pub fn wait(&mut self, most: u64, now: Instant) -> Option<Duration> {
        let second = self.advance(now);
        let mut left: u64 = self.slots.iter().map(|count| u64::from(*count)).sum();
        if left < most {
            return None;
        }
        // The oldest slot is the one after the current second's.
        for age in 1..=SLOTS {
            left -= u64::from(self.slots[((second + age) % SLOTS) as usize]);
            if left < most {
                return Some(Duration::from_secs(age));
            }
        }
        // Even an empty minute has no room.
        Some(Duration::from_secs(SLOTS))
    }

    /// The requests of the last minute, and the seconds until none of them counts any more.
    pub fn used(&mut self, now: Instant) -> (u64, u64) {
        let second = self.advance(now);
        let used = self.slots.iter().map(|count| u64::from(*count)).sum();
        let newest = (0..SLOTS).find(|age| self.slots[((second + SLOTS - age) % SLOTS) as usize] > 0);
        (used, newest.map_or(0, |age| SLOTS - age))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_older_than_a_minute_is_forgotten() {
        let (mut window, begun) = (Window::default(), Instant::now());
        let after = |seconds: u64| begun + Duration::from_secs(seconds);
        for second in [0, 0, 5, 59] {
            window.add(after(second));
        }
        assert_eq!(window.used(after(60)), (4, 60));
        assert_eq!(window.used(after(61)), (2, 59));
        assert_eq!(window.used(after(66)), (1, 54));
        assert_eq!(window.used(after(120)), (0, 0));
        window.add(after(1000));
        assert_eq!((window.used(after(1000)), window.used(after(5000))), ((1, 61), (0, 0)));
        assert_eq!(window.wait(0, after(5000)), Some(Duration::from_secs(61)));
    }
}
