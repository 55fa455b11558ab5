//! How tenants share the model's time, window by window and step by step.
//!
//! The queue lets tenants' windows begin in turn. This module makes sure that a window goes on once it has begun.
//! Without it, a tenant with one window would be decoded at the pace of a batch that another one fills: many times
//! slower than alone where a step takes longer the more it holds, as on a CPU. So where several flows have
//! work, each gets about an equal part of the model's time:
//!
//! - a flow begins no window while another one has had less of the model's time (virtual time, as in start-time
//!   fair queueing: Goyal, Vin and Cheng, 1996), nor while the other one's window is on its way that began when
//!   it had less;
//! - a step takes in as many windows as keep it within the time that the smallest flow's share allows, and the
//!   largest flows give way.
//!
//! Where a step costs the same however much it holds, as on a GPU, the second rule never applies. Pure: time is
//! given.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::model::SlotId;
use super::window::{Class, TenantId};

/// A flow may get ahead of others by so much of the model's time, and windows that are encoded together take no
/// longer while several flows have work: enough for a batch on a GPU, and not for one window on a CPU.
const AHEAD_SECONDS: f64 = 0.02;
/// A window on its way counts for its flow only from so many times what encoding it takes: until then others wait
/// for it, as it did for them.
const ON_ITS_WAY: f64 = 2.0;
/// A flow that comes goes first.
const HEAD_START_SECONDS: f64 = 0.001;
/// After several flows had work, a slot stays free for so long for the next one that comes.
const KEPT_FREE: Duration = Duration::from_secs(1);
/// Weight that the past keeps with each measurement.
const MEMORY: f64 = 0.99;
/// Steps without which nothing is known.
const MIN_STEPS: f64 = 8.0;
/// How far the sizes of steps must be spread to tell a slope.
const MIN_SPREAD: f64 = 0.5;

/// The work of one tenant that is waited for, or all tenants' jobs together.
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
}

/// A window in a slot.
#[derive(Debug, Clone, Copy)]
pub struct Seat {
    pub slot: SlotId,
    pub flow: Flow,
    /// Never left out: the next word is waited for.
    pub is_live: bool,
    pub since: Instant,
}

#[derive(Default)]
pub struct Fairness {
    /// The model's time that each flow has had, in seconds; only differences mean anything.
    used: HashMap<Flow, f64>,
    /// Flows that have work, and the time that the longest of their windows on its way has had.
    active: HashMap<Flow, f64>,
    /// The least that an active flow has had, without that window.
    least: f64,
    step: StepCost,
    /// Encoding a window, in seconds: a running mean.
    encode: f64,
    /// When several flows had work last.
    shared_at: Option<Instant>,
}

impl Fairness {
    /// Says which flows have work from here on: those whose windows wait, and those whose windows are on their way,
    /// each with the time that it has had. A flow that comes starts level with the one furthest behind: time that
    /// it did not ask for is not owed to it.
    pub fn begin_round(
        &mut self,
        waiting: impl Iterator<Item = Flow>,
        on_their_way: impl Iterator<Item = (Flow, Duration)>,
        now: Instant,
    ) {
        let mut active: HashMap<Flow, f64> = waiting.map(|flow| (flow, 0.0)).collect();
        for (flow, had) in on_their_way {
            let longest = active.entry(flow).or_insert(0.0);
            *longest = longest.max(had.as_secs_f64());
        }
        let before = std::mem::replace(&mut self.active, active);
        let flows: Vec<Flow> = self.active.keys().copied().collect();
        let stayed = flows.iter().filter(|flow| before.contains_key(flow)).map(|flow| self.standing(*flow));
        let least = stayed.min_by(f64::total_cmp).unwrap_or(self.least);
        for flow in &flows {
            if !before.contains_key(flow) {
                let used = self.used.entry(*flow).or_insert(least - HEAD_START_SECONDS);
                *used = used.max(least - HEAD_START_SECONDS);
            }
        }
        let least = flows.iter().map(|flow| self.standing(*flow)).min_by(f64::total_cmp).unwrap_or(least);
        self.least = least;
        // A flow that is ahead is remembered until the others have caught up.
        let active = &self.active;
        self.used.retain(|flow, used| active.contains_key(flow) || *used > least);
        if !self.is_alone() {
            self.shared_at = Some(now);
        }
    }

