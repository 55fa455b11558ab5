//! Admission of requests, before their audio is read.
//!
//! Two things may be short: time, of which a request brings the usual work, and places (`engine.max_requests`). A refused
//! client is told when there will be both, and has a turn then.

use std::pin::pin;
use std::time::{Duration, Instant};

use tokio::time::timeout_at;

use super::cost::Work;
use super::holdings::{Account, RETRY_AFTER, refusal, retry_after};
use super::{Load, RequestPermit};
use crate::engine::error::Error;
use crate::engine::window::TenantId;
use crate::share::{Asker, Claim, Refused};

/// The answer to a request.
enum Entry {
    Admitted(RequestPermit),
    /// It has returned as told, and its place is late.
    Awaited(Claim),
    Refused(Error),
}

/// A client that waits for its place. If it leaves, its turn is over.
struct Waiting<'l> {
    load: &'l Load,
    tenant: TenantId,
    claim: Claim,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.load.state().places.line(self.tenant.0).settle(self.claim);
    }
}

impl Load {
    /// Admits a request before its audio is read. A client that returns as told waits a little for a place that is late.
    ///
    /// # Errors
    /// [`Error::Overloaded`], [`Error::OverShare`], with the time until there will be room for this client.
    pub async fn enter_in_turn(&self, tenant: TenantId, asker: Asker) -> Result<RequestPermit, Error> {
        let mut waiting: Option<Waiting<'_>> = None;
        loop {
            let mut freed = pin!(self.holdings.freed.notified());
            freed.as_mut().enable();
            let claim = waiting.as_ref().map(|waiting| waiting.claim);
            match self.ask((tenant, asker), claim, Instant::now()) {
                Entry::Admitted(permit) => return Ok(permit),
                Entry::Refused(error) => return Err(error),
                Entry::Awaited(claim) => {
                    waiting.get_or_insert(Waiting { load: self, tenant, claim });
                    // At the end of its time it is refused again.
                    let _ = timeout_at(claim.until.into(), freed).await;
                }
            }
        }
    }

    /// `claim`: of a client that waits already.
    fn ask(&self, (tenant, asker): (TenantId, Asker), claim: Option<Claim>, now: Instant) -> Entry {
        let mut state = self.state();
        state.places.expire(now);
        let usual = state.usual[self.model.index()];
        let room = self.memory.has_room(tenant, usual.seconds());
        let bound = self.holdings.bound(&state, self.model);
        let standing = state.standing((tenant, self.model), (usual, Work::default()), room, bound);
        let one = (state.time(usual) * standing.slowness).max(1e-6);
        let is_short_of_work = (state.held + state.expected).windows() < state.slots[self.model.index()];
        let is_idle = state.accounts.get(&tenant).is_none_or(Account::is_idle);
        let is_alone = is_idle && state.places.total() == 0;
        let places = &mut state.places;
        let claim = claim.or_else(|| places.line(tenant.0).claim(asker, now));
        let crowd = places.has_room(tenant.0, claim.is_some());
        let behind = claim.map_or(0.0, |claim| claim.behind.as_secs_f64());
        let is_in_time = standing.excess <= behind;
        if let Some(claim) = claim {
            if crowd.is_err() && is_in_time && now < claim.until {
                return Entry::Awaited(claim);
            }
            places.line(tenant.0).settle(claim);
        }
        let returned = claim.is_some();
        let has_place = crowd.is_ok() && (returned || places.may_pass(tenant.0, now));
        let line = places.line(tenant.0);
        let after = |wait: f64| (wait - standing.excess) / one;
        let has_time = is_in_time
            && (returned
                || is_short_of_work
                || line.leave(now, |wait, expected| expected <= after(wait.as_secs_f64())));
        if (has_place && has_time) || is_alone {
            let number = places.begin(tenant.0, now);
            state.expect(tenant, usual);
            return Entry::Admitted(RequestPermit::new(
                self.holdings.clone(),
                (tenant, number),
                usual,
                behind,
            ));
        }
        let before = if returned { line.expected_again() } else { line.expected() } * one;
        let wait = match line.of(asker) {
            Some(due) => retry_after(due.saturating_duration_since(now).as_secs_f64()),
            None => {
                let time = if has_time {
                    (standing.excess + before).max(0.0)
                } else {
                    standing.excess.max(0.0) + before
                };
                let place = if has_place { 0.0 } else { places.free_after(tenant.0, returned, now) };
                let wait = time.max(place);
                if wait < *RETRY_AFTER.end() {
                    let wait = Duration::from_secs_f64(wait);
                    places.line(tenant.0).make((asker, 1.0), (now, wait), returned);
                }
                retry_after(wait)
            }
        };
        state.forget_if_empty(tenant);
        Entry::Refused(refusal(standing.is_over_share || crowd == Err(Refused::OverShare), wait))
    }

    /// Admits a request of `caller`, who does not wait.
    #[cfg(test)]
    pub fn enter(&self, tenant: TenantId, caller: u64, now: Instant) -> Result<RequestPermit, Error> {
        match self.ask((tenant, Asker { request: caller, connection: caller }), None, now) {
            Entry::Admitted(permit) => Ok(permit),
            Entry::Refused(error) => Err(error),
            Entry::Awaited(claim) => {
                self.state().places.line(tenant.0).settle(claim);
                Err(refusal(false, retry_after(0.0)))
            }
        }
    }
}
