//! `GET /v1/realtime` with an upgrade: transcription sessions of OpenAI's Realtime API
//! (<https://developers.openai.com/api/docs/guides/realtime-transcription>).
//!
//! ```text
//! text message ─ request ─ connection ─┬─ settings ─ shape        session.updated
//!                                      └─ live::Session ─ items ─ event
//!                                                          transcript
//! ```
//!
//! [live streaming]: crate::live
#![doc = include_str!("README.md")]

mod connection;
mod event;
mod items;
mod request;
mod settings;
mod shape;
mod transcript;

use std::sync::Arc;

use hyper::HeaderMap;
use hyper::StatusCode;
use hyper::header::{AUTHORIZATION, HeaderName, HeaderValue};
use url::form_urlencoded;

use crate::api::{Services, State, error};
use crate::engine::TenantId;
use crate::http::websocket::{self, Limits, offered_protocols};
use crate::http::{Caller, Failure, Request, Response};
use crate::patience::Deadline;
use connection::{Asked, Connection};
use settings::Settings;

/// The subprotocol that browsers offer beside their key.
const PROTOCOL: &str = "realtime";
/// The subprotocol whose rest is a key.
const KEY_PROTOCOL: &str = "openai-insecure-api-key.";
const BETA_PROTOCOL: &str = "openai-beta.realtime-v1";
const BETA_HEADER: HeaderName = HeaderName::from_static("openai-beta");
const BETA: &str = "realtime=v1";

pub async fn realtime(services: Arc<Services>, request: Request) -> Result<Response, Failure> {
    let (caller, protocol) = caller(&services, &request.headers).await?;
    let model = query(request.uri.query().unwrap_or_default())?;
    if services.readiness.state() == State::Draining {
        return Err(error::stopping());
    }
    let deadline = Deadline::after(services.processing_timeout);
    let served = services.models.choose(model.as_deref(), Some(deadline)).await?;
    let live = served.live();
    let permit = live.admit(TenantId(caller.tenant))?;
    let message_bytes_max = live.config().realtime_message_bytes_max;
    let limits = Limits { frame_bytes_max: message_bytes_max, message_bytes_max };
    let is_beta = is_beta(&request.headers);
    // Boxed: a task is sized for the largest value it ever holds, and idle sessions would pay for it.
    let asked = Box::new(Asked {
        permit,
        tenant: caller.tenant,
        is_beta,
        settings: Settings::new(model),
        model: served,
    });
    let shared = services.clone();
    let serve = async move |socket, stop| {
        let connection = Box::new(Connection::new(socket, shared, *asked));
        connection.run(stop).await;
    };
    websocket::accept(request, limits, protocol, serve)
}

/// The caller, and the subprotocol to agree to: a browser sets no header, and offers its key as a subprotocol.
///
/// # Errors
/// 401.
async fn caller(services: &Services, headers: &HeaderMap) -> Result<(Caller, Option<HeaderValue>), Failure> {
    let offers = |wanted: &str| offered_protocols(headers).any(|protocol| protocol == wanted);
    let key = offered_protocols(headers).find_map(|protocol| protocol.strip_prefix(KEY_PROTOCOL));
    let agreed = offers(PROTOCOL).then(|| HeaderValue::from_static(PROTOCOL));
    if let (Some(key), false) = (key, headers.contains_key(AUTHORIZATION)) {
        let mut named = HeaderMap::new();
        // A header's value has come in a header, so it may stand in one.
        if let Ok(value) = HeaderValue::from_str(&format!("Bearer {key}")) {
            named.insert(AUTHORIZATION, value);
        }
        return Ok((services.authenticator.caller(&named).await?, agreed));
    }
    let (caller, other) = services.authenticator.websocket_caller(headers).await?;
    Ok((caller, agreed.or(other)))
}

/// The model in the address.
///
/// # Errors
/// 400 for what is no transcription session.
fn query(query: &str) -> Result<Option<String>, Failure> {
    let mut model = None;
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        match (&*name, &*value) {
            ("intent", "transcription") | ("model", "") => {}
            ("intent", _) => {
                return Err(refused("`intent` must be `transcription`: this server has no other sessions."));
            }
            ("call_id", _) => {
                return Err(refused("`call_id` is not available: this server has no calls to join."));
            }
            ("model", _) if value.chars().count() > settings::MODEL_CHARACTERS_MAX => {
                return Err(refused("`model` is too long."));
            }
            ("model", _) => model = Some(value.into_owned()),
            _ => {}
        }
    }
    Ok(model)
}

fn refused(message: &'static str) -> Failure {
    Failure::new(StatusCode::BAD_REQUEST, "invalid_value", message)
}

fn is_beta(headers: &HeaderMap) -> bool {
    let named = headers.get_all(BETA_HEADER).iter().filter_map(|value| value.to_str().ok());
    let by_header = named.flat_map(|value| value.split(',')).any(|item| item.trim() == BETA);
    by_header || offered_protocols(headers).any(|protocol| protocol == BETA_PROTOCOL)
}
