//! Agents by dispatch: a LiveKit server asks for this server's agent by name, for a room of its own.
//!
//! A job becomes a session: its metadata may be JSON with the fields of a `start`. The room is not this server's to make
//! or to delete.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde_json::Value;

use super::endpoint::leave_out_unusable;
use super::host::Host;
use crate::fields::Fields;
use crate::knowledge::unread_website;
use crate::room::livekit::LiveKit;
use crate::room::{Agency, Commission, RoomEnd};
use crate::session::{Asked, Channel, EndReason, Error, Handle, Media, Start};

/// The longest metadata in bytes: LiveKit's own limit is lower.
const METADATA_BYTES_MAX: usize = 1 << 20;
const ROOM_BYTES_MAX: usize = 256;

/// Takes the jobs of one agent's name.
pub struct Office {
    pub host: Arc<Host>,
    pub livekit: LiveKit,
}

impl Office {
    fn tenant(&self) -> u64 {
        self.host.config.livekit.agent_organisation
    }

    async fn begin(&self, Commission { room, metadata }: Commission) -> Result<String, Error> {
        let mut start = read(&metadata)?;
        if let Some(Err(reason)) = start.setup.website_url.as_deref().map(|url| self.host.library.judge(url))
        {
            start.warnings.push(unread_website(&reason));
        }
        let warnings = leave_out_unusable(&self.host, &mut start.setup);
        start.warnings.extend(warnings);
        (start.channel, start.room) = (Channel::Web, Some(room));
        let handle = self.host.tools.sessions.create(self.tenant(), start).await?;
        self.host.read_sources(handle.clone());
        handle.set_media(Media::Connecting);
        Ok(handle.id.clone())
    }

    fn find(&self, session: &str) -> Option<Arc<Handle>> {
        match self.host.tools.sessions.find(session, self.tenant()) {
            Ok(Asked::Open(handle)) => Some(handle),
            _ => None,
        }
    }
}

/// A start by a job's metadata. Metadata that is no object is for someone else.
fn read(metadata: &str) -> Result<Start, Error> {
    let empty = Value::Object(serde_json::Map::new());
    let value = Some(metadata).filter(|text| text.len() <= METADATA_BYTES_MAX);
    let value = value.and_then(|text| serde_json::from_str(text).ok()).filter(Value::is_object);
    Start::read(Fields::of(&value.unwrap_or(empty))?)
}

impl Agency for Office {
    fn accept(&self, commission: Commission) -> BoxFuture<'_, Option<String>> {
        Box::pin(async move {
            if commission.room.is_empty() || commission.room.len() > ROOM_BYTES_MAX {
                return None;
            }
            match self.begin(commission).await {
                Ok(session) => Some(session),
                Err(error) => {
                    let error: &dyn std::error::Error = &error;
                    tracing::warn!(error, "a job of the LiveKit server is refused");
                    None
                }
            }
        })
    }

    fn serve(&self, session: &str) -> BoxFuture<'static, RoomEnd> {
        let Some(handle) = self.find(session) else { return Box::pin(async { RoomEnd::SessionOver }) };
        let (host, livekit) = (self.host.clone(), self.livekit.clone());
        let stop = self.host.tools.stop.clone();
        // Of the host's tasks, so that a stop waits for it.
        let work = self.host.tools.tasks.spawn(async move {
            tokio::select! {
                () = stop.cancelled() => RoomEnd::SessionOver,
                end = host.attend(&livekit, handle) => end,
            }
        });
        Box::pin(async move { work.await.unwrap_or_else(|error| RoomEnd::Failed(error.to_string())) })
    }

    fn end<'a>(&'a self, session: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let Some(handle) = self.find(session) else { return };
            let reason = if handle.was_joined() { EndReason::Left } else { EndReason::Expired };
            if let Err(error) = self.host.tools.sessions.end(&handle, reason).await {
                tracing::error!(session, %error, "the end is not noted");
            }
        })
    }

    fn load(&self) -> f32 {
        self.host.tools.sessions.load(self.tenant())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_is_a_start_or_nothing() {
        let start = read(r#"{"greeting": "Hello from Acme."}"#).expect("fields of a start");
        assert_eq!(start.setup.greeting.as_deref(), Some("Hello from Acme."));
        for other in ["", "tell them about shoes", "[1]", "7"] {
            assert!(read(other).expect("nothing").setup.greeting.is_none(), "{other}");
        }
        assert!(read(r#"{"greeting": 7}"#).is_err());
    }
}
