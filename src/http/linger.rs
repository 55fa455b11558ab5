//! Drains the rest of a body after its request is refused.
//!
//! A client in the middle of a large upload often reads nothing before it has sent all. Closing under it, or
//! resetting its stream, costs it the answer: the kernel throws away what the client has not read yet, and
//! clients of HTTP/2 report the reset instead of the status. So the rest of the body is read and dropped,
//! within bounds.

use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use super::Config;

/// Bodies are dropped up to here, or up to twice the largest that is taken: a client that sends one that is
/// too large learns that.
const BYTES_MAX: u64 = 64 << 20;
/// In all. Clients of HTTP/2 that send all before they read may be slow at it.
const TIME_MAX: Duration = Duration::from_secs(300);
/// Without a byte, and before the least rate counts.
const IDLE_MAX: Duration = Duration::from_secs(5);
/// While the server stops.
const STOPPING_MAX: Duration = Duration::from_secs(2);

/// How much is taken in.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    bytes: u64,
    bytes_per_second_min: u64,
}

impl Bounds {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            bytes: BYTES_MAX.max(config.body_bytes_max.saturating_mul(2)),
            bytes_per_second_min: config.body_bytes_per_second_min,
        }
    }

    /// When the next bytes must have come, of a body that began to be dropped at `start`.
    fn deadline(&self, start: Instant, now: Instant, taken: u64) -> Instant {
        let earned = (taken * 1000).checked_div(self.bytes_per_second_min);
        let earned = earned.map_or(TIME_MAX, |ms| IDLE_MAX.saturating_add(Duration::from_millis(ms)));
        (now + IDLE_MAX).min(start + earned.min(TIME_MAX))
    }
}

/// Drops the rest of one request's body.
pub(super) async fn drop_body(mut rest: Incoming, bounds: Bounds, stop: CancellationToken) {
    let take_in = async {
        let (start, mut taken) = (Instant::now(), 0);
        while taken <= bounds.bytes
            && let deadline = bounds.deadline(start, Instant::now(), taken)
            && let Ok(Some(Ok(frame))) = timeout_at(deadline, rest.frame()).await
        {
            taken += frame.data_ref().map_or(0, |data| data.len() as u64);
        }
    };
    let stopping = async {
        stop.cancelled().await;
        tokio::time::sleep(STOPPING_MAX).await;
    };
    tokio::select! {
        () = take_in => {}
        () = stopping => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_that_comes_too_slowly_is_not_waited_for() {
        let bounds = Bounds::new(&Config { body_bytes_per_second_min: 1000, ..Config::default() });
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(bounds.deadline(start, at(0), 0), at(5));
        assert_eq!(bounds.deadline(start, at(4), 1000), at(6));
        assert_eq!(bounds.deadline(start, at(4), 1 << 20), at(9));
        assert_eq!(bounds.deadline(start, at(298), u64::MAX / 1000), at(300));
        let any = Bounds::new(&Config { body_bytes_per_second_min: 0, ..Config::default() });
        assert_eq!(any.deadline(start, at(60), 1), at(65));
    }
}
