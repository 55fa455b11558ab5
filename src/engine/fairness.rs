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
//! - Encoding holds up all windows in slots. A flow with more windows waiting loses nothing by that; to any other
//!   flow the time is owed until steps have paid it back, and until then no other flow begins a window.
//! - A step takes in as many windows as keep it within the time that the smallest flow's share allows, and the
//!   largest flows give way.
//!
//! Where a step costs the same however much it holds, as on a GPU, the third rule never applies, and the second one
//! lets a flow with much work fill the batch beside one that has little. Pure: time is given.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use super::model::SlotId;
use super::window::{Class, TenantId};

/// Windows that are encoded together take no longer while several flows have work, and steps pay so much in advance:
/// enough for a batch on a GPU, and not for one window on a CPU.
const AHEAD_SECONDS: f64 = 0.02;
/// Jobs count so many times: there are clients who wait for all other work.
const JOBS_WEIGHT: f64 = 9.0;
/// Live windows begin at once, and take part in each step, until their flow is so far ahead of the one that has had
/// least: by then its streams send more than its share.
const LIVE_AHEAD_SECONDS: f64 = 1.0;
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

    fn weight(self) -> f64 {
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
    /// Encoding a window, in seconds: a running mean.
    encode: f64,
    /// When several flows had work last.
    shared_at: Option<Instant>,
}

impl Fairness {
    /// Says which flows have work from here on: those whose windows wait, and those whose windows are in slots. A flow
    /// that comes starts level with the one furthest behind: time that it did not ask for is not owed to it.
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

    fn used(&self, flow: Flow) -> f64 {
        self.used.get(&flow).copied().unwrap_or(self.least)
    }

    /// The flow with the lowest rank begins its next window first.
    fn rank(&self, flow: Flow) -> f64 {
        let has_slot = self.owed.contains_key(&flow);
        self.used(flow) - if has_slot { 0.0 } else { self.encode }
    }

