//! The order of windows: by class, then fairly between tenants by audio seconds, then in order of arrival.
//! Jobs come last but get one turn in [`JOB_TURN`], so that they are never starved.
//!
//! Pure: no clock, no channel. Deficit round robin (Shreedhar and Varghese, 1995) with the audio's
//! length as the cost: a tenant with a thousand windows and one with a single window take turns.

use std::collections::{HashMap, VecDeque};

use super::fairness::Flow;
use super::window::{Class, TenantId};

/// Samples a tenant may take in one turn: one full window, so that a turn always serves someone.
const QUANTUM_SAMPLES: u64 = super::WINDOW_SAMPLES as u64;

/// While a job waits, no more than so many less one go before it, however many of them there are.
const JOB_TURN: u32 = 10;

pub struct Queue<T> {
    lanes: [Lane<T>; 3],
    /// How often the job that is next was passed over.
    passed_over: u32,
}

struct Lane<T> {
    tenants: HashMap<TenantId, Backlog<T>>,
    /// Tenants with work, in order of turn; each once.
    turns: VecDeque<TenantId>,
    length: usize,
}

struct Backlog<T> {
    entries: VecDeque<Entry<T>>,
    /// Samples that the tenant may still take in its turn.
    credit: u64,
}

struct Entry<T> {
    item: T,
    samples: u64,
}

impl<T> Queue<T> {
    pub fn new() -> Self {
        Self {
            lanes: std::array::from_fn(|_| Lane {
                tenants: HashMap::new(),
                turns: VecDeque::new(),
                length: 0,
            }),
            passed_over: 0,
        }
    }

    pub fn push(&mut self, class: Class, tenant: TenantId, samples: usize, item: T) {
        let lane = &mut self.lanes[class as usize];
        let backlog = lane.tenants.entry(tenant).or_insert_with(|| {
            lane.turns.push_back(tenant);
            Backlog { entries: VecDeque::new(), credit: QUANTUM_SAMPLES }
        });
        backlog.entries.push_back(Entry { item, samples: samples as u64 });
        lane.length += 1;
    }

    /// The next item: a more urgent class first, but for the jobs' own turns. Items of flows that `may_begin` refuses
    /// stay, but for live ones of flows that `goes_first` lets through.
    pub fn pop(&mut self, goes_first: impl Fn(Flow) -> bool, may_begin: impl Fn(Flow) -> bool) -> Option<T> {
        let [live, interactive, jobs] = &mut self.lanes;
        let may_have = |tenant| may_begin(Flow::Tenant(tenant));
        let may_have_live = |tenant| goes_first(Flow::Tenant(tenant)) || may_have(tenant);
        if self.passed_over + 1 < JOB_TURN
            && let Some(item) = live.pop(may_have_live).or_else(|| interactive.pop(may_have))
        {
            self.passed_over += u32::from(jobs.length > 0);
            return Some(item);
        }
        let job = if may_begin(Flow::Jobs) { jobs.pop(|_| true) } else { None };
        if job.is_some() || jobs.length == 0 {
            self.passed_over = 0;
        }
        job.or_else(|| live.pop(may_have_live)).or_else(|| interactive.pop(may_have))
    }

    /// Flows that have items here; some more than once.
    pub fn flows(&self) -> impl Iterator<Item = Flow> {
        let classes = [Class::Live, Class::Interactive, Class::Job];
        classes
            .into_iter()
            .zip(&self.lanes)
            .flat_map(|(class, lane)| lane.turns.iter().map(move |tenant| Flow::of(class, *tenant)))
    }

    pub fn is_empty(&self) -> bool {
        self.lanes.iter().all(|lane| lane.length == 0)
    }

    /// Items that wait, by class.
    pub fn lengths(&self) -> [usize; 3] {
        self.lanes.each_ref().map(|lane| lane.length)
    }

    /// By class, the item that has waited longest: the first of some tenant's.
    pub fn oldest<K: Ord>(&self, since: impl Fn(&T) -> K) -> [Option<K>; 3] {
        self.lanes.each_ref().map(|lane| {
            lane.tenants.values().filter_map(|backlog| Some(since(&backlog.entries.front()?.item))).min()
        })
    }

    /// Drops all items that `keep` refuses. Walks the whole queue.
    pub fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        for lane in &mut self.lanes {
            let tenants = &mut lane.tenants;
            tenants.retain(|_, backlog| {
                backlog.entries.retain(|entry| keep(&entry.item));
                !backlog.entries.is_empty()
            });
            lane.turns.retain(|tenant| tenants.contains_key(tenant));
            lane.length = tenants.values().map(|backlog| backlog.entries.len()).sum();
        }
    }
}

