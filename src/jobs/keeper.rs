//! Deletes what has been kept long enough, and sets the gauges.
//!
//! | metric                                    | |
//! |-------------------------------------------|-|
//! | `verbatim_jobs{phase}`                    | jobs, by where they are |
//! | `verbatim_jobs_oldest_pending_seconds`    | age of the oldest job that has not ended |
//! | `verbatim_jobs_spool_bytes`               | audio that waits |
//! | `verbatim_jobs_quarantined`               | files that belong to no job and were set aside |
//! | `verbatim_jobs_accepted_total`            | |
//! | `verbatim_jobs_refused_total{reason}`     | for want of room: in the bounds, in the share of an organisation, on the disk |
//! | `verbatim_jobs_runs_total{outcome}`       | transcriptions begun |
//! | `verbatim_jobs_attempts_total{outcome}`   | deliveries tried |
//! | `verbatim_jobs_delivery_lag_seconds`      | from the result to its delivery |

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use tokio_util::sync::CancellationToken;

use super::error::Error;
use super::shared::Shared;
use super::store::Phase;
use crate::telemetry::metrics;

const INTERVAL: Duration = Duration::from_secs(10);

pub async fn run(shared: &Arc<Shared>, stop: &CancellationToken) {
    loop {
        if let Err(error) = keep(shared).await {
            tracing::error!(error = &error as &dyn std::error::Error, "cannot look after jobs");
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = tokio::time::sleep(INTERVAL) => {}
        }
    }
}

async fn keep(shared: &Arc<Shared>) -> Result<(), Error> {
    let now = shared.world.now();
    let ago = |seconds| now.checked_sub(Duration::from_secs(seconds)).unwrap_or(UNIX_EPOCH);
    let config = &shared.config;
    // Before the database is asked: on a full disk, this may free the space that it needs.
    match shared.audio.expire(ago(config.job_retention_seconds)).await {
        Ok(left) => metrics::JOBS_QUARANTINED.with(&[]).set(left as f64),
        Err(error) => tracing::error!(%error, "cannot look after the quarantine"),
    }
    shared.store.purge(ago(config.result_retention_seconds), ago(config.job_retention_seconds)).await?;
    let census = shared.store.census().await?;
    for phase in Phase::ALL {
        let count = census.phases.get(&phase).copied().unwrap_or_default();
        // Both phases of `delivering` are shown: waiting, and being sent.
        metrics::JOBS.with(&[("phase", phase.name())]).set(count as f64);
    }
    let age = census.oldest.and_then(|oldest| now.duration_since(oldest).ok()).unwrap_or_default();
    metrics::JOBS_OLDEST_PENDING.with(&[]).set(age.as_secs_f64());
    metrics::JOBS_SPOOL.with(&[]).set(census.audio_bytes as f64);
    Ok(())
}
