//! The configuration of jobs.

use serde::{Deserialize, Serialize};

use super::capacity::Bounds;
use super::signature::SigningSecret;
use crate::share::Tenants;

/// How jobs are accepted, run and delivered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Accept requests with `callback`. Default true. If false, several servers may share a state directory.
    pub enabled: bool,
    /// Jobs transcribed at once. Each holds its audio in memory, which counts in `engine.max_held_seconds`.
    /// Default 4.
    pub concurrency: usize,
    /// Runs before a job is given up that fails, or whose decoding ends the process. The receiver then gets
    /// an error object. Default 5.
    pub runs_max: u32,
    /// A run that takes longer counts as failed, including its wait for memory. If the time is up while the
    /// process stands still, it begins anew. Default 3 600 000, an hour.
    pub run_timeout_ms: u64,
    /// Jobs not delivered yet. Beyond this many, clients get 503; an organisation beyond its share of them
    /// gets 429. Default 10 000.
    pub pending_max: u64,
    /// Bytes of audio on disk, bounded in the same way. Default 16 GiB.
    pub spool_bytes_max: u64,
    /// Free space to leave on that disk in any case, in bytes. Default 1 GiB.
    pub disk_free_bytes_min: u64,
    /// Secrets that results are signed with: `whsec_…`, 24 to 64 bytes in Base64. Several, separated by
    /// spaces, sign side by side while receivers change over. Default: generated once and kept in the state
    /// directory; `verbatim jobs secret` prints it.
    pub secret: Option<SigningSecret>,
    /// Pauses between delivery attempts; after the last attempt the job is dead. Each pause is a random part
    /// of the value here (full jitter). Seconds, default 5 s, 5 min, 30 min, 2 h, 5 h, 10 h, 10 h, the
    /// schedule that the Standard Webhooks specification recommends.
    pub retry_delays_seconds: Vec<f64>,
    /// Time limit for an attempt, from the DNS look-up to the end of the receiver's answer. Default 15 000.
    pub delivery_timeout_ms: u64,
    /// Results in flight at once. Default 256.
    pub deliveries: usize,
    /// Results in flight to one host at once; only one while the host fails. Default 8.
    pub deliveries_per_host: usize,
    /// How long a delivered result is kept and shown by `GET /v1/listen/jobs/{request_id}`. Seconds, default
    /// 0: deleted on delivery.
    pub result_retention_seconds: u64,
    /// How long a job is remembered after it ended; a dead one can be redelivered for that long. Also how
    /// long audio without a job is kept in quarantine. Seconds, default 604 800, a week.
    pub job_retention_seconds: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            enabled: true,
            concurrency: 4,
            runs_max: 5,
            run_timeout_ms: 3_600_000,
            pending_max: 10_000,
            spool_bytes_max: 16 << 30,
            disk_free_bytes_min: 1 << 30,
            secret: None,
            retry_delays_seconds: vec![5.0, 300.0, 1800.0, 7200.0, 18_000.0, 36_000.0, 36_000.0],
            delivery_timeout_ms: 15_000,
            deliveries: 256,
            deliveries_per_host: 8,
            result_retention_seconds: 0,
            job_retention_seconds: 604_800,
        }
    }
}

impl Config {
    pub(super) fn bounds(&self, tenants: Tenants) -> Bounds {
        Bounds { jobs: self.pending_max, bytes: self.spool_bytes_max, tenants }
    }
}
