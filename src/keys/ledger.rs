//! What the holders of limited keys use: requests of the last minute, requests in progress, audio of the day and month.
//!
//! Keys that a limited key makes count on its account, so that no one gets more by making more keys. Requests and
//! concurrency are counted in memory; audio is written to `keys.spent.sqlite3` every few seconds, so that a restart
//! grants no second quota. Each server counts by itself.

mod spent;
mod window;

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use uuid::Uuid;

use self::spent::{Day, Spent};
use self::window::Window;
use super::limits::Limits;
use super::secret::KeyId;
use super::{Error, public_id};

/// Weight of the newest request in the mean time that requests take.
const SMOOTHING: f64 = 0.1;
/// The wait for a place among concurrent requests before any has ended, and its bounds. Seconds.
const WAIT_FIRST: f64 = 5.0;
const WAIT_MIN: f64 = 1.0;
const WAIT_MAX: f64 = 120.0;

/// The limit that a request would exceed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    RequestsPerMinute,
    Concurrent,
    AudioSecondsPerDay,
    AudioSecondsPerMonth,
}

/// A request beyond a limit of its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the key is at its limit: {limit:?}")]
pub struct Exceeded {
    pub limit: Limit,
    /// The limit itself.
    pub most: u64,
    /// In which the same request would be within it, if nothing else is asked for; of concurrent ones an estimate.
    pub retry_after: Duration,
}

/// How much of its limits a key has used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Standing {
    /// Of requests per minute: the limit, how many are left, and the seconds until all are.
    pub requests: Option<(u64, u64, u64)>,
    /// Of concurrent requests: the limit, and how many are left.
    pub concurrent: Option<(u64, u64)>,
    /// Of the audio of a day and of a month: the limit, and the seconds left.
    pub day: Option<(u64, u64)>,
    pub month: Option<(u64, u64)>,
}

/// The accounts of all limited keys. Cheap to clone: clones are one.
#[derive(Clone)]
pub struct Ledger(Arc<Mutex<Books>>);

struct Books {
    accounts: HashMap<Uuid, Account>,
    /// The accounts of keys that were seen, by their public ids.
    of_keys: HashMap<Uuid, Uuid>,
    spent: Spent,
}

#[derive(Default)]
struct Account {
    requests: Window,
    concurrent: u64,
    /// Seconds that requests took, as a running mean.
    mean: Option<f64>,
}

/// A request within its limits, until it is dropped.
pub struct Permit {
    ledger: Ledger,
    account: Uuid,
    limits: Limits,
    begun: Instant,
    /// Whether it counts as one of the concurrent ones.
    is_held: bool,
}

