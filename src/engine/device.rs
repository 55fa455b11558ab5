//! A device that the workers of several models share: one of them at a time computes on it.
//!
//! Two models that compute at once would be slower than one after the other where they share cores and caches. So a worker
//! takes the device for a few rounds of its loop. The model that has had the least of the device's time for its weight goes
//! next (start-time fair queueing: Goyal, Vin and Cheng, 1996), so that a small one is not held up by a large one for
//! longer than a round. A model weighs as much as the flows that have work for it, and a flow with work for several models
//! counts for each of them in part: so flows get about equal time, whichever models they use.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::board::Board;
use super::fairness::Flow;
use super::model::{MODELS_MAX, ModelId};
use super::progress::DeviceProgress;

/// A turn lasts for at least this long, if there is work for it: the worker and its threads must be woken for each.
const TURN_MIN: Duration = Duration::from_millis(20);
/// The least weight of a model that has work.
const WEIGHT_MIN: f64 = 0.05;

#[derive(Default)]
pub struct Device {
    state: Mutex<State>,
    pub progress: Arc<DeviceProgress>,
}

#[derive(Default)]
struct State {
    /// The models that have work.
    users: BTreeMap<ModelId, User>,
    /// The model whose worker computes. `None` only while no worker waits.
    holder: Option<ModelId>,
    /// The virtual time of the last turn. A model that gets work starts from here: time that it did not ask for is not
    /// owed to it.
    now: f64,
    /// Virtual times of all models: seconds of the device for each unit of weight.
    used: [f64; MODELS_MAX],
}

struct User {
    flows: HashSet<Flow>,
    waits: bool,
    wake: Arc<Condvar>,
    board: Arc<Board>,
}

/// One worker's turns at its device. Dropping it leaves the device to others.
pub struct Turns {
    device: Arc<Device>,
    model: ModelId,
    board: Arc<Board>,
    wake: Arc<Condvar>,
    /// When its turn began.
    granted: Instant,
    /// Until when its time is charged.
    charged: Instant,
}

impl State {
    fn weight(&self, model: ModelId) -> f64 {
        let Some(user) = self.users.get(&model) else { return WEIGHT_MIN };
        let part = |flow: &Flow| {
            let models = self.users.values().filter(|user| user.flows.contains(flow)).count();
            1.0 / (flow.weight() * models.max(1) as f64)
        };
        user.flows.iter().map(part).sum::<f64>().max(WEIGHT_MIN)
    }

    fn charge(&mut self, model: ModelId, time: Duration) {
        self.used[model.index()] += time.as_secs_f64() / self.weight(model);
    }

    /// The model among those that wait that has had the least.
    fn next(&self) -> Option<ModelId> {
        let waiting = self.users.iter().filter(|(_, user)| user.waits).map(|(model, _)| *model);
        waiting.min_by(|one, other| self.used[one.index()].total_cmp(&self.used[other.index()]))
    }

    /// The model that goes on after `model`, which has had the device for `held`; `None` if it keeps it.
    fn after(&self, model: ModelId, held: Duration) -> Option<ModelId> {
        let next = self.next()?;
        (held >= TURN_MIN && self.used[next.index()] < self.used[model.index()]).then_some(next)
    }

    fn grant(&mut self, next: Option<ModelId>) {
        self.holder = next;
        let Some(model) = next else { return };
        self.now = self.now.max(self.used[model.index()]);
        if let Some(user) = self.users.get(&model) {
            user.wake.notify_one();
        }
    }

    /// Tells those that wait that the device works on.
    fn goes_on(&self) {
        self.users.values().filter(|user| user.waits).for_each(|user| user.board.turn_passes());
    }

    /// For each flow of `model`, the number of other models that it has work for; without those of none.
    fn elsewhere(&self, model: ModelId) -> HashMap<Flow, usize> {
        let Some(own) = self.users.get(&model) else { return HashMap::new() };
        let others = self.users.iter().filter(|(other, _)| **other != model);
        let mut counts = HashMap::new();
        for flow in others.flat_map(|(_, user)| &user.flows).filter(|flow| own.flows.contains(*flow)) {
            *counts.entry(*flow).or_insert(0) += 1;
        }
        counts
    }
}

