//! Places that clients hold for as long as they like, such as those of streams.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::{Part, Refused, Share, Tenants};

/// Bounds of the wait for a place, and the wait before any stay has ended.
const WAIT_MIN: Duration = Duration::from_secs(1);
const WAIT_MAX: Duration = Duration::from_secs(120);
const WAIT_FIRST: Duration = Duration::from_secs(5);
/// The weight of the latest stay in their mean length.
const WEIGHT: f64 = 0.1;

/// A number of places, shared between tenants. Cheap to clone: clones share it.
#[derive(Clone)]
pub struct Stays(Arc<Inner>);

struct Inner {
    places: Share,
    /// Of the last stays; none before the first has ended.
    mean_seconds: Mutex<Option<f64>>,
}

/// One place; dropping it gives it back.
pub struct Stay {
    stays: Stays,
    since: Option<Instant>,
    _part: Part,
}

impl Stay {
    /// Gives the place back as if the stay had not begun.
    pub fn withdraw(mut self) {
        self.since = None;
    }
}

impl Stays {
    pub fn new(places: u64, tenants: Tenants) -> Self {
        Self(Arc::new(Inner { places: Share::new(places, tenants), mean_seconds: Mutex::default() }))
    }

    /// # Errors
    /// [`Refused`].
    pub fn begin(&self, tenant: u64) -> Result<Stay, Refused> {
        let part = self.0.places.take(tenant, 1)?;
        Ok(Stay { stays: self.clone(), since: Some(Instant::now()), _part: part })
    }

    /// Those that have begun and not ended.
    pub fn total(&self) -> u64 {
        self.0.places.total()
    }

    pub fn held_by(&self, tenant: u64) -> u64 {
        self.0.places.held_by(tenant)
    }

    /// The time in which one of the stays that a refused tenant waits for is expected to end, in whole seconds: their mean
    /// length, divided by their number.
    pub fn next_end(&self, tenant: u64, refused: Refused) -> Duration {
        let number = match refused {
            Refused::Full => self.total(),
            Refused::OverShare => self.held_by(tenant),
        };
        let mean = *self.0.mean_seconds.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(mean) = mean else { return WAIT_FIRST };
        let seconds = (mean / number.max(1) as f64).ceil();
        Duration::try_from_secs_f64(seconds).map_or(WAIT_MAX, |wait| wait.clamp(WAIT_MIN, WAIT_MAX))
    }

    fn ended_after(&self, seconds: f64) {
        let mut mean = self.0.mean_seconds.lock().unwrap_or_else(PoisonError::into_inner);
        *mean = Some(mean.map_or(seconds, |mean| mean + WEIGHT * (seconds - mean)));
    }
}

impl Drop for Stay {
    fn drop(&mut self) {
        if let Some(since) = self.since {
            self.stays.ended_after(since.elapsed().as_secs_f64());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_is_the_mean_stay_by_the_number_of_stays() {
        let tenants = Tenants::default();
        tenants.set(2);
        let stays = Stays::new(10, tenants);
        assert_eq!(stays.next_end(1, Refused::Full), WAIT_FIRST);
        stays.ended_after(30.0);
        let mine: Vec<Stay> = (0..3).map(|_| stays.begin(1).ok().unwrap()).collect();
        let other: Vec<Stay> = (0..2).map(|_| stays.begin(2).ok().unwrap()).collect();
        assert_eq!(stays.next_end(1, Refused::OverShare), Duration::from_secs(10));
        assert_eq!(stays.next_end(1, Refused::Full), Duration::from_secs(6));
        stays.ended_after(1e9);
        assert_eq!(stays.next_end(1, Refused::Full), WAIT_MAX);
        mine.into_iter().chain(other).for_each(Stay::withdraw);
        assert_eq!((stays.total(), stays.next_end(1, Refused::Full)), (0, WAIT_MAX));
        (0..200).for_each(|_| stays.ended_after(0.0));
        assert_eq!(stays.next_end(1, Refused::Full), WAIT_MIN);
    }
}
