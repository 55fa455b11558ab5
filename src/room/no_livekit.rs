//! The stand-in for `livekit` in builds without it.

use super::config::Config;
use super::reception::{Agency, Invitation, News, Reception, RoomEnd, RoomLimits};

#[derive(Debug, thiserror::Error)]
pub enum LiveKitError {
    #[error("`sts.livekit.url` is set, and this program was built without the feature `livekit`")]
    Absent,
}

#[derive(Debug, thiserror::Error)]
pub enum CallError {}

#[derive(Debug, thiserror::Error)]
pub enum WebhookError {
    #[error("the request is not signed by the LiveKit server")]
    NotSigned,
    #[error("the event is no JSON of LiveKit's form")]
    Form,
}

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

    pub fn observer(&self, _: &str, _: u64) -> Invitation {
        match *self {}
    }

    /// # Errors
    /// None: there is no server.
    pub async fn create_room(&self, _: &str, _: &RoomLimits) -> Result<(), CallError> {
        match *self {}
    }

    /// # Errors
    /// None: there is no server.
    pub async fn has_room(&self, _: &str) -> Result<bool, CallError> {
        match *self {}
    }

    /// # Errors
    /// None: there is no server.
    pub async fn has_callers(&self, _: &str) -> Result<bool, CallError> {
        match *self {}
    }

    /// # Errors
    /// None: there is no server.
    pub fn webhook(&self, _: &str, _: &[u8]) -> Result<Option<News>, WebhookError> {
        match *self {}
    }

    pub async fn work(&self, _: &str, _: &dyn Agency) {
        match *self {}
    }

    pub async fn serve(&self, _: &str, _: &str, _: &dyn Reception) -> RoomEnd {
        match *self {}
    }

    /// # Errors
    /// None: there is no server.
    pub async fn transfer(&self, _: &str, _: &str, _: &str) -> Result<(), CallError> {
        match *self {}
    }

    pub async fn delete_room(&self, _: &str, _: &str) {
        match *self {}
    }
}
