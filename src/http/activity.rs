//! The requests in progress on one connection.

use std::time::Duration;

use tokio::sync::watch;

use crate::patience::within;
use crate::telemetry::metrics;

/// Counts the requests that a connection is serving. Hyper has no timer for a connection that has not sent
/// its first byte, nor for an idle HTTP/2 connection; this is both.
#[derive(Default)]
pub(super) struct Activity {
    in_flight: watch::Sender<usize>,
}

/// A request being served.
pub(super) struct InFlight {
    in_flight: watch::Sender<usize>,
}

impl Activity {
    pub(super) fn begin(&self) -> InFlight {
        self.in_flight.send_modify(|count| *count += 1);
        metrics::HTTP_ACTIVE.with(&[]).increment(1);
        InFlight { in_flight: self.in_flight.clone() }
    }

    /// Returns when no request has begun within `first`, or when none has been in progress for `idle` since.
    pub(super) async fn ceases(&self, first: Duration, idle: Duration) {
        let mut changes = self.in_flight.subscribe();
        let mut limit = first;
        loop {
            let is_idle = *changes.borrow_and_update() == 0;
            let change = async {
                // `self` holds the sender, so there is always a next change to wait for.
                let _ = changes.changed().await;
            };
            if !is_idle {
                change.await;
            } else if within(limit, change).await.is_none() {
                return;
            }
            limit = idle;
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.in_flight.send_modify(|count| *count -= 1);
        metrics::HTTP_ACTIVE.with(&[]).decrement(1);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{Instant, sleep};

    use super::*;
    use crate::patience::LAST_LOOK;

    const FIRST: Duration = Duration::from_secs(10);
    const IDLE: Duration = Duration::from_secs(75);

    #[tokio::test(start_paused = true)]
    async fn a_connection_without_a_request_ceases_soon() {
        let start = Instant::now();
        Activity::default().ceases(FIRST, IDLE).await;
        assert_eq!(start.elapsed(), FIRST + LAST_LOOK);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_keeps_it_and_idleness_ends_it() {
        let (activity, start) = (Activity::default(), Instant::now());
        let requests = async {
            sleep(Duration::from_secs(9)).await;
            let request = activity.begin();
            let other = activity.begin();
            sleep(Duration::from_secs(300)).await;
            drop(request);
            sleep(Duration::from_secs(300)).await;
            drop(other);
            sleep(Duration::from_secs(70)).await;
            drop(activity.begin());
        };
        tokio::join!(requests, activity.ceases(FIRST, IDLE));
        assert_eq!(start.elapsed(), Duration::from_secs(9 + 300 + 300 + 70 + 75) + LAST_LOOK);
    }
}