    fn rank_waiting(&mut self) {
        let (mut next, mut without_slot) = (f64::INFINITY, f64::INFINITY);
        for flow in &self.waiting {
            let rank = self.rank(*flow);
            next = next.min(rank);
            if !self.owed.contains_key(flow) {
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
        let gives_way = self.owed.contains_key(&flow) && self.next_without_slot < self.rank(flow);
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
        let encode = self.encode;
        self.owed.iter_mut().filter(|(other, _)| **other != flow).for_each(|(_, owed)| *owed += encode);
        // A flow that comes holds others up, and is not held up at once itself.
        self.owed.entry(flow).or_insert(encode);
        self.rank_waiting();
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
        *self.used.entry(flow).or_insert(self.least) += seconds * flow.weight();
    }

    /// A step of so many windows, of all flows in slots, took so long.
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
            goes_first: false,
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
    fn windows_that_go_first_are_never_left_out() {
        let mut seats = seats(&[15, 1]);
        seats.iter_mut().take(8).for_each(|seat| seat.goes_first = true);
        assert!(chosen(&fairness(), &seats).starts_with(&[0, 1, 2, 3, 4, 5, 6, 7]));
        assert!(chosen(&fairness(), &seats).ends_with(&[15]));
    }

    const ENCODE: Duration = Duration::from_millis(80);

    fn round(fairness: &mut Fairness, waiting: &[Flow], in_slots: &[Flow]) {
        fairness.begin_round(waiting.iter().copied(), in_slots.iter().copied(), Instant::now());
    }

    fn encode(fairness: &mut Fairness, flow: Flow, took: Duration) {
        fairness.begins(flow);
        fairness.encoded(&[flow], took);
    }

    #[test]
    fn the_flow_that_had_least_is_next_and_to_leave_gains_nothing() {
        let mut fairness = fairness();
        let (busy, other) = (flow(1), flow(2));
        round(&mut fairness, &[busy], &[]);
        fairness.charge(busy, 100.0);
        assert!(fairness.may_begin(busy), "it is alone");
        round(&mut fairness, &[busy, other], &[]);
        assert!(fairness.is_next(other) && fairness.is_next(busy), "both start level");
        fairness.charge(busy, 0.2);
        round(&mut fairness, &[other], &[]);
        round(&mut fairness, &[busy, other], &[]);
        assert!(!fairness.is_next(busy));
        fairness.charge(other, 0.21);
        round(&mut fairness, &[busy, other], &[]);
        assert!(fairness.is_next(busy));
    }

    #[test]
    fn a_window_on_its_way_is_not_held_up_by_another_flows_next_one() {
        let mut fairness = fairness();
        let (busy, other) = (flow(1), flow(2));
        round(&mut fairness, &[busy], &[]);
        encode(&mut fairness, busy, ENCODE);
        assert_eq!(fairness.encode_batch(8), 8, "it is alone");
        round(&mut fairness, &[busy, other], &[busy]);
        assert_eq!(fairness.encode_batch(8), 1, "two would take too long");
        assert!(fairness.is_next(other) && !fairness.is_next(busy));
        encode(&mut fairness, other, ENCODE);
        round(&mut fairness, &[busy], &[busy, other]);
        assert!(!fairness.may_begin(busy));
        // It has been stepped for as long as it held up others, and may be held up again.
        for _ in 0..9 {
            fairness.stepped(2, Duration::from_millis(10));
        }
        assert!(fairness.may_begin(busy));
        encode(&mut fairness, busy, ENCODE);
        assert!(!fairness.may_begin(busy));
    }

    #[test]
    fn two_flows_with_much_to_do_fill_all_slots_in_turn() {
        let mut fairness = fairness();
        let flows = [flow(1), flow(2)];
        let mut seats: Vec<Flow> = Vec::new();
        for _ in 0..16 {
            round(&mut fairness, &flows, &seats);
            let next = flows.into_iter().find(|flow| fairness.is_next(*flow)).expect("one had least");
            assert!(fairness.may_begin(next));
            encode(&mut fairness, next, ENCODE);
            seats.push(next);
        }
        let of_first = seats.iter().filter(|flow| **flow == flows[0]).count();
        assert!((7..=9).contains(&of_first), "{of_first} of 16");
    }

    #[test]
    fn where_steps_cost_the_same_a_flow_with_much_to_do_fills_the_batch_beside_one_with_little() {
        let mut fairness = Fairness::default();
        let (busy, other) = (flow(1), flow(2));
        round(&mut fairness, &[busy, other], &[]);
        encode(&mut fairness, other, Duration::from_millis(2));
        encode(&mut fairness, busy, Duration::from_millis(2));
        let mut begun = 0;
        for _ in 0..60 {
            round(&mut fairness, &[busy], &[other, busy]);
            while fairness.may_begin(busy) && begun < 64 {
                encode(&mut fairness, busy, Duration::from_millis(2));
                begun += 1;
            }
            fairness.stepped(begun + 2, Duration::from_millis(6));
        }
        assert_eq!(begun, 64);
    }

    #[test]
    fn a_client_that_asks_for_one_window_after_the_other_waits_for_one_encoding_at_most() {
        let mut fairness = fairness();
        let (busy, client) = (flow(1), flow(2));
        let mut others = Vec::new();
        for _ in 0..20 {
            // The busy flow begins a window just before the client asks.
            round(&mut fairness, &[busy], &[]);
            encode(&mut fairness, busy, ENCODE);
            round(&mut fairness, &[busy, client], &[busy]);
            assert!(fairness.is_next(client) && fairness.may_begin(client));
            assert!(!fairness.may_begin(busy));
            encode(&mut fairness, client, ENCODE);
            let mut encodings = 0;
            for _ in 0..8 {
                round(&mut fairness, &[busy], &[busy, client]);
                if fairness.may_begin(busy) {
                    encode(&mut fairness, busy, ENCODE);
                    encodings += 1;
                }
                fairness.charge(busy, 0.004);
                fairness.charge(client, 0.004);
                fairness.stepped(2, Duration::from_millis(8));
            }
            others.push(encodings);
        }
        assert_eq!(others, [0; 20]);
    }

    #[test]
    fn nothing_is_owed_to_a_flow_with_windows_that_wait() {
        let mut fairness = fairness();
        let (first, second, third) = (flow(1), flow(2), flow(3));
        round(&mut fairness, &[first, second], &[]);
        encode(&mut fairness, first, ENCODE);
        round(&mut fairness, &[first, second], &[first]);
        encode(&mut fairness, second, ENCODE);
        round(&mut fairness, &[first, second], &[first, second]);
        assert!(fairness.may_begin(first) && fairness.may_begin(second));
        round(&mut fairness, &[first, second, third], &[first, second]);
        assert!(fairness.may_begin(third) && !fairness.may_begin(first) && !fairness.may_begin(second));
    }

    #[test]
    fn live_windows_go_first_until_their_flow_is_a_second_ahead() {
        let mut fairness = fairness();
        let (live, other) = (flow(1), flow(2));
        round(&mut fairness, &[live, other], &[]);
        fairness.charge(live, 0.9);
        assert!(fairness.goes_first(live));
        fairness.charge(live, 0.2);
        assert!(!fairness.goes_first(live) && fairness.goes_first(other));
        round(&mut fairness, &[live], &[]);
        assert!(fairness.goes_first(live), "it is alone");
    }

    #[test]
    fn jobs_get_little_while_a_client_waits() {
        let mut fairness = fairness();
        let client = flow(1);
        let mut jobs = 0;
        for _ in 0..100 {
            round(&mut fairness, &[client, Flow::Jobs], &[]);
            let next = if fairness.is_next(Flow::Jobs) { Flow::Jobs } else { client };
            jobs += u32::from(next == Flow::Jobs);
            encode(&mut fairness, next, ENCODE);
        }
        assert!((8..=13).contains(&jobs), "{jobs} of 100");
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
