//! Deadlines of work, which move on by the time that the process stood still.

use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{LazyLock, Once};
use std::time::{Duration, Instant};

use tokio::time::timeout_at;

/// A deadline that is noticed later than this passed while the process stood still.
pub const STOOD_STILL: Duration = Duration::from_secs(1);
/// The interval at which the clock is looked at.
const TICK: Duration = Duration::from_millis(250);

static CLOCK: Clock = Clock::new();
/// The origin of times.
static BASE: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Measures how long the process stood still, from gaps between looks that should come every [`TICK`].
struct Clock {
    /// Milliseconds at the last look, plus 1; 0: there are no regular looks.
    looked_ms: AtomicU64,
    stood_still_ms: AtomicU64,
}

impl Clock {
    const fn new() -> Self {
        Self { looked_ms: AtomicU64::new(0), stood_still_ms: AtomicU64::new(0) }
    }

    fn look(&self, now_ms: u64) {
        let before = self.looked_ms.fetch_max(now_ms + 1, SeqCst);
        let gap = Duration::from_millis((now_ms + 1).saturating_sub(before));
        if before > 0 && gap >= TICK + STOOD_STILL {
            self.stood_still_ms.fetch_add(gap.as_millis() as u64, SeqCst);
        }
    }

    /// The total time that the process has stood still, as known at `now_ms`.
    fn stood_still(&self, now_ms: u64) -> u64 {
        // Gaps mean nothing if no thread looks at the clock regularly.
        if self.looked_ms.load(SeqCst) > 0 {
            self.look(now_ms);
        }
        self.stood_still_ms.load(SeqCst)
    }
}

fn now_ms() -> u64 {
    BASE.elapsed().as_millis() as u64
}

/// From here on, deadlines move on when the process stands still. A second call changes nothing.
pub fn watch_the_clock() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        let look = || {
            loop {
                CLOCK.look(now_ms());
                std::thread::sleep(TICK);
            }
        };
        if let Err(error) = std::thread::Builder::new().name("clock".into()).spawn(look) {
            tracing::warn!(%error, "deadlines will count the time in which the process stands still");
        }
    });
}

/// A time by which work must be done.
#[derive(Debug, Clone, Copy)]
pub struct Deadline {
    at: Instant,
    /// The time that the process had stood still when the deadline was set.
    stood_still_ms: u64,
}

impl Deadline {
    /// A deadline `limit` from now.
    pub fn after(limit: Duration) -> Self {
        Self { at: Instant::now() + limit, stood_still_ms: CLOCK.stood_still(now_ms()) }
    }

    /// Its instant, if the process does not stand still before.
    fn at(&self, clock: &Clock, now_ms: u64) -> Instant {
        let since = clock.stood_still(now_ms).saturating_sub(self.stood_still_ms);
        self.at + Duration::from_millis(since)
    }

    pub fn has_passed(&self, now: Instant) -> bool {
        now >= self.at(&CLOCK, now_ms())
    }

    /// Waits for `future`; `None` if the deadline comes first. Cancel-safe if `future` is.
    pub async fn wait<T>(&self, future: impl Future<Output = T>) -> Option<T> {
        let mut future = pin!(future);
        loop {
            if let Ok(done) = timeout_at(self.at(&CLOCK, now_ms()).into(), future.as_mut()).await {
                return Some(done);
            }
            if self.has_passed(Instant::now()) {
                return None;
            }
        }
    }
}

/// As [`Deadline::wait`], or without a limit if there is no deadline.
pub async fn by<T>(deadline: Option<Deadline>, future: impl Future<Output = T>) -> Option<T> {
    match deadline {
        Some(deadline) => deadline.wait(future).await,
        None => Some(future.await),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_moves_on_by_the_time_that_the_process_stood_still() {
        let (clock, start) = (Clock::new(), Instant::now());
        let deadline = Deadline { at: start, stood_still_ms: 0 };
        let at = |now_ms| deadline.at(&clock, now_ms).duration_since(start);
        assert_eq!(at(60_000), Duration::ZERO, "no thread watches the clock");
        let mut now = 60_000;
        for _ in 0..40 {
            clock.look(now);
            now += 250;
        }
        assert_eq!(at(now), Duration::ZERO);
        // Late looks on a busy machine are not a standstill.
        now += 900;
        assert_eq!(at(now), Duration::ZERO);
        // The first look after the process goes on notices it.
        now += 20_000;
        assert_eq!(at(now), Duration::from_secs(20));
        clock.look(now);
        assert_eq!(at(now), Duration::from_secs(20), "it counts once");
        let later = Deadline { at: start, stood_still_ms: clock.stood_still(now) };
        assert_eq!(later.at(&clock, now), start, "before it was set does not count");
    }

    #[tokio::test]
    async fn what_is_not_done_by_the_deadline_is_not_waited_for() {
        let passed = Deadline::after(Duration::ZERO);
        assert!(passed.has_passed(Instant::now()));
        assert_eq!(passed.wait(std::future::pending::<()>()).await, None);
        assert_eq!(passed.wait(async { 7 }).await, Some(7), "what is ready is taken");
        assert!(!Deadline::after(Duration::from_secs(3600)).has_passed(Instant::now()));
        assert_eq!(by(None, async { 7 }).await, Some(7));
    }
}
