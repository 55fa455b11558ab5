//! Drains the rest of a body after its request is refused.
//!
//! A client in the middle of a large upload often reads nothing before it has sent all. Closing under it, or
//! resetting its stream, costs it the answer: the kernel throws away what the client has not read yet, and
//! clients of HTTP/2 report the reset instead of the status. So the rest of the body is read and dropped,
//! within bounds.

use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::Config;
use crate::patience::{Rate, RateTimer};

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
