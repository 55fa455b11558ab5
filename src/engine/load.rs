//! What the engine has taken on, and how long that will take: the basis of admission.
//!
//! Work is counted as windows and seconds, of which [`Cost`] knows what they take, as a second of a short clip
//! costs far more than a second of a long file. Admission is in two stages: a request is let in at the door
//! ([`Load::enter`]) with what a request usually brings, before its audio is read; the audio itself is let in
//! ([`Load::admit`]) when its length is known. Pure but for the lock: time is given.

mod cost;
mod promises;
#[cfg(test)]
mod tests;

use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use self::cost::{Cost, Pace, Work};
use self::promises::Promises;
use super::{Config, Error};

/// Bounds of what a refused client is told to wait, in seconds.
const RETRY_AFTER: RangeInclusive<f64> = 1.0..=120.0;
/// A full window may be held however slow the engine was of late: one slow second does not shut the door.
const MIN_HELD_WINDOWS: f64 = 1.0;
/// And two requests somewhat longer than usual, one that is worked on and one that is ready: with less, the engine
/// would stand still from each answer to the next request.
const MIN_HELD_REQUESTS: f64 = 2.5;
/// Audio in hand has cost its reading already: it may exceed the bound on waiting that was kept at the door by
/// so much, which is what a request may bring beyond the usual.
const IN_HAND: f64 = 1.25;
/// Who comes back when told to may find the engine a little behind what was foreseen.
const BEHIND_SECONDS: f64 = 2.00;
/// Weight of the newest request in what a request usually brings.
const SMOOTHING: f64 = 0.05;

pub struct Load {
    max_wait_seconds: f64,
    max_held_seconds: f64,
    max_requests: usize,
    state: Mutex<State>,
}

struct State {
    /// Devices that work side by side, and what they can have in hand at once: while fewer windows are held,
    /// nobody's place is kept, as the engine would stand still, or do less than it could, for those who may come back.
    lanes: f64,
    slots: f64,
    cost: Cost,
    pace: Pace,
    promises: Promises,
    /// Accepted and not yet done.
    held: Work,
    /// What requests are to bring whose audio is still to come.
    expected: Work,
    /// What a request usually brings.
    usual: Work,
    requests: usize,
}

/// What is held, for those who watch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Held {
    pub requests: usize,
    pub audio_seconds: f64,
    /// Until it is done, where the speed is known.
    pub wait_seconds: Option<f64>,
    /// Audio seconds that the engine does in a second of its time.
    pub real_time_factor: Option<f64>,
}

/// A request's place, from the door to its answer.
pub struct Place {
    load: Arc<Load>,
    expected: Option<Expected>,
}

/// What a request is to bring; to be dropped when its audio is read, and is no longer only expected.
pub struct Expected {
    load: Arc<Load>,
    work: Work,
}

/// Leave to bring in so many seconds of audio. What was not marked done is given back on drop.
pub struct Admission {
    /// `None`: work that is not counted.
    load: Option<Arc<Load>>,
    remaining: Mutex<Work>,
}

impl State {
    /// Until `work` is done, if it is begun now and nothing else is, in seconds.
    fn time(&self, work: Work) -> f64 {
        self.cost.of(work) / (self.pace.get() * self.lanes)
    }

    fn is_idle(&self) -> bool {
        self.held == Work::default() && self.expected == Work::default()
    }
}

impl Load {
    pub fn new(config: &Config) -> Self {
        let state = State {
            lanes: 1.0,
            slots: 0.0,
            cost: Cost::new(),
            pace: Pace::default(),
            promises: Promises::new(),
            held: Work::default(),
            expected: Work::default(),
            usual: Work::window(1.0),
            requests: 0,
        };
        Self {
            max_wait_seconds: config.max_wait_seconds,
            max_held_seconds: config.max_held_seconds,
            max_requests: config.max_requests,
            state: Mutex::new(state),
        }
    }