    /// The time that `flow` has had, without that of the window that is on its way.
    fn standing(&self, flow: Flow) -> f64 {
        let on_its_way = self.active.get(&flow).copied().unwrap_or(0.0).min(ON_ITS_WAY * self.encode);
        self.used.get(&flow).map_or(self.least, |used| used - on_its_way)
    }

    /// Whether one flow has the model for itself.
    pub fn is_alone(&self) -> bool {
        self.active.len() <= 1
    }

    /// Whether a window of `flow` may begin.
    pub fn may_begin(&self, flow: Flow) -> bool {
        self.is_alone() || self.used.get(&flow).is_none_or(|used| *used <= self.least + AHEAD_SECONDS)
    }

    /// Whether no flow has had less of the model's time than `flow`.
    pub fn is_next(&self, flow: Flow) -> bool {
        self.standing(flow) <= self.least
    }

    /// How many windows may be encoded together.
    pub fn encode_batch(&self, most: usize) -> usize {
        if self.is_alone() || self.encode == 0.0 {
            return most;
        }
        ((AHEAD_SECONDS / self.encode) as usize).clamp(1, most)
    }

    /// Whether the last free slot is kept for a flow that has none.
    pub fn keeps_a_slot(&self, now: Instant) -> bool {
        self.shared_at.is_some_and(|at| now.saturating_duration_since(at) < KEPT_FREE)
    }

    /// A window of `flow` is about to be encoded.
    pub fn begins(&mut self, flow: Flow) {
        self.charge(flow, self.encode);
    }

    /// Windows of these flows were encoded, each of which was announced.
    pub fn encoded(&mut self, flows: &[Flow], took: Duration) {
        let each = took.as_secs_f64() / flows.len().max(1) as f64;
        for flow in flows {
            self.charge(*flow, each - self.encode);
        }
        self.encode = if self.encode == 0.0 { each } else { MEMORY * self.encode + (1.0 - MEMORY) * each };
    }

    pub fn charge(&mut self, flow: Flow, seconds: f64) {
        *self.used.entry(flow).or_insert(self.least) += seconds;
    }

    /// A step of so many windows took so long.
    pub fn stepped(&mut self, windows: usize, took: Duration) {
        self.step.learn(windows as f64, took.as_secs_f64());
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
        order.sort_by_key(|seat| (!seat.is_live, seat.since, seat.slot));
        let quota = level(sizes.values().copied().collect(), most);
        let mut taken: HashMap<Flow, usize> = HashMap::new();
        order.retain(|seat| {
            let count = taken.entry(seat.flow).or_insert(0);
            *count += 1;
            seat.is_live || *count <= quota
        });
        let mut slots: Vec<SlotId> = order.into_iter().map(|seat| seat.slot).collect();
        slots.sort_unstable();
        slots
    }
}

/// The quota that each of flows with so many windows gets of `most` in all, so that the smallest get all that they
/// ask for (max-min fairness); 1 at least.
fn level(mut sizes: Vec<usize>, most: usize) -> usize {
    sizes.sort_unstable();
    let mut left = most;
    for (index, size) in sizes.iter().enumerate() {
        let quota = left / (sizes.len() - index);
        if *size > quota {
            return quota.max(1);
        }
        left -= size;
    }
    sizes.last().copied().unwrap_or(1)
}

/// The time of a step, `fixed + each · windows`: least squares over steps, newer ones weighing more.
#[derive(Default)]
struct StepCost {
    count: f64,
    windows: f64,
    squared: f64,
    seconds: f64,
    product: f64,
}

