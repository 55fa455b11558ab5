//! Seconds of audio that accounts have used, by day: in memory, and in `keys.spent.sqlite3` beside the keys, whose own
//! database changes only when keys do.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rusqlite::{Connection, params};
use uuid::Uuid;

use crate::keys::Error;
use crate::state;

const DATABASE: &str = "keys.spent.sqlite3";
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
const DAY_SECONDS: u64 = 86_400;
/// Days that are kept: more than a month has.
const DAYS_KEPT: u64 = 62;

/// A day of the calendar in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Day {
    /// Since 1970.
    number: u64,
    /// The number of the first day of its month, and of the next one.
    month: u64,
    next_month: u64,
}

impl Day {
    pub fn of(at: SystemTime) -> Self {
        let number = at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() / DAY_SECONDS;
        let (year, month, day) = civil(number);
        let length = match month {
            4 | 6 | 9 | 11 => 30,
            2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
            2 => 28,
            _ => 31,
        };
        let first = number + 1 - day;
        Self { number, month: first, next_month: first + length }
    }

    /// The time from `at` to the next day.
    pub fn until_next(self, at: SystemTime) -> Duration {
        until(self.number + 1, at)
    }

    /// The time from `at` to the next month.
    pub fn until_next_month(self, at: SystemTime) -> Duration {
        until(self.next_month, at)
    }
}

fn until(day: u64, at: SystemTime) -> Duration {
    let begins = UNIX_EPOCH + Duration::from_secs(day.saturating_mul(DAY_SECONDS));
    begins.duration_since(at).unwrap_or_default()
}

/// Year, month and day of the month (Howard Hinnant, `civil_from_days`), for days from 1970 on.
fn civil(number: u64) -> (u64, u64, u64) {
    let days = number + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

pub struct Spent {
    /// Seconds by account and number of the day, of this month and the one before.
    seconds: HashMap<(Uuid, u64), f64>,
    /// Those that the disk lacks.
    changed: HashSet<(Uuid, u64)>,
    database: Arc<Mutex<Connection>>,
}

/// Seconds on their way to disk.
pub struct Due {
    rows: Vec<((Uuid, u64), f64)>,
    database: Arc<Mutex<Connection>>,
}

impl Spent {
    /// # Errors
    /// [`Error::File`], [`Error::Database`].
    pub fn open(state_dir: &Path, today: Day) -> Result<Self, Error> {
        let path = state_dir.join(DATABASE);
        state::make_file(&path).map_err(|source| Error::File { path: path.clone(), source })?;
        let database = Connection::open(&path)?;
        database.busy_timeout(BUSY_TIMEOUT)?;
        state::log_ahead(&database, BUSY_TIMEOUT)?;
        database.execute_batch(
            "CREATE TABLE IF NOT EXISTS spent (
                 account TEXT NOT NULL,
                 day     INTEGER NOT NULL,
                 seconds REAL NOT NULL,
                 PRIMARY KEY (account, day)
             ) STRICT, WITHOUT ROWID;",
        )?;
        let oldest = today.number.saturating_sub(DAYS_KEPT).cast_signed();
        database.execute("DELETE FROM spent WHERE day < ?1", [oldest])?;
        let mut statement = database.prepare("SELECT account, day, seconds FROM spent")?;
        let rows = statement.query_map([], |row| {
            Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?.cast_unsigned(), row.get::<_, f64>(2)?))
        })?;
        let mut seconds = HashMap::new();
        for row in rows {
            let (account, day, spent) = row?;
            if let Ok(account) = Uuid::parse_str(&account) {
                seconds.insert((account, day), spent);
            }
        }
        drop(statement);
        Ok(Self { seconds, changed: HashSet::new(), database: Arc::new(Mutex::new(database)) })
    }

    pub fn add(&mut self, account: Uuid, day: Day, seconds: f64) {
        let place = (account, day.number);
        *self.seconds.entry(place).or_insert(0.0) += seconds;
        self.changed.insert(place);
    }

    pub fn day(&self, account: Uuid, day: Day) -> f64 {
        self.seconds.get(&(account, day.number)).copied().unwrap_or(0.0)
    }

    pub fn month(&self, account: Uuid, day: Day) -> f64 {
        (day.month..=day.number).filter_map(|day| self.seconds.get(&(account, day))).sum()
    }

    /// What the disk lacks, if anything.
    pub fn take_due(&mut self) -> Option<Due> {
        if self.changed.is_empty() {
            return None;
        }
        let places = std::mem::take(&mut self.changed);
        let newest = places.iter().map(|(_, day)| *day).max().unwrap_or(0);
        self.seconds.retain(|(_, day), _| day + DAYS_KEPT >= newest);
        let rows = places.into_iter().filter_map(|place| Some((place, *self.seconds.get(&place)?)));
        Some(Due { rows: rows.collect(), database: self.database.clone() })
    }

    /// Takes back what could not be written, for the next time.
    pub fn give_back(&mut self, due: Due, is_written: bool) {
        if !is_written {
            self.changed.extend(due.rows.into_iter().map(|(place, _)| place));
        }
    }
}

