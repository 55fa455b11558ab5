//! How often one address may fail to sign in.
//!
//! An attempt counts from its beginning, so that many at once are no way around the limit.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Failures at once.
pub const FAILURES_MAX: u32 = 10;
/// One of them is forgiven after this time.
pub const FORGIVEN_AFTER: Duration = Duration::from_secs(6);
/// Addresses that are remembered.
const ADDRESSES_MAX: usize = 4096;

/// Counts failures by address. All addresses of one IPv6 network count as one.
#[derive(Default)]
pub struct Attempts(Mutex<HashMap<IpAddr, Failures>>);

/// As a leaky bucket: `count` at `since`, less since then.
struct Failures {
    count: u32,
    since: Instant,
}

impl Failures {
    fn forgive(&mut self, now: Instant) {
        let steps = now.saturating_duration_since(self.since).as_secs() / FORGIVEN_AFTER.as_secs();
        let steps = u32::try_from(steps).unwrap_or(u32::MAX);
        self.count = self.count.saturating_sub(steps);
        self.since = match self.count {
            0 => now,
            _ => self.since + FORGIVEN_AFTER * steps,
        };
    }
}

impl Attempts {
    fn held(&self) -> MutexGuard<'_, HashMap<IpAddr, Failures>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts an attempt of `address`.
    ///
    /// # Errors
    /// How long it has to wait before the next one.
    pub fn begin(&self, address: IpAddr, now: Instant) -> Result<(), Duration> {
        let mut held = self.held();
        if held.len() >= ADDRESSES_MAX {
            held.retain(|_, failures| {
                failures.forgive(now);
                failures.count > 0
            });
        }
        // A key cannot be guessed, so this limit saves work, and does without it under an attack from everywhere.
        if held.len() < ADDRESSES_MAX || held.contains_key(&network(address)) {
            let failures = held.entry(network(address)).or_insert(Failures { count: 0, since: now });
            failures.forgive(now);
            if failures.count >= FAILURES_MAX {
                return Err((failures.since + FORGIVEN_AFTER).saturating_duration_since(now));
            }
            failures.count += 1;
        }
        Ok(())
    }

    /// The attempt that began was no failure.
    pub fn take_back(&self, address: IpAddr) {
        if let Some(failures) = self.held().get_mut(&network(address)) {
            failures.count = failures.count.saturating_sub(1);
        }
    }
}

fn network(address: IpAddr) -> IpAddr {
    const NETWORK: u128 = u128::MAX << 64;
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((u128::from(address) & NETWORK).into()),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_forgiven_one_by_one() {
        let (attempts, start) = (Attempts::default(), Instant::now());
        let (one, other): (IpAddr, IpAddr) = ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap());
        for _ in 0..2 * FAILURES_MAX {
            assert_eq!(attempts.begin(one, start), Ok(()));
            attempts.take_back(one);
        }
        for _ in 0..FAILURES_MAX {
            assert_eq!(attempts.begin(one, start), Ok(()));
        }
        assert_eq!(attempts.begin(one, start), Err(FORGIVEN_AFTER));
        assert_eq!(attempts.begin(other, start), Ok(()));
        let later = start + FORGIVEN_AFTER;
        assert_eq!(attempts.begin(one, later), Ok(()));
        assert_eq!(attempts.begin(one, later), Err(FORGIVEN_AFTER));
        let much_later = later + FORGIVEN_AFTER * FAILURES_MAX;
        for _ in 0..FAILURES_MAX {
            assert_eq!(attempts.begin(one, much_later), Ok(()));
        }
        assert_eq!(attempts.begin(one, much_later), Err(FORGIVEN_AFTER));
    }

    #[test]
    fn a_network_is_one_address_and_memory_is_bounded() {
        let (attempts, start) = (Attempts::default(), Instant::now());
        for host in 0..FAILURES_MAX {
            attempts.begin(format!("2001:db8::{host}").parse().unwrap(), start).unwrap();
        }
        assert!(attempts.begin("2001:db8::ffff".parse().unwrap(), start).is_err());
        assert!(attempts.begin("2001:db8:0:1::1".parse().unwrap(), start).is_ok());
        for host in 0..2 * ADDRESSES_MAX as u32 {
            attempts.begin(IpAddr::V4(host.into()), start).unwrap();
        }
        assert_eq!(attempts.held().len(), ADDRESSES_MAX);
        assert!(attempts.begin("2001:db8::ffff".parse().unwrap(), start).is_err());
    }
}
