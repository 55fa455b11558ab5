//! The backend behind the routes: its key, the records, the guesses and the voice-agent service.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use hyper::StatusCode;
use hyper::header::{HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use super::config::{Config, base_url};
use super::error::Error;
use super::guesses::Guesses;
use super::records::Records;
use super::reply::Refusal;
use super::sessions::Sessions;
use super::visits::Visits;
use super::voice_service::VoiceService;
use crate::http::Failure;
use crate::secret::Secret;

const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// The state that the routes share.
pub struct Demo {
    pub(super) config: Config,
    pub(super) key: Secret,
    pub(super) frontend: String,
    pub(super) records: Records,
    pub(super) guesses: Guesses,
    pub(super) visits: Visits,
    pub(super) sessions: Sessions,
    pub(super) voice: VoiceService,
}

impl Demo {
    /// # Errors
    /// [`Error`]
    pub fn new(config: &Config) -> Result<Arc<Self>, Error> {
        let key = config.key()?;
        config.check()?;
        Ok(Arc::new(Self {
            key,
            frontend: base_url("demo.frontend_base_url", &config.frontend_base_url)?,
            records: Records::open(config.records.as_deref())?,
            guesses: Guesses::default(),
            visits: Visits::default(),
            sessions: Sessions::default(),
            voice: VoiceService::new(config)?,
            config: config.clone(),
        }))
    }

    /// # Errors
    /// 401 unless the headers contain the key exactly once. Hashes are compared, so the time taken reveals nothing.
    pub(super) fn authorize(&self, headers: &HeaderMap) -> Result<(), Failure> {
        let mut keys = headers.get_all(X_API_KEY).iter();
        let is_known = match (keys.next(), keys.next()) {
            (Some(key), None) => {
                Sha256::digest(key.as_bytes()).ct_eq(&Sha256::digest(self.key.expose().as_bytes())).into()
            }
            _ => false,
        };
        if is_known {
            return Ok(());
        }
        Err(Failure::new(StatusCode::UNAUTHORIZED, "INVALID_AUTH", "`X-API-Key` is missing or wrong."))
    }

    /// Checks that the voice service has a session, so that guesses for invented sessions don't count.
    ///
    /// # Errors
    /// The service's: 404 if it has no session of that id.
    pub(super) async fn expect(&self, session_id: &str) -> Result<(), Refusal> {
        if !self.sessions.has(session_id) {
            self.status(session_id).await?;
        }
        Ok(())
    }

    /// The voice service's status of a session.
    ///
    /// # Errors
    /// As [`Self::expect`].
    pub(super) async fn status(&self, session_id: &str) -> Result<Value, Refusal> {
        let status = self.voice.act(&json!({"action": "status", "session_id": session_id})).await?;
        self.sessions.insert(session_id);
        Ok(status)
    }

    /// The record that `look` finds for credentials sent in a session from an address, unless the session or the address has
    /// sent too many wrong ones.
    ///
    /// # Errors
    /// 429.
    pub(super) fn prove<T>(
        &self,
        session_id: &str,
        address: Option<IpAddr>,
        look: impl FnOnce(&Records) -> Option<T>,
    ) -> Result<Option<T>, Failure> {
        self.guesses.begin(session_id, address, Instant::now()).map_err(|wait| {
            let message = "There were too many attempts that were wrong.";
            Failure::new(StatusCode::TOO_MANY_REQUESTS, "TOO_MANY_ATTEMPTS", message)
                .header(RETRY_AFTER, HeaderValue::from(wait.as_secs() + 1))
        })?;
        let found = look(&self.records);
        if found.is_some() {
            self.guesses.was_right(session_id);
        }
        Ok(found)
    }
}
