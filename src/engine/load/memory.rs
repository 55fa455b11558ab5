//! Memory for decoded audio, counted in seconds of audio.
//!
//! Audio takes up memory from its decoding until its transcript is done, regardless of how much of it is recognised.
//! So memory is counted separately from work. All jobs together count as one tenant, which always leaves memory for
//! clients that wait for an answer; jobs without room wait for it one after another.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use crate::engine::fairness::Flow;
use crate::engine::window::TenantId;
use crate::share::{Ledger, Refused, Tenants, Turns, may_hold};

/// How long a job waits for room while others are admitted. After that, room for it is kept free, so that a steady
/// stream of small files cannot keep out a large job for ever.
pub(super) const JOB_PATIENCE: Duration = Duration::from_secs(60);

pub struct Memory {
    capacity_ms: u64,
    state: Mutex<State>,
    freed: Notify,
    /// The line of waiting jobs.
    line: Turns,
    /// Limits jobs like one tenant of several, so that they leave room to others.
    never_alone: Tenants,
}

#[derive(Default)]
struct State {
    tenants: Tenants,
    ledger: Ledger<Flow>,
    /// Room that is kept for the first job in line.
    kept_ms: u64,
}

/// A reservation of room for decoded audio; dropping it releases the room.
pub struct MemoryReservation {
    memory: Arc<Memory>,
    flow: Flow,
    held_ms: Mutex<u64>,
}

/// Keeps room free for a waiting job.
struct Kept<'a>(&'a Memory);

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        self.0.state().kept_ms = 0;
    }
}

fn milliseconds(seconds: f64) -> u64 {
    // Saturates if there is no bound.
    (seconds * 1000.0).ceil() as u64
}

impl Memory {
    pub fn new(capacity_seconds: f64) -> Self {
        let never_alone = Tenants::default();
        never_alone.set(2);
        Self {
            capacity_ms: milliseconds(capacity_seconds),
            state: Mutex::default(),
            freed: Notify::new(),
            line: Turns::new(1, Tenants::default()),
            never_alone,
        }
    }

    pub fn share_between(&self, tenants: Tenants) {
        self.state().tenants = tenants;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere cannot leave these numbers inconsistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether `flow` may hold a piece of `wanted_ms`, of which it holds `held_ms` already. An engine that holds
    /// nothing else takes any one piece.
    fn may_hold(&self, state: &State, flow: Flow, held_ms: u64, wanted_ms: u64) -> Result<(), Refused> {
        let total = state.ledger.total().saturating_sub(held_ms);
        if total == 0 {
            return Ok(());
        }
        let own = state.ledger.of(flow).saturating_sub(held_ms);
        let (tenants, kept) = match flow {
            Flow::Jobs => (&self.never_alone, 0),
            Flow::Tenant(_) => (&state.tenants, state.kept_ms),
        };
        may_hold(own, total.saturating_add(kept), wanted_ms, self.capacity_ms, tenants)
    }

    /// Whether `tenant` could hold another piece of `seconds`.
    pub fn has_room(&self, tenant: TenantId, seconds: f64) -> Result<(), Refused> {
        self.may_hold(&self.state(), Flow::Tenant(tenant), 0, milliseconds(seconds))
    }

    /// Reserves room for `seconds`. 0, for a stream, is refused where nothing more would fit.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn reserve(self: &Arc<Self>, flow: Flow, seconds: f64) -> Result<MemoryReservation, Refused> {
        let wanted_ms = milliseconds(seconds);
        let mut state = self.state();
        self.may_hold(&state, flow, 0, wanted_ms)?;
        state.ledger.add(flow, wanted_ms);
        drop(state);
        Ok(MemoryReservation { memory: self.clone(), flow, held_ms: Mutex::new(wanted_ms) })
    }

    /// Reserves room for a job of `tenant` as soon as there is some. Cancel-safe: dropping the future leaves the line.
    pub async fn reserve_for_job(self: &Arc<Self>, tenant: TenantId, seconds: f64) -> MemoryReservation {
        let _turn = self.line.take(tenant.0).await;
        let patience = Instant::now() + JOB_PATIENCE;
        let mut kept = None;
        loop {
            let mut freed = std::pin::pin!(self.freed.notified());
            // Registers for room that is released from here on.
            freed.as_mut().enable();
            if let Ok(reservation) = self.reserve(Flow::Jobs, seconds) {
                return reservation;
            }
            if kept.is_some() {
                freed.await;
            } else if timeout_at(patience, freed).await.is_err() {
                self.state().kept_ms = milliseconds(seconds);
                kept = Some(Kept(self));
            }
        }
    }
}

