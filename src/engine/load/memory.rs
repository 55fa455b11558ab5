//! Memory for decoded audio, counted in seconds of audio.
//!
//! Audio takes up memory from its decoding until its transcript is done, regardless of how much of it is recognised.
//! So memory is counted separately from work. All jobs together count as one tenant, which always leaves memory for
//! clients that wait for an answer; jobs without room wait for it one after another. A job that is longer than all of
//! the jobs' memory counts as that much: it runs beside no other job, and clients are served meanwhile.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use crate::engine::fairness::Flow;
use crate::engine::window::TenantId;
use crate::share::{FREE_FACTOR, Ledger, Refused, Tenants, Turns, may_hold};

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
    /// Room that the first job in line has waited for long enough; 0 if none has.
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
            // While the job waits for other jobs, clients would make no room for it.
            Flow::Tenant(_) if !self.fits_beside_jobs(state, state.kept_ms) => (&state.tenants, 0),
            Flow::Tenant(_) => (&state.tenants, state.kept_ms),
        };
        may_hold(own, total.saturating_add(kept), wanted_ms, self.capacity_ms, tenants)
    }

    /// Whether jobs may hold so much more, if there were no clients.
    fn fits_beside_jobs(&self, state: &State, more_ms: u64) -> bool {
        let jobs = state.ledger.of(Flow::Jobs);
        may_hold(jobs, jobs, more_ms, self.capacity_ms, &self.never_alone).is_ok()
    }

    /// The room that a piece of `seconds` counts for.
    fn counted_ms(&self, flow: Flow, seconds: f64) -> u64 {
        match flow {
            Flow::Jobs => milliseconds(seconds).min(self.capacity_ms / (FREE_FACTOR + 1) * FREE_FACTOR),
            Flow::Tenant(_) => milliseconds(seconds),
        }
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
        let wanted_ms = self.counted_ms(flow, seconds);
        let state = self.state();
        self.may_hold(&state, flow, 0, wanted_ms)?;
        Ok(self.reserved(state, flow, wanted_ms))
    }

    /// Reserves the room that is kept for the first job in line, as soon as it is free: clients need not leave more.
    fn reserve_kept(self: &Arc<Self>) -> Option<MemoryReservation> {
        let state = self.state();
        let is_free = state.ledger.total().saturating_add(state.kept_ms) <= self.capacity_ms;
        let kept_ms = state.kept_ms;
        (is_free && self.fits_beside_jobs(&state, kept_ms)).then(|| self.reserved(state, Flow::Jobs, kept_ms))
    }

    fn reserved(
        self: &Arc<Self>,
        mut state: MutexGuard<'_, State>,
        flow: Flow,
        wanted_ms: u64,
    ) -> MemoryReservation {
        state.ledger.add(flow, wanted_ms);
        drop(state);
        MemoryReservation { memory: self.clone(), flow, held_ms: Mutex::new(wanted_ms) }
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
                if let Some(reservation) = self.reserve_kept() {
                    return reservation;
                }
                freed.await;
            } else if timeout_at(patience, freed).await.is_err() {
                self.state().kept_ms = self.counted_ms(Flow::Jobs, seconds);
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
        let (mut held_ms, wanted_ms) = (self.held_ms(), self.memory.counted_ms(self.flow, seconds));
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
        let (mut held_ms, wanted_ms) = (self.held_ms(), self.memory.counted_ms(self.flow, seconds));
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

    #[tokio::test(start_paused = true)]
    async fn clients_are_not_kept_out_for_a_job_that_waits_for_other_jobs() {
        let memory = memory(100.0);
        let running = memory.reserve(Flow::Jobs, 60.0).expect("idle");
        let waiting = memory.clone();
        let mut job = Box::pin(async move { waiting.reserve_for_job(TenantId(2), 40.0).await });
        assert!(tokio::time::timeout(2 * JOB_PATIENCE, &mut job).await.is_err());
        let client = memory.reserve(ONE, 40.0).expect("all that the running job leaves");
        drop(running);
        assert_eq!(memory.state().ledger.total(), 40_000);
        let job = job.await;
        assert_eq!(memory.state().ledger.total(), 80_000);
        drop((client, job));
        assert_eq!(memory.state().ledger.total(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn clients_that_always_hold_the_rest_do_not_keep_a_job_out() {
        let memory = memory(100.0);
        let _clients = memory.reserve(ONE, 50.0).expect("idle");
        assert!(memory.reserve(Flow::Jobs, 45.0).is_err(), "jobs leave room to clients that come");
        let waiting = memory.clone();
        let job = async move { waiting.reserve_for_job(TenantId(2), 45.0).await };
        assert!(tokio::time::timeout(2 * JOB_PATIENCE, job).await.is_ok());
    }

    #[tokio::test]
    async fn clients_are_served_beside_a_job_of_any_length() {
        let memory = memory(100.0);
        let job = memory.reserve_for_job(TenantId(2), 500.0).await;
        let client = memory.reserve(ONE, 20.0).expect("what jobs leave");
        job.grow_to(600.0).expect("it counts as all that jobs may hold");
        job.shrink_to(400.0);
        assert_eq!(memory.has_room(TenantId(1), 1.0), Err(Refused::Full));
        job.shrink_to(30.0);
        assert!(memory.has_room(TenantId(1), 50.0).is_ok());
        drop((job, client));
        assert_eq!(memory.state().ledger.total(), 0);
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
