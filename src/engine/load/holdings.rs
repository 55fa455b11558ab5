//! The work that each tenant holds or expects, how long it will take, and whether there is room for more.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::cost::{Costs, Reading, Throughput, Work};
use crate::engine::config::Config;
use crate::engine::error::Error;
use crate::engine::model::{MODELS_MAX, ModelId};
use crate::engine::window::TenantId;
use crate::share::{Lasting, Places, Refused, Tenants};

/// Bounds of `Retry-After`, in seconds.
pub const RETRY_AFTER: RangeInclusive<f64> = 1.0..=120.0;
/// There is always room for a full window, so that one slow second does not refuse everything.
const MIN_HELD_WINDOWS: f64 = 1.0;
/// There is always room for two requests somewhat longer than usual, one in progress and one ready: with less, the
/// engine would idle between an answer and the next request.
const MIN_HELD_REQUESTS: f64 = 2.5;
/// Uploaded audio may exceed the bound on waiting at entry by this factor: its upload is paid for, and a request may
/// bring more than the usual.
const IN_HAND: f64 = 1.25;
/// A tenant with a smaller recent share of the engine's time counts as gone.
const NO_PART: f64 = 0.02;

/// All tenants' work, behind a lock; permits release their part when they are dropped.
pub struct Holdings {
    pub max_wait_seconds: f64,
    /// A request has ended.
    pub freed: Notify,
    state: Mutex<State>,
}

/// The work in hand, and the measured speed.
pub struct State {
    /// Devices that work side by side.
    pub devices: f64,
    /// Each model's slots on all of them: while fewer windows are in hand, nothing is kept free for clients that may
    /// return, so that the engine does not idle.
    pub slots: [f64; MODELS_MAX],
    /// Cores that decode.
    pub readers: f64,
    pub costs: Costs,
    pub reading: Reading,
    pub throughput: Throughput,
    /// The work that a request for each model usually brings.
    pub usual: [Work; MODELS_MAX],
    /// All tenants' together.
    pub held: Work,
    pub expected: Work,
    /// Those of requests, and the lines of clients that wait for one.
    pub places: Places,
    pub accounts: HashMap<TenantId, Account>,
}

/// One tenant's part of the load; removed when it is empty.
pub struct Account {
    /// Accepted audio that is not done.
    pub held: Work,
    /// Reserved for requests whose audio is still to come.
    pub expected: Work,
    /// Recent work, in seconds of the engine's time.
    pub done: f64,
}

/// A tenant's position with respect to the bounds.
pub struct Standing {
    /// Seconds until there is room; 0 or less if there is room now.
    pub excess: f64,
    /// Tenants that have work, this one among them.
    pub active: f64,
    /// Seconds that it takes to get a second of the engine's time.
    pub slowness: f64,
    /// Whether the tenant holds more than others leave it.
    pub is_over_share: bool,
}

impl Account {
    fn new() -> Self {
        Self { held: Work::default(), expected: Work::default(), done: 0.0 }
    }

    fn work(&self) -> Work {
        self.held + self.expected
    }

    pub fn is_idle(&self) -> bool {
        self.work() == Work::default()
    }

    /// Its recent share of the engine's time.
    fn part(&self, throughput: &Throughput) -> f64 {
        throughput.busy_seconds().map_or(0.0, |busy| self.done / busy)
    }

    pub fn is_empty(&self, throughput: &Throughput) -> bool {
        self.is_idle() && self.part(throughput) < NO_PART
    }
}

impl State {
    /// Seconds to do `work` alone.
    pub fn time(&self, work: Work) -> f64 {
        self.costs.of(&work) / (self.throughput.get() * self.devices) + work.reading / self.readers
    }

    pub fn account(&mut self, tenant: TenantId) -> &mut Account {
        self.accounts.entry(tenant).or_insert_with(Account::new)
    }

    pub fn forget_if_empty(&mut self, tenant: TenantId) {
        if self.accounts.get(&tenant).is_some_and(|account| account.is_empty(&self.throughput)) {
            self.accounts.remove(&tenant);
        }
    }

    pub fn hold(&mut self, tenant: TenantId, work: Work) {
        self.held = self.held + work;
        let account = self.account(tenant);
        account.held = account.held + work;
    }

    pub fn release(&mut self, tenant: TenantId, work: Work) {
        self.held = self.held.without(work);
        let account = self.account(tenant);
        account.held = account.held.without(work);
        self.forget_if_empty(tenant);
    }

    pub fn expect(&mut self, tenant: TenantId, work: Work) {
        self.expected = self.expected + work;
        let account = self.account(tenant);
        account.expected = account.expected + work;
    }

