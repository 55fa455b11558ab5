//! Admission: the work in hand, how long it will take, and whether there is room for more.
//!
//! Work is counted as windows and seconds, which [`Cost`] converts to time, as a second of a short clip costs far more
//! than a second of a long file. Admission has two stages: [`Load::enter`] admits a request before its audio is read,
//! with the work that a request usually brings; [`Load::admit`] admits the audio itself once its length is known or
//! estimated. Work is done once it is recognised; the audio's memory (`memory.rs`) is held until its transcript is
//! done.
//!
//! The queue is fair between tenants, so the bound is on each tenant's own wait: while its work is being done, every
//! other tenant gets at most as much done. A tenant with little work is admitted however much another one has waiting,
//! and each has its own line of refused clients that may return. Pure but for the lock: callers pass the time.

mod cost;
mod memory;
mod permits;
mod promises;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use self::cost::{Cost, Reading, Throughput, Work};
use self::memory::Memory;
pub use self::memory::MemoryReservation;
pub use self::permits::{AudioPermit, RequestPermit, Reservation};
use self::promises::Promises;
use super::fairness::Flow;
use super::window::TenantId;
use super::{Config, Error};
use crate::share::{Refused, Tenants, may_hold};

/// Bounds of `Retry-After`, in seconds.
const RETRY_AFTER: RangeInclusive<f64> = 1.0..=120.0;
/// There is always room for a full window, so that one slow second does not refuse everything.
const MIN_HELD_WINDOWS: f64 = 1.0;
/// There is always room for two requests somewhat longer than usual, one in progress and one ready: with less, the
/// engine would idle between an answer and the next request.
const MIN_HELD_REQUESTS: f64 = 2.5;
/// Uploaded audio may exceed the bound on waiting at entry by this factor: its upload is paid for, and a request may
/// bring more than the usual.
const IN_HAND: f64 = 1.25;
/// A client that retries after `Retry-After` is admitted even if the engine is behind the forecast by so many seconds,
/// or by this part of its wait.
const BEHIND_SECONDS: f64 = 2.0;
const BEHIND_PART: f64 = 0.1;
/// A tenant with a smaller recent share of the engine's time counts as gone.
const NO_PART: f64 = 0.02;
/// Weight of the newest request in the work that a request usually brings.
const SMOOTHING: f64 = 0.05;

pub struct Load {
    max_wait_seconds: f64,
    memory: Arc<Memory>,
    max_requests: usize,
    state: Mutex<State>,
}

struct State {
    /// The number of organisations that share the engine.
    tenants: Tenants,
    /// Devices that work side by side, and their slots together: while fewer windows are in hand, nothing is kept
    /// free for clients that may return, so that the engine does not idle.
    devices: f64,
    slots: f64,
    /// Cores that decode.
    readers: f64,
    cost: Cost,
    reading: Reading,
    throughput: Throughput,
    /// The work that a request usually brings.
    usual: Work,
    /// All tenants' together.
    held: Work,
    expected: Work,
    requests: usize,
    accounts: HashMap<TenantId, Account>,
}

/// One tenant's part of the load; removed when it is empty.
struct Account {
    /// Accepted audio that is not done.
    held: Work,
    /// Reserved for requests whose audio is still to come.
    expected: Work,
    requests: usize,
    promises: Promises,
    /// Recent work, in seconds of the engine's time.
    done: f64,
}

/// The current load, for monitoring.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LoadSnapshot {
    pub requests: usize,
    pub audio_seconds: f64,
    /// Time until all of it is done; `None` until the speed is known.
    pub wait_seconds: Option<f64>,
    /// Seconds of audio that the engine does in a second of its time.
    pub real_time_factor: Option<f64>,
}

/// Audio that asks for admission.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Audio {
    /// All transcribed channels' seconds together.
    pub seconds: f64,
    /// Samples that are still to be decoded, all channels counted.
    pub source_samples: f64,
}

impl From<f64> for Audio {
    /// Seconds of audio that is decoded already.
    fn from(seconds: f64) -> Self {
        Self { seconds, source_samples: 0.0 }
    }
}

/// A tenant's position with respect to the bounds.
struct Standing {
    /// Seconds until there is room; 0 or less if there is room now.
    excess: f64,
    /// Tenants that have work, this one among them.
    active: f64,
    /// Seconds that it takes to get a second of the engine's time.
    slowness: f64,
    /// Whether the tenant holds more than others leave it.
    is_over_share: bool,
}

