//! The bounds that every piece of audio is read within.

use serde::{Deserialize, Serialize};

/// The most that one piece of audio may cost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Longer audio is refused, never cut. Seconds, default 600.
    pub max_seconds: f64,
    /// Default 20.
    pub max_channels: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_seconds: 600.0, max_channels: 20 }
    }
}

/// Sample rates that are read, in Hz. A file with another one is damaged or hostile.
pub(super) const SAMPLE_RATES: std::ops::RangeInclusive<u32> = 4_000..=384_000;

/// Streams that a file may chain, and one more for each second: each costs a decoder.
pub(super) const MAX_CHAINED: f64 = 256.0;
