//! Health and progress of one worker, in atomics: the worker writes a few numbers at each model call and each step;
//! other threads read them at any time. Alignments, which run on several threads, are under a lock.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::progress::DeviceProgress;

/// The state of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    Working,
    /// The last probe failed, or a call that hung has returned. The next probe that succeeds ends this state.
    Failing,
    /// A call into the model does not return.
    Hung,
    /// The worker's thread has ended.
    Ended,
}

/// Totals since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    pub windows: u64,
    pub tokens: u64,
    pub steps: u64,
    /// Rounds of the worker's loop.
    pub loops: u64,
    /// The worker's own time in them, outside of the model's calls and without waiting for windows, in nanoseconds.
    pub host_nanoseconds: u64,
}

/// The number of a call, a wait or an alignment in progress, and how far the device has come. As long as it is the same,
/// nothing goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stage {
    pub number: u64,
    pub steps: u64,
}

/// Times are milliseconds since `base`, plus 1; 0 for none.
pub struct Board {
    base: Instant,
    progress: Arc<DeviceProgress>,
    condition: AtomicU8,
    /// How long the current call has been known to hang, or the worker to fail, in milliseconds.
    unwell_ms: AtomicU64,
    ended: AtomicBool,
    /// Incremented at the start and at the end of each model call, so odd during one.
    calls: AtomicU64,
    /// Incremented at the start and at the end of each wait for the device, so odd during one; and by two when the device
    /// goes on with another model meanwhile.
    turns: AtomicU64,
    /// The alignments of words in progress, by number, and the number of the next one.
    alignments: Mutex<(BTreeSet<u64>, u64)>,
    recognised_at: AtomicU64,
    /// Failed calls since the last successful one.
    failures: AtomicU64,
    /// A caller has stopped waiting for its window.
    left: AtomicBool,
    windows: AtomicU64,
    tokens: AtomicU64,
    steps: AtomicU64,
    loops: AtomicU64,
    host_nanoseconds: AtomicU64,
    active: AtomicU64,
    waiting: [AtomicU64; 3],
    oldest: [AtomicU64; 3],
}

impl Board {
    /// The board of a worker on the device of which `progress` is.
    pub fn new(progress: Arc<DeviceProgress>) -> Self {
        let board = Self {
            base: Instant::now(),
            progress,
            condition: AtomicU8::new(Condition::Working as u8),
            unwell_ms: AtomicU64::default(),
            ended: AtomicBool::default(),
            calls: AtomicU64::default(),
            turns: AtomicU64::default(),
            alignments: Mutex::default(),
            recognised_at: AtomicU64::default(),
            failures: AtomicU64::default(),
            left: AtomicBool::default(),
            windows: AtomicU64::default(),
            tokens: AtomicU64::default(),
            steps: AtomicU64::default(),
            loops: AtomicU64::default(),
            host_nanoseconds: AtomicU64::default(),
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

    fn stage(&self, number: u64) -> Option<Stage> {
        (!number.is_multiple_of(2)).then(|| Stage { number, steps: self.progress.steps() })
    }

    /// The model call in progress.
    pub fn in_call(&self) -> Option<Stage> {
        self.stage(self.calls.load(Relaxed))
    }

    pub fn turn_wait_begins(&self) {
        self.turns.fetch_add(1, Relaxed);
    }

    pub fn turn_wait_ends(&self) {
        self.turns.fetch_add(1, Relaxed);
    }

    pub fn turn_passes(&self) {
        self.turns.fetch_add(2, Relaxed);
    }

    /// The wait for the device in progress, during which the device does one thing.
    pub fn in_wait(&self) -> Option<Stage> {
        self.stage(self.turns.load(Relaxed))
    }

    /// Returns the number of the alignment that begins.
    pub fn alignment_begins(&self) -> u64 {
        let mut alignments = self.alignments.lock().unwrap_or_else(PoisonError::into_inner);
        let (in_progress, next) = &mut *alignments;
        let number = *next;
        in_progress.insert(number);
        *next += 1;
        number
    }

    pub fn alignment_ends(&self, number: u64) {
        self.alignments.lock().unwrap_or_else(PoisonError::into_inner).0.remove(&number);
    }

    /// The alignment that has been in progress for longest. The device has no part in it.
    pub fn in_alignment(&self) -> Option<Stage> {
        let alignments = self.alignments.lock().unwrap_or_else(PoisonError::into_inner);
        alignments.0.first().map(|&number| Stage { number, steps: 0 })
    }

    pub fn failures(&self) -> u64 {
        self.failures.load(Relaxed)
    }

    pub fn recognised(&self, now: Instant) {
        self.windows.fetch_add(1, Relaxed);
        self.recognised_at.store(self.stamp(now), Relaxed);
    }

    /// Time since a window was recognised, or since the start.
    pub fn since_recognised(&self, now: Instant) -> Duration {
        self.age(&self.recognised_at, now).unwrap_or_default()
    }

    pub fn stepped(&self, tokens: u64) {
        self.steps.fetch_add(1, Relaxed);
        self.tokens.fetch_add(tokens, Relaxed);
    }

    /// A round of the worker's loop is over, of which `host` was the worker's own time.
    pub fn looped(&self, host: Duration) {
        self.loops.fetch_add(1, Relaxed);
        self.host_nanoseconds.fetch_add(host.as_nanos() as u64, Relaxed);
    }

    pub fn counts(&self) -> Counts {
        Counts {
            windows: self.windows.load(Relaxed),
            tokens: self.tokens.load(Relaxed),
            steps: self.steps.load(Relaxed),
            loops: self.loops.load(Relaxed),
            host_nanoseconds: self.host_nanoseconds.load(Relaxed),
        }
    }

    pub fn occupied(&self, active: usize, waiting: [usize; 3]) {
        self.active.store(active as u64, Relaxed);
        for (waiting, count) in self.waiting.iter().zip(waiting) {
            waiting.store(count as u64, Relaxed);
        }
    }

    pub fn active(&self) -> u64 {
        self.active.load(Relaxed)
    }

    pub fn waiting(&self) -> [u64; 3] {
        self.waiting.each_ref().map(|count| count.load(Relaxed))
    }

    pub fn oldest_since(&self, since: [Option<Instant>; 3]) {
        for (oldest, since) in self.oldest.iter().zip(since) {
            oldest.store(since.map_or(0, |since| self.stamp(since)), Relaxed);
        }
    }

    pub fn oldest_ages(&self, now: Instant) -> [Duration; 3] {
        self.oldest.each_ref().map(|since| self.age(since, now).unwrap_or_default())
    }

    pub fn caller_left(&self) {
        self.left.store(true, SeqCst);
    }

    /// Whether a caller left since the last check.
    pub fn take_left(&self) -> bool {
        self.left.load(Relaxed) && self.left.swap(false, SeqCst)
    }

    pub fn end(&self) {
        self.ended.store(true, SeqCst);
    }

    /// `time`: how long a call has been known to hang, or the worker to fail; zero if neither.
    pub fn set_unwell_for(&self, time: Duration) {
        self.unwell_ms.store(time.as_millis() as u64, Relaxed);
    }

    pub fn unwell_for(&self) -> Duration {
        Duration::from_millis(self.unwell_ms.load(Relaxed))
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
