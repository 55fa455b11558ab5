//! Who may call the service directly. The contract does not show it: its clients send no key.

use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, HeaderValue, SEC_WEBSOCKET_PROTOCOL};

use super::config::Auth;
use crate::http::{Authenticator, Failure};

/// The organisation of those who show no key.
const LOCAL: u64 = 0;

pub struct Access {
    authenticator: Authenticator,
    is_open: bool,
}

impl Access {
    pub fn new(authenticator: Authenticator, auth: Auth, is_loopback: bool) -> Self {
        if auth == Auth::Off && !is_loopback {
            tracing::warn!("sts.auth is off on a public address: anybody may start and steer sessions");
        }
        let is_open = match auth {
            Auth::Auto => is_loopback,
            Auth::Required => false,
            Auth::Off => true,
        };
        Self { authenticator, is_open }
    }

    /// The organisation that a request is made for. A key that is shown counts even where none is
    /// needed.
    ///
    /// # Errors
    /// 401.
    pub async fn tenant(&self, headers: &HeaderMap) -> Result<u64, Failure> {
        if self.is_open && !headers.contains_key(AUTHORIZATION) {
            return Ok(LOCAL);
        }
        Ok(self.authenticator.caller(headers).await?.tenant)
    }

    /// As [`Self::tenant`], for a WebSocket; with the subprotocol to agree to.
    ///
    /// # Errors
    /// 401.
    pub async fn websocket_tenant(&self, headers: &HeaderMap) -> Result<(u64, Option<HeaderValue>), Failure> {
        let shows_key = headers.contains_key(AUTHORIZATION) || headers.contains_key(SEC_WEBSOCKET_PROTOCOL);
        if self.is_open && !shows_key {
            return Ok((LOCAL, None));
        }
        let (caller, agreed) = self.authenticator.websocket_caller(headers).await?;
        Ok((caller.tenant, agreed))
    }
}
