//! How fast jobs make room, so that a refused client knows when to retry.
//!
//! Each time a job ends, or its audio is no longer needed, the time and the amount are recorded. The mean
//! rate over the last [`NOTES_MAX`] records, none older than [`MEMORY`], gives the time until enough room is
//! free. A tenant over its share waits for its own jobs, so only its own records count; when the server is
//! full, all do.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use super::capacity::Resource;

const NOTES_MAX: usize = 32;
/// Older records say little: there may have been nothing to do since.
const MEMORY: Duration = Duration::from_secs(300);
/// Beyond this many, tenants whose records are all too old are forgotten.
const NOTEBOOKS_MAX: usize = 1024;
const SHORTEST: f64 = 1.0;
const LONGEST: f64 = 120.0;
/// Used while the rate is unknown: about as long as a job of a few minutes of audio takes.
const UNKNOWN: Duration = Duration::from_secs(30);

#[derive(Default)]
pub struct DrainRate {
    /// One per tenant, and one for all together (`None`).
    notebooks: Mutex<HashMap<(Resource, Option<u64>), Notebook>>,
}

/// Times and amounts, the oldest first.
type Notebook = VecDeque<(SystemTime, u64)>;

impl DrainRate {
    /// Records that `tenant` has given back `amount`.
    pub fn note(&self, of: Resource, tenant: u64, amount: u64, now: SystemTime) {
        if amount == 0 {
            return;
        }
        let mut notebooks = self.notebooks();
        for whose in [None, Some(tenant)] {
            let notes = notebooks.entry((of, whose)).or_default();
            if notes.len() == NOTES_MAX {
                notes.pop_front();
            }
            notes.push_back((now, amount));
        }
        if notebooks.len() > NOTEBOOKS_MAX {
            notebooks.retain(|_, notes| notes.back().is_some_and(|(at, _)| is_recent(*at, now)));
        }
    }

    /// The time until `amount` more is given back, by `tenant` or by all together: 1 to 120 s.
    pub fn wait(&self, of: Resource, tenant: Option<u64>, amount: u64, now: SystemTime) -> Duration {
        let notebooks = self.notebooks();
        let seconds = notebooks.get(&(of, tenant)).and_then(|notes| estimate(notes, amount, now));
        // Cannot panic: both bounds are durations.
        seconds.map_or(UNKNOWN, |seconds| Duration::from_secs_f64(seconds.clamp(SHORTEST, LONGEST)))
    }

    fn notebooks(&self) -> MutexGuard<'_, HashMap<(Resource, Option<u64>), Notebook>> {
        // A panic elsewhere leaves whole records.
        self.notebooks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_recent(at: SystemTime, now: SystemTime) -> bool {
    seconds(at, now) <= MEMORY.as_secs_f64()
}

fn seconds(from: SystemTime, to: SystemTime) -> f64 {
    to.duration_since(from).unwrap_or_default().as_secs_f64()
}

/// Seconds; `None` if fewer than two recent records exist, or nothing has to be given back.
fn estimate(notes: &Notebook, amount: u64, now: SystemTime) -> Option<f64> {
    let mut recent = notes.iter().filter(|(at, _)| is_recent(*at, now));
    // It is not known how long the first one took.
    let (first, _) = recent.next()?;
    let (mut count, mut given_back, mut last) = (0.0, 0.0, first);
    for (at, amount) in recent {
        count += 1.0;
        given_back += *amount as f64;
        last = at;
    }
    if count == 0.0 || amount == 0 {
        return None;
    }
    let (span, since) = (seconds(*first, *last), seconds(*last, now));
    let amount = amount as f64;
    // Part of the time until the next one has passed already, unless it is overdue and the rate has dropped.
    let is_overdue = since >= span / count;
    Some(if is_overdue { amount * (span + since) / given_back } else { amount * span / given_back - since })
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    fn at(seconds: f64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs_f64(1_000_000.0 + seconds)
    }

    fn wait(rate: &DrainRate, tenant: Option<u64>, amount: u64, now: f64) -> f64 {
        rate.wait(Resource::Places, tenant, amount, at(now)).as_secs_f64()
    }

    #[test]
    fn jobs_that_end_evenly_tell_when_the_next_one_will() {
        for (every, jobs) in [(0.5, 100), (3.0, 40), (40.0, 6)] {
            let rate = DrainRate::default();
            for job in 0..jobs {
                rate.note(Resource::Places, 1, 1, at(f64::from(job) * every));
            }
            let last = f64::from(jobs - 1) * every;
            for passed in [0.0, 0.3, 0.9] {
                let truth = |amount: f64| (amount - passed) * every;
                for amount in [1_u32, 5, 60] {
                    let expected = truth(f64::from(amount)).clamp(1.0, 120.0);
                    let told = wait(&rate, None, u64::from(amount), last + passed * every);
                    assert!(
                        (told - expected).abs() <= 0.3 * expected,
                        "{every} {amount}: {told}, {expected}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_tenant_over_its_share_waits_for_its_own_jobs() {
        let rate = DrainRate::default();
        for second in 0..60 {
            rate.note(Resource::Places, 1, 1, at(f64::from(second)));
            if second % 10 == 0 {
                rate.note(Resource::Places, 2, 1, at(f64::from(second)));
            }
        }
        assert!((wait(&rate, Some(2), 3, 50.0) - 30.0).abs() < 0.1);
        assert!((wait(&rate, Some(1), 3, 59.0) - 3.0).abs() < 0.1);
        assert!(wait(&rate, None, 3, 59.0) < 3.0);
        assert_eq!(wait(&rate, Some(3), 1, 59.0), UNKNOWN.as_secs_f64());
    }

    #[test]
    fn a_pace_that_slackens_or_is_long_past_is_not_trusted() {
        let rate = DrainRate::default();
        for second in 0..20 {
            rate.note(Resource::Places, 1, 1, at(f64::from(second)));
        }
        assert_eq!(wait(&rate, None, 1, 19.0), 1.0);
        assert!(wait(&rate, None, 1, 19.0 + 100.0) > 5.0, "none has ended for long");
        assert_eq!(wait(&rate, None, 1, 19.0 + 400.0), UNKNOWN.as_secs_f64());
    }
}