impl Account {
    fn new() -> Self {
        Self {
            held: Work::default(),
            expected: Work::default(),
            requests: 0,
            promises: Promises::new(),
            done: 0.0,
        }
    }

    fn work(&self) -> Work {
        self.held + self.expected
    }

    fn is_idle(&self) -> bool {
        self.work() == Work::default()
    }

    /// Its recent share of the engine's time.
    fn part(&self, throughput: &Throughput) -> f64 {
        throughput.busy_seconds().map_or(0.0, |busy| self.done / busy)
    }

    fn is_empty(&self, throughput: &Throughput) -> bool {
        self.is_idle() && self.requests == 0 && self.promises.is_empty() && self.part(throughput) < NO_PART
    }
}

impl State {
    /// Seconds to do `work` alone.
    fn time(&self, work: Work) -> f64 {
        self.cost.of(work) / (self.throughput.get() * self.devices) + work.reading / self.readers
    }

    fn account(&mut self, tenant: TenantId) -> &mut Account {
        self.accounts.entry(tenant).or_insert_with(Account::new)
    }

    fn forget_if_empty(&mut self, tenant: TenantId) {
        if self.accounts.get(&tenant).is_some_and(|account| account.is_empty(&self.throughput)) {
            self.accounts.remove(&tenant);
        }
    }

    fn hold(&mut self, tenant: TenantId, work: Work) {
        self.held = self.held + work;
        let account = self.account(tenant);
        account.held = account.held + work;
    }

    fn release(&mut self, tenant: TenantId, work: Work) {
        self.held = self.held.without(work);
        let account = self.account(tenant);
        account.held = account.held.without(work);
        self.forget_if_empty(tenant);
    }

    fn expect(&mut self, tenant: TenantId, work: Work) {
        self.expected = self.expected + work;
        let account = self.account(tenant);
        account.expected = account.expected + work;
    }

    fn expect_no_more(&mut self, tenant: TenantId, work: Work) {
        self.expected = self.expected.without(work);
        let account = self.account(tenant);
        account.expected = account.expected.without(work);
        self.forget_if_empty(tenant);
    }
}

impl Load {
    pub fn new(config: &Config) -> Self {
        let state = State {
            tenants: Tenants::default(),
            devices: 1.0,
            slots: 0.0,
            readers: std::thread::available_parallelism().map_or(1.0, |count| count.get() as f64),
            cost: Cost::new(),
            reading: Reading::default(),
            throughput: Throughput::default(),
            usual: Work::window(1.0),
            held: Work::default(),
            expected: Work::default(),
            requests: 0,
            accounts: HashMap::new(),
        };
        Self {
            max_wait_seconds: config.max_wait_seconds,
            memory: Arc::new(Memory::new(config.max_held_seconds)),
            max_requests: config.max_requests,
            state: Mutex::new(state),
        }
    }

    /// Sets the number of devices, and of their slots together.
    pub fn started(&self, devices: usize, slots: usize) {
        let mut state = self.state();
        (state.devices, state.slots) = (devices as f64, slots as f64);
    }

