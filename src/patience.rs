//! Time limits for peers that count only time in which this process was running.
//!
//! A process stands still while it is stopped (SIGSTOP), while its laptop sleeps, or while its virtual machine moves.
//! When it wakes up, all of its deadlines have passed, and the runtime may notice that before it notices the data that came in
//! meanwhile: the system's wait for sockets returns empty-handed when a stopped process goes on. So a deadline
//! that turns out to be long past starts over, and one that has only just passed gets one last look at the data. A
//! [`Deadline`] of work moves on by the time that the process stood still.

mod deadline;

pub use deadline::{Deadline, STOOD_STILL, by, watch_the_clock};

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until, timeout_at};

/// Waited after a deadline, so that sockets that became readable before it are read.
pub const LAST_LOOK: Duration = Duration::from_millis(250);

/// A time limit for a peer, for repeated waits.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    limit: Duration,
    until: Instant,
    is_last_look: bool,
}

impl Patience {
    /// Starts now.
    pub fn new(limit: Duration) -> Self {
        Self { limit, until: Instant::now() + limit, is_last_look: false }
    }

    /// Starts the wait anew.
    pub fn renew(&mut self) {
        *self = Self::new(self.limit);
    }

    /// The instant at which to look at the clock again.
    pub fn until(&self) -> Instant {
        self.until
    }

    /// Called at `now` when the time is up: whether some is left after all.
    pub fn goes_on(&mut self, now: Instant) -> bool {
        if now.saturating_duration_since(self.until) >= STOOD_STILL {
            *self = Self { limit: self.limit, until: now + self.limit, is_last_look: false };
            return true;
        }
        let goes_on = !self.is_last_look;
        (self.until, self.is_last_look) = (now + LAST_LOOK, true);
        goes_on
    }

    /// Waits for `future`; `None` if the patience ends first. Cancel-safe if `future` is.
    pub async fn wait<T>(&mut self, future: impl Future<Output = T>) -> Option<T> {
        let mut future = pin!(future);
        loop {
            if let Ok(done) = timeout_at(self.until, future.as_mut()).await {
                return Some(done);
            }
            if !self.goes_on(Instant::now()) {
                return None;
            }
        }
    }
}

/// Waits `limit` for `future`, as [`Patience::wait`] does.
pub async fn within<T>(limit: Duration, future: impl Future<Output = T>) -> Option<T> {
    Patience::new(limit).wait(future).await
}

/// The rate at which a peer must send: some bytes within `idle` and, after `grace`, this rate over the longer of
/// the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    pub idle: Duration,
    pub grace: Duration,
    /// 0: any rate will do.
    pub bytes_per_second_min: u64,
}

/// A wait for a peer that sends piece by piece, as long as it keeps to a [`Rate`].
#[derive(Debug)]
pub struct RateTimer {
    rate: Rate,
    /// The instant at which the rate falls too low if nothing more comes.
    by: Instant,
}

impl RateTimer {
    /// Starts now.
    pub fn new(rate: Rate) -> Self {
        Self { rate, by: Instant::now() + rate.grace }
    }

    /// Counts bytes that the peer has sent. Bytes that came faster than needed earn at most the time for which the
    /// peer may be silent: a burst does not pay for a trickle.
    pub fn received(&mut self, bytes: u64) {
        // In nanoseconds, because a few bytes earn less than a millisecond, and many such pieces may come in one.
        let earned_ns = bytes.saturating_mul(1_000_000_000).checked_div(self.rate.bytes_per_second_min);
        if let Some(earned_ns) = earned_ns {
            let latest = Instant::now() + self.rate.idle.max(self.rate.grace);
            let earned = self.by.checked_add(Duration::from_nanos(earned_ns));
            self.by = earned.map_or(latest, |by| by.min(latest));
        }
    }

    /// The instant by which the next bytes must have come, if none have come since `now`.
    fn deadline(&self, now: Instant) -> Instant {
        let idle = now + self.rate.idle;
        if self.rate.bytes_per_second_min == 0 { idle } else { idle.min(self.by) }
    }

    /// Waits for `future`, the next piece; `None` if the peer is too slow. Cancel-safe if `future` is.
    pub async fn wait<T>(&mut self, future: impl Future<Output = T>) -> Option<T> {
        let mut future = pin!(future);
        loop {
            let deadline = self.deadline(Instant::now());
            if let Ok(done) = timeout_at(deadline, future.as_mut()).await {
                return Some(done);
            }
            // Without a last look: a peer that sends a byte in each would never be given up.
            if Instant::now().saturating_duration_since(deadline) < STOOD_STILL {
                return None;
            }
            *self = Self::new(self.rate);
        }
    }
}

/// The end of a [`Patience`], for code that polls. Once ready it stays ready until a reset.
pub struct Lapse {
    patience: Patience,
    timer: Pin<Box<Sleep>>,
    is_over: bool,
}

impl Lapse {
    /// Ends `limit` from now.
    pub fn new(limit: Duration) -> Self {
        let patience = Patience::new(limit);
        Self { patience, timer: Box::pin(sleep_until(patience.until)), is_over: false }
    }

    /// Makes it end `limit` from now.
    pub fn reset(&mut self, limit: Duration) {
        (self.patience, self.is_over) = (Patience::new(limit), false);
        self.timer.as_mut().reset(self.patience.until);
    }
}

