//! The time that a request about use covers.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use url::form_urlencoded;

use super::date;
use crate::api::error;
use crate::clock::rfc3339_seconds;
use crate::http::Failure;

const DAY: Duration = Duration::from_secs(86_400);
/// Without a `start`: as far back as a month goes.
const DAYS_BY_DEFAULT: u32 = 30;

/// From `start` on, before `end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Period {
    pub start: SystemTime,
    pub end: SystemTime,
}

impl Period {
    /// `start` and `end` of a query, each a time or a date. A date as the end is the last day. By default the
    /// period ends `now`, and begins 30 days before its end.
    ///
    /// # Errors
    /// 400 for anything else, and for an end that is not after the start.
    pub fn of_query(query: &str, now: SystemTime) -> Result<Self, Failure> {
        let given = |name: &'static str| {
            let value = form_urlencoded::parse(query.as_bytes()).find(|(given, _)| given == name);
            let value = value.map(|(_, value)| value.into_owned()).filter(|value| !value.is_empty());
            let parsed = value.map(|value| date::parse(&value).map(|time| (time, is_date(&value))));
            parsed.map(|time| {
                time.ok_or_else(|| error::invalid_query(name, "must be a date or a time, as in RFC 3339"))
            })
        };
        let end = match given("end").transpose()? {
            Some((day, true)) => day.checked_add(DAY).unwrap_or(day),
            Some((time, false)) => time,
            // A moment later, for what happens now.
            None => now.checked_add(Duration::from_millis(1)).unwrap_or(now),
        };
        let start = match given("start").transpose()? {
            Some((time, _)) => time,
            None => end.checked_sub(DAY * DAYS_BY_DEFAULT).unwrap_or(UNIX_EPOCH).max(UNIX_EPOCH),
        };
        if start >= end {
            return Err(error::invalid_query("start", "must be before `end`"));
        }
        Ok(Self { start, end })
    }

    /// All times up to a day after `now`.
    pub fn ever(now: SystemTime) -> Self {
        Self { start: UNIX_EPOCH, end: now.checked_add(DAY).unwrap_or(now) }
    }

    /// The first day, in UTC.
    pub fn first_day(&self) -> String {
        day(self.start)
    }

    /// The last day, in UTC.
    pub fn last_day(&self) -> String {
        let last = self.end.checked_sub(Duration::from_millis(1)).unwrap_or(self.end);
        day(last.max(self.start))
    }
}

fn is_date(text: &str) -> bool {
    text.trim().len() == "2027-01-31".len()
}

/// `time` as a date in UTC.
pub fn day(time: SystemTime) -> String {
    let text = rfc3339_seconds(time);
    text.split_once('T').map_or(text.clone(), |(day, _)| day.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_has_a_beginning_and_an_end() {
        let now = date::parse("2027-03-31T12:00:00Z").unwrap();
        let days = |query: &str| {
            let period = Period::of_query(query, now).unwrap();
            (period.first_day(), period.last_day())
        };
        let expect = |first: &str, last: &str| (first.to_owned(), last.to_owned());
        assert_eq!(days(""), expect("2027-03-01", "2027-03-31"));
        assert_eq!(days("start=2027-01-01"), expect("2027-01-01", "2027-03-31"));
        assert_eq!(days("start=2027-01-01&end=2027-01-01"), expect("2027-01-01", "2027-01-01"));
        assert_eq!(days("end=2027-01-31"), expect("2027-01-02", "2027-01-31"));
        assert_eq!(
            days("start=2027-01-01T00:00:00Z&end=2027-01-02T00:00:00Z"),
            expect("2027-01-01", "2027-01-01")
        );
        assert_eq!(days("start=&end="), days(""));
        for wrong in ["start=yesterday", "end=0", "start=2027-01-02&end=2027-01-01"] {
            assert!(Period::of_query(wrong, now).is_err(), "{wrong}");
        }
    }
}
