//! Client secrets: what a server gives to a browser instead of its key, with the settings of the session.
//!
//! ```text
//! ek_ TOKEN                       a token of the server's (see `/v1/auth/grant`)
//! ek_ TOKEN . base64url(session)  with settings, which the session begins with
//! ```
//! The settings are not signed: whoever has a secret may change them by an update as well.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use data_encoding::BASE64URL_NOPAD;
use hyper::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::event::id;
use super::request::{self, Invalid};
use super::settings::Settings;
use super::{shape, update};
use crate::api::openai::error::{caused_by, invalid};
use crate::api::{Services, json_body};
use crate::http::{Failure, Request, Response, json};
use crate::keys::{Identity, TTL_MAX};
use crate::registry::Loaded;

const PREFIX: &str = "ek_";
/// The segments of a token.
const TOKEN_SEGMENTS: usize = 3;
/// Seconds for which a secret is valid: OpenAI's default and its least. A secret is a token, which lasts an hour at most.
const SECONDS_DEFAULT: u64 = 600;
const SECONDS: std::ops::RangeInclusive<u64> = 10..=TTL_MAX.as_secs();
/// Longer settings are refused: a secret must fit into a header.
const SESSION_BYTES_MAX: usize = 8 << 10;

/// The body of `POST /v1/realtime/client_secrets`.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct Asked {
    expires_after: Option<Expiry>,
    session: Option<Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Expiry {
    anchor: Option<String>,
    seconds: Option<u64>,
}

#[derive(Serialize)]
struct Made {
    value: String,
    /// Unix time in seconds.
    expires_at: u64,
    session: shape::Session,
}

/// `POST /v1/realtime/client_secrets`.
pub async fn client_secret(services: Arc<Services>, request: Request) -> Result<Response, Failure> {
    let holder = holder(&services, &request).await?;
    let asked: Asked = json_body::read(request.body, holder.tenant).await?.unwrap_or_default();
    let (settings, kept) = match asked.session {
        Some(session) => configured(&services, "session.update", session).await?,
        None => (Settings::new(None), None),
    };
    let (value, expires_at) = grant(&services, &holder, asked.expires_after, kept)?;
    let session = settings.shown(&id("sess"), false, &services.models.default().model().name);
    Ok(json(StatusCode::OK, &Made { value, expires_at, session }))
}

/// `POST /v1/realtime/transcription_sessions`: the beta's way, with the session itself as the body.
pub async fn transcription_session(services: Arc<Services>, request: Request) -> Result<Response, Failure> {
    let holder = holder(&services, &request).await?;
    let mut session: Value =
        json_body::read(request.body, holder.tenant).await?.unwrap_or_else(|| serde_json::json!({}));
    let expiry = session.as_object_mut().and_then(|members| members.remove("client_secret"));
    let expiry = expiry.as_ref().map(|secret| &secret["expires_at"]).filter(|expiry| !expiry.is_null());
    let expiry = expiry.map(Expiry::deserialize).transpose().map_err(|_| {
        invalid("client_secret.expires_at", "`expires_at` must be an object with `anchor` and `seconds`.")
    })?;
    let (settings, kept) = configured(&services, "transcription_session.update", session).await?;
    let (value, expires_at) = grant(&services, &holder, expiry, kept)?;
    let mut session = settings.shown(&id("sess"), true, &services.models.default().model().name);
    if let shape::Session::Beta(beta) = &mut session {
        beta.client_secret = Some(shape::ClientSecret { value, expires_at });
    }
    Ok(json(StatusCode::OK, &session))
}

/// The holder of the key that secrets are made with.
///
/// # Errors
/// 401; 403 for a token, which would otherwise last for ever.
async fn holder(services: &Services, request: &Request) -> Result<Identity, Failure> {
    let caller = services.authenticator.caller(&request.headers).await?;
    caller.require_key()?;
    Ok(caller.identity)
}

/// The settings that an update of this kind makes, and the update for the secret.
///
/// # Errors
/// 400.
async fn configured(
    services: &Services,
    kind: &str,
    session: Value,
) -> Result<(Settings, Option<String>), Failure> {
    let update = serde_json::json!({"type": kind, "session": session}).to_string();
    if update.len() > SESSION_BYTES_MAX {
        let message =
            format!("The session is longer than {SESSION_BYTES_MAX} bytes: set its prompt by an update.");
        return Err(invalid("session", message));
    }
    let model = services.models.default().clone();
    let (settings, _) = settings(services, Settings::new(None), model, Some(&update)).await?;
    Ok((settings, Some(update)))
}

fn failure(invalid: Invalid) -> Failure {
    let Invalid { code, param, message } = invalid;
    caused_by(param.unwrap_or("session"), Failure::new(StatusCode::BAD_REQUEST, code, message))
}

/// A secret, and when it expires: at the latest when the key does.
fn grant(
    services: &Services,
    holder: &Identity,
    expiry: Option<Expiry>,
    update: Option<String>,
) -> Result<(String, u64), Failure> {
    let Expiry { anchor, seconds } = expiry.unwrap_or(Expiry { anchor: None, seconds: None });
    if anchor.is_some_and(|anchor| anchor != "created_at") {
        return Err(invalid("expires_after.anchor", "`anchor` must be `created_at`."));
    }
    let seconds = seconds.unwrap_or(SECONDS_DEFAULT);
    if !SECONDS.contains(&seconds) {
        let message = format!("`seconds` must be from {} to {}.", SECONDS.start(), SECONDS.end());
        return Err(invalid("expires_after.seconds", message));
    }
    let granted = services.authenticator.keys().grant(holder, Duration::from_secs(seconds));
    let expires = SystemTime::now() + granted.ttl;
    let expires_at = expires.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let kept = update.map(|update| format!(".{}", BASE64URL_NOPAD.encode(update.as_bytes())));
    Ok((format!("{PREFIX}{}{}", granted.token, kept.unwrap_or_default()), expires_at))
}

/// The token of a secret, and the text of the update in it; `None` if `key` is no secret.
pub fn parts(key: &str) -> Option<(&str, Option<String>)> {
    let secret = key.strip_prefix(PREFIX)?;
    let Some((end, _)) = secret.match_indices('.').nth(TOKEN_SEGMENTS - 1) else {
        return Some((secret, None));
    };
    let update = BASE64URL_NOPAD.decode(&secret.as_bytes()[end + 1..]).ok()?;
    Some((&secret[..end], Some(String::from_utf8(update).ok()?)))
}

/// `settings` and the model of a session whose secret has this update.
///
/// # Errors
/// 400 if they are not valid here.
pub async fn settings(
    services: &Services,
    mut settings: Settings,
    model: Loaded,
    update: Option<&str>,
) -> Result<(Settings, Loaded), Failure> {
    let Some(text) = update else { return Ok((settings, model)) };
    let event = request::Request::read(text).event.map_err(failure)?;
    let request::Event::Update(update) = event else { return Ok((settings, model)) };
    let model = update::chosen(services, update.model(), &model).await.map_err(failure)?;
    update::update(services, &model, &mut settings, &update).map_err(failure)?;
    Ok((settings, model))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_a_token_and_an_update() {
        assert_eq!(parts("org_abc"), None);
        assert_eq!(parts("ek_a.b.c"), Some(("a.b.c", None)));
        let update = BASE64URL_NOPAD.encode(b"{}");
        assert_eq!(parts(&format!("ek_a.b.c.{update}")), Some(("a.b.c", Some("{}".to_owned()))));
        assert_eq!(parts("ek_a.b.c.!"), None);
        assert_eq!(parts("ek_"), Some(("", None)));
    }
}
