//! API keys, and tokens made with them, in `Authorization`.

use std::ops::Deref;

use hyper::header::{AUTHORIZATION, HeaderValue};
use hyper::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::failure::Failure;
use super::limited;
use super::websocket::offered_protocols;
use crate::keys::{Identity, Permission, Verifier, public_id};
use crate::usage;

/// How clients authenticate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Accept `Authorization: Token KEY` beside `Bearer KEY`, as the SDKs of the wire format send it. Default
    /// true; with false, only the contract's own form. `Sec-WebSocket-Protocol: token, KEY` is accepted
    /// either way, as the contract requires.
    pub accept_token_scheme: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self { accept_token_scheme: true }
    }
}

/// How a key was presented: clients of the contract say `Bearer`, SDKs of the wire format `Token`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    Bearer,
    Token,
}

impl Scheme {
    /// RFC 9110, section 11.1: schemes are case-insensitive.
    fn named(name: &str) -> Option<Self> {
        match name {
            _ if name.eq_ignore_ascii_case("bearer") => Some(Self::Bearer),
            _ if name.eq_ignore_ascii_case("token") => Some(Self::Token),
            _ => None,
        }
    }
}

/// The caller of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    pub identity: Identity,
    pub scheme: Scheme,
}

impl Deref for Caller {
    type Target = Identity;

    fn deref(&self) -> &Identity {
        &self.identity
    }
}

impl Caller {
    /// The id by which the key is known outside.
    pub fn public_key(&self) -> Uuid {
        public_id::of_key(&self.key)
    }
}

impl Caller {
    /// # Errors
    /// 403 with the name of the scope.
    pub fn require(&self, permission: Permission) -> Result<(), Failure> {
        if self.scopes.allow(permission) { Ok(()) } else { Err(missing(permission)) }
    }

    /// # Errors
    /// 403 for a token.
    pub fn require_key(&self) -> Result<(), Failure> {
        if self.is_token { Err(needs_key()) } else { Ok(()) }
    }
}

/// Identifies callers by their keys. Cheap to clone.
#[derive(Clone)]
pub struct Authenticator {
    verifier: Verifier,
    config: Config,
}

impl Authenticator {
    pub fn new(verifier: Verifier, config: Config) -> Self {
        Self { verifier, config }
    }

    /// The keys that callers are identified by.
    pub fn keys(&self) -> &Verifier {
        &self.verifier
    }

    /// The caller that sent a request with these headers, and may use the server.
    ///
    /// # Errors
    /// As [`Self::holder`]; 403 without the scope `usage:write`; 429 beyond a limit of the key, if the request does work.
    pub async fn caller(&self, headers: &HeaderMap) -> Result<Caller, Failure> {
        let caller = self.holder(headers).await?;
        caller.require(Permission::UsageWrite)?;
        self.count(&caller)?;
        Ok(caller)
    }

    /// Counts a request that does work on the account of its key, once, until the request ends.
    ///
    /// # Errors
    /// 429 beyond a limit of the key.
    fn count(&self, caller: &Caller) -> Result<(), Failure> {
        let Some(ticket) = usage::current().filter(|ticket| !ticket.has_account()) else { return Ok(()) };
        match self.verifier.begin(&caller.identity, true) {
            Ok(None) => {}
            Ok(Some(permit)) => ticket.pays_from(limited::of_permit(permit)),
            Err(exceeded) => return Err(limited::refusal(&exceeded)),
        }
        Ok(())
    }

    /// Counts the start of a conversation, which takes place after its request, on the account of its key. The audio is
    /// charged to the same account later.
    ///
    /// # Errors
    /// As [`Self::caller`]; 429 beyond a limit of the key.
    pub async fn count_start(&self, headers: &HeaderMap) -> Result<(), Failure> {
        let caller = self.caller(headers).await?;
        self.verifier.begin(&caller.identity, false).map(drop).map_err(|exceeded| limited::refusal(&exceeded))
    }

    /// The caller that sent a request with these headers, by a key of this scope: tokens manage nothing.
    ///
    /// # Errors
    /// As [`Self::holder`]; 403 for a token, and without the scope.
    pub async fn manager(&self, headers: &HeaderMap, permission: Permission) -> Result<Caller, Failure> {
        let caller = self.holder(headers).await?;
        caller.require_key()?;
        caller.require(permission)?;
        Ok(caller)
    }