    /// So many devices work, on so many windows at once in all.
    pub fn started(&self, lanes: usize, slots: usize) {
        let mut state = self.state();
        (state.lanes, state.slots) = (lanes as f64, slots as f64);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere cannot leave these numbers inconsistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The longest that what is held may take. No bound before the speed is known: the one on seconds of audio
    /// holds always.
    fn bound(&self, state: &State) -> f64 {
        let Some(full_window) = state.cost.of_full_window() else { return f64::INFINITY };
        let least = (MIN_HELD_WINDOWS * full_window).max(MIN_HELD_REQUESTS * state.time(state.usual));
        self.max_wait_seconds.max(least)
    }

    /// How long it takes until there is room for `work` beside what is held, in seconds; 0 or less where there
    /// is. `bound` is on the time that what is held takes.
    fn excess(&self, state: &State, work: Work, bound: f64) -> f64 {
        let together = state.held + work;
        let audio = together.seconds - self.max_held_seconds;
        let over = if audio > 0.0 {
            state.time(together.times(audio / together.seconds))
        } else {
            f64::NEG_INFINITY
        };
        (state.time(together + state.expected) - bound).max(over)
    }

    /// Lets a request in, before its audio is read. `caller` is the same number whenever the same caller asks
    /// for the same thing.
    ///
    /// # Errors
    /// [`Error::Overloaded`], with the time at which there will be room for this caller.
    pub fn enter(self: &Arc<Self>, caller: u64, now: Instant) -> Result<Place, Error> {
        let mut state = self.state();
        state.promises.expire(now);
        let usual = state.usual;
        let one = state.time(usual).max(1e-6);
        let returned = state.promises.keep(caller, now);
        let crowd = (state.requests + 1).saturating_sub(self.max_requests) as f64 * one;
        let excess = self.excess(&state, usual, self.bound(&state));
        let behind = if returned { BEHIND_SECONDS } else { 0.0 };
        let fits = crowd <= 0.0 && excess <= behind;
        let is_short_of_work = (state.held + state.expected).windows < state.slots;
        let may_pass = |promises: &Promises| promises.leave(-excess / one, 1.0 / one, now);
        let welcome = fits && (returned || is_short_of_work || may_pass(&state.promises));
        if welcome || (state.is_idle() && state.requests == 0) {
            state.requests += 1;
            state.expected = state.expected + usual;
            let expected = Expected { load: self.clone(), work: usual };
            return Ok(Place { load: self.clone(), expected: Some(expected) });
        }
        let line = if returned { 0.0 } else { state.promises.expected() * one };
        let wait = retry_after(excess.max(crowd).max(0.0) + line);
        if wait.as_secs_f64() < *RETRY_AFTER.end() {
            state.promises.make(caller, now + wait);
        }
        Err(Error::Overloaded { retry_after: wait })
    }

    /// Accepts `seconds` of audio. An idle engine accepts any one piece; otherwise the wait for what
    /// is held must stay within bounds.
    ///
    /// # Errors
    /// [`Error::Overloaded`], with the time until there is room.
    pub fn admit(self: &Arc<Self>, seconds: f64) -> Result<Admission, Error> {
        let mut state = self.state();
        let work = Work::audio(seconds);
        let excess = self.excess(&state, work, self.bound(&state) * IN_HAND);
        if state.held.seconds > 0.0 && excess > 0.0 {
            let line = state.promises.expected() * state.time(state.usual);
            return Err(Error::Overloaded {
                retry_after: retry_after(excess.min(state.time(state.held)) + line),
            });
        }
        state.held = state.held + work;
        state.usual = state.usual.times(1.0 - SMOOTHING) + work.times(SMOOTHING);
        Ok(Admission { load: Some(self.clone()), remaining: Mutex::new(work) })
    }

    pub fn held_seconds(&self) -> f64 {
        self.state().held.seconds
    }

    pub fn held(&self) -> Held {
        let state = self.state();
        Held {
            requests: state.requests,
            audio_seconds: state.held.seconds,
            wait_seconds: state.cost.of_full_window().map(|_| state.time(state.held + state.expected)),
            real_time_factor: state.pace.audio().map(|factor| factor * state.lanes),
        }
    }

    /// The engine's thread was busy with the model for `seconds`.
    pub fn busy(&self, seconds: f64) {
        let mut state = self.state();
        // Where nothing is held, it did what is not counted here.
        if !state.is_idle() {
            state.pace.busy(seconds);
        }
    }

    /// A window of `seconds` took `busy` seconds of the engine's time.
    pub fn learn(&self, seconds: f64, busy: f64) {
        self.state().cost.learn(seconds, busy);
    }
}

fn retry_after(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds.clamp(*RETRY_AFTER.start(), *RETRY_AFTER.end()).ceil())
}

impl Place {
    /// What is expected, for whoever reads the audio; once.
    pub fn take_expected(&mut self) -> Option<Expected> {
        self.expected.take()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.load.state().requests -= 1;
    }
}

impl Drop for Expected {
    fn drop(&mut self) {
        let mut state = self.load.state();
        state.expected = state.expected.without(self.work);
    }
}

impl Admission {
    /// Leave that counts for nothing: whoever gives it bounds the work by other means.
    pub(super) fn uncounted() -> Self {
        Self { load: None, remaining: Mutex::new(Work::default()) }
    }

    fn remaining(&self) -> MutexGuard<'_, Work> {
        self.remaining.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The audio is cut into windows of so many seconds: what they cost, and no more, is what is held now.
    pub fn cut(&self, windows: impl Iterator<Item = f64>) {
        let Some(load) = &self.load else { return };
        let mut remaining = self.remaining();
        let mut state = load.state();
        let work = windows.fold(Work::default(), |sum, seconds| sum + Work::window(seconds));
        let before = std::mem::replace(&mut *remaining, work);
        state.held = (state.held + work).without(before);
    }

    /// `seconds` of the audio are transcribed; infinite: all that is left.
    pub fn done(&self, seconds: f64) {
        let Some(load) = &self.load else { return };
        let mut remaining = self.remaining();
        let part = if seconds < remaining.seconds { seconds / remaining.seconds } else { 1.0 };
        let done = remaining.times(part);
        *remaining = remaining.times(1.0 - part);
        let mut state = load.state();
        let foreseen = state.cost.of(done);
        state.pace.done(foreseen, done.seconds);
        state.held = state.held.without(done);
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        let Some(load) = &self.load else { return };
        let remaining = *self.remaining();
        let mut state = load.state();
        state.held = state.held.without(remaining);
    }
}
