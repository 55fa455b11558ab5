//! Turns at work that only a limited number of calls may do at once.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use super::{Ledger, Tenants, may_hold};

/// A semaphore that is fair between tenants: waiting calls go in turn by tenant, and by time within one.
/// Cheap to clone: clones share it.
#[derive(Clone)]
pub struct Turns(Arc<Semaphore>);

struct Semaphore {
    capacity: u64,
    /// `None`: turns are brief.
    tenants: Option<Tenants>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    ledger: Ledger<u64>,
    waiting: HashMap<u64, VecDeque<oneshot::Sender<Turn>>>,
    /// Tenants that wait, in order of turn; each once.
    order: VecDeque<u64>,
}

/// A permit; dropping it lets the next call in.
pub struct Turn {
    semaphore: Arc<Semaphore>,
    tenant: u64,
    is_held: bool,
}

impl Turns {
    /// For turns that may last: no tenant holds more of them than its share.
    pub fn new(capacity: usize, tenants: Tenants) -> Self {
        Self::with(capacity, Some(tenants))
    }

    /// For turns of a second or so: none is kept free for a tenant that may come, since one is free soon. If there
    /// are few, such as one for each processor, a busy tenant would otherwise leave half of them idle.
    pub fn brief(capacity: usize) -> Self {
        Self::with(capacity, None)
    }

    fn with(capacity: usize, tenants: Option<Tenants>) -> Self {
        let capacity = u64::try_from(capacity.max(1)).unwrap_or(u64::MAX);
        Self(Arc::new(Semaphore { capacity, tenants, state: Mutex::default() }))
    }

    /// Waits for a turn. Cancel-safe: dropping the future gives up its place in the queue.
    pub async fn take(&self, tenant: u64) -> Turn {
        match self.take_within(tenant, usize::MAX).await {
            Some(turn) => turn,
            // As many calls do not fit in memory.
            None => Turn { semaphore: self.0.clone(), tenant, is_held: false },
        }
    }

    /// As [`Self::take`]; `None`, at once, if `most` calls of the tenant wait already.
    pub async fn take_within(&self, tenant: u64, most: usize) -> Option<Turn> {
        let turn = {
            let (ready, turn) = oneshot::channel();
            let mut state = self.0.state();
            let line = state.waiting.entry(tenant).or_default();
            let was_waiting = !line.is_empty();
            line.retain(|ready| !ready.is_closed());
            if line.len() >= most {
                return None;
            }
            line.push_back(ready);
            if !was_waiting {
                state.order.push_back(tenant);
            }
            self.0.grant(&mut state);
            turn
        };
        // The sender is only dropped together with this future.
        Some(turn.await.unwrap_or_else(|_| Turn { semaphore: self.0.clone(), tenant, is_held: false }))
    }

    #[cfg(test)]
    pub fn waiting(&self) -> usize {
        self.0.state().waiting.values().map(VecDeque::len).sum()
    }
}