    /// The caller that sent a request with these headers, whatever its scopes.
    ///
    /// # Errors
    /// 401, the same whether the key is missing, malformed, unknown or expired; 500 if the keys cannot be read.
    pub async fn holder(&self, headers: &HeaderMap) -> Result<Caller, Failure> {
        match credentials(headers) {
            Some((scheme, key)) if scheme == Scheme::Bearer || self.config.accept_token_scheme => {
                self.verify(scheme, key).await
            }
            _ => Err(Failure::unauthorized()),
        }
    }

    /// As [`Self::caller`], of a WebSocket handshake, with the subprotocol to agree to. A browser cannot set headers
    /// there: it offers `token` or `bearer` as a subprotocol, and the key as another.
    ///
    /// # Errors
    /// As [`Self::caller`].
    pub async fn websocket_caller(
        &self,
        headers: &HeaderMap,
    ) -> Result<(Caller, Option<HeaderValue>), Failure> {
        let offered = offered_credentials(headers);
        let caller = match (&offered, headers.contains_key(AUTHORIZATION)) {
            // Here the contract itself uses `token`.
            (Some((scheme, _, key)), false) => self.verify(*scheme, key).await?,
            _ => self.holder(headers).await?,
        };
        caller.require(Permission::UsageWrite)?;
        self.count(&caller)?;
        // Clients fail if the server agrees to none of the subprotocols offered. The key is never sent back.
        let agreed = offered.and_then(|(_, name, _)| HeaderValue::from_str(name).ok());
        Ok((caller, agreed))
    }

    async fn verify(&self, scheme: Scheme, key: &str) -> Result<Caller, Failure> {
        match self.verifier.verify(key).await {
            Ok(Some(identity)) => {
                let caller = Caller { identity, scheme };
                usage::held_by(usage::Holder { tenant: caller.tenant, key: caller.public_key() });
                Ok(caller)
            }
            Ok(None) => Err(Failure::unauthorized()),
            Err(error) => Err(Failure::internal(error)),
        }
    }
}

/// The wire format's code, with the scope that it does not name.
fn missing(permission: Permission) -> Failure {
    let message =
        format!("User does not have sufficient permissions: the scope `{}` is missing.", permission.name());
    Failure::new(StatusCode::FORBIDDEN, "INSUFFICIENT_PERMISSIONS", message)
}

fn needs_key() -> Failure {
    let message = "User does not have sufficient permissions: a token cannot do this, use an API key.";
    Failure::new(StatusCode::FORBIDDEN, "INSUFFICIENT_PERMISSIONS", message)
}

/// The scheme and the key of the only `Authorization` field. If there are two, neither counts: a proxy in
/// front may have trusted the other one.
fn credentials(headers: &HeaderMap) -> Option<(Scheme, &str)> {
    let mut fields = headers.get_all(AUTHORIZATION).iter();
    let (Some(field), None) = (fields.next(), fields.next()) else { return None };
    let (scheme, key) = field.to_str().ok()?.trim().split_once(' ')?;
    Some((Scheme::named(scheme)?, key.trim_start()))
}

/// The scheme, its name as sent, and the key, from the subprotocols that a WebSocket handshake offers.
fn offered_credentials(headers: &HeaderMap) -> Option<(Scheme, &str, &str)> {
    let mut offered = offered_protocols(headers);
    let name = offered.next()?;
    Some((Scheme::named(name)?, name, offered.next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(fields: &[&str]) -> Option<(Scheme, String)> {
        let mut headers = HeaderMap::new();
        for field in fields {
            headers.append(AUTHORIZATION, field.parse().unwrap());
        }
        credentials(&headers).map(|(scheme, key)| (scheme, key.to_owned()))
    }

    #[test]
    fn schemes_have_no_case() {
        for field in ["Bearer k", "bearer k", "BEARER   k", " Bearer k "] {
            assert_eq!(read(&[field]), Some((Scheme::Bearer, "k".to_owned())), "{field}");
        }
        for field in ["Token k", "token k", "tOKEN k"] {
            assert_eq!(read(&[field]), Some((Scheme::Token, "k".to_owned())), "{field}");
        }
    }

    #[test]
    fn anything_else_is_nobody() {
        for fields in [
            &[][..],
            &[""],
            &["Bearer"],
            &["org_abc"],
            &["Basic b3JnOg=="],
            &["Bearertoken k"],
            &["Bearer\tk"],
            &["Bearer a", "Bearer b"],
        ] {
            assert_eq!(read(fields), None, "{fields:?}");
        }
    }
}
