//! What the engine's thread shows while it works: whether it lives, and what it has done. It writes a few
//! numbers at each call into the model and each step; others read them when they like.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// Whether windows are recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    Working,
    /// What was tried last failed, or a call has come back that had hung: it works when the next try
    /// succeeds.
    Failing,
    /// A call into the model does not come back.
    Hung,
    /// The engine's thread is gone.
    Ended,
}

/// Done since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    pub windows: u64,
    pub tokens: u64,
    pub steps: u64,
}

/// Times are milliseconds since `base`, plus 1; 0: none.
pub struct Board {
    base: Instant,
    condition: AtomicU8,
    /// For how many milliseconds the present call has been found to hang.
    hung_ms: AtomicU64,
    ended: AtomicBool,
    /// Moves on with the beginning and the end of each call into the model; odd during one.
    calls: AtomicU64,
    recognised_at: AtomicU64,
    /// Calls that failed since one succeeded.
    failures: AtomicU64,
    /// Somebody who waited for a window is gone.
    left: AtomicBool,
    windows: AtomicU64,
    tokens: AtomicU64,
    steps: AtomicU64,
    active: AtomicU64,
    waiting: [AtomicU64; 3],
    oldest: [AtomicU64; 3],
}

impl Board {
    pub fn new() -> Self {
        let board = Self {
            base: Instant::now(),
            condition: AtomicU8::new(Condition::Working as u8),
            hung_ms: AtomicU64::default(),
            ended: AtomicBool::default(),
            calls: AtomicU64::default(),
            recognised_at: AtomicU64::default(),
            failures: AtomicU64::default(),
            left: AtomicBool::default(),
            windows: AtomicU64::default(),
            tokens: AtomicU64::default(),
            steps: AtomicU64::default(),
            active: AtomicU64::default(),
            waiting: Default::default(),
            oldest: Default::default(),
        };
        board.recognised_at.store(1, Relaxed);
        board
    }

    fn stamp(&self, time: Instant) -> u64 {
        time.saturating_duration_since(self.base).as_millis() as u64 + 1
    }

    fn age(&self, stamp: &AtomicU64, now: Instant) -> Option<Duration> {
        let stamp = stamp.load(Relaxed);
        (stamp > 0).then(|| Duration::from_millis(self.stamp(now).saturating_sub(stamp)))
    }

    pub fn call_begins(&self) {
        self.calls.fetch_add(1, Relaxed);
    }

    pub fn call_ends(&self, succeeded: bool) {
        self.calls.fetch_add(1, Relaxed);
        if succeeded {
            self.failures.store(0, Relaxed);
        } else {
            self.failures.fetch_add(1, Relaxed);
        }
    }

    /// The number of the call into the model that runs at present.
    pub fn in_call(&self) -> Option<u64> {
        Some(self.calls.load(Relaxed)).filter(|calls| !calls.is_multiple_of(2))
    }

    pub fn failures(&self) -> u64 {
        self.failures.load(Relaxed)
    }

    pub fn recognised(&self, now: Instant) {
        self.windows.fetch_add(1, Relaxed);
        self.recognised_at.store(self.stamp(now), Relaxed);
    }

    /// Since a window was recognised, or since the start.
    pub fn since_recognised(&self, now: Instant) -> Duration {
        self.age(&self.recognised_at, now).unwrap_or_default()
    }

    pub fn stepped(&self, tokens: u64) {
        self.steps.fetch_add(1, Relaxed);
        self.tokens.fetch_add(tokens, Relaxed);
    }

    pub fn counts(&self) -> Counts {
        Counts {
            windows: self.windows.load(Relaxed),
            tokens: self.tokens.load(Relaxed),
            steps: self.steps.load(Relaxed),
        }
    }

    pub fn occupied(&self, active: usize, waiting: [usize; 3]) {
        self.active.store(active as u64, Relaxed);
        for (place, count) in self.waiting.iter().zip(waiting) {
            place.store(count as u64, Relaxed);
        }
    }

    pub fn active(&self) -> u64 {
        self.active.load(Relaxed)
    }

    pub fn waiting(&self) -> [u64; 3] {
        self.waiting.each_ref().map(|count| count.load(Relaxed))
    }

    pub fn oldest_since(&self, since: [Option<Instant>; 3]) {
        for (place, since) in self.oldest.iter().zip(since) {
            place.store(since.map_or(0, |since| self.stamp(since)), Relaxed);
        }
    }

    pub fn oldest_ages(&self, now: Instant) -> [Duration; 3] {
        self.oldest.each_ref().map(|since| self.age(since, now).unwrap_or_default())
    }

    pub fn somebody_left(&self) {
        self.left.store(true, SeqCst);
    }

    /// Whether somebody left since the last look.
    pub fn take_left(&self) -> bool {
        self.left.load(Relaxed) && self.left.swap(false, SeqCst)
    }

    pub fn end(&self) {
        self.ended.store(true, SeqCst);
    }

    /// `time`: since a call was found to hang; none where it does not.
    pub fn hangs_for(&self, time: Duration) {
        self.hung_ms.store(time.as_millis() as u64, Relaxed);
    }

    pub fn hung_for(&self) -> Duration {
        Duration::from_millis(self.hung_ms.load(Relaxed))
    }

    pub fn set_condition(&self, condition: Condition) {
        self.condition.store(condition as u8, SeqCst);
    }

    pub fn condition(&self) -> Condition {
        if self.ended.load(SeqCst) {
            return Condition::Ended;
        }
        match self.condition.load(SeqCst) {
            state if state == Condition::Working as u8 => Condition::Working,
            state if state == Condition::Hung as u8 => Condition::Hung,
            _ => Condition::Failing,
        }
    }
}
