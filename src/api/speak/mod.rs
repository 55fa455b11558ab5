//! `/v1/speak`: text in, speech out; by POST a whole text, over a WebSocket text as it comes.

mod answer;
mod asyncapi;
pub mod callback;
mod connection;
pub mod format;
mod outlet;
pub mod parameters;
mod text;
pub(super) mod turns;
mod voices;
mod wire;

pub(super) use wire::Said;

pub(super) use asyncapi::socket;

use std::sync::Arc;

use hyper::header::{HeaderName, HeaderValue};

use super::asker::asker;
use super::services::Services;
use crate::http::websocket::{self, Limits};
use crate::http::{Caller, Failure, Request, Response};
use crate::speech::encode::Encoder;
use crate::speech::{Dictation, Manner};
use crate::usage::{self, Work};
use answer::speak;
pub(super) use answer::{Order, Speaking, begin, uuid};
use connection::Connection;
pub use format::TEXT_CHARACTERS_MAX;
use parameters::Parameters;
pub(super) use text::check;
use voices::voice;
pub(super) use voices::voice_of;

const DG_ERROR: HeaderName = HeaderName::from_static("dg-error");

/// `POST /v1/speak`.
pub(super) async fn request(services: Arc<Services>, request: Request) -> Result<Response, Failure> {
    let caller = services.authenticator.caller(&request.headers).await?;
    let parameters = Parameters::parse(request.uri.query().unwrap_or_default())?;
    let voice = voice(&services, parameters.model.as_deref())?;
    answered(&services, request, caller, parameters, voice).await
}

/// The speech of the text in `request`; with `callback`, its id.
async fn answered(
    services: &Services,
    request: Request,
    caller: Caller,
    parameters: Parameters,
    voice: String,
) -> Result<Response, Failure> {
    let format = parameters.wanted.format()?;
    if parameters.callback.is_some() {
        return callback::accept(services, request, caller, parameters, &voice).await;
    }
    let (connection, tenant) = (Some(request.peer), caller.tenant);
    let text = text::read(&request.headers, request.body.charged_to(tenant)).await?;
    check(&text, TEXT_CHARACTERS_MAX)?;
    let order = Order { tenant, connection, text, voice, speed: parameters.speed.unwrap_or(1.0), format };
    speak(services, order).await
}

/// `GET /v1/speak` with an upgrade.
pub(super) async fn stream(services: Arc<Services>, request: Request) -> Result<Response, Failure> {
    open(services, request).await.map_err(with_dg_error)
}

/// The reason of a refused handshake also in a header: clients of WebSockets show no body.
fn with_dg_error(failure: Failure) -> Failure {
    match HeaderValue::from_str(failure.message()) {
        Ok(message) => failure.header(DG_ERROR, message),
        Err(_) => failure,
    }
}

async fn open(services: Arc<Services>, request: Request) -> Result<Response, Failure> {
    let (caller, protocol) = services.authenticator.websocket_caller(&request.headers).await?;
    let parameters = Parameters::of_stream(request.uri.query().unwrap_or_default())?;
    let format = parameters.wanted.format()?;
    Encoder::new(format, None).map_err(Failure::internal)?;
    let voice = voice(&services, parameters.model.as_deref())?;
    services.refuse_while_draining()?;
    let speech = services.speech.clone();
    let place = speech.open(caller.tenant, asker(&caller, &request)).await?;
    let limits = Limits::of_message(connection::BYTES_MAX);
    let metadata = wire::metadata(request.id, &voice);
    usage::worked(Work { model: Some(answer::model(&voice)), ..Work::default() });
    let manner = Manner { voice: Some(voice), speed: parameters.speed.unwrap_or(1.0) };
    let dictation = Dictation::new(speech, caller.tenant, manner);
    websocket::accept(request, limits, protocol, move |socket, stop| async move {
        let _place = place;
        Box::new(Connection::new(socket, dictation, format, metadata)).run(stop).await;
    })
}
