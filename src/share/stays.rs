//! Places that clients hold for as long as they like, such as those of streams.

use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::time::timeout_at;

use super::{Asker, Claim, Lasting, Places, Refused, Tenants};

/// A number of places, shared between tenants. Cheap to clone: clones share it.
#[derive(Clone)]
pub struct Stays(Arc<Inner>);

struct Inner {
    places: Mutex<Places>,
    /// A place is given back.
    freed: Notify,
}

/// One place; dropping it gives it back.
pub struct Stay {
    stays: Stays,
    number: u64,
}

/// There is no place, or it is kept for another client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Busy {
    pub refused: Refused,
    pub retry_after: Duration,
}

/// A client that has returned as told and waits for a place.
struct Waiting<'s> {
    stays: &'s Stays,
    tenant: u64,
    claim: Claim,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.stays.places().line(self.tenant).settle(self.claim);
    }
}

impl Stays {
    pub fn new(places: u64, tenants: Tenants) -> Self {
        let places = Mutex::new(Places::new(places, tenants, Lasting::Apart));
        Self(Arc::new(Inner { places, freed: Notify::new() }))
    }

    fn places(&self) -> MutexGuard<'_, Places> {
        // A panic elsewhere cannot leave these numbers inconsistent.
        self.0.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a place for a client that cannot return by itself; nothing is kept for it.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn begin(&self, tenant: u64) -> Result<Stay, Refused> {
        let (mut places, now) = (self.places(), Instant::now());
        places.has_room(tenant, false)?;
        let is_kept = !places.may_pass(tenant, now);
        if is_kept { Err(Refused::Full) } else { Ok(self.taken(&mut places, tenant, now)) }
    }

    fn taken(&self, places: &mut Places, tenant: u64, now: Instant) -> Stay {
        Stay { stays: self.clone(), number: places.begin(tenant, now) }
    }

    /// Takes a place for `asker`. If it was refused before and returns as told, it waits a little for one that is late.
    ///
    /// # Errors
    /// [`Busy`].
    pub async fn begin_in_turn(&self, tenant: u64, asker: Asker) -> Result<Stay, Busy> {
        let claim = {
            let mut places = self.places();
            let now = Instant::now();
            places.expire(now);
            places.line(tenant).claim(asker, now)
        };
        let Some(claim) = claim else { return self.ask((tenant, asker), None) };
        let waiting = Waiting { stays: self, tenant, claim };
        loop {
            let mut freed = pin!(self.0.freed.notified());
            freed.as_mut().enable();
            if self.places().has_room(tenant, true).is_ok() || claim.until <= Instant::now() {
                return self.ask((tenant, asker), Some(&waiting));
            }
            // At the end of its time it is refused again.
            let _ = timeout_at(claim.until.into(), freed).await;
        }
    }

    /// `waiting`: it has returned, and goes ahead of those that do not.
    fn ask(&self, (tenant, asker): (u64, Asker), waiting: Option<&Waiting<'_>>) -> Result<Stay, Busy> {
        let (mut places, now) = (self.places(), Instant::now());
        if let Some(waiting) = waiting {
            places.line(tenant).settle(waiting.claim);
        }
        let room = places.has_room(tenant, waiting.is_some());
        if room.is_ok() && (waiting.is_some() || places.may_pass(tenant, now)) {
            return Ok(self.taken(&mut places, tenant, now));
        }
        let retry_after = places.promise((tenant, asker), waiting.is_some(), now);
        Err(Busy { refused: room.err().unwrap_or(Refused::Full), retry_after })
    }

    /// Those that have begun and not ended.
    pub fn total(&self) -> u64 {
        self.places().total()
    }

    pub fn held_by(&self, tenant: u64) -> u64 {
        self.places().held_by(tenant)
    }

    /// The time in which one of the stays that a refused tenant waits for is expected to end; see [`Places::next_end`].
    pub fn next_end(&self, tenant: u64, refused: Refused) -> Duration {
        self.places().next_end(tenant, refused)
    }
}

impl Stay {
    /// Gives the place back as if the stay had not begun.
    pub fn withdraw(self) {
        self.stays.places().withdraw(self.number, Instant::now());
    }
}

impl Drop for Stay {
    fn drop(&mut self) {
        // Nothing if it was withdrawn.
        self.stays.places().end(self.number, Instant::now());
        self.stays.0.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    fn asker(client: u64) -> Asker {
        Asker { request: client, connection: client }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_returns_as_told_waits_for_a_place_that_is_late() {
        let tenants = Tenants::default();
        tenants.set(1);
        let stays = Stays::new(1, tenants);
        let held = stays.begin(1).unwrap_or_else(|_| panic!("not free"));
        let made = Instant::now() - Duration::from_secs(1);
        stays.places().line(1).make((asker(2), 1.0), (made, Duration::from_secs(1)), false);
        let mut waits = Box::pin(stays.begin_in_turn(1, asker(2)));
        assert!((&mut waits).now_or_never().is_none());
        assert!(stays.begin_in_turn(1, asker(3)).await.is_err());
        drop(held);
        // The place is for the client that waits.
        assert!(stays.begin_in_turn(1, asker(4)).await.is_err() && stays.begin(1).is_err());
        let stay = waits.now_or_never().and_then(Result::ok).expect("its place");
        stay.withdraw();
        assert_eq!(stays.total(), 0);
    }
}
