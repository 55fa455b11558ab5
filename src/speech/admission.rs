//! Admission of texts: which are held, when there will be room for one more, and what refused clients were told.
//!
//! Held texts are spoken piece by piece in turn, so they share the voice's time evenly: the one with the least left ends
//! first. From that follows when there is room. Pure but for the lock: callers pass the time.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::pace::Pace;
use crate::share::{Asker, Promises, Refused, Tenants, may_hold};

/// Bounds of `Retry-After`, in seconds.
const RETRY_AFTER: RangeInclusive<f64> = 1.0..=120.0;

/// There is no room for another text or stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("there is no room for more speech: {refused}")]
pub struct Full {
    pub retry_after: Duration,
    pub refused: Refused,
}

/// The texts that are held, in characters. Cheap to clone: clones share it.
#[derive(Clone)]
pub struct Admission(Arc<Desk>);

struct Desk {
    capacity: u64,
    /// Pieces that are spoken at once.
    at_once: usize,
    tenants: Tenants,
    book: Mutex<Book>,
}

#[derive(Default)]
struct Book {
    texts: HashMap<u64, Text>,
    /// The number of the next text.
    next: u64,
    /// To clients of each organisation.
    promises: HashMap<u64, Promises>,
}

struct Text {
    tenant: u64,
    characters: u64,
    unspoken: u64,
}

/// A text's place; dropping it gives it back.
pub struct Held {
    desk: Arc<Desk>,
    number: u64,
}

impl Admission {
    pub fn new(capacity: u64, at_once: usize, tenants: Tenants) -> Self {
        Self(Arc::new(Desk { capacity, at_once, tenants, book: Mutex::default() }))
    }

    /// Admits a text of `tenant`.
    ///
    /// # Errors
    /// [`Full`].
    pub fn admit(
        &self,
        (tenant, asker): (u64, Asker),
        characters: u64,
        pace: &Pace,
        now: Instant,
    ) -> Result<Held, Full> {
        let desk = &*self.0;
        let mut book = desk.book();
        let Book { texts, next, promises } = &mut *book;
        let forecast = Forecast::new(texts.values(), tenant, pace.characters_per_second(), desk.at_once);
        let room = |seconds: f64, more: f64| {
            let (mine, total) = forecast.held_after(seconds);
            may_hold(mine, total, characters + more as u64, desk.capacity, &desk.tenants)
        };
        let line = promises.entry(tenant).or_default();
        line.expire(now);
        let claim = line.claim(asker, now);
        if let Some(claim) = claim {
            line.settle(claim);
        }
        let fits = match claim {
            // Even if the voice is behind the forecast.
            Some(claim) => room(claim.behind.as_secs_f64(), 0.0),
            None if line.leave(now, |wait, expected| room(wait.as_secs_f64(), expected).is_ok()) => {
                room(0.0, 0.0)
            }
            None => room(0.0, line.expected()).and(Err(Refused::Full)),
        };
        let refused = fits.err();
        let retry_after = refused.map(|_| match line.of(asker) {
            Some(due) => bounded(due.saturating_duration_since(now).as_secs_f64()),
            None => {
                let before = if claim.is_some() { line.expected_again() } else { line.expected() };
                let fits = |seconds: &f64| room(*seconds, before).is_ok();
                let mut ends = forecast.ends.iter().map(|end| end.seconds);
                // Longer lines than there is room for at all are spoken one after the other.
                let rest = forecast.seconds() + before / forecast.rate;
                let wait = bounded(ends.find(fits).unwrap_or(rest));
                if wait.as_secs_f64() < *RETRY_AFTER.end() {
                    line.make((asker, characters as f64), (now, wait), claim.is_some());
                }
                wait
            }
        });
        if line.is_empty() {
            promises.remove(&tenant);
        }
        if let Some((refused, retry_after)) = refused.zip(retry_after) {
            return Err(Full { retry_after, refused });
        }
        let number = *next;
        *next += 1;
        texts.insert(number, Text { tenant, characters, unspoken: characters });
        Ok(Held { desk: self.0.clone(), number })
    }
}

impl Desk {
    fn book(&self) -> MutexGuard<'_, Book> {
        // A panic elsewhere cannot leave it inconsistent.
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    /// So many of its characters are spoken.
    pub fn spoken(&self, characters: u64) {
        if let Some(text) = self.desk.book().texts.get_mut(&self.number) {
            text.unspoken = text.unspoken.saturating_sub(characters);
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.desk.book().texts.remove(&self.number);
    }
}

/// Whole seconds within [`RETRY_AFTER`].
fn bounded(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds.clamp(*RETRY_AFTER.start(), *RETRY_AFTER.end()).ceil())
}

/// When the held texts end.
struct Forecast {
    /// In order of time.
    ends: Vec<End>,
    mine: u64,
    total: u64,
    /// Characters a second of a voice with enough to do.
    rate: f64,
}

struct End {
    seconds: f64,
    is_mine: bool,
    characters: u64,
}