impl Ledger {
    /// # Errors
    /// [`Error::File`], [`Error::Database`].
    pub(super) fn open(state_dir: &Path) -> Result<Self, Error> {
        let spent = Spent::open(state_dir, Day::of(SystemTime::now()))?;
        let books = Books { accounts: HashMap::new(), of_keys: HashMap::new(), spent };
        Ok(Self(Arc::new(Mutex::new(books))))
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        // A panic elsewhere leaves whole numbers.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a request with a key of these limits, which are counted on `account`; `None` if it has none. `is_held`: it
    /// counts as one of the concurrent ones until the permit is dropped.
    ///
    /// # Errors
    /// [`Exceeded`]. A refused request counts for nothing.
    pub fn begin(
        &self,
        (key, account): (&KeyId, &KeyId),
        limits: Limits,
        is_held: bool,
        (now, at): (Instant, SystemTime),
    ) -> Result<Option<Permit>, Exceeded> {
        if limits.are_none() {
            return Ok(None);
        }
        let (account, day) = (public_id::of_key(account), Day::of(at));
        let mut books = self.books();
        books.of_keys.insert(public_id::of_key(key), account);
        let exceeded = |limit, most, retry_after| Err(Exceeded { limit, most, retry_after });
        if let Some(most) = limits.audio_seconds_per_month
            && books.spent.month(account, day) >= most as f64
        {
            return exceeded(Limit::AudioSecondsPerMonth, most, day.until_next_month(at));
        }
        if let Some(most) = limits.audio_seconds_per_day
            && books.spent.day(account, day) >= most as f64
        {
            return exceeded(Limit::AudioSecondsPerDay, most, day.until_next(at));
        }
        let its = books.accounts.entry(account).or_default();
        if let Some(most) = limits.concurrent
            && is_held
            && its.concurrent >= most
        {
            return exceeded(Limit::Concurrent, most, its.next_end());
        }
        if let Some(most) = limits.requests_per_minute {
            if let Some(wait) = its.requests.wait(most, now) {
                return exceeded(Limit::RequestsPerMinute, most, wait);
            }
            its.requests.add(now);
        }
        its.concurrent += u64::from(is_held);
        Ok(Some(Permit { ledger: self.clone(), account, limits, begun: now, is_held }))
    }

    /// A permit for work that goes on after its request, such as a job or a participant's stay: by the public id of its
    /// key, if that has limits and was seen since the start. It is only charged.
    pub fn charge(&self, key: Uuid) -> Option<Permit> {
        let account = self.books().of_keys.get(&key).copied()?;
        Some(self.account(account))
    }

    /// As [`Self::charge`], by the public id of the account.
    pub fn account(&self, account: Uuid) -> Permit {
        let (ledger, limits) = (self.clone(), Limits::NONE);
        Permit { ledger, account, limits, begun: Instant::now(), is_held: false }
    }

    /// Writes the audio since the last call to disk. Blocks.
    ///
    /// # Errors
    /// [`Error::Database`]; then it is written next time.
    pub fn write(&self) -> Result<(), Error> {
        let due = self.books().spent.take_due();
        let Some(due) = due else { return Ok(()) };
        // Not under the lock that requests need.
        let written = due.write();
        self.books().spent.give_back(due, written.is_ok());
        written
    }
}

impl Account {
    fn next_end(&self) -> Duration {
        let mean = self.mean.map_or(WAIT_FIRST, |mean| mean / self.concurrent.max(1) as f64);
        Duration::from_secs_f64(mean.clamp(WAIT_MIN, WAIT_MAX).ceil())
    }
}

impl Permit {
    /// So many seconds of audio were heard.
    pub fn charge(&self, audio_seconds: f64) {
        if audio_seconds > 0.0 {
            let day = Day::of(SystemTime::now());
            self.ledger.books().spent.add(self.account, day, audio_seconds);
        }
    }

    /// How much of the limits is used now, this request included.
    pub fn standing(&self) -> Standing {
        let (now, day) = (Instant::now(), Day::of(SystemTime::now()));
        let mut books = self.ledger.books();
        let left = |most: u64, used: f64| (most, most.saturating_sub(used.ceil() as u64));
        let day_left =
            self.limits.audio_seconds_per_day.map(|most| left(most, books.spent.day(self.account, day)));
        let month_left =
            self.limits.audio_seconds_per_month.map(|most| left(most, books.spent.month(self.account, day)));
        let its = books.accounts.entry(self.account).or_default();
        Standing {
            requests: self.limits.requests_per_minute.map(|most| {
                let (used, clear) = its.requests.used(now);
                (most, most.saturating_sub(used), clear)
            }),
            concurrent: self.limits.concurrent.map(|most| (most, most.saturating_sub(its.concurrent))),
            day: day_left,
            month: month_left,
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if !self.is_held {
            return;
        }
        let took = self.begun.elapsed().as_secs_f64();
        let mut books = self.ledger.books();
        let its = books.accounts.entry(self.account).or_default();
        its.concurrent = its.concurrent.saturating_sub(1);
        its.mean = Some(its.mean.map_or(took, |mean| mean + SMOOTHING * (took - mean)));
    }
}

#[cfg(test)]
mod tests {
    use super::super::Secret;
    use super::*;

