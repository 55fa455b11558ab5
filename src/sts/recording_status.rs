//! A recording as `status` shows it.

use serde::Serialize;

use super::time::Time;
use crate::figures::Seconds;

#[derive(Debug, Clone, Serialize)]
pub struct RecordingStatus {
    pub seconds: Seconds,
    /// Of the whole file.
    pub bytes: u64,
    /// When it is deleted; none while the talk goes on.
    pub expires_at: Option<Time>,
}
