//! The stand-in for `livekit` in builds without it.

use super::config::Config;
use super::reception::{Invitation, Reception, RoomEnd, RoomLimits};

#[derive(Debug, thiserror::Error)]
pub enum LiveKitError {
    #[error("`sts.livekit.url` is set, and this program was built without the feature `livekit`")]
    Absent,
}

#[derive(Debug, thiserror::Error)]
pub enum CallError {}

#[derive(Clone)]
pub enum LiveKit {}

impl LiveKit {
    /// # Errors
    /// [`LiveKitError::Absent`] if one is configured.
    pub fn open(config: &Config) -> Result<Option<Self>, LiveKitError> {
        if config.url.is_some() { Err(LiveKitError::Absent) } else { Ok(None) }
    }

    pub fn invite(&self, _: &str, _: u64) -> Invitation {
        match *self {}
    }

    /// # Errors
    /// None: there is no server.
    pub async fn create_room(&self, _: &str, _: &RoomLimits) -> Result<(), CallError> {
        match *self {}
    }

    pub async fn serve(&self, _: &str, _: &str, _: &dyn Reception) -> RoomEnd {
        match *self {}
    }

    pub async fn delete_room(&self, _: &str, _: &str) {
        match *self {}
    }
}