impl Semaphore {
    fn state(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere cannot leave these numbers inconsistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn may_enter(&self, ledger: &Ledger<u64>, tenant: u64) -> bool {
        match &self.tenants {
            Some(tenants) => may_hold(ledger.of(tenant), ledger.total, 1, self.capacity, tenants).is_ok(),
            None => ledger.total < self.capacity,
        }
    }

    /// Lets in as many calls as there are turns.
    fn grant(self: &Arc<Self>, state: &mut State) {
        // Tenants looked at since one was let in.
        let mut passed = 0;
        while passed < state.order.len()
            && let Some(tenant) = state.order.pop_front()
        {
            let Some(line) = state.waiting.get_mut(&tenant) else { continue };
            if !self.may_enter(&state.ledger, tenant) {
                state.order.push_back(tenant);
                passed += 1;
                continue;
            }
            if let Some(ready) = line.pop_front() {
                let turn = Turn { semaphore: self.clone(), tenant, is_held: true };
                match ready.send(turn) {
                    Ok(()) => {
                        state.ledger.add(tenant, 1);
                        passed = 0;
                    }
                    // Its future was dropped. The lock is held here, so the turn must not give itself back.
                    Err(mut turn) => turn.is_held = false,
                }
            }
            if line.is_empty() {
                state.waiting.remove(&tenant);
            } else {
                state.order.push_back(tenant);
            }
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if !self.is_held {
            return;
        }
        let mut state = self.semaphore.state();
        state.ledger.give_back(self.tenant, 1);
        self.semaphore.grant(&mut state);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use futures_util::future::BoxFuture;

    use super::*;

    fn turns(capacity: usize, count: usize) -> Turns {
        let tenants = Tenants::default();
        tenants.set(count);
        Turns::new(capacity, tenants)
    }

    fn take(turns: &Turns, tenant: u64) -> BoxFuture<'static, Turn> {
        let turns = turns.clone();
        let mut taking = async move { turns.take(tenant).await }.boxed();
        // In line from here on.
        match (&mut taking).now_or_never() {
            Some(turn) => async { turn }.boxed(),
            None => taking,
        }
    }

    #[test]
    fn tenants_go_in_turn_however_many_of_one_wait() {
        let turns = turns(1, 2);
        let first = turns.take(1).now_or_never().expect("free");
        let mut busy: Vec<_> = (0..5).map(|_| take(&turns, 1)).collect();
        let mut other = take(&turns, 2);
        assert_eq!(turns.waiting(), 6);
        drop(first);
        let second = (&mut busy[0]).now_or_never().expect("the first of the line");
        assert!((&mut other).now_or_never().is_none());
        drop(second);
        let third = (&mut other).now_or_never().expect("the other tenant's turn");
        drop(third);
        assert!((&mut busy[1]).now_or_never().is_some());
    }

    #[test]
    fn one_tenant_leaves_a_place_to_the_next() {
        let turns = turns(8, 2);
        let busy: Vec<_> = (0..20).map(|_| take(&turns, 1)).collect();
        let held: Vec<Turn> = busy.into_iter().filter_map(|turn| turn.now_or_never()).collect();
        assert_eq!(held.len(), 6);
        assert!(turns.take(2).now_or_never().is_some());
    }

    #[test]
    fn brief_turns_are_kept_free_for_no_tenant_and_still_go_in_turn() {
        let turns = Turns::brief(2);
        let mut held: Vec<Turn> = (0..2).filter_map(|_| turns.take(1).now_or_never()).collect();
        assert_eq!(held.len(), 2);
        let busy: Vec<_> = (0..5).map(|_| take(&turns, 1)).collect();
        let other = take(&turns, 2);
        held.clear();
        assert!(other.now_or_never().is_some());
        drop(busy);
    }

    #[test]
    fn a_line_has_a_bound_in_which_only_those_count_who_wait() {
        let turns = turns(1, 2);
        let held = turns.take(1).now_or_never().expect("free");
        let mut waits = Box::pin(turns.take_within(1, 1));
        assert!((&mut waits).now_or_never().is_none());
        assert!(matches!(turns.take_within(1, 1).now_or_never(), Some(None)));
        // Another tenant has a line of its own.
        let mut other = Box::pin(turns.take_within(2, 1));
        assert!((&mut other).now_or_never().is_none());
        drop(waits);
        let mut next = Box::pin(turns.take_within(1, 1));
        assert!((&mut next).now_or_never().is_none());
        drop(held);
        let first = (&mut next).now_or_never().flatten();
        assert!(first.is_some() && (&mut other).now_or_never().is_none());
        drop(first);
        assert!(other.now_or_never().flatten().is_some());
    }

    #[test]
    fn those_who_leave_the_line_hold_nobody_up() {
        let turns = turns(1, 2);
        let first = turns.take(1).now_or_never().expect("free");
        let gone = take(&turns, 2);
        let waits = take(&turns, 3);
        drop(gone);
        drop(first);
        let turn = waits.now_or_never().expect("next");
        let given = take(&turns, 4);
        drop(turn);
        // Let in, and gone before it went on.
        drop(given);
        assert!(turns.take(5).now_or_never().is_some());
    }
}