    pub fn share_between(&self, tenants: Tenants) {
        self.memory.share_between(tenants.clone());
        self.state().tenants = tenants;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere cannot leave these numbers inconsistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The longest wait of a tenant, in seconds. Infinite before the speed is known; the bound on seconds of audio
    /// applies always.
    fn bound(&self, state: &State) -> f64 {
        let Some(full_window) = state.cost.of_full_window() else { return f64::INFINITY };
        let least = (MIN_HELD_WINDOWS * full_window).max(MIN_HELD_REQUESTS * state.time(state.usual));
        self.max_wait_seconds.max(least)
    }

    /// Where `tenant` stands with `work` more. `bound` is on the time until its own work is done; `piece` is the part
    /// in hand of the piece of audio to which `work` belongs; `room`: whether there is memory for it.
    ///
    /// In that time a fair queue does as much work for every other tenant that has it. So the wait is the sum, over all
    /// tenants, of the lesser of its work and this one's (max-min fairness), and one second of it passes in a second.
    fn standing(
        state: &State,
        tenant: TenantId,
        (work, piece): (Work, Work),
        room: Result<(), Refused>,
        bound: f64,
    ) -> Standing {
        let own = state.accounts.get(&tenant);
        let (held, before) = own.map_or_else(Default::default, |own| (own.held, own.work()));
        let mine = state.time(before + work);
        let (mut others, mut active, mut larger) = (0.0, 1.0, 0.0);
        let mut parts = Vec::new();
        for (other, account) in &state.accounts {
            let part = account.part(&state.throughput);
            if *other == tenant || (account.is_idle() && part < NO_PART) {
                continue;
            }
            let time = state.time(account.work());
            others += time.min(mine);
            active += 1.0;
            larger += f64::from(u8::from(time > mine));
            parts.push(part);
        }
        // Tenants with little waiting may return again and again: their recent share, up to an even one, is not
        // available to this tenant.
        let left = 1.0 - parts.iter().map(|part| part.min(1.0 / active)).sum::<f64>();
        let slowness = (1.0 + larger).max(1.0 / left.max(1.0 / active));
        // A tenant's first piece may have any length, as on a server that it has to itself.
        let is_first = before.without(piece) == Work::default();
        let wait = if is_first { others } else { (mine + others).max(mine * slowness) };
        // A tenant with nothing in hand is never over its share.
        let holds_more = !is_first && active > 1.0 && mine > bound / active;
        let is_over_share = room == Err(Refused::OverShare) || holds_more;
        let mut excess = wait - bound;
        if room.is_err() {
            // The time until as much of the audio in memory is done.
            let surplus = (held + work).seconds.min(work.seconds).max(1.0);
            excess = excess.max(state.time(Work::audio(surplus)) * active);
        }
        Standing { excess, active, slowness, is_over_share }
    }

    /// Admits a request before its audio is read. `caller` identifies a client and its request.
    ///
    /// # Errors
    /// [`Error::Overloaded`], [`Error::OverShare`], with the time until there will be room for this caller.
    pub fn enter(
        self: &Arc<Self>,
        tenant: TenantId,
        caller: u64,
        now: Instant,
    ) -> Result<RequestPermit, Error> {
        let mut state = self.state();
        state.accounts.values_mut().for_each(|account| account.promises.expire(now));
        let usual = state.usual;
        let room = self.memory.has_room(tenant, usual.seconds);
        let standing = Self::standing(&state, tenant, (usual, Work::default()), room, self.bound(&state));
        let one = (state.time(usual) * standing.slowness).max(1e-6);
        let account = state.account(tenant);
        let waited = account.promises.keep(caller, now);
        let returned = waited.is_some();
        let (requests, is_idle) = (account.requests, account.is_idle());
        let crowd =
            may_hold(requests as u64, state.requests as u64, 1, self.max_requests as u64, &state.tenants);
        let behind = waited.map_or(0.0, |waited| BEHIND_SECONDS.max(BEHIND_PART * waited.as_secs_f64()));
        let fits = crowd.is_ok() && standing.excess <= behind;
        let is_short_of_work = (state.held + state.expected).windows < state.slots;
        let promises = &state.account(tenant).promises;
        let before = if returned { promises.expected_again() } else { promises.expected() };
        let (line, promised) = (before * one, promises.of(caller));
        let may_pass = promises.leave(-standing.excess / one, 1.0 / one, now);
        let welcome = fits && (returned || is_short_of_work || may_pass);
        if welcome || (is_idle && requests == 0 && state.requests == 0) {
            state.requests += 1;
            state.account(tenant).requests += 1;
            state.expect(tenant, usual);
            let reservation = Reservation { load: self.clone(), tenant, work: usual };
            return Ok(RequestPermit { load: self.clone(), tenant, reservation: Some(reservation), behind });
        }
        let crowded = if crowd.is_err() { one } else { 0.0 };
        let wait = match promised {
            Some(due) => retry_after(due.saturating_duration_since(now).as_secs_f64()),
            None => {
                let wait = retry_after(standing.excess.max(crowded).max(0.0) + line);
                if wait.as_secs_f64() < *RETRY_AFTER.end() {
                    state.account(tenant).promises.make(caller, now, now + wait, returned);
                }
                wait
            }
        };
        state.forget_if_empty(tenant);
        Err(refusal(standing.is_over_share || crowd == Err(Refused::OverShare), wait))
    }

    /// Admits audio. An idle engine admits any one piece; otherwise the wait for the tenant's work must stay within
    /// bounds.
    ///
    /// # Errors
    /// [`Error::Overloaded`], [`Error::OverShare`], with the time until there is room.
    pub fn admit(self: &Arc<Self>, tenant: TenantId, audio: Audio) -> Result<AudioPermit, Error> {
        self.admit_behind(tenant, audio, 0.0)
    }

    /// As [`Self::admit`], for audio that may be `behind` the bound by so many seconds.
    fn admit_behind(
        self: &Arc<Self>,
        tenant: TenantId,
        audio: Audio,
        behind: f64,
    ) -> Result<AudioPermit, Error> {
        let mut state = self.state();
        let reading = state.reading.of(audio.source_samples);
        let work = Work { reading, ..Work::audio(audio.seconds) };
        let memory = self.memory.reserve(Flow::Tenant(tenant), audio.seconds);
        let room = memory.as_ref().map(drop).map_err(|refused| *refused);
        self.check(&state, tenant, (work, Work::default()), room, behind)?;
        let memory = memory.map_err(|_| Error::Overloaded { retry_after: retry_after(0.0) })?;
        state.hold(tenant, work);
        // A stream is admitted before it has any audio, which says nothing about requests.
        if audio.seconds > 0.0 {
            state.usual = state.usual.times(1.0 - SMOOTHING) + work.times(SMOOTHING);
        }
        Ok(AudioPermit::new(self.clone(), tenant, work, memory))
    }

    /// A permit for a job with so much audio, as soon as there is memory for it. Its work is not counted.
    pub async fn admit_job(&self, tenant: TenantId, seconds: f64) -> AudioPermit {
        AudioPermit::of_job(self.memory.reserve_for_job(tenant, seconds).await)
    }

    /// Whether there is room for `work`; `piece` and `room` as for [`Self::standing`]. `behind`: seconds by which it may
    /// exceed the bound.
    ///
    /// # Errors
    /// As [`Self::admit`].
    fn check(
        &self,
        state: &State,
        tenant: TenantId,
        (work, piece): (Work, Work),
        room: Result<(), Refused>,
        behind: f64,
    ) -> Result<(), Error> {
        let bound = self.bound(state) * IN_HAND + behind;
        let standing = Self::standing(state, tenant, (work, piece), room, bound);
        let waits_too_long = state.held.seconds > 0.0 && standing.excess > 0.0;
        if room.is_err() || waits_too_long {
            let one = state.time(state.usual) * standing.slowness;
            let promised = state.accounts.get(&tenant).map_or(0.0, |own| own.promises.expected());
            // Once its own work and as much of the others' is done, there is room; without work of its own it waits
            // for theirs.
            let held = state.accounts.get(&tenant).map_or(0.0, |own| state.time(own.held));
            let own = if held > 0.0 { (held * standing.active).max(1.0) } else { f64::INFINITY };
            let wait = standing.excess.min(own);
            return Err(refusal(standing.is_over_share, retry_after(wait + promised * one)));
        }
        Ok(())
    }

    pub fn held_seconds(&self) -> f64 {
        self.state().held.seconds
    }

    pub fn snapshot(&self) -> LoadSnapshot {
        let state = self.state();
        LoadSnapshot {
            requests: state.requests,
            audio_seconds: state.held.seconds,
            wait_seconds: state.cost.of_full_window().map(|_| state.time(state.held + state.expected)),
            real_time_factor: state.throughput.audio().map(|factor| factor * state.devices),
        }
    }

    /// Records that a worker was busy with the model for `seconds`.
    pub fn busy(&self, seconds: f64) {
        let mut state = self.state();
        // With nothing in hand, the work was of a kind that is not counted here.
        if state.held != Work::default() || state.expected != Work::default() {
            let kept = state.throughput.busy(seconds);
            let State { accounts, throughput, .. } = &mut *state;
            accounts.values_mut().for_each(|account| account.done *= kept);
            accounts.retain(|_, account| !account.is_empty(throughput));
        }
    }

    /// Learns from a window of `seconds` that took `busy` seconds of the engine's time.
    pub fn learn(&self, seconds: f64, busy: f64) {
        self.state().cost.learn(seconds, busy);
    }
}

fn retry_after(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds.clamp(*RETRY_AFTER.start(), *RETRY_AFTER.end()).ceil())
}

fn refusal(is_over_share: bool, retry_after: Duration) -> Error {
    if is_over_share { Error::OverShare { retry_after } } else { Error::Overloaded { retry_after } }
}
