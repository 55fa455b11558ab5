//! Unix time in milliseconds.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Milliseconds of Unix time.
pub type Millis = u64;

pub fn now() -> Millis {
    millis(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// Saturates.
pub fn millis(duration: Duration) -> Millis {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
