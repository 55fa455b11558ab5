//! The client of a LiveKit server: its room service, and invitations for callers.

use std::sync::Arc;
use std::time::Duration;

use reqwest::header::CONTENT_TYPE;
use reqwest::{Client, Response};
use serde::Serialize;
use serde_json::Value;
use url::Url;

use super::grant::Account;
use super::webhook::{self, WebhookError};
use crate::clock::now;
use crate::outbound;
use crate::room::config::{Config, Relay};
use crate::room::reception::{Invitation, News, RoomLimits};

/// Time limit for one call.
pub const TIMEOUT: Duration = Duration::from_secs(5);
const TOKEN_SECONDS_MAX: u64 = 900;
/// How often the room of an ended session is deleted, and the pause in between.
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

/// Cheap handle; clones share the server.
#[derive(Clone)]
pub struct LiveKit(Arc<Inner>);

struct Inner {
    /// `http` or `https`.
    url: Url,
    client_url: String,
    account: Account,
    relay: Relay,
    client: Client,
}

/// Why a call of the room service failed.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    #[error("the LiveKit server cannot be reached")]
    Unreachable(#[source] reqwest::Error),
    #[error("the LiveKit server refused a call: status {status}")]
    Refused { status: u16 },
}

/// Calls need an `http` address and participants a `ws` address, whichever is configured.
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

#[derive(Serialize)]
struct CreateRoom<'a> {
    /// Seconds after the last participant left.
    departure_timeout: u64,
    /// Seconds without participants before anyone has joined.
    empty_timeout: u64,
    max_participants: usize,
    name: &'a str,
}

/// Of `DeleteRoom` and `ListParticipants`.
#[derive(Serialize)]
struct OneRoom<'a> {
    room: &'a str,
}

#[derive(Serialize)]
struct ListRooms<'a> {
    names: [&'a str; 1],
}

impl LiveKit {
    /// None if none is configured.
    ///
    /// # Errors
    /// [`LiveKitError`].
    pub fn open(config: &Config) -> Result<Option<Self>, LiveKitError> {
        let Some(url) = &config.url else { return Ok(None) };
        let (Some(key), Some(secret)) = (&config.api_key, &config.api_secret) else {
            return Err(LiveKitError::Account);
        };
        let client_url = with_scheme(config.client_url.as_ref().unwrap_or(url), false)?;
        let inner = Inner {
            url: with_scheme(url, true)?,
            client_url: client_url.as_str().trim_end_matches('/').to_owned(),
            account: Account { key: key.clone(), secret: secret.clone() },
            relay: config.relay,
            client: outbound::http1_client()?,
        };
        Ok(Some(Self(Arc::new(inner))))
    }

    /// Invites a caller to a room. The token is valid for `seconds`, at most 15 minutes.
    pub fn invite(&self, room: &str, seconds: u64) -> Invitation {
        let identity = format!("web-{:08x}", rand::random::<u32>());
        let seconds = seconds.min(TOKEN_SECONDS_MAX);
        let token = self.0.account.caller(room, &identity, now() / 1000, seconds);
        Invitation { url: self.0.client_url.clone(), token, identity }
    }

    /// Invites someone to listen in on a room, unseen. The token is valid for `seconds`, at most 15 minutes.
    pub fn observer(&self, room: &str, seconds: u64) -> Invitation {
        let identity = format!("observer-{:08x}", rand::random::<u32>());
        let token = self.0.account.observer(room, &identity, now() / 1000, seconds.min(TOKEN_SECONDS_MAX));
        Invitation { url: self.0.client_url.clone(), token, identity }
    }

    pub fn client(&self) -> &Client {
        &self.0.client
    }

    /// The address of the room service.
    pub fn url(&self) -> &Url {
        &self.0.url
    }

    pub fn relay(&self) -> Relay {
        self.0.relay
    }

    pub fn account(&self) -> &Account {
        &self.0.account
    }

