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

mod asyncapi;
mod connection;
mod event;
mod items;
mod request;
mod secret;
mod semantic;
mod settings;
mod shape;
mod transcript;
mod update;

pub use asyncapi::socket;
pub(in crate::api) use request::Request as ClientEvent;

use std::sync::Arc;

use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, HeaderName, HeaderValue};
use url::form_urlencoded;

use super::super::asker::asker;
use super::error::{invalid, no_such_model};
use super::models::is_served;
use crate::api::Services;
use crate::engine::TenantId;
use crate::http::websocket::{self, Limits, offered_protocols};
use crate::http::{Caller, Failure, Request, Response};
use crate::patience::Deadline;
use connection::{Asked, Connection};
pub use secret::{client_secret, transcription_session};
use settings::{MODEL_CHARACTERS_MAX, Settings};

/// The subprotocol that browsers offer beside their key.
const PROTOCOL: &str = "realtime";
/// The subprotocol whose rest is a key.
const KEY_PROTOCOL: &str = "openai-insecure-api-key.";
const BETA_PROTOCOL: &str = "openai-beta.realtime-v1";
const BETA_HEADER: HeaderName = HeaderName::from_static("openai-beta");
const BETA: &str = "realtime=v1";

/// `GET /v1/realtime`.
pub async fn realtime(services: Arc<Services>, request: Request) -> Result<Response, Failure> {
    let (caller, protocol, update) = caller(&services, &request.headers).await?;
    let named = query(request.uri.query().unwrap_or_default())?;
    if let Some(model) = named.as_deref().filter(|model| !is_served(&services, model)) {
        return Err(no_such_model(model));
    }
    services.refuse_while_draining()?;
    services.refuse_without_model()?;
    let deadline = Deadline::after(services.processing_timeout);
    let model = services.models.choose(named.as_deref(), Some(deadline)).await?;
    let (settings, model) =
        secret::settings(&services, Settings::new(named), model, update.as_deref()).await?;
    let live = model.live();
    let permit = live.admit_in_turn(TenantId(caller.tenant), asker(&caller, &request)).await?;
    let limits = Limits::of_message(live.config().realtime_message_bytes_max);
    let is_beta = is_beta(&request.headers);
    // Boxed: a task is sized for the largest value it ever holds, and idle sessions would pay for it.
    let asked = Box::new(Asked { permit, tenant: caller.tenant, is_beta, settings, model });
    let shared = services.clone();
    let serve = async move |socket, stop| {
        let connection = connection(socket, shared, asked);
        connection.run(stop).await;
    };
    websocket::accept(request, limits, protocol, serve)
}

/// Not inlined, so that its locals take up no room in the task.
#[inline(never)]
fn connection(socket: websocket::Socket, services: Arc<Services>, asked: Box<Asked>) -> Box<Connection> {
    Box::new(Connection::new(socket, services, *asked))
}

/// The caller, the subprotocol to agree to, and the text of an update in the caller's client secret. A browser sets no
/// header, and offers its key as a subprotocol.
///
/// # Errors
/// 401.
async fn caller(
    services: &Services,
    headers: &HeaderMap,
) -> Result<(Caller, Option<HeaderValue>, Option<String>), Failure> {
    let offers = offered_protocols(headers).any(|protocol| protocol == PROTOCOL);
    let agreed = offers.then(|| HeaderValue::from_static(PROTOCOL));
    let has_header = headers.contains_key(AUTHORIZATION);
    let key = if has_header {
        bearer(headers)
    } else {
        offered_protocols(headers).find_map(|protocol| protocol.strip_prefix(KEY_PROTOCOL))
    };
    let (key, update) = match key.map(|key| (key, secret::parts(key))) {
        Some((_, Some((token, update)))) => (token, update),
        Some((key, None)) if !has_header => (key, None),
        _ => {
            let (caller, other) = services.authenticator.websocket_caller(headers).await?;
            return Ok((caller, agreed.or(other), None));
        }
    };
    let mut named = HeaderMap::new();
    // A part of a header's value may stand in one.
    if let Ok(value) = HeaderValue::from_str(&format!("Bearer {key}")) {
        named.insert(AUTHORIZATION, value);
    }
    Ok((services.authenticator.caller(&named).await?, agreed, update))
}

/// The key in the only `Authorization` field.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut fields = headers.get_all(AUTHORIZATION).iter();
    let (Some(field), None) = (fields.next(), fields.next()) else { return None };
    let (scheme, key) = field.to_str().ok()?.trim().split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| key.trim_start())
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
                let message = "`intent` must be `transcription`: this server has no other sessions.";
                return Err(invalid("intent", message));
            }
            ("call_id", _) => {
                return Err(invalid(
                    "call_id",
                    "`call_id` is not available: this server has no calls to join.",
                ));
            }
            ("model", _) if value.chars().count() > MODEL_CHARACTERS_MAX => {
                return Err(invalid("model", "`model` is too long."));
            }
            ("model", _) => model = Some(value.into_owned()),
            _ => {}
        }
    }
    Ok(model)
}

fn is_beta(headers: &HeaderMap) -> bool {
    let named = headers.get_all(BETA_HEADER).iter().filter_map(|value| value.to_str().ok());
    let by_header = named.flat_map(|value| value.split(',')).any(|item| item.trim() == BETA);
    by_header || offered_protocols(headers).any(|protocol| protocol == BETA_PROTOCOL)
}