impl StepCost {
    fn learn(&mut self, windows: f64, seconds: f64) {
        self.count = self.count * MEMORY + 1.0;
        self.windows = self.windows * MEMORY + windows;
        self.squared = self.squared * MEMORY + windows * windows;
        self.seconds = self.seconds * MEMORY + seconds;
        self.product = self.product * MEMORY + windows * seconds;
    }

    /// The fixed part, and the part for each window. Until steps of several sizes are known: nothing is fixed.
    fn line(&self) -> Option<(f64, f64)> {
        if self.count < MIN_STEPS || self.seconds <= 0.0 {
            return None;
        }
        let (mean, mean_seconds) = (self.windows / self.count, self.seconds / self.count);
        let variance = self.squared / self.count - mean * mean;
        let each = if variance < MIN_SPREAD {
            mean_seconds / mean
        } else {
            ((self.product / self.count - mean * mean_seconds) / variance).clamp(0.0, mean_seconds / mean)
        };
        Some((mean_seconds - each * mean, each))
    }

    /// How many windows a step may hold so that it takes no longer than each of `flows` taking turns would let
    /// one with `smallest` windows wait; `None` where there is no bound.
    fn windows_within(&self, flows: usize, smallest: usize) -> Option<usize> {
        let (fixed, each) = self.line()?;
        let limit = flows as f64 * (fixed + each * smallest as f64);
        (each > 0.0).then(|| (((limit - fixed) / each) as usize).max(flows))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(tenant: u64) -> Flow {
        Flow::Tenant(TenantId(tenant))
    }

    /// Steps that take 2 ms, and 1 ms for each window.
    fn fairness() -> Fairness {
        let mut fairness = Fairness::default();
        for round in 0..100 {
            let windows = 1 + round % 16;
            fairness.stepped(windows, Duration::from_millis(2 + windows as u64));
        }
        fairness
    }

    /// So many seats for each tenant, from 0 on, in slots one after the other.
    fn seats(counts: &[usize]) -> Vec<Seat> {
        let since = Instant::now();
        let tenants = counts.iter().enumerate().flat_map(|(tenant, count)| vec![tenant as u64; *count]);
        let seat = |(slot, tenant): (usize, u64)| Seat {
            slot: SlotId(slot),
            flow: flow(tenant),
            is_live: false,
            // The later slots have begun first.
            since: since - Duration::from_millis(slot as u64),
        };
        tenants.enumerate().map(seat).collect()
    }

    fn chosen(fairness: &Fairness, seats: &[Seat]) -> Vec<usize> {
        fairness.select(seats).into_iter().map(|slot| slot.0).collect()
    }

    #[test]
    fn one_tenants_windows_are_all_stepped() {
        assert_eq!(chosen(&fairness(), &seats(&[16])), (0..16).collect::<Vec<_>>());
    }

    #[test]
    fn a_small_tenant_is_not_slowed_by_more_than_its_share() {
        // Alone its step takes 3 ms; with three others of the large tenant, 6.
        assert_eq!(chosen(&fairness(), &seats(&[15, 1])), [12, 13, 14, 15]);
        // Three tenants: 9 ms, so seven windows.
        assert_eq!(chosen(&fairness(), &seats(&[14, 1, 1])), [9, 10, 11, 12, 13, 14, 15]);
    }

    #[test]
    fn many_small_tenants_are_one_batch() {
        let everyone = chosen(&fairness(), &seats(&[1; 16]));
        assert_eq!(everyone.len(), 16);
    }

    #[test]
    fn steps_that_cost_the_same_leave_no_window_out() {
        let mut fairness = Fairness::default();
        for round in 0..100 {
            fairness.stepped(1 + round % 16, Duration::from_millis(5));
        }
        assert_eq!(chosen(&fairness, &seats(&[15, 1])).len(), 16);
        assert_eq!(chosen(&Fairness::default(), &seats(&[15, 1])).len(), 16, "nothing is known");
    }

    #[test]
    fn live_windows_are_never_left_out() {
        let mut seats = seats(&[15, 1]);
        seats.iter_mut().take(8).for_each(|seat| seat.is_live = true);
        assert!(chosen(&fairness(), &seats).starts_with(&[0, 1, 2, 3, 4, 5, 6, 7]));
        assert!(chosen(&fairness(), &seats).ends_with(&[15]));
    }

    /// Begins a round in which windows of these flows wait, and the window of one of them has had so long.
    fn round(fairness: &mut Fairness, waiting: &[Flow], on_its_way: Option<(Flow, u64)>) {
        let on_its_way = on_its_way.map(|(flow, ms)| (flow, Duration::from_millis(ms)));
        fairness.begin_round(waiting.iter().copied(), on_its_way.into_iter(), Instant::now());
    }

    #[test]
    fn a_flow_that_is_ahead_begins_nothing_until_the_other_has_caught_up() {
        let mut fairness = fairness();
        let (busy, other) = (flow(1), flow(2));
        round(&mut fairness, &[busy], None);
        fairness.charge(busy, 100.0);
        assert!(fairness.may_begin(busy), "it is alone");
        round(&mut fairness, &[busy, other], None);
        assert!(fairness.may_begin(busy) && fairness.may_begin(other), "both start level");
        assert!(fairness.is_next(other) && !fairness.is_next(busy), "but for a head start");
        fairness.charge(busy, 0.2);
        round(&mut fairness, &[busy, other], None);
        assert!(!fairness.may_begin(busy) && fairness.may_begin(other));
        // To leave and to come back gains nothing, and loses nothing.
        round(&mut fairness, &[other], None);
        round(&mut fairness, &[busy, other], None);
        assert!(!fairness.may_begin(busy));
        fairness.charge(other, 0.21);
        round(&mut fairness, &[busy, other], None);
        assert!(fairness.may_begin(busy));
    }

    #[test]
    fn a_window_on_its_way_is_not_held_up_by_another_flows_next_one() {
        let mut fairness = fairness();
        let (busy, other) = (flow(1), flow(2));
        round(&mut fairness, &[busy], None);
        fairness.begins(busy);
        fairness.encoded(&[busy], Duration::from_millis(80));
        assert_eq!(fairness.encode_batch(8), 8, "it is alone");
        round(&mut fairness, &[busy, other], Some((busy, 80)));
        assert_eq!(fairness.encode_batch(8), 1, "two would take too long");
        assert!(fairness.is_next(other) && !fairness.may_begin(busy));
        fairness.begins(other);
        fairness.encoded(&[other], Duration::from_millis(80));
        round(&mut fairness, &[busy], Some((other, 80)));
        assert!(!fairness.may_begin(busy));
        // It takes longer than it may hold up others.
        fairness.charge(other, 0.2);
        round(&mut fairness, &[busy], Some((other, 280)));
        assert!(fairness.may_begin(busy));
    }

    #[test]
    fn short_windows_of_several_flows_begin_together() {
        let mut fairness = fairness();
        let (busy, other) = (flow(1), flow(2));
        round(&mut fairness, &[busy, other], None);
        fairness.begins(busy);
        fairness.encoded(&[busy], Duration::from_millis(2));
        assert_eq!(fairness.encode_batch(16), 10);
        let begun = std::iter::repeat_with(|| {
            let may = fairness.may_begin(busy);
            fairness.begins(busy);
            may
        });
        assert_eq!(begun.take_while(|may| *may).count(), 9, "20 ms ahead of the other");
        assert!(fairness.is_next(other));
    }

    #[test]
    fn quotas_give_the_smallest_all_they_ask_for() {
        assert_eq!(level(vec![15, 1], 4), 3);
        assert_eq!(level(vec![14, 1, 1], 7), 5);
        assert_eq!(level(vec![8, 8], 4), 2);
        assert_eq!(level(vec![5, 5, 5], 2), 1);
        assert_eq!(level(vec![1, 2], 9), 2);
    }
}