    pub fn expect_no_more(&mut self, tenant: TenantId, work: Work) {
        self.expected = self.expected.without(work);
        let account = self.account(tenant);
        account.expected = account.expected.without(work);
        self.forget_if_empty(tenant);
    }

    /// Where `tenant` stands with `work` of `model` more. `bound` is on the time until its own work is done; `piece` is the part
    /// in hand of the piece of audio to which `work` belongs; `room`: whether there is memory for it.
    ///
    /// In that time a fair queue does as much work for every other tenant that has it. So the wait is the sum, over all
    /// tenants, of the lesser of its work and this one's (max-min fairness), and one second of it passes in a second.
    pub fn standing(
        &self,
        (tenant, model): (TenantId, ModelId),
        (work, piece): (Work, Work),
        room: Result<(), Refused>,
        bound: f64,
    ) -> Standing {
        let own = self.accounts.get(&tenant);
        let (held, before) = own.map_or_else(Default::default, |own| (own.held, own.work()));
        let mine = self.time(before + work);
        let (mut others, mut active, mut larger) = (0.0, 1.0, 0.0);
        let mut parts = Vec::new();
        for (other, account) in &self.accounts {
            let part = account.part(&self.throughput);
            if *other == tenant || (account.is_idle() && part < NO_PART) {
                continue;
            }
            let time = self.time(account.work());
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
            let surplus = (held + work).seconds().min(work.seconds()).max(1.0);
            excess = excess.max(self.time(Work::audio(model, surplus)) * active);
        }
        Standing { excess, active, slowness, is_over_share }
    }
}

impl Holdings {
    pub fn new(config: &Config) -> Self {
        let state = State {
            devices: 1.0,
            slots: [0.0; MODELS_MAX],
            readers: std::thread::available_parallelism().map_or(1.0, |count| count.get() as f64),
            costs: Costs::default(),
            reading: Reading::default(),
            throughput: Throughput::default(),
            usual: std::array::from_fn(|index| {
                ModelId::new(index).map_or_else(Work::default, |model| Work::window(model, 1.0))
            }),
            held: Work::default(),
            expected: Work::default(),
            places: Places::new(config.max_requests as u64, Tenants::default(), Lasting::Together),
            accounts: HashMap::new(),
        };
        let max_wait_seconds = config.max_wait_seconds;
        Self { max_wait_seconds, freed: Notify::new(), state: Mutex::new(state) }
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere cannot leave these numbers inconsistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The longest wait of a tenant for `model`, in seconds. Infinite before its speed is known; the bound on seconds of audio
    /// applies always.
    pub fn bound(&self, state: &State, model: ModelId) -> f64 {
        let Some(full_window) = state.costs.model(model).of_full_window() else { return f64::INFINITY };
        let usual = state.time(state.usual[model.index()]);
        let least = (MIN_HELD_WINDOWS * full_window).max(MIN_HELD_REQUESTS * usual);
        self.max_wait_seconds.max(least)
    }

    /// Whether there is room for `work` of `model`; `piece` and `room` as for [`State::standing`]. `behind`: seconds by which it may
    /// exceed the bound.
    ///
    /// # Errors
    /// [`Error::Overloaded`], [`Error::OverShare`], with the time until there is room.
    pub fn check(
        &self,
        state: &State,
        (tenant, model): (TenantId, ModelId),
        (work, piece): (Work, Work),
        room: Result<(), Refused>,
        behind: f64,
    ) -> Result<(), Error> {
        let bound = self.bound(state, model) * IN_HAND + behind;
        let standing = state.standing((tenant, model), (work, piece), room, bound);
        let waits_too_long = state.held.seconds() > 0.0 && standing.excess > 0.0;
        if room.is_err() || waits_too_long {
            let one = state.time(state.usual[model.index()]) * standing.slowness;
            let promised = state.places.expected(tenant.0);
            // Once its own work and as much of the others' is done, there is room; without work of its own it waits
            // for theirs.
            let held = state.accounts.get(&tenant).map_or(0.0, |own| state.time(own.held));
            let own = if held > 0.0 { (held * standing.active).max(1.0) } else { f64::INFINITY };
            let wait = standing.excess.min(own);
            return Err(refusal(standing.is_over_share, retry_after(wait + promised * one)));
        }
        Ok(())
    }
}

pub fn retry_after(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds.clamp(*RETRY_AFTER.start(), *RETRY_AFTER.end()).ceil())
}

pub fn refusal(is_over_share: bool, retry_after: Duration) -> Error {
    if is_over_share { Error::OverShare { retry_after } } else { Error::Overloaded { retry_after } }
}