    /// A key, and its limits.
    type Holder = (KeyId, Limits);

    fn holder(limits: Limits) -> Holder {
        (Secret::generate().id().clone(), limits)
    }

    fn begin(ledger: &Ledger, (key, limits): &Holder) -> Result<Option<Permit>, Exceeded> {
        ledger.begin((key, key), *limits, true, (Instant::now(), SystemTime::now()))
    }

    fn ledger() -> (tempfile::TempDir, Ledger) {
        let dir = tempfile::tempdir().unwrap();
        let ledger = Ledger::open(dir.path()).unwrap();
        (dir, ledger)
    }

    #[test]
    fn requests_of_the_last_minute_are_bounded_and_the_wait_is_true() {
        let (_dir, ledger) = ledger();
        let (key, limits) = holder(Limits { requests_per_minute: Some(3), ..Limits::NONE });
        let (begun, at) = (Instant::now(), SystemTime::now());
        let ask = |seconds: u64| {
            let moment = (begun + Duration::from_secs(seconds), at);
            ledger.begin((&key, &key), limits, true, moment).map(|permit| permit.unwrap())
        };
        let permits = [ask(0).unwrap(), ask(10).unwrap(), ask(20).unwrap()];
        for (seconds, wait) in [(20, 41), (30, 31), (59, 2)] {
            let refused = ask(seconds).err().unwrap();
            assert_eq!((refused.limit, refused.most), (Limit::RequestsPerMinute, 3));
            assert_eq!(refused.retry_after, Duration::from_secs(wait), "after {seconds} s");
        }
        assert!(ask(61).is_ok(), "the first is a minute old");
        assert!(ask(61).is_err(), "the second is not");
        drop(permits);
    }

    #[test]
    fn requests_in_progress_are_bounded_and_others_keys_are_not() {
        let (_dir, ledger) = ledger();
        let limited = holder(Limits { concurrent: Some(2), ..Limits::NONE });
        let held = [begin(&ledger, &limited).unwrap(), begin(&ledger, &limited).unwrap()];
        assert_eq!(begin(&ledger, &limited).err().unwrap().limit, Limit::Concurrent);
        assert_eq!(held[0].as_ref().unwrap().standing().concurrent, Some((2, 0)));
        assert!(begin(&ledger, &holder(Limits::NONE)).unwrap().is_none());
        // A key that it made counts on its account.
        let child = Secret::generate().id().clone();
        let of_child = || {
            let now = (Instant::now(), SystemTime::now());
            ledger.begin((&child, &limited.0), limited.1, true, now)
        };
        assert!(of_child().is_err());
        drop(held);
        assert!(of_child().is_ok());
    }

    #[test]
    fn audio_of_a_day_outlives_a_restart() {
        let (dir, ledger) = ledger();
        let limited = holder(Limits { audio_seconds_per_day: Some(100), ..Limits::NONE });
        let permit = begin(&ledger, &limited).unwrap().unwrap();
        permit.charge(60.5);
        assert_eq!(permit.standing().day, Some((100, 39)));
        ledger.write().unwrap();
        // A job of the same key.
        ledger.charge(public_id::of_key(&limited.0)).unwrap().charge(30.0);
        drop(permit);
        begin(&ledger, &limited).unwrap().unwrap().charge(20.0);
        ledger.write().unwrap();
        for ledger in [&ledger, &Ledger::open(dir.path()).unwrap()] {
            let refused = begin(ledger, &limited).err().unwrap();
            assert_eq!((refused.limit, refused.most), (Limit::AudioSecondsPerDay, 100));
            assert!(refused.retry_after <= Duration::from_secs(86_400));
        }
        let tomorrow = (Instant::now(), SystemTime::now() + Duration::from_secs(86_400));
        assert!(ledger.begin((&limited.0, &limited.0), limited.1, true, tomorrow).is_ok());
    }
}