    /// # Errors
    /// [`CallError`].
    pub async fn create_room(&self, room: &str, limits: &RoomLimits) -> Result<(), CallError> {
        let body = CreateRoom {
            name: room,
            empty_timeout: limits.idle_seconds,
            departure_timeout: limits.rejoin_seconds,
            max_participants: limits.participants_max,
        };
        self.call("CreateRoom", &body).await.map(|_| ())
    }

    /// Deletes the room of a session that is over. It is deleted several times: a client that missed its end joins
    /// again and thereby creates an empty room of the same name.
    pub async fn delete_room(&self, session: &str, room: &str) {
        for _ in 0..DELETIONS {
            match self.call("DeleteRoom", &OneRoom { room }).await {
                Ok(_) | Err(CallError::Refused { status: 404 }) => {}
                Err(error) => {
                    // It closes by itself once it is empty.
                    let error: &dyn std::error::Error = &error;
                    tracing::warn!(session, error, "the room is not deleted");
                }
            }
            tokio::time::sleep(DELETION_PAUSE).await;
        }
    }

    /// # Errors
    /// [`CallError`].
    pub async fn has_room(&self, room: &str) -> Result<bool, CallError> {
        let response = self.call("ListRooms", &ListRooms { names: [room] }).await?;
        let found = outbound::read_json(response).await;
        Ok(found.is_some_and(|found| {
            found.get("rooms").and_then(Value::as_array).is_some_and(|rooms| !rooms.is_empty())
        }))
    }

    /// Whether a caller is in a room: a participant who is neither an agent nor hidden.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn has_callers(&self, room: &str) -> Result<bool, CallError> {
        let token = self.0.account.admin(room, now() / 1000);
        let response = match self.call_with(token, "ListParticipants", &OneRoom { room }).await {
            Err(CallError::Refused { status: 404 }) => return Ok(false),
            response => response?,
        };
        let found = outbound::read_json(response).await.unwrap_or_default();
        let all = found.get("participants").and_then(Value::as_array);
        let is_caller = |participant: &Value| {
            let kind = participant.get("kind").and_then(Value::as_str).unwrap_or("STANDARD");
            let is_hidden = participant.pointer("/permission/hidden") == Some(&Value::Bool(true));
            let is_gone = participant.get("state").and_then(Value::as_str) == Some("DISCONNECTED");
            ["STANDARD", "SIP"].contains(&kind) && !is_hidden && !is_gone
        };
        Ok(all.is_some_and(|all| all.iter().any(is_caller)))
    }

    /// The event of a webhook with this `Authorization`; none if it is of no interest.
    ///
    /// # Errors
    /// [`WebhookError`].
    pub fn webhook(&self, authorization: &str, body: &[u8]) -> Result<Option<News>, WebhookError> {
        webhook::read(&self.0.account, authorization, body, now() / 1000)
    }

    async fn call(&self, method: &str, body: &impl Serialize) -> Result<Response, CallError> {
        self.call_with(self.0.account.rooms(now() / 1000), method, body).await
    }

    /// Calls a method by Twirp: a POST of JSON.
    async fn call_with(
        &self,
        token: String,
        method: &str,
        body: &impl Serialize,
    ) -> Result<Response, CallError> {
        let body = serde_json::to_vec(body).expect("names are strings and numbers finite; this is a bug");
        let url = self.address(&format!("twirp/livekit.RoomService/{method}"));
        let request = self
            .0
            .client
            .post(url)
            .bearer_auth(token)
            .header(CONTENT_TYPE, "application/json")
            .timeout(TIMEOUT)
            .body(body);
        let response = request.send().await.map_err(CallError::Unreachable)?;
        let status = response.status();
        if status.is_success() { Ok(response) } else { Err(CallError::Refused { status: status.as_u16() }) }
    }

    /// The address of `path` below the configured address, which may have a path itself.
    pub fn address(&self, path: &str) -> Url {
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
        assert!(LiveKit::open(&Config::default()).unwrap().is_none());
        let config = Config { url: Some("ws://127.0.0.1:1".into()), ..Config::default() };
        assert!(matches!(LiveKit::open(&config), Err(LiveKitError::Account)));
    }
}
