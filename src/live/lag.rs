//! The time that a new stream's windows would wait, by which new streams are admitted.
//!
//! The engine's queue is fair between tenants, so a tenant waits for its own windows and for at most one window of
//! each other tenant whose windows wait. A tenant that streams more than the engine can do, or faster than speech, is
//! late itself; the streams of others are not, and are admitted.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::engine::{TenantId, Timings};

/// Weight of the newest measurement in a running mean.
const SMOOTHING: f64 = 0.2;
/// Without new measurements a mean is halved in so many seconds: one bad moment does not shut the door for good.
const HALF_LIFE: f64 = 2.0;
/// A tenant whose windows wait for less than this is dropped, in seconds.
const NOTHING: f64 = 1e-3;

/// Running means of the time that windows took, in seconds.
#[derive(Default)]
pub struct Lag(Mutex<State>);

#[derive(Default)]
struct State {
    by_tenant: HashMap<TenantId, Mean>,
    /// From a window's beginning to its answer, for all tenants.
    service: Option<Mean>,
}

#[derive(Debug, Clone, Copy)]
struct Mean {
    /// From a window's arrival to its answer.
    total: f64,
    /// The part of it before the window was begun.
    queued: f64,
    at: Instant,
}

impl Mean {
    fn at(self, now: Instant) -> Self {
        let kept = 0.5_f64.powf(now.saturating_duration_since(self.at).as_secs_f64() / HALF_LIFE);
        Self { total: self.total * kept, queued: self.queued * kept, at: now }
    }

    fn learn(mean: Option<Self>, total: f64, queued: f64, now: Instant) -> Self {
        match mean {
            None => Self { total, queued, at: now },
            Some(mean) => Self {
                total: mean.total + SMOOTHING * (total - mean.total),
                queued: mean.queued + SMOOTHING * (queued - mean.queued),
                at: now,
            },
        }
    }
}

impl Lag {
    fn state(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere leaves whole means.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a window of `tenant` was answered `took` after it had arrived; `timings` if it was recognised.
    pub fn measured(&self, tenant: TenantId, took: Duration, timings: Option<Timings>, now: Instant) {
        let took = took.as_secs_f64();
        let queued = timings.map_or(took, |timings| timings.queued.as_secs_f64().min(took));
        let mut state = self.state();
        let mean = Mean::learn(state.by_tenant.get(&tenant).copied(), took, queued, now);
        state.by_tenant.insert(tenant, mean);
        if timings.is_some() {
            state.service = Some(Mean::learn(state.service, took - queued, 0.0, now));
        }
    }

    /// The lag of the windows of `tenant`, in seconds.
    pub fn own(&self, tenant: TenantId, now: Instant) -> f64 {
        self.state().by_tenant.get(&tenant).map_or(0.0, |mean| mean.at(now).total)
    }

    /// That of the tenant that is latest.
    pub fn worst(&self, now: Instant) -> f64 {
        let state = self.state();
        state.by_tenant.values().map(|mean| mean.at(now).total).fold(0.0, f64::max)
    }

    /// The lag, in seconds, of a window of `tenant`, which has no stream yet, on an engine that works on `slots` windows
    /// at once.
    pub fn of_newcomer(&self, tenant: TenantId, slots: usize, now: Instant) -> f64 {
        let mut state = self.state();
        state.by_tenant.retain(|_, mean| mean.at(now).total > NOTHING);
        let service = state.service.map_or(0.0, |mean| mean.total);
        let turn = service / slots.max(1) as f64;
        let others = state.by_tenant.iter().filter(|(other, _)| **other != tenant);
        service + others.map(|(_, mean)| mean.at(now).queued.min(turn)).sum::<f64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A window that waited for so many seconds, and took half a second then.
    fn measure(lag: &Lag, tenant: u64, queued: f64, now: Instant) {
        let timings = Timings { queued: Duration::from_secs_f64(queued), ..Timings::default() };
        lag.measured(TenantId(tenant), Duration::from_secs_f64(queued + 0.5), Some(timings), now);
    }

    #[test]
    fn a_tenant_that_overloads_itself_is_late_alone() {
        let (lag, now) = (Lag::default(), Instant::now());
        (0..50).for_each(|_| measure(&lag, 1, 30.0, now));
        measure(&lag, 2, 0.1, now);
        assert!(lag.own(TenantId(1), now) > 30.0);
        assert!(lag.own(TenantId(2), now) < 1.0);
        // One window of each of the others, of which four are done at once.
        let newcomer = lag.of_newcomer(TenantId(3), 4, now);
        assert!((newcomer - (0.5 + 0.125 + 0.1)).abs() < 1e-6, "{newcomer}");
    }

    #[test]
    fn many_tenants_that_are_all_late_make_a_newcomer_late() {
        let (lag, now) = (Lag::default(), Instant::now());
        (0..100).for_each(|tenant| measure(&lag, tenant, 8.0, now));
        assert!(lag.of_newcomer(TenantId(999), 4, now) > 5.0);
        // As many that are not late do not.
        let lag = Lag::default();
        (0..100).for_each(|tenant| measure(&lag, tenant, 0.01, now));
        assert!(lag.of_newcomer(TenantId(999), 4, now) < 2.0);
    }

    #[test]
    fn one_bad_moment_is_forgotten() {
        let (lag, now) = (Lag::default(), Instant::now());
        measure(&lag, 1, 20.0, now);
        let later = now + Duration::from_secs(10);
        assert!(lag.own(TenantId(1), later) < 1.0);
        lag.of_newcomer(TenantId(2), 1, now + Duration::from_secs(60));
        assert!(lag.state().by_tenant.is_empty());
    }

    #[test]
    fn windows_that_are_not_recognised_count_as_late() {
        let (lag, now) = (Lag::default(), Instant::now());
        lag.measured(TenantId(1), Duration::from_secs(9), None, now);
        assert_eq!(lag.own(TenantId(1), now), 9.0);
        assert_eq!(lag.of_newcomer(TenantId(2), 1, now), 0.0, "nothing is known of what a window takes");
    }
}
