//! In place of `livekit`, where the program is built without it.

use std::sync::Arc;

use super::Invitation;
use crate::sts::sessions::Live;
use crate::sts::{Error, Service, config};

#[derive(Debug, thiserror::Error)]
pub enum LiveKitError {
    #[error("`sts.livekit.url` is set, and this program was built without the feature `livekit`")]
    Absent,
}

#[derive(Clone)]
pub enum LiveKit {}

impl LiveKit {
    /// # Errors
    /// [`LiveKitError::Absent`] where one is configured.
    pub fn open(config: &config::LiveKit) -> Result<Option<Self>, LiveKitError> {
        if config.url.is_some() { Err(LiveKitError::Absent) } else { Ok(None) }
    }

    pub fn invite(&self, _: &str, _: u64) -> Invitation {
        match *self {}
    }

    /// # Errors
    /// None, as there is none.
    pub async fn begin(&self, _: &Arc<Service>, _: &Arc<Live>) -> Result<(), Error> {
        match *self {}
    }
}
