//! `GET /v1/listen` with an upgrade: audio in over a WebSocket, words out while it arrives.
//!
//! Refusals come before the upgrade where possible, as JSON with a status, which SDKs can read and a close
//! code could not express: no key, bad parameters, no room. After the upgrade, `connection` runs the socket,
//! `control` parses the client's messages, `answer` writes those of `wire`, and `callback` delivers them
//! elsewhere.

mod answer;
mod asyncapi;
mod callback;
mod connection;
mod control;
mod wire;

pub(super) use control::Control;

pub(super) use asyncapi::socket;

use std::sync::Arc;
use std::time::SystemTime;

use uuid::Uuid;

use super::asker::asker;
use super::parameters::{CallbackMethod, LiveParameters, Parameters};
use super::{Services, error, language, raw, terms};
use crate::engine::TenantId;
use crate::fetch::{self, without_user};
use crate::http::websocket::{self, Limits};
use crate::http::{Caller, Failure, Request, Response};
use crate::live::{self, Live, Options};
use crate::patience::Deadline;
use answer::Asked;
use callback::{Address, Callback};
use connection::Connection;

pub(super) async fn stream(services: Arc<Services>, request: Request) -> Result<Response, Failure> {
    open(services, request).await.map_err(error::of_handshake)
}

async fn open(services: Arc<Services>, request: Request) -> Result<Response, Failure> {
    let created = SystemTime::now();
    let (caller, protocol) = services.authenticator.websocket_caller(&request.headers).await?;
    let mut parameters = LiveParameters::parse(request.uri.query().unwrap_or_default())?;
    if parameters.common.asks_for_turns() {
        return Err(error::conversational());
    }
    let deadline = Deadline::after(services.processing_timeout);
    let model = services.model(&mut parameters.common, Some(deadline)).await?;
    let live = model.live();
    if let Some(asked) = parameters.common.diarize.first()
        && !live.can_diarize()
    {
        return Err(error::no_speakers(asked));
    }
    let callback = callback_address(&services, request.id, &caller, &parameters.common).await?;
    let voices = match parameters.common.identify_speakers {
        true => Some(services.voices.latest(caller.tenant).await),
        false => None,
    };
    let options = Options {
        format: raw::of_stream(&parameters.common)?,
        multichannel: parameters.common.multichannel,
        language: language::choice(&parameters.common, live.model())?,
        interim_results: parameters.interim_results,
        endpointing: parameters.endpointing,
        utterance_end: parameters.utterance_end,
        speech_started: parameters.vad_events,
        voice: false,
        voice_threshold: None,
        speakers: parameters.common.speakers(),
        voices,
        prompt: None,
        bias: terms::terms(&parameters.common),
        tenant: TenantId(caller.tenant),
    };
    services.refuse_while_draining()?;
    services.refuse_without_model()?;
    let permit = live.admit_in_turn(TenantId(caller.tenant), asker(&caller, &request)).await?;
    let limits = Limits::of_message(live.config().message_bytes_max);
    let asked = Asked { request_id: request.id, created, parameters };
    // Boxed: a task is sized for the largest value it ever holds, and idle streams would pay for it.
    let opening = Box::new((permit, options, asked, callback));
    let serve = async move |socket, stop| {
        let connection = connection(model.live(), socket, opening);
        connection.run(stop).await;
    };
    websocket::accept(request, limits, protocol, serve)
}

type Opening = (live::StreamPermit, Options, Asked, Option<Address>);

/// Not inlined, so that its locals take up no room in the task.
#[inline(never)]
fn connection(live: &Live, socket: websocket::Socket, opening: Box<Opening>) -> Box<Connection<'_>> {
    let (permit, options, asked, callback) = *opening;
    let session = live.open(permit, options);
    Box::new(Connection::new(socket, session, asked, live, callback.map(Callback::open)))
}

/// # Errors
/// 400 for an address that may not be reached.
async fn callback_address(
    services: &Services,
    request_id: Uuid,
    caller: &Caller,
    parameters: &Parameters,
) -> Result<Option<Address>, Failure> {
    let Some(url) = &parameters.callback else { return Ok(None) };
    let fetcher = services.fetcher.clone();
    let mut checked = without_user(url);
    // The rules for addresses treat a WebSocket as HTTP.
    let scheme = if matches!(url.scheme(), "wss" | "https") { "https" } else { "http" };
    checked.set_scheme(scheme).map_err(|()| error::invalid_callback(&fetch::Error::NotRoutable))?;
    fetcher.check(&checked).await.map_err(|error| error::invalid_callback(&error))?;
    Ok(Some(Address {
        fetcher,
        url: url.clone(),
        method: match parameters.callback_method {
            CallbackMethod::Post => reqwest::Method::POST,
            CallbackMethod::Put => reqwest::Method::PUT,
        },
        jobs: services.jobs.clone(),
        request_id,
        key: caller.key.to_string(),
    }))
}
