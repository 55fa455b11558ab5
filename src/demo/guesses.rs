//! Limits on wrong credentials. Four digits allow ten thousand guesses, which a program makes in a minute.
//!
//! Each session of the voice service is counted by itself, so that one can't lock out another, and so is each address, so
//! that opening one session after another is no faster. A guess for an invented session counts for its address only.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A wrong guess is forgotten after this.
const WINDOW: Duration = Duration::from_secs(15 * 60);
/// Wrong guesses of one session within the window.
const OF_SESSION_MAX: usize = 5;
/// Wrong guesses from one address within the window, over all sessions.
const OF_ADDRESS_MAX: usize = 100;
/// Remembered wrong guesses; the oldest are forgotten first.
const GUESSES_MAX: usize = 20_000;

struct Guess {
    at: Instant,
    session_id: String,
    address: Option<IpAddr>,
}

/// The wrong guesses within the window, oldest first.
#[derive(Default)]
pub struct Guesses(Mutex<VecDeque<Guess>>);

impl Guesses {
    /// Counts a guess as wrong until [`Self::was_right`], so that simultaneous guesses are all counted. Without an `address`
    /// only the session counts.
    ///
    /// # Errors
    /// The time to wait, after too many wrong guesses.
    pub fn begin(&self, session_id: &str, address: Option<IpAddr>, now: Instant) -> Result<(), Duration> {
        let address = address.map(network);
        let mut guesses = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while guesses.front().is_some_and(|guess| now.duration_since(guess.at) >= WINDOW) {
            guesses.pop_front();
        }
        // The oldest guess that must leave the window before another one fits.
        let full = |max: usize, is_counted: &dyn Fn(&Guess) -> bool| {
            let mut counted = guesses.iter().filter(|guess| is_counted(guess)).map(|guess| guess.at);
            let oldest = counted.next()?;
            (1 + counted.count() >= max).then_some(oldest)
        };
        let of_session = full(OF_SESSION_MAX, &|guess| guess.session_id == session_id);
        let of_address = full(OF_ADDRESS_MAX, &|guess| address.is_some() && guess.address == address);
        if let Some(oldest) = of_session.or(of_address) {
            return Err(WINDOW.saturating_sub(now.duration_since(oldest)));
        }
        if guesses.len() >= GUESSES_MAX {
            guesses.pop_front();
        }
        guesses.push_back(Guess { at: now, session_id: session_id.to_owned(), address });
        Ok(())
    }

    /// Takes back a session's last guess, because it was right.
    pub fn was_right(&self, session_id: &str) {
        let mut guesses = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = guesses.iter().rposition(|guess| guess.session_id == session_id) {
            guesses.remove(last);
        }
    }
}

/// The smallest range of addresses that one subscriber has: in IPv6 a network of 64 bits.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(v4) => v4.into(),
        IpAddr::V6(v6) => std::net::Ipv6Addr::from_bits((v6.to_bits() >> 64) << 64).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Option<IpAddr> = Some(IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1)));
    const THERE: Option<IpAddr> = Some(IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2)));

    #[test]
    fn a_session_does_not_guess_on_and_on() {
        let (guesses, start) = (Guesses::default(), Instant::now());
        for _ in 0..50 {
            guesses.begin("right", HERE, start).expect("right ones are not counted");
            guesses.was_right("right");
        }
        for _ in 0..OF_SESSION_MAX {
            guesses.begin("a", HERE, start).expect("there are some to make");
        }
        let later = start + Duration::from_secs(60);
        assert_eq!(guesses.begin("a", THERE, later), Err(WINDOW - Duration::from_secs(60)));
        guesses.begin("b", HERE, later).expect("another one's");
        assert_eq!(guesses.begin("a", HERE, start + WINDOW), Ok(()));
    }

    #[test]
    fn many_sessions_guess_no_faster_and_lock_out_no_other_address() {
        let (guesses, now) = (Guesses::default(), Instant::now());
        let made = (0..1000).filter(|n| guesses.begin(&format!("session {n}"), HERE, now).is_ok()).count();
        assert_eq!(made, OF_ADDRESS_MAX);
        guesses.begin("session 999", THERE, now).expect("from elsewhere");
        // The voice service asks on behalf of all its callers.
        let made = (0..1000).filter(|n| guesses.begin(&format!("call {n}"), None, now).is_ok()).count();
        assert_eq!(made, 1000);
    }

    #[test]
    fn who_has_many_addresses_of_ipv6_has_one_network() {
        let (guesses, now) = (Guesses::default(), Instant::now());
        let address = |n: u32| Some(format!("2001:db8::{n:x}").parse().expect("an address"));
        let made = (1..1000).filter(|n| guesses.begin(&format!("s{n}"), address(*n), now).is_ok()).count();
        assert_eq!(made, OF_ADDRESS_MAX);
        let mapped = Some("::ffff:192.0.2.1".parse().expect("an address"));
        let of_one =
            |address| (0..1000).filter(|n| guesses.begin(&format!("v{n}"), address, now).is_ok()).count();
        assert_eq!((of_one(mapped), of_one(HERE)), (OF_ADDRESS_MAX, 0));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let (guesses, now) = (Guesses::default(), Instant::now());
        let old = (0..GUESSES_MAX).map(|n| Guess { at: now, session_id: n.to_string(), address: None });
        guesses.0.lock().expect("no panic").extend(old);
        for n in 0..10 {
            guesses.begin(&format!("more {n}"), None, now).expect("its first");
        }
        assert_eq!(guesses.0.lock().expect("no panic").len(), GUESSES_MAX);
    }
}