impl Device {
    fn state(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere cannot leave the state inconsistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Turns {
    pub fn new(device: Arc<Device>, model: ModelId, board: Arc<Board>) -> Self {
        let now = Instant::now();
        Self { device, model, board, wake: Arc::default(), granted: now, charged: now }
    }

    /// Waits until it is this worker's turn, which lasts until the next call at least. `flows` have work for it. Returns how many
    /// other models each of them has work for, without those of none.
    pub fn take(&mut self, flows: &HashSet<Flow>) -> HashMap<Flow, usize> {
        let mut state = self.device.state();
        let before = std::mem::replace(&mut self.charged, Instant::now());
        if !state.users.contains_key(&self.model) {
            let now = state.now;
            let used = &mut state.used[self.model.index()];
            *used = used.max(now);
            let user = User {
                flows: flows.clone(),
                waits: false,
                wake: self.wake.clone(),
                board: self.board.clone(),
            };
            state.users.insert(self.model, user);
        }
        if state.users.len() == 1 {
            state.grant(Some(self.model));
            return HashMap::new();
        }
        if let Some(user) = state.users.get_mut(&self.model)
            && user.flows != *flows
        {
            user.flows.clone_from(flows);
        }
        match state.holder {
            None => {
                self.granted = self.charged;
                state.grant(Some(self.model));
            }
            Some(holder) if holder == self.model => {
                state.charge(self.model, self.charged.saturating_duration_since(before));
                let held = self.charged.saturating_duration_since(self.granted);
                let next = state.after(self.model, held).unwrap_or(self.model);
                state.grant(Some(next));
                state.goes_on();
            }
            Some(_) => {}
        }
        if state.holder != Some(self.model) {
            state = self.wait(state);
            self.charged = Instant::now();
            self.granted = self.charged;
        }
        state.elsewhere(self.model)
    }

    fn wait<'a>(&self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let set = |state: &mut State, waits| {
            if let Some(user) = state.users.get_mut(&self.model) {
                user.waits = waits;
            }
        };
        set(&mut state, true);
        self.board.turn_wait_begins();
        while state.holder != Some(self.model) {
            state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        self.board.turn_wait_ends();
        set(&mut state, false);
        state
    }

    /// Leaves the device to others: there is no work.
    pub fn rest(&mut self) {
        let mut state = self.device.state();
        if state.users.remove(&self.model).is_none() {
            return;
        }
        if state.holder == Some(self.model) {
            let next = state.next();
            state.grant(next);
        }
    }
}

impl Drop for Turns {
    fn drop(&mut self) {
        self.rest();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::window::TenantId;

    const SMALL: Duration = Duration::from_millis(1);
    const LARGE: Duration = Duration::from_millis(10);

    fn flow(tenant: u64) -> Flow {
        Flow::Tenant(TenantId(tenant))
    }

    fn model(index: usize) -> ModelId {
        ModelId::new(index).expect("there may be so many")
    }

    /// The share of the device's time that each of two models gets whose rounds take `rounds`, with work of these flows.
    fn shares(rounds: [Duration; 2], flows: [&[u64]; 2]) -> [f64; 2] {
        let mut state = State::default();
        for (index, flows) in flows.into_iter().enumerate() {
            let flows = flows.iter().map(|tenant| flow(*tenant)).collect();
            let (wake, board) = (Arc::default(), Arc::new(Board::new(Arc::default())));
            state.users.insert(model(index), User { flows, waits: index > 0, wake, board });
        }
        let (mut holder, mut held, mut sums) = (0, Duration::ZERO, [0.0; 2]);
        while sums[0] + sums[1] < 60.0 {
            let round = rounds[holder];
            state.charge(model(holder), round);
            sums[holder] += round.as_secs_f64();
            held += round;
            if let Some(next) = state.after(model(holder), held) {
                for (model, user) in &mut state.users {
                    user.waits = *model != next;
                }
                (holder, held) = (next.index(), Duration::ZERO);
            }
        }
        sums.map(|sum| sum / (sums[0] + sums[1]))
    }

    #[test]
    fn a_small_model_gets_as_much_time_as_a_large_one() {
        for tenants in [[&[1][..], &[1]], [&[1], &[2]]] {
            let [small, _] = shares([SMALL, LARGE], tenants);
            assert!((small - 0.5).abs() < 0.01, "{small}");
        }
    }

    #[test]
    fn organisations_get_equal_time_whichever_models_they_use() {
        let [three, _] = shares([SMALL, LARGE], [&[1, 2, 3], &[4]]);
        assert!((three - 0.75).abs() < 0.01, "{three}");
        // The first has both models to itself half of its time, the second shares one with it.
        let [both, _] = shares([LARGE, SMALL], [&[1, 2], &[1]]);
        assert!((both - 0.75).abs() < 0.01, "{both}");
    }

    #[test]
    fn turns_go_round_and_time_without_work_is_not_owed() {
        let device = Arc::new(Device::default());
        let turns = |index| Turns::new(device.clone(), model(index), Arc::new(Board::new(Arc::default())));
        let flows = HashSet::from([flow(1)]);
        let mut first = turns(0);
        first.take(&flows);
        device.state().used[0] = 1000.0;
        first.take(&flows);
        first.rest();
        let mut second = turns(1);
        assert!(second.take(&flows).is_empty());
        assert!((device.state().used[1] - 1000.0).abs() < 1.0);
        let mut third = turns(2);
        let waiting = std::thread::spawn(move || {
            let elsewhere = third.take(&HashSet::from([flow(1), flow(2)]));
            assert_eq!(elsewhere, HashMap::from([(flow(1), 1)]));
        });
        while !device.state().users.get(&model(2)).is_some_and(|user| user.waits) {
            std::thread::yield_now();
        }
        // The other one has had less by now, and gets its turn once this one is long enough.
        while !waiting.is_finished() {
            second.take(&flows);
        }
        assert!(second.take(&flows).is_empty());
        drop(second);
        waiting.join().expect("no panic");
        assert!(device.state().users.is_empty() && device.state().holder.is_none());
    }
}
