//! Promises to refused callers: when each should retry, and that it then goes ahead of new callers.
//!
//! A refused caller gets a turn in a line without a connection: the time at which there will be room for it if those
//! before it come back and are admitted. A number identifies a caller and its request; callers with the same number
//! take each other's turns.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// A promise holds for this long after its time, and from this long before it.
const LATE: Duration = Duration::from_secs(3);
const EARLY: Duration = Duration::from_millis(100);
/// The most promises kept; further callers get the longest wait and no promise.
const MOST: usize = 4096;
/// Weight of the newest promise in the share of callers that return.
const SMOOTHING: f64 = 0.02;
/// The share of returning callers that is always assumed.
const MIN_SHARE: f64 = 0.05;

pub struct Promises {
    /// In order of time.
    line: VecDeque<Promise>,
    /// The share of refused callers that return, 0 to 1.
    share: f64,
}

struct Promise {
    made: Instant,
    due: Instant,
    caller: u64,
    /// The size of what the caller will bring, in any one unit: requests, characters.
    amount: f64,
    /// The caller has returned before and found no room.
    again: bool,
}

impl Default for Promises {
    fn default() -> Self {
        Self { line: VecDeque::new(), share: 1.0 }
    }
}

impl Promises {
    pub fn is_empty(&self) -> bool {
        self.line.is_empty()
    }

    fn observed(&mut self, came: bool) {
        self.share += SMOOTHING * (f64::from(u8::from(came)) - self.share);
        self.share = self.share.max(MIN_SHARE);
    }

    /// Removes promises whose callers did not return in time.
    pub fn expire(&mut self, now: Instant) {
        while self.line.front().is_some_and(|promise| promise.due + LATE < now) {
            self.line.pop_front();
            self.observed(false);
        }
    }

    /// Redeems the promise to `caller`, if it returns in time, and returns the wait that it was given.
    pub fn keep(&mut self, caller: u64, now: Instant) -> Option<Duration> {
        let due = self.line.iter().take_while(|promise| promise.due <= now + EARLY);
        let index = due.into_iter().position(|promise| promise.caller == caller)?;
        let kept = self.line.remove(index)?;
        self.observed(true);
        Some(kept.due.saturating_duration_since(kept.made))
    }

    /// When `caller` may return, if it has a promise: asking again before that changes nothing.
    pub fn of(&self, caller: u64) -> Option<Instant> {
        self.line.iter().find(|promise| promise.caller == caller).map(|promise| promise.due)
    }

    /// The amount that is expected to return.
    pub fn expected(&self) -> f64 {
        self.share * self.line.iter().map(|promise| promise.amount).sum::<f64>()
    }

    /// The amount that is expected to return for the second time or later, which goes ahead of others.
    pub fn expected_again(&self) -> f64 {
        let again = self.line.iter().filter(|promise| promise.again);
        self.share * again.map(|promise| promise.amount).sum::<f64>()
    }

    /// Whether a new caller may be admitted without breaking a promise: `fits` says whether there will be room after a
    /// time for the amount that is expected until then.
    pub fn leave(&self, now: Instant, mut fits: impl FnMut(Duration, f64) -> bool) -> bool {
        let mut expected = 0.0;
        self.line.iter().all(|promise| {
            expected += self.share * promise.amount;
            fits(promise.due.saturating_duration_since(now), expected)
        })
    }

    /// Promises `caller`, who will bring `amount`, room at `due`; `again`: for the second time or later.
    pub fn make(&mut self, (caller, amount): (u64, f64), (made, due): (Instant, Instant), again: bool) {
        if self.line.len() < MOST {
            let index = self.line.partition_point(|promise| promise.due <= due);
            self.line.insert(index, Promise { made, due, caller, amount, again });
        }
    }
}