impl Due {
    /// # Errors
    /// [`Error::Database`].
    pub fn write(&self) -> Result<(), Error> {
        // A panic elsewhere leaves the connection usable: SQLite rolls back what was not committed.
        let mut database = self.database.lock().unwrap_or_else(PoisonError::into_inner);
        let change = database.transaction()?;
        for ((account, day), seconds) in &self.rows {
            change.execute(
                "INSERT INTO spent (account, day, seconds) VALUES (?1, ?2, ?3)
                 ON CONFLICT (account, day) DO UPDATE SET seconds = excluded.seconds",
                params![account.to_string(), day.cast_signed(), seconds],
            )?;
        }
        Ok(change.commit()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn day(text: &str) -> (Day, SystemTime) {
        let at = humantime::parse_rfc3339(text).unwrap();
        (Day::of(at), at)
    }

    #[test]
    fn days_and_months_are_those_of_the_calendar() {
        for (text, next, next_month) in [
            ("2026-11-23T05:00:00Z", "2026-11-24T00:00:00Z", "2026-12-01T00:00:00Z"),
            ("2026-12-31T23:59:59Z", "2027-01-01T00:00:00Z", "2027-01-01T00:00:00Z"),
            ("2028-02-29T00:00:00Z", "2028-03-01T00:00:00Z", "2028-03-01T00:00:00Z"),
            ("2027-02-01T12:00:00Z", "2027-02-02T00:00:00Z", "2027-03-01T00:00:00Z"),
        ] {
            let (day, at) = day(text);
            let expected = |text| humantime::parse_rfc3339(text).unwrap();
            assert_eq!(at + day.until_next(at), expected(next), "{text}");
            assert_eq!(at + day.until_next_month(at), expected(next_month), "{text}");
        }
    }

    #[test]
    fn a_month_is_the_sum_of_its_days() {
        let dir = tempfile::tempdir().unwrap();
        let (today, _) = day("2026-11-23T05:00:00Z");
        let mut spent = Spent::open(dir.path(), today).unwrap();
        let account = Uuid::from_u128(7);
        for (text, seconds) in [
            ("2026-10-31T23:00:00Z", 1000.0),
            ("2026-11-01T00:00:00Z", 10.0),
            ("2026-11-22T00:00:00Z", 20.0),
            ("2026-11-23T00:00:00Z", 0.5),
        ] {
            spent.add(account, day(text).0, seconds);
        }
        spent.add(Uuid::from_u128(8), today, 99.0);
        let due = spent.take_due().unwrap();
        due.write().unwrap();
        spent.give_back(due, true);
        assert!(spent.take_due().is_none());
        let again = Spent::open(dir.path(), today).unwrap();
        for spent in [&spent, &again] {
            assert_eq!((spent.day(account, today), spent.month(account, today)), (0.5, 30.5));
        }
    }
}
