//! Promises to refused callers: when each should retry, and that it then goes ahead of new callers.
//!
//! A refused caller gets a turn in a line without a connection: the time at which there will be room for it if those
//! before it come back and are admitted. Callers with the same request take each other's turns, as nothing tells them
//! apart when they return, so each of them gets a turn of its own.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::time::{Duration, Instant};

/// A promise holds for this long after its time, and from this long before it.
const LATE: Duration = Duration::from_secs(3);
const EARLY: Duration = Duration::from_millis(100);
/// A forecast may be late by so much, or by this part of the wait: who returns in time is let in all the same, or waits
/// for so long without being refused again.
const BEHIND: Duration = Duration::from_secs(2);
const BEHIND_PART: f64 = 0.1;
/// The most promises kept; further callers get the longest wait and no promise.
const MOST: usize = 4096;
/// Of one request. More are taken for one client that asks again and again.
const MOST_ALIKE: usize = 256;
/// Weight of the newest promise in the share of callers that return.
const SMOOTHING: f64 = 0.02;
/// The share of returning callers that is always assumed.
const MIN_SHARE: f64 = 0.05;

/// Identifies the sender of a request, as far as that is possible without reading its body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asker {
    /// The same when the client retries, perhaps over another connection.
    pub request: u64,
    /// Tells clients with the same request apart while they ask.
    pub connection: u64,
}

impl Asker {
    /// The sender of `request` over `connection`, its peer's address and port.
    pub fn new(request: impl Hash, connection: impl Hash) -> Self {
        Self { request: hash(&request), connection: hash(&connection) }
    }
}

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// A caller that has returned in time.
#[derive(Debug, Clone, Copy)]
pub struct Claim {
    number: u64,
    /// By how much the forecast may be late for it.
    pub behind: Duration,
    /// When it has to be answered.
    pub until: Instant,
}

pub struct Promises {
    /// In order of time.
    line: VecDeque<Promise>,
    /// Those whose callers have returned and wait for an answer.
    claimed: Vec<Promise>,
    /// The number of the next promise.
    next: u64,
    /// The share of refused callers that return, 0 to 1.
    share: f64,
}

struct Promise {
    number: u64,
    made: Instant,
    /// The time that is kept free for it.
    planned: Instant,
    /// The time that it was told, in whole seconds.
    due: Instant,
    asker: Asker,
    /// The size of what the caller will bring, in any one unit: requests, characters.
    amount: f64,
    /// The caller has returned before and found no room.
    again: bool,
}

impl Default for Promises {
    fn default() -> Self {
        Self { line: VecDeque::new(), claimed: Vec::new(), next: 0, share: 1.0 }
    }
}

