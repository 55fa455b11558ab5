//! Times as numbers and as texts: Unix time in milliseconds, and RFC 3339.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Milliseconds of Unix time.
pub type Millis = u64;

/// The end of the year 9999, from 1970 on: RFC 3339 has years of four digits.
const WRITABLE: Duration = Duration::from_secs(253_402_300_800);

pub fn now() -> Millis {
    millis(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// Saturates.
pub fn millis(duration: Duration) -> Millis {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Milliseconds of Unix time, as SQLite stores them. Saturates; 0 for times before 1970.
pub fn unix_ms(time: SystemTime) -> i64 {
    i64::try_from(millis(time.duration_since(UNIX_EPOCH).unwrap_or_default())).unwrap_or(i64::MAX)
}

pub fn from_unix_ms(ms: i64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(ms.unsigned_abs())
}

/// Whether RFC 3339 has a text for `time`: before the year 10000.
pub fn is_writable(time: SystemTime) -> bool {
    time < UNIX_EPOCH + WRITABLE
}

/// `time` to the millisecond as in RFC 3339, in UTC; the nearest time of 1970 to 9999.
pub fn rfc3339(time: SystemTime) -> String {
    humantime::format_rfc3339_millis(writable(time)).to_string()
}

/// As [`rfc3339`], to the second.
pub fn rfc3339_seconds(time: SystemTime) -> String {
    humantime::format_rfc3339_seconds(writable(time)).to_string()
}

/// Formatting any other time panics.
fn writable(time: SystemTime) -> SystemTime {
    time.clamp(UNIX_EPOCH, UNIX_EPOCH + WRITABLE - Duration::from_millis(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_has_a_text() {
        let end = UNIX_EPOCH + WRITABLE;
        assert_eq!(rfc3339(end), "9999-12-31T23:59:59.999Z");
        assert_eq!(rfc3339_seconds(end + Duration::from_secs(1 << 40)), "9999-12-31T23:59:59Z");
        assert_eq!(rfc3339(UNIX_EPOCH - Duration::from_secs(1)), "1970-01-01T00:00:00.000Z");
        assert!(!is_writable(end) && is_writable(end - Duration::from_millis(1)));
    }
}
