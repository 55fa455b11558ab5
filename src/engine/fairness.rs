//! How tenants share the model's time, window by window and step by step.
//!
//! The queue lets tenants' windows begin in turn. This module makes sure that a window goes on once it has begun.
//! Without it, a tenant with one window would be decoded at the pace of a batch that another one fills: many times
//! slower than alone where a step takes longer the more it holds, as on a CPU. So where several flows have
//! work, each gets about an equal part of the model's time:
//!
//! - The flow that has had the least of the model's time begins its next window first (virtual time, as in
//!   start-time fair queueing: Goyal, Vin and Cheng, 1996). A flow with no window in a slot counts as one encoding
//!   further behind, so that a client that asks for one window after the other waits for one encoding at most.
//! - Encoding holds up all windows in slots, unless the device encodes and decodes at once. A flow with more windows
//!   waiting loses nothing by that; to any other flow the time is owed until steps have paid it back, and until then no
//!   other flow begins a window.
//! - A step takes in as many windows as keep it within the time that the smallest flow's share allows, and the
//!   largest flows give way.
//!
//! Where a step costs the same however much it holds, as on a GPU, the third rule never applies, and the second one
//! lets a flow with much work fill the batch beside one that has little. Pure: callers pass the time.

mod step_cost;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use self::step_cost::{MEMORY, StepCost, level};
use super::model::SlotId;
use super::window::{Class, TenantId};

/// Windows that are encoded together take no longer while several flows have work, and steps pay so much in advance:
/// enough for a batch on a GPU, and not for one window on a CPU.
const AHEAD_SECONDS: f64 = 0.02;
/// A second of the model's time counts this many times for jobs: clients wait for all other work.
const JOBS_WEIGHT: f64 = 9.0;
/// Live windows begin at once, and take part in each step, until their flow is this far ahead of the one that has had
/// the least: by then its streams send more than its share.
const LIVE_AHEAD_SECONDS: f64 = 1.0;
/// A slot is kept free for the next flow for this long after several flows had work.
const KEPT_FREE: Duration = Duration::from_secs(1);

/// One tenant's work that clients wait for, or all tenants' jobs together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Flow {
    Tenant(TenantId),
    Jobs,
}

impl Flow {
    pub fn of(class: Class, tenant: TenantId) -> Self {
        match class {
            Class::Live | Class::Interactive => Self::Tenant(tenant),
            Class::Job => Self::Jobs,
        }
    }

    /// A second of the model's time counts as so many.
    pub fn weight(self) -> f64 {
        if self == Self::Jobs { JOBS_WEIGHT } else { 1.0 }
    }
}

/// A window in a slot.
#[derive(Debug, Clone, Copy)]
pub struct Seat {
    pub slot: SlotId,
    pub flow: Flow,
    /// Never left out of a step.
    pub goes_first: bool,
    pub since: Instant,
}

/// How long windows that were encoded together took.
#[derive(Debug, Clone, Copy)]
pub struct EncodeTime {
    pub whole: Duration,
    /// The part in which no other window could be stepped.
    pub alone: Duration,
}

#[derive(Default)]
pub struct Fairness {
    /// The model's time that each flow has had, in seconds; only differences mean anything.
    used: HashMap<Flow, f64>,
    /// Flows with windows that wait, and those with windows in slots.
    active: HashSet<Flow>,
    /// Flows with windows that wait.
    waiting: HashSet<Flow>,
    /// The least that an active flow has had.
    least: f64,
    /// The lowest rank of a flow that waits; and of one that has no window in a slot.
    next: f64,
    next_without_slot: f64,
    /// For each flow in a slot, how long others have held it up, less what steps have paid back, in seconds.
    owed: HashMap<Flow, f64>,
    step: StepCost,
    /// Encoding a window, in seconds, and the part in which it holds up others: running means.
    encode: f64,
    holds_up: f64,
    /// How many other models on the device a flow has work for; without those of none.
    elsewhere: HashMap<Flow, usize>,
    /// When several flows last had work.
    shared_at: Option<Instant>,
}

impl Fairness {
    /// Sets the flows that have work: those whose windows wait, and those whose windows are in slots. A new flow
    /// starts level with the one furthest behind: time that it did not ask for is not owed to it.
    pub fn begin_round(
        &mut self,
        waiting: impl Iterator<Item = Flow>,
        in_slots: impl Iterator<Item = Flow>,
        now: Instant,
    ) {
        self.waiting.clear();
        self.waiting.extend(waiting);
        let mut owed = HashMap::new();
        for flow in in_slots {
            owed.entry(flow).or_insert_with(|| self.owed.get(&flow).copied().unwrap_or(0.0));
        }
        self.owed = owed;
        let active = self.waiting.iter().chain(self.owed.keys()).copied().collect();
        let before = std::mem::replace(&mut self.active, active);
        let stayed = self.active.intersection(&before).map(|flow| self.used(*flow));
        let least = stayed.min_by(f64::total_cmp).unwrap_or(self.least);
        for flow in self.active.difference(&before) {
            let used = self.used.entry(*flow).or_insert(least);
            *used = used.max(least);
        }
        self.least = least;
        // A flow that is ahead is remembered until the others have caught up.
        let active = &self.active;
        self.used.retain(|flow, used| active.contains(flow) || *used > least);
        if !self.is_alone() {
            self.shared_at = Some(now);
        }
        self.rank_waiting();
    }

    /// The flows that have work, as of the last call of [`Self::begin_round`].
    pub fn active(&self) -> &HashSet<Flow> {
        &self.active
    }

    /// Sets how many other models on the device each flow has work for. A flow with work for two models gets half of its time
    /// at each.
    pub fn set_elsewhere(&mut self, elsewhere: HashMap<Flow, usize>) {
        self.elsewhere = elsewhere;
    }

