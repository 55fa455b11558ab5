//! `/v2/speak`: speech by turns. By POST a whole text, over a WebSocket a conversation's turns, which a listener may
//! interrupt.

mod asyncapi;
mod connection;
mod session;
mod wire;

pub(in crate::api) use asyncapi::socket;
pub(in crate::api) use wire::Said;

use std::sync::Arc;

use hyper::StatusCode;

use super::super::asker::asker;
use super::super::services::Services;
use super::connection::BYTES_MAX;
use super::parameters::Parameters;
use super::{answer, answered, with_dg_error};
use crate::http::websocket::{self, Limits};
use crate::http::{Failure, Request, Response};
use crate::speech::encode::Encoder;
use crate::speech::{Dictation, Manner};
use crate::usage::{self, Work};
use connection::Connection;
use wire::Applied;

/// `POST /v2/speak`.
pub(in crate::api) async fn request(services: Arc<Services>, request: Request) -> Result<Response, Failure> {
    let caller = services.authenticator.caller(&request.headers).await?;
    let parameters = Parameters::of_turn(request.uri.query().unwrap_or_default())?;
    let voice = voice(&services, &parameters)?;
    answered(&services, request, caller, parameters, voice).await
}

/// `GET /v2/speak` with an upgrade.
pub(in crate::api) async fn stream(services: Arc<Services>, request: Request) -> Result<Response, Failure> {
    open(services, request).await.map_err(with_dg_error)
}

async fn open(services: Arc<Services>, request: Request) -> Result<Response, Failure> {
    let (caller, protocol) = services.authenticator.websocket_caller(&request.headers).await?;
    let parameters = Parameters::of_turns(request.uri.query().unwrap_or_default())?;
    let format = parameters.wanted.format()?;
    Encoder::new(format, None).map_err(Failure::internal)?;
    let voice = voice(&services, &parameters)?;
    services.refuse_while_draining()?;
    let speech = services.speech.clone();
    let place = speech.open(caller.tenant, asker(&caller, &request)).await?;
    let limits = Limits::of_message(BYTES_MAX);
    let first = wire::connected(request.id, &voice);
    usage::worked(Work { model: Some(answer::model(&voice)), ..Work::default() });
    let manner = Manner { voice: Some(voice), speed: parameters.speed.unwrap_or(1.0) };
    // As it was written: 1.1, not the nearest number of single precision.
    let speed = parameters.speed.and_then(|speed| speed.to_string().parse().ok());
    let dictation = Dictation::new(speech, caller.tenant, manner);
    websocket::accept(request, limits, protocol, move |socket, stop| async move {
        let _place = place;
        Box::new(Connection::new(socket, dictation, format, (first, Applied { speed }))).run(stop).await;
    })
}

/// The voice that is asked for, which has to be named.
///
/// # Errors
/// 400 without a name, for one of `/v1/speak` alone, or if no voice has it; 501 without voices.
fn voice(services: &Services, parameters: &Parameters) -> Result<String, Failure> {
    let refused = |message: &'static str| Failure::new(StatusCode::BAD_REQUEST, "Bad Request", message);
    match parameters.model.as_deref() {
        None => Err(refused("Bad Request: `model` is required, such as flux-alexis-en.")),
        Some(name) if name.to_ascii_lowercase().starts_with("aura-") => Err(refused(
            "Bad Request: Aura voices speak on /v1/speak; name a Flux voice, such as flux-alexis-en.",
        )),
        Some(name) => super::voice(services, Some(name)),
    }
}