impl Forecast {
    /// `pace`: characters a second of one piece.
    fn new<'t>(texts: impl Iterator<Item = &'t Text>, tenant: u64, pace: f64, at_once: usize) -> Self {
        let mut texts: Vec<&Text> = texts.collect();
        texts.sort_by_key(|text| text.unspoken);
        let (mut seconds, mut spoken, mut left) = (0.0, 0, texts.len());
        let ends = texts.into_iter().map(|text| {
            // All that are left have so many characters spoken until this one ends.
            let each = (text.unspoken - spoken) as f64;
            seconds += each * left as f64 / (pace * left.min(at_once.max(1)) as f64);
            (spoken, left) = (text.unspoken, left - 1);
            End { seconds, is_mine: text.tenant == tenant, characters: text.characters }
        });
        let ends: Vec<End> = ends.collect();
        let mine = ends.iter().filter(|end| end.is_mine).map(|end| end.characters).sum();
        let total = ends.iter().map(|end| end.characters).sum();
        Self { ends, mine, total, rate: pace * at_once.max(1) as f64 }
    }

    fn seconds(&self) -> f64 {
        self.ends.last().map_or(0.0, |end| end.seconds)
    }

    /// Characters that the organisation holds, and all organisations, after so many seconds.
    fn held_after(&self, seconds: f64) -> (u64, u64) {
        let ended = self.ends.iter().take_while(|end| end.seconds <= seconds);
        ended.fold((self.mine, self.total), |(mine, total), end| {
            (mine - if end.is_mine { end.characters } else { 0 }, total - end.characters)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pace of 10 characters a second.
    fn pace() -> Pace {
        let pace = Pace::default();
        pace.add(10, Duration::from_secs(1));
        pace
    }

    fn admission(capacity: u64, at_once: usize, organisations: usize) -> Admission {
        let tenants = Tenants::default();
        tenants.set(organisations);
        Admission::new(capacity, at_once, tenants)
    }

    fn client(tenant: u64, name: &str) -> (u64, Asker) {
        (tenant, Asker::new(name, name))
    }

    #[test]
    fn texts_that_share_the_voice_end_by_what_is_left_of_them() {
        let of = |tenant, unspoken| Text { tenant, characters: 100, unspoken };
        let texts = [of(1, 50), of(2, 20), of(1, 100)];
        let ends = |at_once| -> Vec<f64> {
            Forecast::new(texts.iter(), 1, 10.0, at_once).ends.iter().map(|end| end.seconds).collect()
        };
        // 20 of each; then 30 of two, and 50 of one.
        assert_eq!(ends(1), [6.0, 12.0, 17.0]);
        assert_eq!(ends(2), [3.0, 6.0, 11.0]);
        let forecast = Forecast::new(texts.iter(), 1, 10.0, 1);
        assert_eq!((forecast.held_after(0.0), forecast.held_after(6.0)), ((200, 300), (200, 200)));
        assert_eq!((forecast.held_after(12.0), forecast.held_after(99.0)), ((100, 100), (0, 0)));
    }

    #[test]
    fn a_client_that_waits_as_told_gets_in_and_a_new_one_does_not_take_its_place() {
        let (admission, pace, start) = (admission(100, 1, 1), pace(), Instant::now());
        let after = |seconds: u64| start + Duration::from_secs(seconds);
        let first = admission.admit(client(1, "a"), 100, &pace, start).ok().unwrap();
        // Each is behind those before it.
        let wait = |letter: &str, now| admission.admit(client(1, letter), 60, &pace, now).err().unwrap();
        let full = |seconds| Full { retry_after: Duration::from_secs(seconds), refused: Refused::Full };
        assert_eq!((wait("b", start), wait("c", start)), (full(10), full(16)));
        // To ask too early changes nothing.
        assert_eq!(wait("b", after(4)), full(6));
        drop(first);
        assert!(wait("d", after(9)).retry_after > Duration::from_secs(1));
        let second = admission.admit(client(1, "b"), 60, &pace, after(10)).ok().unwrap();
        drop(second);
        assert!(admission.admit(client(1, "c"), 60, &pace, after(16)).is_ok());
        // They stay away: nothing is kept for them.
        assert!(admission.admit(client(1, "e"), 100, &pace, after(1000)).is_ok());
        assert!(admission.0.book().promises.is_empty() && admission.0.book().texts.is_empty());
    }

    #[test]
    fn progress_brings_the_time_nearer() {
        let (admission, pace, now) = (admission(100, 1, 1), pace(), Instant::now());
        let held = admission.admit(client(1, "a"), 100, &pace, now).ok().unwrap();
        held.spoken(70);
        let full = admission.admit(client(1, "b"), 1, &pace, now).err().unwrap();
        assert_eq!(full.retry_after, Duration::from_secs(3));
    }

    #[test]
    fn an_organisation_waits_for_itself_and_leaves_room_to_another() {
        let (admission, pace, now) = (admission(100, 1, 2), pace(), Instant::now());
        let _held = admission.admit(client(1, "a"), 80, &pace, now).ok().unwrap();
        let full = admission.admit(client(1, "b"), 10, &pace, now).err().unwrap();
        assert_eq!(full, Full { retry_after: Duration::from_secs(8), refused: Refused::OverShare });
        assert!(admission.admit(client(2, "c"), 10, &pace, now).is_ok());
    }

    #[test]
    fn the_wait_has_an_end_however_long_the_line_is() {
        let (admission, pace, now) = (admission(100, 1, 1), pace(), Instant::now());
        let _held = admission.admit(client(1, "a"), 100, &pace, now).ok().unwrap();
        let waits = (0..200).map(|number| {
            let full = admission.admit(client(1, &number.to_string()), 50, &pace, now).err().unwrap();
            full.retry_after.as_secs()
        });
        let waits: Vec<u64> = waits.collect();
        assert!(waits.is_sorted() && waits.last() == Some(&120), "{waits:?}");
    }
}