    fn used(&self, flow: Flow) -> f64 {
        self.used.get(&flow).copied().unwrap_or(self.least)
    }

    /// Whether `flow` has a window in a slot.
    pub fn has_slot(&self, flow: Flow) -> bool {
        self.owed.contains_key(&flow)
    }

    /// The flow with the lowest rank begins its next window first.
    fn rank(&self, flow: Flow) -> f64 {
        self.used(flow) - if self.has_slot(flow) { 0.0 } else { self.encode }
    }

    fn rank_waiting(&mut self) {
        let (mut next, mut without_slot) = (f64::INFINITY, f64::INFINITY);
        for flow in &self.waiting {
            let rank = self.rank(*flow);
            next = next.min(rank);
            if !self.has_slot(*flow) {
                without_slot = without_slot.min(rank);
            }
        }
        (self.next, self.next_without_slot) = (next, without_slot);
    }

    /// Whether one flow has the model for itself.
    pub fn is_alone(&self) -> bool {
        self.active.len() <= 1
    }

    /// Whether a window of `flow` may begin.
    pub fn may_begin(&self, flow: Flow) -> bool {
        // A flow with no window in a slot may have to wait for debts; one that has one, and is ahead, must not make more.
        let gives_way = self.has_slot(flow) && self.next_without_slot < self.rank(flow);
        let mut others = self.owed.iter().filter(|(other, _)| **other != flow);
        self.is_alone()
            || (!gives_way && others.all(|(other, owed)| *owed <= 0.0 || self.waiting.contains(other)))
    }

    /// Whether no flow that waits has had less of the model's time than `flow`.
    pub fn is_next(&self, flow: Flow) -> bool {
        self.rank(flow) <= self.next
    }

    /// Whether live windows of `flow` go before all others.
    pub fn goes_first(&self, flow: Flow) -> bool {
        self.is_alone() || self.used(flow) <= self.least + LIVE_AHEAD_SECONDS
    }

    /// How many windows may be encoded together.
    pub fn encode_batch(&self, most: usize) -> usize {
        if self.is_alone() || self.holds_up == 0.0 {
            return most;
        }
        ((AHEAD_SECONDS / self.holds_up) as usize).clamp(1, most)
    }

    /// Whether the last free slot is kept for a flow that has none.
    pub fn keeps_a_slot(&self, now: Instant) -> bool {
        self.shared_at.is_some_and(|at| now.saturating_duration_since(at) < KEPT_FREE)
    }

    /// Records that a window of `flow` is about to be encoded.
    pub fn begins(&mut self, flow: Flow) {
        self.charge(flow, self.encode);
        let holds_up = self.holds_up;
        self.owed.iter_mut().filter(|(other, _)| **other != flow).for_each(|(_, owed)| *owed += holds_up);
        // A new flow holds others up, and is not held up at once itself.
        self.owed.entry(flow).or_insert(holds_up);
        self.rank_waiting();
    }

    /// Records that windows of these flows were encoded, each after a call of [`Self::begins`].
    pub fn encoded(&mut self, flows: &[Flow], took: EncodeTime) {
        let each = |time: Duration| time.as_secs_f64() / flows.len().max(1) as f64;
        let (whole, alone) = (each(took.whole), each(took.alone));
        for flow in flows {
            self.charge(*flow, whole - self.encode);
        }
        let learn = |mean: f64, newest: f64| {
            if mean == 0.0 { newest } else { MEMORY * mean + (1.0 - MEMORY) * newest }
        };
        self.encode = learn(self.encode, whole);
        self.holds_up = learn(self.holds_up, alone);
    }

    pub fn charge(&mut self, flow: Flow, seconds: f64) {
        let models = 1 + self.elsewhere.get(&flow).copied().unwrap_or(0);
        *self.used.entry(flow).or_insert(self.least) += seconds * flow.weight() * models as f64;
    }

    /// Records that a step of `windows` windows, of all flows in slots, took this long.
    pub fn stepped(&mut self, windows: usize, took: Duration) {
        self.step.learn(windows as f64, took.as_secs_f64());
        // With so many others an even share is a step in so many.
        let others = self.active.len().saturating_sub(1) as f64;
        for owed in self.owed.values_mut() {
            *owed = (*owed - others * took.as_secs_f64()).max(-AHEAD_SECONDS);
        }
    }

    /// The slots that take part in the next step, in the order of `seats`.
    pub fn select(&self, seats: &[Seat]) -> Vec<SlotId> {
        let all = || seats.iter().map(|seat| seat.slot).collect();
        let mut sizes: HashMap<Flow, usize> = HashMap::new();
        for seat in seats {
            *sizes.entry(seat.flow).or_insert(0) += 1;
        }
        let Some(smallest) = sizes.values().copied().min() else { return all() };
        let Some(most) = self.step.windows_within(sizes.len(), smallest) else { return all() };
        if sizes.len() == 1 || most >= seats.len() {
            return all();
        }
        // Live windows and the oldest others first: a slot that is free soon serves more than two that are half
        // done.
        let mut order: Vec<&Seat> = seats.iter().collect();
        order.sort_by_key(|seat| (!seat.goes_first, seat.since, seat.slot));
        let quota = level(sizes.values().copied().collect(), most);
        let mut taken: HashMap<Flow, usize> = HashMap::new();
        order.retain(|seat| {
            let count = taken.entry(seat.flow).or_insert(0);
            *count += 1;
            seat.goes_first || *count <= quota
        });
        let mut slots: Vec<SlotId> = order.into_iter().map(|seat| seat.slot).collect();
        slots.sort_unstable();
        slots
    }
}
