//! Waits of the tasks: for work, and for a database that fails.

use std::time::{Duration, SystemTime};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::store::Answer;
use super::world::World;

/// The longest that a change by another process (`verbatim jobs retry`) goes unnoticed, and the pause after a
/// database error.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Waits until `wake`, until `at`, or for [`LOOK_INTERVAL`], whichever comes first. Cancel-safe.
pub async fn rest(world: &dyn World, wake: &Notify, at: Option<SystemTime>) {
    let left = at.map_or(LOOK_INTERVAL, |at| at.duration_since(world.now()).unwrap_or_default());
    let _ = tokio::time::timeout(left.min(LOOK_INTERVAL), wake.notified()).await;
}

/// Repeats `action` until the database accepts it. `None` if stopped before that.
pub async fn insist<'a, T>(stop: &CancellationToken, mut action: impl FnMut() -> Answer<'a, T>) -> Option<T> {
    loop {
        match action().await {
            Ok(done) => return Some(done),
            Err(error) => {
                tracing::error!(error = &error as &dyn std::error::Error, "cannot note a job's state")
            }
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => return None,
            () = tokio::time::sleep(LOOK_INTERVAL) => {}
        }
    }
}