impl<T> Lane<T> {
    /// The next item of a tenant that `may_have` lets begin.
    fn pop(&mut self, may_have: impl Fn(TenantId) -> bool) -> Option<T> {
        let allowed = self.turns.iter().position(|tenant| may_have(*tenant))?;
        self.turns.rotate_left(allowed);
        loop {
            let tenant = *self.turns.front()?;
            if !may_have(tenant) {
                self.turns.rotate_left(1);
                continue;
            }
            let backlog = self.tenants.get_mut(&tenant)?;
            let cost = backlog.entries.front()?.samples;
            if cost > backlog.credit {
                // The turn is over: to the back, with fresh credit on top of what was left.
                backlog.credit += QUANTUM_SAMPLES;
                self.turns.rotate_left(1);
                continue;
            }
            backlog.credit -= cost;
            let entry = backlog.entries.pop_front()?;
            if backlog.entries.is_empty() {
                self.tenants.remove(&tenant);
                self.turns.pop_front();
            }
            self.length -= 1;
            return Some(entry.item);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: usize = 16_000;

    #[test]
    fn urgent_classes_go_first_and_order_is_kept_within_a_tenant() {
        let mut queue = Queue::new();
        queue.push(Class::Job, TenantId(1), SECOND, "job");
        queue.push(Class::Interactive, TenantId(1), SECOND, "first");
        queue.push(Class::Interactive, TenantId(1), SECOND, "second");
        queue.push(Class::Live, TenantId(1), SECOND, "live");
        let order: Vec<_> = std::iter::from_fn(|| queue.pop(|_| true, |_| true)).collect();
        assert_eq!(order, ["live", "first", "second", "job"]);
        assert!(queue.is_empty());
    }

    #[test]
    fn a_job_waits_for_its_turn_and_no_longer() {
        let mut queue = Queue::new();
        queue.push(Class::Job, TenantId(1), SECOND, "job");
        for _ in 0..100 {
            queue.push(Class::Interactive, TenantId(2), SECOND, "interactive");
            queue.push(Class::Live, TenantId(3), SECOND, "live");
        }
        let position = std::iter::from_fn(|| queue.pop(|_| true, |_| true)).position(|item| item == "job");
        assert_eq!(position, Some(JOB_TURN as usize - 1));
    }

    #[test]
    fn a_tenant_with_much_work_does_not_delay_one_with_little() {
        let mut queue = Queue::new();
        for _ in 0..50 {
            queue.push(Class::Job, TenantId(1), 30 * SECOND, 1);
        }
        queue.push(Class::Job, TenantId(2), 30 * SECOND, 2);
        let position = std::iter::from_fn(|| queue.pop(|_| true, |_| true)).position(|tenant| tenant == 2);
        assert!(position.is_some_and(|position| position <= 1), "served at {position:?}");
    }

    proptest! {
        #[test]
        fn nothing_is_lost_nothing_comes_twice_and_shares_are_even(
            entries in prop::collection::vec((0usize..3, 0u64..4, 1usize..=30), 0..200)
        ) {
            let classes = [Class::Live, Class::Interactive, Class::Job];
            let mut queue = Queue::new();
            for (index, &(class, tenant, seconds)) in entries.iter().enumerate() {
                queue.push(classes[class], TenantId(tenant), seconds * SECOND, index);
            }
            let mut seen: Vec<usize> = Vec::new();
            let mut last = std::collections::HashMap::new();
            while let Some(index) = queue.pop(|_| true, |_| true) {
                let (class, tenant, _) = entries[index];
                prop_assert!(last.insert((class, tenant), index).is_none_or(|before| before < index));
                seen.push(index);
            }
            let urgent: Vec<_> = seen.iter().map(|&index| entries[index].0).filter(|&class| class < 2).collect();
            prop_assert!(urgent.is_sorted(), "{urgent:?}");
            let last_job = seen.iter().rposition(|&index| entries[index].0 == 2).unwrap_or(0);
            let jobs = seen[..last_job].split(|&index| entries[index].0 == 2);
            prop_assert!(jobs.into_iter().all(|between| between.len() < JOB_TURN as usize));
            seen.sort_unstable();
            prop_assert_eq!(seen, (0..entries.len()).collect::<Vec<_>>());
        }

        #[test]
        fn what_is_taken_out_is_gone_and_the_rest_comes_in_the_same_order(
            entries in prop::collection::vec((0usize..3, 0u64..4, 1usize..=30, any::<bool>()), 0..100)
        ) {
            let classes = [Class::Live, Class::Interactive, Class::Job];
            let (mut thinned, mut never) = (Queue::new(), Queue::new());
            for (index, &(class, tenant, seconds, stays)) in entries.iter().enumerate() {
                thinned.push(classes[class], TenantId(tenant), seconds * SECOND, index);
                if stays {
                    never.push(classes[class], TenantId(tenant), seconds * SECOND, index);
                }
            }
            thinned.retain(|&index| entries[index].3);
            prop_assert_eq!(thinned.lengths(), never.lengths());
            prop_assert_eq!(thinned.oldest(|&index| index), never.oldest(|&index| index));
            let order = |mut queue: Queue<usize>| {
                let mut order: Vec<usize> = std::iter::from_fn(|| queue.pop(|_| true, |_| true)).collect();
                // Between tenants turns may differ, as whoever came first may be gone.
                order.sort_by_key(|&index| (entries[index].0, entries[index].1));
                order
            };
            prop_assert_eq!(order(thinned), order(never));
        }

        #[test]
        fn while_two_tenants_wait_neither_gets_ahead_by_more_than_two_windows(
            lengths in prop::collection::vec((1usize..=30, 1usize..=30), 20..100)
        ) {
            let mut queue = Queue::new();
            for &(a, b) in &lengths {
                queue.push(Class::Job, TenantId(0), a * SECOND, (0, a));
                queue.push(Class::Job, TenantId(1), b * SECOND, (1, b));
            }
            let mut left = [lengths.len(), lengths.len()];
            let mut served = [0i64, 0];
            while left[0] > 0 && left[1] > 0 {
                let Some((tenant, seconds)) = queue.pop(|_| true, |_| true) else { break };
                left[tenant] -= 1;
                served[tenant] += seconds as i64;
                prop_assert!((served[0] - served[1]).abs() <= 60, "{served:?}");
            }
        }
    }
}
