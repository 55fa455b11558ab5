//! Rooms of a LiveKit server, with the agent as a participant of ours in them.
//!
//! ```text
//! start ─▶ CreateRoom ─▶ Participant ─ signalling (WebSocket, protobuf) ─▶ server ◀─ callers
//!                            │  ├─ publisher:  the agent's track, Opus;  data out
//!                            │  └─ subscriber: callers' tracks;          data in
//!                            ▼
//!                     a Seat for each caller ─▶ agent
//! ```
//! To the agent, a caller there is one like any other. The room is deleted when the session ends; where
//! the server closes it, or cannot be reached, the session ends and says why.

mod crypto;
mod data;
mod grant;
mod participant;
mod peer;
mod protocol;
mod signal;
mod sound;
mod tcp;

use std::sync::Arc;
use std::time::Duration;

use reqwest::header::CONTENT_TYPE;
use reqwest::{Client, Response};
use serde_json::{Value, json};
use url::Url;

use super::{Invitation, MediaState};
use crate::outbound;
use crate::secret::Secret;
use crate::sts::config;
use crate::sts::session::EndReason;
use crate::sts::sessions::{Live, now};
use crate::sts::{Error, Service};

/// For one call.
const TIMEOUT: Duration = Duration::from_secs(5);
const TOKEN_SECONDS_MAX: u64 = 900;
/// A client that missed the room's end joins again, and makes a room anew in which nobody is: that is
/// deleted as well.
const DELETIONS: u32 = 3;
const DELETION_PAUSE: Duration = Duration::from_secs(2);

#[derive(Debug, thiserror::Error)]
pub enum LiveKitError {
    #[error("`sts.livekit.url` is no address: it should be like wss://media.example")]
    Address,
    #[error("`sts.livekit.url` is set, and `sts.livekit.api_key` or `sts.livekit.api_secret` is not")]
    Account,
    #[error("cannot set up the HTTP client")]
    Client(#[from] reqwest::Error),
}

/// Who we are at the server.
struct Account {
    key: String,
    secret: Secret,
}

/// Cheap handle; clones are one.
#[derive(Clone)]
pub struct LiveKit(Arc<Inner>);

struct Inner {
    /// `http` or `https`.
    url: Url,
    client_url: String,
    account: Account,
    client: Client,
}

/// Why the server did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
enum CallError {
    #[error("the LiveKit server cannot be reached")]
    Unreachable(#[source] reqwest::Error),
    #[error("the LiveKit server refused a call: status {status}")]
    Refused { status: u16 },
}

/// `ws` is `http` to those who call, and the other way round to those who join.
fn with_scheme(url: &str, web: bool) -> Result<Url, LiveKitError> {
    let mut url = Url::parse(url).map_err(|_| LiveKitError::Address)?;
    let scheme = match (url.scheme(), web) {
        ("ws" | "http", true) => "http",
        ("wss" | "https", true) => "https",
        ("ws" | "http", false) => "ws",
        ("wss" | "https", false) => "wss",
        _ => return Err(LiveKitError::Address),
    };
    url.set_scheme(scheme).map_err(|()| LiveKitError::Address)?;
    if url.host_str().is_none() || url.cannot_be_a_base() {
        return Err(LiveKitError::Address);
    }
    Ok(url)
}

impl LiveKit {
    /// None where none is configured.
    ///
    /// # Errors
    /// [`LiveKitError`].
    pub fn open(config: &config::LiveKit) -> Result<Option<Self>, LiveKitError> {
        let Some(url) = &config.url else { return Ok(None) };
        let (Some(key), Some(secret)) = (&config.api_key, &config.api_secret) else {
            return Err(LiveKitError::Account);
        };
        let client_url = with_scheme(config.client_url.as_ref().unwrap_or(url), false)?;
        let inner = Inner {
            url: with_scheme(url, true)?,
            client_url: client_url.as_str().trim_end_matches('/').to_owned(),
            account: Account { key: key.clone(), secret: secret.clone() },
            client: outbound::http1_client()?,
        };
        Ok(Some(Self(Arc::new(inner))))
    }

    /// What a caller joins with.
    pub fn invite(&self, room: &str, seconds: u64) -> Invitation {
        let identity = format!("web-{:08x}", rand::random::<u32>());
        let seconds = seconds.min(TOKEN_SECONDS_MAX);
        let token = self.0.account.caller(room, &identity, now() / 1000, seconds);
        Invitation { url: self.0.client_url.clone(), token, identity }
    }