impl Promises {
    pub fn is_empty(&self) -> bool {
        self.line.is_empty() && self.claimed.is_empty()
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

    /// Takes the promise to `asker`, if it returns in time. It counts until [`Self::settle`].
    pub fn claim(&mut self, asker: Asker, now: Instant) -> Option<Claim> {
        let mut due = self.line.iter().take_while(|promise| promise.due <= now + EARLY);
        let index = due.position(|promise| promise.asker.request == asker.request)?;
        let promise = self.line.remove(index)?;
        self.observed(true);
        let behind = BEHIND.max((promise.due - promise.made).mul_f64(BEHIND_PART));
        let claim = Claim { number: promise.number, behind, until: promise.due.max(now) + behind };
        self.claimed.push(promise);
        Some(claim)
    }

    /// The caller that holds `claim` is answered or has left; nothing if it was settled before.
    pub fn settle(&mut self, claim: Claim) {
        self.claimed.retain(|promise| promise.number != claim.number);
    }

    /// When `asker` may return, if it has a promise: asking again before that changes nothing.
    pub fn of(&self, asker: Asker) -> Option<Instant> {
        let mut alike = self.line.iter().filter(|promise| promise.asker.request == asker.request);
        let own = alike.clone().find(|promise| promise.asker.connection == asker.connection);
        own.or_else(|| alike.nth(MOST_ALIKE - 1)).map(|promise| promise.due)
    }

    /// The amount that is expected to return.
    pub fn expected(&self) -> f64 {
        self.all(false).map(|(_, amount)| amount).sum()
    }

    /// The amount that is expected to return for the second time or later, which goes ahead of others.
    pub fn expected_again(&self) -> f64 {
        self.all(true).map(|(_, amount)| amount).sum()
    }

    /// The time that is kept free and the expected amount of each promise, in order of the times told. `again`: of those alone whose callers have
    /// returned.
    pub fn all(&self, again: bool) -> impl Iterator<Item = (Instant, f64)> {
        let here = self.claimed.iter().map(|promise| (promise.planned, promise.amount));
        let line = self.line.iter().filter(move |promise| promise.again || !again);
        here.chain(line.map(|promise| (promise.planned, self.share * promise.amount)))
    }

    /// Whether a new caller may be admitted without breaking a promise: `fits` says whether there will be room after a
    /// time for the amount that is expected until then.
    pub fn leave(&self, now: Instant, mut fits: impl FnMut(Duration, f64) -> bool) -> bool {
        let mut expected = 0.0;
        self.all(false).all(|(due, amount)| {
            expected += amount;
            fits(due.saturating_duration_since(now), expected)
        })
    }

    /// Promises `asker`, who will bring `amount`, room after `wait`, which it is told in whole seconds, one at least.
    /// `again`: for the second time or later.
    pub fn make(&mut self, (asker, amount): (Asker, f64), (made, wait): (Instant, Duration), again: bool) {
        if self.line.len() < MOST {
            let told = Duration::from_secs_f64(wait.as_secs_f64().ceil().max(1.0));
            let (planned, due) = (made + wait, made + told);
            let index = self.line.partition_point(|promise| promise.due <= due);
            let number = self.next;
            self.next += 1;
            self.line.insert(index, Promise { number, made, planned, due, asker, amount, again });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asker(request: u64, connection: u64) -> Asker {
        Asker { request, connection }
    }

    #[test]
    fn clients_with_the_same_request_have_a_turn_each() {
        let (mut line, start) = (Promises::default(), Instant::now());
        let after = |seconds: u64| start + Duration::from_secs(seconds);
        for client in 1..=3 {
            assert_eq!(line.of(asker(7, client)), None);
            line.make((asker(7, client), 1.0), (start, Duration::from_secs(10 * client)), false);
            // It asks too early, over the same connection.
            assert_eq!(line.of(asker(7, client)), Some(after(10 * client)));
        }
        assert!(line.claim(asker(7, 1), after(9)).is_none() && line.claim(asker(8, 1), after(10)).is_none());
        // They return over other connections.
        for client in 1..=3 {
            let claim = line.claim(asker(7, 90 + client), after(10 * client)).expect("its turn");
            assert_eq!(claim.behind, Duration::from_secs(2).max(Duration::from_secs(client)));
            assert_eq!(line.expected(), (4 - client) as f64, "counted until it is answered");
            line.settle(claim);
        }
        assert!(line.is_empty());
    }

    #[test]
    fn one_client_that_asks_without_end_does_not_lengthen_the_line_without_end() {
        let (mut line, start) = (Promises::default(), Instant::now());
        for connection in 0..1000 {
            if line.of(asker(7, connection)).is_none() {
                line.make((asker(7, connection), 1.0), (start, Duration::from_secs(60)), false);
            }
        }
        assert_eq!(line.expected(), MOST_ALIKE as f64);
    }

    #[test]
    fn who_does_not_return_is_counted_on_less() {
        let (mut line, start) = (Promises::default(), Instant::now());
        for client in 0..100 {
            line.make((asker(client, client), 1.0), (start, Duration::ZERO), false);
        }
        line.expire(start + Duration::from_secs(5));
        assert!(line.is_empty());
        line.make((asker(1, 1), 1.0), (start, Duration::ZERO), false);
        assert!(line.expected() < 0.2, "{}", line.expected());
    }
}