impl Future for Lapse {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        while !self.is_over {
            ready!(self.timer.as_mut().poll(cx));
            self.is_over = !self.patience.goes_on(Instant::now());
            let until = self.patience.until;
            self.timer.as_mut().reset(until);
        }
        Poll::Ready(())
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use tokio::time::{advance, sleep};

    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    fn is_over(lapse: &mut Lapse) -> bool {
        Pin::new(lapse).poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[tokio::test(start_paused = true)]
    async fn silence_ends_it_after_one_last_look() {
        let start = Instant::now();
        assert_eq!(within(LIMIT, std::future::pending::<()>()).await, None);
        assert_eq!(start.elapsed(), LIMIT + LAST_LOOK);
        Lapse::new(LIMIT).await;
        assert_eq!(start.elapsed(), 2 * (LIMIT + LAST_LOOK));
    }

    #[tokio::test(start_paused = true)]
    async fn what_comes_in_time_is_taken() {
        let start = Instant::now();
        assert!(within(LIMIT, sleep(LIMIT)).await.is_some());
        // The runtime may notice a little later what came before the deadline.
        assert!(within(LIMIT, sleep(LIMIT + LAST_LOOK / 2)).await.is_some());
        assert_eq!(start.elapsed(), 2 * LIMIT + LAST_LOOK / 2);
    }

    #[tokio::test(start_paused = true)]
    async fn time_in_which_the_process_stood_still_does_not_count() {
        let start = Instant::now();
        let waits = tokio::spawn(within(LIMIT, std::future::pending::<()>()));
        let mut lapse = Lapse::new(LIMIT);
        assert!(!is_over(&mut lapse));
        tokio::task::yield_now().await;
        // Twice, as a virtual machine that moves there and back.
        for _ in 0..2 {
            advance(LIMIT + STOOD_STILL).await;
            tokio::task::yield_now().await;
            assert!(!waits.is_finished());
            assert!(!is_over(&mut lapse));
        }
        let (waited, ()) = tokio::join!(waits, lapse);
        assert_eq!(waited.expect("no panic"), None);
        assert_eq!(start.elapsed(), 2 * (LIMIT + STOOD_STILL) + LIMIT + LAST_LOOK);
    }

    const RATE: Rate = Rate { idle: LIMIT, grace: Duration::from_secs(5), bytes_per_second_min: 1000 };

    /// For how long a peer is waited for that sends so many bytes at a time.
    async fn endured(rate: Rate, bytes: u64, every: Duration, seconds_max: u64) -> Duration {
        let (mut timer, start) = (RateTimer::new(rate), Instant::now());
        timer.received(bytes);
        while start.elapsed() < Duration::from_secs(seconds_max) && timer.wait(sleep(every)).await.is_some() {
            timer.received(bytes);
        }
        start.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_must_keep_its_rate() {
        let second = Duration::from_secs(1);
        assert_eq!(endured(RATE, 1000, second, 60).await, 60 * second);
        // Four bytes a second earn little more than the grace.
        let trickle = endured(RATE, 1, second / 4, 60).await;
        assert!(trickle >= RATE.grace && trickle < RATE.grace + second, "{trickle:?}");
        // Seconds of silence are made up for by what came before.
        assert_eq!(endured(RATE, 10_000, 9 * second, 60).await, 63 * second);
        // Where any rate will do, only silence counts.
        let any = Rate { bytes_per_second_min: 0, ..RATE };
        assert_eq!(endured(any, 1, 9 * second, 60).await, 63 * second);
        assert_eq!(endured(any, 1, 11 * second, 60).await, LIMIT);
    }

    #[tokio::test(start_paused = true)]
    async fn the_smallest_pieces_count() {
        let (mut timer, start) =
            (RateTimer::new(Rate { bytes_per_second_min: 3000, ..RATE }), Instant::now());
        // Four bytes a millisecond, one at a time.
        while start.elapsed() < Duration::from_secs(60)
            && timer.wait(sleep(Duration::from_millis(1))).await.is_some()
        {
            (0..4).for_each(|_| timer.received(1));
        }
        assert_eq!(start.elapsed(), Duration::from_secs(60));
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_pays_for_no_trickle() {
        let mut timer = RateTimer::new(RATE);
        timer.received(1 << 30);
        let start = Instant::now();
        while timer.wait(sleep(Duration::from_secs(1))).await.is_some() {
            timer.received(1);
        }
        assert!(start.elapsed() < LIMIT + Duration::from_secs(1), "{:?}", start.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_rate_is_of_the_time_that_the_process_lived_through() {
        let mut timer = RateTimer::new(RATE);
        let (send, receive) = tokio::sync::oneshot::channel();
        let waits = tokio::spawn(async move { timer.wait(receive).await });
        tokio::task::yield_now().await;
        advance(Duration::from_secs(3600)).await;
        tokio::task::yield_now().await;
        send.send(()).expect("it waits");
        assert!(waits.await.expect("no panic").is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_sign_begins_it_anew() {
        let mut patience = Patience::new(LIMIT);
        sleep(LIMIT / 2).await;
        patience.renew();
        let start = Instant::now();
        assert_eq!(patience.wait(std::future::pending::<()>()).await, None);
        assert_eq!(start.elapsed(), LIMIT + LAST_LOOK);
    }
}
