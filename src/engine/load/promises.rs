//! Callers that were refused, and when each was asked to come again.
//!
//! A refused caller gets a place in a line, although it does not wait on its connection: the time at which there
//! will be room for it if those before it come back and are let in. So each caller gets a time of its own, and
//! one that comes back then goes before newcomers. A caller is known by a number that is the same each time it
//! asks for the same thing; callers that look alike take each other's places.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// A place is kept for so long after its time, and given so long before.
const LATE: Duration = Duration::from_secs(3);
const EARLY: Duration = Duration::from_millis(100);
/// More are not remembered: they get the longest wait and no promise.
const MOST: usize = 4096;
/// Weight of the newest promise in the share of those that are kept.
const SMOOTHING: f64 = 0.02;
/// However few come back, some may.
const MIN_SHARE: f64 = 0.05;

pub struct Promises {
    /// In order of time.
    line: VecDeque<Promise>,
    /// The part of refused callers that come back, 0 to 1.
    share: f64,
}

struct Promise {
    made: Instant,
    due: Instant,
    caller: u64,
    /// It came once already, and there was no room.
    again: bool,
}

impl Promises {
    pub fn new() -> Self {
        Self { line: VecDeque::new(), share: 1.0 }
    }

    pub fn is_empty(&self) -> bool {
        self.line.is_empty()
    }

    fn observed(&mut self, came: bool) {
        self.share += SMOOTHING * (f64::from(u8::from(came)) - self.share);
        self.share = self.share.max(MIN_SHARE);
    }

    /// Forgets those who did not come.
    pub fn expire(&mut self, now: Instant) {
        while self.line.front().is_some_and(|promise| promise.due + LATE < now) {
            self.line.pop_front();
            self.observed(false);
        }
    }

    /// How long `caller` was told to wait, where it comes when it was told to. It has its place no longer.
    pub fn keep(&mut self, caller: u64, now: Instant) -> Option<Duration> {
        let due = self.line.iter().take_while(|promise| promise.due <= now + EARLY);
        let index = due.into_iter().position(|promise| promise.caller == caller)?;
        let kept = self.line.remove(index)?;
        self.observed(true);
        Some(kept.due.saturating_duration_since(kept.made))
    }

    /// The time that `caller` was given, if it was given one: asking again before that changes nothing.
    pub fn of(&self, caller: u64) -> Option<Instant> {
        self.line.iter().find(|promise| promise.caller == caller).map(|promise| promise.due)
    }

    /// Requests that are expected back.
    pub fn expected(&self) -> f64 {
        self.share * self.line.len() as f64
    }

    /// Requests that are expected back for the second time, or later: they go before the others.
    pub fn expected_again(&self) -> f64 {
        self.share * self.line.iter().filter(|promise| promise.again).count() as f64
    }

    /// Whether a newcomer may take a place while there is room for `room` more, without taking it from anyone
    /// who is to come: by each one's time there must be room for those before it, at `rate` places a second.
    pub fn leave(&self, room: f64, rate: f64, now: Instant) -> bool {
        let mut expected = 0.0;
        self.line.iter().all(|promise| {
            expected += self.share;
            expected <= room + rate * promise.due.saturating_duration_since(now).as_secs_f64()
        })
    }

    pub fn make(&mut self, caller: u64, made: Instant, due: Instant, again: bool) {
        if self.line.len() < MOST {
            let index = self.line.partition_point(|promise| promise.due <= due);
            self.line.insert(index, Promise { made, due, caller, again });
        }
    }
}
