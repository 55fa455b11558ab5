//! `GET /v1/listen` with an upgrade: audio over a WebSocket, words back while it comes.
//!
//! Whatever can be refused is refused before the upgrade, as JSON with a status, which SDKs can read and
//! a close code would not tell: no key, bad parameters, no room. After it `connection` speaks, `control`
//! reads what clients say, and `answer` writes the messages of `wire`.

mod answer;
mod connection;
mod control;
mod wire;

use std::sync::Arc;
use std::time::SystemTime;

use hyper::header::{HeaderName, HeaderValue};

use super::parameters::{Encoding, LiveParameters, Parameters};
use super::{Services, State, error, language, listen, terms};
use crate::audio::StreamFormat;
use crate::engine::TenantId;
use crate::http::websocket::{self, Limits};
use crate::http::{Failure, Request, Response};
use crate::live::Options;
use answer::Asked;
use connection::Connection;

/// What went wrong, in a header: browsers and some SDKs show no more of a refused handshake.
const DG_ERROR: HeaderName = HeaderName::from_static("dg-error");

pub(super) async fn stream(services: Arc<Services>, request: Request) -> Result<Response, Failure> {
    open(services, request).await.map_err(|failure| {
        let message = HeaderValue::from_str(failure.message());
        match message {
            Ok(message) => failure.header(DG_ERROR, message),
            Err(_) => failure,
        }
    })
}

async fn open(services: Arc<Services>, request: Request) -> Result<Response, Failure> {
    let created = SystemTime::now();
    let (caller, protocol) = services.authenticator.websocket_caller(&request.headers).await?;
    let parameters = LiveParameters::parse(request.uri.query().unwrap_or_default())?;
    if parameters.common.callback.is_some() {
        return Err(error::not_implemented(
            "Callbacks are not served on streams: read the results from the WebSocket.",
        ));
    }
    let live = &services.live;
    let options = Options {
        format: format(&parameters.common)?,
        multichannel: parameters.common.multichannel,
        language: language::choice(&parameters.common, live.model())?,
        interim_results: parameters.interim_results,
        endpointing: parameters.endpointing,
        utterance_end: parameters.utterance_end,
        speech_started: parameters.vad_events,
        prompt: None,
        bias: terms::terms(&parameters.common),
        tenant: TenantId(caller.tenant),
    };
    if services.readiness.state() == State::Draining {
        return Err(error::stopping());
    }
    let place = live.admit()?;
    let config = live.config();
    let limits =
        Limits { frame_bytes_max: config.message_bytes_max, message_bytes_max: config.message_bytes_max };
    let asked = Asked { request_id: request.id, created, parameters };
    let shared = services.clone();
    let serve = async move |socket, stop| {
        let session = shared.live.open(place, options);
        Connection::new(socket, session, asked, &shared.live).run(stop).await;
    };
    websocket::accept(request, limits, protocol, serve)
}

/// How the bytes are to be read.
///
/// # Errors
/// 415 for encodings that are not read.
fn format(parameters: &Parameters) -> Result<StreamFormat, Failure> {
    Ok(match (listen::raw_format(parameters)?, parameters.encoding) {
        (Some(raw), _) => StreamFormat::Raw(raw),
        (None, Some(Encoding::Mp3)) => StreamFormat::Mpeg,
        (None, Some(Encoding::Aac)) => StreamFormat::Adts,
        (None, _) => StreamFormat::Container,
    })
}
