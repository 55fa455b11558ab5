//! Drains the rest of a body after its request is refused.
//!
//! A client in the middle of a large upload often reads nothing before it has sent everything. Closing the
//! connection, or resetting the stream, would cost it the answer: the kernel discards unread data, and HTTP/2
//! clients report the reset instead of the status. So the rest of the body is read and dropped, within
//! bounds.

use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::config::Config;
use crate::patience::{Rate, RateTimer};

/// Bodies are drained up to this size, or up to twice the largest one accepted: so the client of a body that
/// is too large learns why.
const BYTES_MAX: u64 = 64 << 20;
/// In total. HTTP/2 clients that send everything before they read may be slow.
const TIME_MAX: Duration = Duration::from_secs(300);
/// The longest silence, and the time before the minimum rate applies.
const IDLE_MAX: Duration = Duration::from_secs(5);
/// While the server stops.
const STOPPING_MAX: Duration = Duration::from_secs(2);

/// How much is drained.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    bytes: u64,
    rate: Rate,
}

impl Bounds {
    pub(super) fn new(config: &Config) -> Self {
        let bytes_per_second_min = config.body_bytes_per_second_min;
        Self {
            bytes: BYTES_MAX.max(config.body_bytes_max.saturating_mul(2)),
            rate: Rate { idle: IDLE_MAX, grace: IDLE_MAX, bytes_per_second_min },
        }
    }
}

/// Drops the rest of one request's body.
pub(super) async fn drop_body(mut rest: Incoming, bounds: Bounds, stop: CancellationToken) {
    let take_in = async {
        let (mut timer, mut taken) = (RateTimer::new(bounds.rate), 0);
        while taken <= bounds.bytes
            && let Some(Some(Ok(frame))) = timer.wait(rest.frame()).await
        {
            let bytes = frame.data_ref().map_or(0, |data| data.len() as u64);
            timer.received(bytes);
            taken += bytes;
        }
    };
    let stopping = async {
        stop.cancelled().await;
        tokio::time::sleep(STOPPING_MAX).await;
    };
    tokio::select! {
        _ = timeout(TIME_MAX, take_in) => {}
        () = stopping => {}
    }
}
