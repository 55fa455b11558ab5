//! Access to the service without a key, for the contract's clients, which send none. The configuration has to allow
//! it.
//!
//! No header reveals reliably whether a proxy stands before a server on loopback: by default, proxies forward
//! requests under the server's own name and do not mention the client. So keys are required by default.

use hyper::header::{
    AUTHORIZATION, FORWARDED, HeaderMap, HeaderName, HeaderValue, SEC_WEBSOCKET_PROTOCOL, VIA,
};

use uuid::Uuid;

use super::config::Auth;
use crate::http::{Authenticator, Failure, Request, authority, limited};
use crate::usage::Account;

/// The tenant of callers without a key.
const LOCAL: u64 = 0;

/// Prefixes of headers that proxies add, besides `Forwarded` and `Via`.
const FORWARDED_BY: [&str; 5] =
    ["x-forwarded-", "x-real-ip", "x-client-ip", "cf-connecting-", "true-client-ip"];

pub struct Access {
    authenticator: Authenticator,
    open: Open,
}

/// Callers that need no key.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Open {
    None,
    /// Programs on this machine that address it by a loopback name. Pages of other origins whose name resolves to
    /// this machine do not count.
    Local,
    All,
}

impl Access {
    pub fn new(authenticator: Authenticator, auth: Auth, is_loopback: bool) -> Self {
        let open = match auth {
            Auth::Loopback if is_loopback => Open::Local,
            Auth::Loopback | Auth::Required => Open::None,
            Auth::Off => Open::All,
        };
        match open {
            Open::None => {}
            Open::Local => tracing::warn!(
                "sts.auth is loopback: every program on this machine may start and steer sessions of the voice \
                 agent without a key (POST /STS/interactiveAgent, POST /api/livekit/sts, GET \
                 /v1/agent/converse); a proxy before this port would pass that on to all its clients"
            ),
            Open::All => tracing::warn!(
                "sts.auth is off: everyone who reaches this server may start and steer sessions of the voice \
                 agent without a key"
            ),
        }
        Self { authenticator, open }
    }

    /// # Errors
    /// 403 for a page of another origin that would need no key.
    fn is_open(&self, request: &Request) -> Result<bool, Failure> {
        let is_open = match self.open {
            Open::None => false,
            Open::Local => {
                authority::is_loopback(&request.headers, &request.uri) && !is_forwarded(&request.headers)
            }
            Open::All => true,
        };
        if is_open && request.is_foreign { Err(Failure::foreign_origin()) } else { Ok(is_open) }
    }

    /// The tenant of a request. A key counts even if none is needed.
    ///
    /// # Errors
    /// 401, 403.
    pub async fn tenant(&self, request: &Request) -> Result<u64, Failure> {
        Ok(self.caller(request).await?.0)
    }

    /// As [`Self::tenant`], with the public id of the key, if one is shown.
    ///
    /// # Errors
    /// 401, 403.
    pub async fn caller(&self, request: &Request) -> Result<(u64, Option<Uuid>), Failure> {
        if !request.headers.contains_key(AUTHORIZATION) && self.is_open(request)? {
            return Ok((LOCAL, None));
        }
        let caller = self.authenticator.caller(&request.headers).await?;
        Ok((caller.tenant, Some(caller.public_key())))
    }

    /// Counts the start of a session on the account of its key.
    ///
    /// # Errors
    /// 429 beyond a limit of the key.
    pub async fn count_start(&self, headers: &HeaderMap) -> Result<(), Failure> {
        match headers.contains_key(AUTHORIZATION) {
            true => self.authenticator.count_start(headers).await,
            // Whoever needs no key has no limits.
            false => Ok(()),
        }
    }

    /// The account that a stay in a session of the key with this public id is charged to, if that has limits.
    pub fn account(&self, key: Uuid) -> Option<Box<dyn Account>> {
        limited::account_of_key(self.authenticator.keys(), key)
    }

    /// Like [`Self::tenant`], for a WebSocket, with the subprotocol to agree to.
    ///
    /// # Errors
    /// 401, 403.
    pub async fn websocket_tenant(&self, request: &Request) -> Result<(u64, Option<HeaderValue>), Failure> {
        let headers = &request.headers;
        let shows_key = headers.contains_key(AUTHORIZATION) || headers.contains_key(SEC_WEBSOCKET_PROTOCOL);
        if !shows_key && self.is_open(request)? {
            return Ok((LOCAL, None));
        }
        let (caller, agreed) = self.authenticator.websocket_caller(headers).await?;
        Ok((caller.tenant, agreed))
    }
}

/// Whether a proxy says that it forwarded the request.
fn is_forwarded(headers: &HeaderMap) -> bool {
    let says_so = |name: &HeaderName| {
        *name == FORWARDED || *name == VIA || FORWARDED_BY.iter().any(|by| name.as_str().starts_with(by))
    };
    headers.keys().any(says_so)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxies_that_say_so_are_believed() {
        let is_forwarded = |name: &str| {
            super::is_forwarded(
                &[(name.parse().unwrap(), HeaderValue::from_static("x"))].into_iter().collect(),
            )
        };
        for name in [
            "forwarded",
            "via",
            "x-forwarded-for",
            "x-forwarded-host",
            "x-forwarded-proto",
            "x-forwarded-port",
            "x-real-ip",
            "x-client-ip",
            "cf-connecting-ip",
            "cf-connecting-ipv6",
            "true-client-ip",
        ] {
            assert!(is_forwarded(name), "{name}");
        }
        for name in ["host", "accept", "user-agent", "content-type", "x-request-id"] {
            assert!(!is_forwarded(name), "{name}");
        }
    }
}
