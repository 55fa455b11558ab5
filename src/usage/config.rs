//! The configuration of the log.

use serde::{Deserialize, Serialize};

/// Bounds of the log, which holds no audio, no transcripts and no addresses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Log requests, for the sums of use. Default true.
    pub enabled: bool,
    /// Requests kept, of all organisations together; beyond that, the oldest ones of the organisation with most
    /// of them are forgotten. A request takes about 400 bytes of disk. Default 1 000 000.
    pub requests_max: u64,
    /// Days for which a request is kept. Default 90.
    pub retention_days: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self { enabled: true, requests_max: 1_000_000, retention_days: 90 }
    }
}