    /// Makes a session's room and sends the agent there, beside everything else. Where the room cannot be
    /// made, the session is over.
    ///
    /// # Errors
    /// [`Error::MediaServer`].
    pub async fn begin(&self, service: &Arc<Service>, live: &Arc<Live>) -> Result<(), Error> {
        if let Err(error) = self.create_room(service, &live.room_name).await {
            tracing::error!(
                session = live.id,
                error = &error as &dyn std::error::Error,
                "the room could not be made"
            );
            live.room.set_media(MediaState::Failed(error.to_string()));
            service.sessions.end(live, EndReason::RoomFailed).await?;
            return Err(Error::MediaServer);
        }
        live.room.set_media(MediaState::Connecting);
        let stop = service.stop.clone();
        let (livekit, service, live) = (self.clone(), service.clone(), live.clone());
        service.tasks.clone().spawn(async move {
            let stay = async {
                participant::run(&livekit, &service, &live).await;
                let (id, room) = (live.id.clone(), live.room_name.clone());
                // The session is freed before its room has gone.
                drop(live);
                for _ in 0..DELETIONS {
                    if let Err(error) = livekit.delete_room(&room).await {
                        // It closes by itself when it is empty.
                        let error: &dyn std::error::Error = &error;
                        tracing::warn!(session = id, error, "the room is not deleted");
                    }
                    tokio::time::sleep(DELETION_PAUSE).await;
                }
            };
            tokio::select! {
                // The room stays: the agent comes back to it.
                () = stop.cancelled() => {}
                () = stay => {}
            }
        });
        Ok(())
    }

    async fn create_room(&self, service: &Service, room: &str) -> Result<(), CallError> {
        let config = &service.config;
        let body = json!({
            "name": room, "empty_timeout": config.idle_seconds, "departure_timeout": config.rejoin_seconds,
            "max_participants": super::PARTICIPANTS_MAX + 1,
        });
        self.call("CreateRoom", &body).await.map(|_| ())
    }

    async fn delete_room(&self, room: &str) -> Result<(), CallError> {
        match self.call("DeleteRoom", &json!({ "room": room })).await {
            Err(CallError::Refused { status: 404 }) => Ok(()),
            other => other.map(|_| ()),
        }
    }

    async fn has_room(&self, room: &str) -> Result<bool, CallError> {
        let response = self.call("ListRooms", &json!({ "names": [room] })).await?;
        let found = outbound::read_json(response).await;
        Ok(found.is_some_and(|found| {
            found.get("rooms").and_then(Value::as_array).is_some_and(|rooms| !rooms.is_empty())
        }))
    }

    /// Twirp: a call is a POST of JSON.
    async fn call(&self, method: &str, body: &Value) -> Result<Response, CallError> {
        let url = self.address(&format!("twirp/livekit.RoomService/{method}"));
        let request = self
            .0
            .client
            .post(url)
            .bearer_auth(self.0.account.rooms(now() / 1000))
            .header(CONTENT_TYPE, "application/json")
            .timeout(TIMEOUT)
            .body(body.to_string());
        let response = request.send().await.map_err(CallError::Unreachable)?;
        let status = response.status();
        if status.is_success() { Ok(response) } else { Err(CallError::Refused { status: status.as_u16() }) }
    }

    /// Below the configured address, which may have a path.
    fn address(&self, path: &str) -> Url {
        let mut url = self.0.url.clone();
        url.set_path(&format!("{}/{path}", url.path().trim_end_matches('/')));
        url
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_taken_as_users_write_them() {
        for (url, web, joined) in [
            ("ws://127.0.0.1:7880", "http://127.0.0.1:7880/", "ws://127.0.0.1:7880/"),
            ("https://media.example/lk", "https://media.example/lk", "wss://media.example/lk"),
            ("wss://media.example", "https://media.example/", "wss://media.example/"),
        ] {
            assert_eq!(with_scheme(url, true).unwrap().as_str(), web);
            assert_eq!(with_scheme(url, false).unwrap().as_str(), joined);
        }
        for url in ["", "media.example", "ftp://media.example", "127.0.0.1:7880"] {
            assert!(with_scheme(url, true).is_err(), "{url}");
        }
    }

    #[test]
    fn an_address_without_an_account_is_an_error_and_nothing_is_none() {
        assert!(LiveKit::open(&config::LiveKit::default()).unwrap().is_none());
        let config = config::LiveKit { url: Some("ws://127.0.0.1:1".into()), ..config::LiveKit::default() };
        assert!(matches!(LiveKit::open(&config), Err(LiveKitError::Account)));
    }
}
