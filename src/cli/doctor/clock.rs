//! This machine's clock against those of other servers: tokens and signatures hold for some seconds only.

use std::time::{Duration, SystemTime};

use reqwest::header::{DATE, HeaderMap};

use super::check::Check;

const NAME: &str = "clock";
/// LiveKit's tokens begin ten seconds early.
const WARNING: Duration = Duration::from_secs(8);
/// Receivers of webhooks refuse five minutes; media servers less.
const FAILURE: Duration = Duration::from_secs(30);

/// The largest difference so far, by server. `Date` has whole seconds.
#[derive(Default)]
pub struct Clocks(Option<(Duration, String)>);

impl Clocks {
    pub fn note(&mut self, server: &str, headers: &HeaderMap) {
        let date = headers.get(DATE).and_then(|date| date.to_str().ok());
        let Some(theirs) = date.and_then(|date| httpdate::parse_http_date(date).ok()) else { return };
        let ours = SystemTime::now();
        let ahead = ours.duration_since(theirs).unwrap_or_default();
        let behind = theirs.duration_since(ours).unwrap_or_default();
        let apart = ahead.max(behind);
        if self.0.as_ref().is_none_or(|(most, _)| apart > *most) {
            self.0 = Some((apart, server.to_owned()));
        }
    }

    pub fn check(self) -> Check {
        let Some((apart, server)) = self.0 else {
            return Check::ok(NAME, "not compared: no server outside answered");
        };
        let message = format!("{} s from that of {server}", apart.as_secs());
        let mend = "let the machine set its clock by NTP: `timedatectl set-ntp true`";
        match apart {
            apart if apart >= FAILURE => Check::failed(NAME, message, mend),
            apart if apart >= WARNING => Check::warning(NAME, message, mend),
            _ => Check::ok(NAME, message),
        }
    }
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderValue;

    use super::super::check::Status;
    use super::*;

    #[test]
    fn the_largest_difference_counts() {
        let headers = |seconds: i64| {
            let now = SystemTime::now();
            let by = Duration::from_secs(seconds.unsigned_abs());
            let time = if seconds < 0 { now - by } else { now + by };
            let date = HeaderValue::from_str(&httpdate::fmt_http_date(time)).expect("a date");
            HeaderMap::from_iter([(DATE, date)])
        };
        for (differences, status) in [
            (&[][..], Status::Ok),
            (&[1], Status::Ok),
            (&[0, -15], Status::Warning),
            (&[-3600, 2], Status::Failed),
            (&[90], Status::Failed),
        ] {
            let mut clocks = Clocks::default();
            differences.iter().for_each(|seconds| clocks.note("a", &headers(*seconds)));
            assert_eq!(clocks.check().status, status, "{differences:?}");
        }
    }
}
