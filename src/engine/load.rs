//! How much audio the engine holds, and how fast it gets through it: the basis of admission.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::{Config, Error};

/// Weight of the newest measurement in the running rate.
const SMOOTHING: f64 = 0.2;
/// Progress is counted over at least this long before it makes a measurement.
const MEASURED_OVER: Duration = Duration::from_secs(1);
/// Bounds of what a refused client is told to wait, in seconds.
const RETRY_AFTER: std::ops::RangeInclusive<f64> = 1.0..=120.0;

/// Audio seconds that may be held however slow the last second was: a rate that was measured on a few short
/// clips, each of which costs a whole window, must not shut the door on the next.
const MIN_HELD: f64 = 120.0;

pub struct Load {
    max_wait_seconds: f64,
    max_held_seconds: f64,
    state: Mutex<State>,
}

struct State {
    /// Audio seconds accepted and not yet done.
    held: f64,
    /// Audio seconds done in a wall second, while there was work. `None` before the first measurement.
    rate: Option<f64>,
    measured_from: Option<Instant>,
    done: f64,
}

/// Leave to bring in so many seconds of audio. What was not marked done is given back on drop.
pub struct Admission {
    /// `None`: work that is not counted.
    load: Option<Arc<Load>>,
    remaining: Mutex<f64>,
}

impl Load {
    pub fn new(config: &Config) -> Self {
        let state = State { held: 0.0, rate: None, measured_from: None, done: 0.0 };
        Self {
            max_wait_seconds: config.max_wait_seconds,
            max_held_seconds: config.max_held_seconds,
            state: Mutex::new(state),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere cannot leave these numbers inconsistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Accepts `seconds` of audio. An idle engine accepts any one piece; otherwise the wait for what
    /// is held must stay within bounds.
    ///
    /// # Errors
    /// [`Error::Overloaded`], with the time until there is room.
    pub fn admit(self: &Arc<Self>, seconds: f64) -> Result<Admission, Error> {
        let mut state = self.state();
        let rate = state.rate.unwrap_or(1.0).max(0.01);
        let bound = match state.rate {
            Some(rate) if self.max_wait_seconds.is_finite() => {
                (rate * self.max_wait_seconds).max(MIN_HELD).min(self.max_held_seconds)
            }
            _ => self.max_held_seconds,
        };
        let excess = state.held + seconds - bound;
        if state.held > 0.0 && excess > 0.0 {
            let wait = (excess.min(state.held) / rate).ceil().clamp(*RETRY_AFTER.start(), *RETRY_AFTER.end());
            return Err(Error::Overloaded { retry_after: Duration::from_secs_f64(wait) });
        }
        if state.held == 0.0 {
            state.measured_from = Some(Instant::now());
            state.done = 0.0;
        }
        state.held += seconds;
        Ok(Admission { load: Some(self.clone()), remaining: Mutex::new(seconds) })
    }

    pub fn held_seconds(&self) -> f64 {
        self.state().held
    }

    /// Audio seconds done in a wall second, as last measured under load.
    pub fn rate(&self) -> Option<f64> {
        self.state().rate
    }
}

impl Admission {
    /// Leave that counts for nothing: whoever gives it bounds the work by other means.
    pub(super) fn uncounted() -> Self {
        Self { load: None, remaining: Mutex::new(0.0) }
    }

    /// `seconds` of the audio are transcribed.
    pub fn done(&self, seconds: f64) {
        let Some(load) = &self.load else { return };
        let mut remaining = self.remaining.lock().unwrap_or_else(PoisonError::into_inner);
        let seconds = seconds.min(*remaining);
        *remaining -= seconds;
        let mut state = load.state();
        state.held = (state.held - seconds).max(0.0);
        state.done += seconds;
        let Some(from) = state.measured_from else { return };
        let elapsed = from.elapsed();
        if elapsed >= MEASURED_OVER {
            let measured = state.done / elapsed.as_secs_f64();
            state.rate = Some(state.rate.map_or(measured, |rate| rate + SMOOTHING * (measured - rate)));
            state.measured_from = Some(Instant::now());
            state.done = 0.0;
        }
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        let Some(load) = &self.load else { return };
        let remaining = *self.remaining.get_mut().unwrap_or_else(PoisonError::into_inner);
        let mut state = load.state();
        state.held -= remaining;
        // Sums of fractions: what is less than a sample is nothing.
        if state.held < 1e-5 {
            state.held = 0.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(max_held_seconds: f64) -> Arc<Load> {
        Arc::new(Load::new(&Config { max_held_seconds, ..Config::default() }))
    }

    #[test]
    fn an_idle_engine_takes_one_long_file_and_then_refuses_until_it_is_done() {
        let load = load(100.0);
        let long = load.admit(500.0).expect("idle");
        assert!(matches!(load.admit(1.0), Err(Error::Overloaded { .. })));
        long.done(450.0);
        let second = load.admit(10.0).expect("50 s are held, 100 s allowed");
        drop(long);
        drop(second);
        assert_eq!(load.held_seconds(), 0.0);
    }

    #[test]
    fn without_bounds_nothing_is_refused() {
        let load = Arc::new(Load::new(&Config::unbounded()));
        let first = load.admit(1e6).expect("idle");
        load.state().rate = Some(0.0);
        let second = load.admit(1e6).expect("no bound");
        first.done(1e5);
        assert!(load.admit(1e6).is_ok());
        drop((first, second));
        assert_eq!(load.held_seconds(), 0.0);
    }

    #[test]
    fn work_given_up_makes_room_at_once() {
        let load = load(100.0);
        let first = load.admit(90.0).expect("idle");
        assert!(load.admit(20.0).is_err());
        drop(first);
        assert!(load.admit(20.0).is_ok());
    }
}