impl MemoryReservation {
    fn held_ms(&self) -> MutexGuard<'_, u64> {
        self.held_ms.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Grows the reservation to `seconds`, if it is smaller. If that is refused, it stays as it is.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn grow_to(&self, seconds: f64) -> Result<(), Refused> {
        let (mut held_ms, wanted_ms) = (self.held_ms(), milliseconds(seconds));
        if wanted_ms <= *held_ms {
            return Ok(());
        }
        let mut state = self.memory.state();
        self.memory.may_hold(&state, self.flow, *held_ms, wanted_ms)?;
        state.ledger.add(self.flow, wanted_ms - *held_ms);
        *held_ms = wanted_ms;
        Ok(())
    }

    /// Shrinks the reservation to `seconds`, if it is larger.
    pub fn shrink_to(&self, seconds: f64) {
        let (mut held_ms, wanted_ms) = (self.held_ms(), milliseconds(seconds));
        if wanted_ms < *held_ms {
            self.memory.state().ledger.give_back(self.flow, *held_ms - wanted_ms);
            *held_ms = wanted_ms;
            self.memory.freed.notify_waiters();
        }
    }
}

impl Drop for MemoryReservation {
    fn drop(&mut self) {
        self.shrink_to(0.0);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    const ONE: Flow = Flow::Tenant(TenantId(1));

    fn memory(seconds: f64) -> Arc<Memory> {
        Arc::new(Memory::new(seconds))
    }

    #[test]
    fn jobs_leave_room_to_clients_that_wait() {
        let memory = memory(100.0);
        let job = memory.reserve(Flow::Jobs, 60.0).expect("idle");
        assert!(memory.reserve(Flow::Jobs, 21.0).is_err());
        let second = memory.reserve(Flow::Jobs, 20.0).expect("four fifths");
        let client = memory.reserve(ONE, 20.0).expect("a tenant alone may hold all that is left");
        assert_eq!(memory.has_room(TenantId(1), 1.0), Err(Refused::Full));
        drop((job, second, client));
        assert_eq!(memory.state().ledger.total(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn jobs_wait_in_turn_for_room() {
        let memory = memory(100.0);
        let client = memory.reserve(ONE, 90.0).expect("idle");
        let (waiting, others) = (memory.clone(), memory.clone());
        let mut first = Box::pin(async move { waiting.reserve_for_job(TenantId(1), 50.0).await });
        let mut second = Box::pin(async move { others.reserve_for_job(TenantId(1), 1.0).await });
        assert!((&mut first).now_or_never().is_none());
        assert!((&mut second).now_or_never().is_none(), "it would fit, and is not next");
        drop(client);
        let first = first.await;
        assert!(second.now_or_never().is_some());
        drop(first);
    }

    #[tokio::test(start_paused = true)]
    async fn a_large_job_is_not_kept_out_for_ever() {
        let memory = memory(100.0);
        let mut clients = vec![memory.reserve(ONE, 30.0).expect("idle")];
        let waiting = memory.clone();
        let mut job = Box::pin(async move { waiting.reserve_for_job(TenantId(2), 80.0).await });
        assert!(tokio::time::timeout(JOB_PATIENCE / 2, &mut job).await.is_err());
        clients.push(memory.reserve(ONE, 30.0).expect("clients come first"));
        assert!(tokio::time::timeout(JOB_PATIENCE, &mut job).await.is_err());
        assert!(memory.reserve(ONE, 30.0).is_err(), "the room is kept for the job");
        clients.clear();
        job.await;
        assert!(memory.reserve(ONE, 30.0).is_ok(), "nothing is kept any more");
    }

    #[test]
    fn the_one_piece_of_an_idle_engine_may_be_as_long_as_it_likes() {
        let memory = memory(100.0);
        let long = memory.reserve(ONE, 1.0).expect("idle");
        long.grow_to(500.0).expect("it is alone");
        assert!(memory.reserve(ONE, 1.0).is_err());
        long.shrink_to(50.0);
        assert!(memory.reserve(ONE, 50.0).is_ok());
    }
}
