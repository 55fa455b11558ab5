//! The limits of a key: how often, how many at once, and how much audio.

use rusqlite::Row;
use serde::{Deserialize, Serialize};

/// The largest limit: beyond it, sums of limits would no longer be exact in a number of JavaScript.
pub const LIMIT_MAX: u64 = 1_000_000_000;

/// Bounds on what the holder of a key may ask for; `None`: no bound but the server's own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Requests that do work, in any 60 seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_per_minute: Option<u64>,
    /// Requests, streams and conversations at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrent: Option<u64>,
    /// Seconds of audio that was heard, from midnight to midnight in UTC. What begins within it is finished.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audio_seconds_per_day: Option<u64>,
    /// The same in a month of the calendar, in UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audio_seconds_per_month: Option<u64>,
}

impl Limits {
    pub const NONE: Self = Self {
        requests_per_minute: None,
        concurrent: None,
        audio_seconds_per_day: None,
        audio_seconds_per_month: None,
    };

    /// Whether there are any.
    pub fn are_none(&self) -> bool {
        *self == Self::NONE
    }

    /// Name and value of each, by the names of `verbatim keys limit`.
    pub fn named(&self) -> [(&'static str, Option<u64>); 4] {
        [
            ("requests-per-minute", self.requests_per_minute),
            ("concurrent", self.concurrent),
            ("audio-seconds-per-day", self.audio_seconds_per_day),
            ("audio-seconds-per-month", self.audio_seconds_per_month),
        ]
    }

    /// Whether each is at most [`LIMIT_MAX`].
    pub(super) fn are_allowed(&self) -> bool {
        self.named().iter().all(|(_, limit)| limit.is_none_or(|limit| limit <= LIMIT_MAX))
    }

    /// The columns of [`COLUMNS`] as SQLite has them.
    pub(super) fn stored(&self) -> [Option<i64>; 4] {
        // Allowed limits fit.
        self.named().map(|(_, limit)| limit.map(|limit| i64::try_from(limit).unwrap_or(i64::MAX)))
    }

    /// From the columns of [`COLUMNS`], the first of which is `first`.
    pub(super) fn read(row: &Row<'_>, first: usize) -> rusqlite::Result<Self> {
        let limit = |place: usize| -> rusqlite::Result<Option<u64>> {
            let stored: Option<i64> = row.get(first + place)?;
            Ok(stored.map(|stored| u64::try_from(stored).unwrap_or(0)))
        };
        Ok(Self {
            requests_per_minute: limit(0)?,
            concurrent: limit(1)?,
            audio_seconds_per_day: limit(2)?,
            audio_seconds_per_month: limit(3)?,
        })
    }
}

/// The columns of limits, and of the account that they are counted on.
pub(super) const COLUMNS: &str =
    "requests_per_minute, concurrent, audio_seconds_per_day, audio_seconds_per_month, account";
