//! `GET /v2/listen` with an upgrade: audio in over a WebSocket, the turns of a conversation out.
//!
//! As in `api::live`, refusals come before the upgrade where possible. After it, `connection` runs the socket, `control` parses
//! the client's messages, and `answer` writes those of `wire`.

mod answer;
mod asyncapi;
mod connection;
mod control;
mod wire;

pub(super) use control::Control;

pub(super) use asyncapi::socket;

use std::sync::Arc;

use super::asker::asker;
use super::parameters::TurnParameters;
use super::{Services, error, language, raw, terms};
use crate::engine::{LanguageChoice, TenantId};
use crate::http::websocket::{self, Limits};
use crate::http::{Failure, Request, Response};
use crate::live::{Live, Options, StreamPermit};
use crate::patience::Deadline;
use answer::Asked;
use connection::Connection;

pub(super) async fn stream(services: Arc<Services>, request: Request) -> Result<Response, Failure> {
    open(services, request).await.map_err(error::of_handshake)
}

async fn open(services: Arc<Services>, request: Request) -> Result<Response, Failure> {
    let (caller, protocol) = services.authenticator.websocket_caller(&request.headers).await?;
    let mut parameters = TurnParameters::parse(request.uri.query().unwrap_or_default())?;
    if parameters.common.asks_for_no_turns() {
        return Err(error::not_conversational());
    }
    let deadline = Deadline::after(services.processing_timeout);
    let model = services.model(&mut parameters.common, Some(deadline)).await?;
    let live = model.live();
    let language = language::choice(&parameters.of_language(), live.model())?;
    let is_multilingual = matches!(language, LanguageChoice::Detect { .. });
    let options = Options {
        format: raw::of_stream(&parameters.common)?,
        multichannel: false,
        language,
        interim_results: true,
        endpointing: None,
        utterance_end: None,
        speech_started: false,
        voice: true,
        voice_threshold: None,
        speakers: None,
        voices: None,
        prompt: None,
        bias: terms::terms(&parameters.common),
        tenant: TenantId(caller.tenant),
    };
    services.refuse_while_draining()?;
    services.refuse_without_model()?;
    let permit = live.admit_in_turn(TenantId(caller.tenant), asker(&caller, &request)).await?;
    let limits = Limits::of_message(live.config().message_bytes_max);
    let asked = Asked { request_id: request.id, parameters, is_multilingual };
    // Boxed: a task is sized for the largest value it ever holds, and idle streams would pay for it.
    let opening = Box::new((permit, options, asked));
    let serve = async move |socket, stop| {
        let connection = connection(model.live(), socket, opening);
        connection.run(stop).await;
    };
    websocket::accept(request, limits, protocol, serve)
}

/// Not inlined, so that its locals take up no room in the task.
#[inline(never)]
fn connection(
    live: &Live,
    socket: websocket::Socket,
    opening: Box<(StreamPermit, Options, Asked)>,
) -> Box<Connection<'_>> {
    let (permit, options, asked) = *opening;
    let session = live.open_turns(permit, options, asked.parameters.thresholds);
    Box::new(Connection::new(socket, session, asked, live))
}
