//! Times in requests of management: RFC 3339, or a date, which means its beginning in UTC.

use std::time::{Duration, SystemTime};

use crate::clock::is_writable;

/// `None` if it is neither, before 1970, or in UTC after the year 9999.
pub fn parse(text: &str) -> Option<SystemTime> {
    let text = text.trim();
    if text.len() == "2027-01-31".len() {
        return humantime::parse_rfc3339(&format!("{text}T00:00:00Z")).ok();
    }
    // A sign behind the date is that of an offset. A time without an offset is taken for UTC.
    let offset_at = text.get(10..)?.find(['+', '-']).map(|at| at + 10);
    let (local, offset) = text.split_at(offset_at.unwrap_or(text.len()));
    let utc = humantime::parse_rfc3339_weak(local.trim_end_matches(['Z', 'z'])).ok()?;
    if offset.is_empty() {
        return Some(utc);
    }
    let (hours, minutes) = offset.get(1..)?.split_once(':')?;
    let (hours, minutes): (u64, u64) = (two_digits(hours)?, two_digits(minutes)?);
    let offset_by = Duration::from_secs((hours * 60 + minutes) * 60);
    let time = if offset.starts_with('+') { utc.checked_sub(offset_by) } else { utc.checked_add(offset_by) };
    let is_time = |time: &SystemTime| *time >= SystemTime::UNIX_EPOCH && is_writable(*time);
    time.filter(|time| is_time(time) && hours < 24 && minutes < 60)
}

fn two_digits(text: &str) -> Option<u64> {
    (text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_in_every_form_that_clients_send() {
        let noon = SystemTime::UNIX_EPOCH + Duration::from_secs(1_801_396_800);
        for text in [
            "2027-01-31T12:00:00Z",
            "2027-01-31T12:00:00.000Z",
            "2027-01-31T12:00:00",
            "2027-01-31 12:00:00",
            "2027-01-31T12:00:00+00:00",
            "2027-01-31T14:30:00.000000+02:30",
            "2027-01-31T04:00:00-08:00",
        ] {
            assert_eq!(parse(text), Some(noon), "{text}");
        }
        assert_eq!(parse("2027-01-31"), noon.checked_sub(Duration::from_secs(43_200)));
        for text in [
            "",
            "tomorrow",
            "2027-13-01",
            "2027-01-31T12:00:00+2",
            "2027-01-31T12:00:00+24:00",
            "1970-01-01T00:00:00+01:00",
            "9999-12-31T23:59:59-05:00",
            "éééééééééééé",
            "2027-01-31T12:00:00+0a:00",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
