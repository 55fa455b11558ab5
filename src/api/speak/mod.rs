//! `/v1/speak`: text in, speech out; by POST a whole text, over a WebSocket text as it comes.

mod answer;
mod asyncapi;
mod connection;
pub mod format;
pub mod parameters;
mod wire;

pub(super) use asyncapi::socket;

use std::sync::Arc;

use hyper::StatusCode;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use serde::Deserialize;

use super::error;
use super::services::Services;
use crate::http::websocket::{self, Limits};
use crate::http::{Body, Failure, Request, Response};
use crate::speech::encode::Encoder;
use crate::speech::{Dictation, Manner};
use crate::usage::{self, Work};
use answer::speak;
pub(super) use answer::{Order, Speaking, begin, uuid};
use connection::Connection;
pub use format::TEXT_CHARACTERS_MAX;
use parameters::Parameters;

/// The wire format's limit on the body.
const BODY_BYTES_MAX: u64 = 2 << 20;
const DG_ERROR: HeaderName = HeaderName::from_static("dg-error");

/// The body of a request.
#[derive(Deserialize)]
struct Text {
    text: String,
}

/// `POST /v1/speak`.
pub(super) async fn request(services: Arc<Services>, request: Request) -> Result<Response, Failure> {
    let caller = services.authenticator.caller(&request.headers).await?;
    let parameters = Parameters::parse(request.uri.query().unwrap_or_default())?;
    let format = parameters.wanted.format()?;
    let voice = voice(&services, parameters.model.as_deref())?;
    if parameters.has_callback {
        return Err(error::not_implemented(
            "Speech is not delivered to callbacks here: send the request without `callback`.",
        ));
    }
    let text = text(&request.headers, request.body.charged_to(caller.tenant)).await?;
    check(&text, TEXT_CHARACTERS_MAX)?;
    let order = Order { tenant: caller.tenant, text, voice, speed: parameters.speed, format };
    speak(&services, order).await
}

/// The installed voice for a name, or the default one; none if nobody is called that.
///
/// # Errors
/// 501 without a voice.
pub(super) fn voice_of(services: &Services, name: Option<&str>) -> Result<Option<String>, Failure> {
    let voices = services.speech.voices();
    let default = voices.first().ok_or_else(|| {
        error::not_implemented("Text is not spoken here: this server has no voice.")
            .because("there is no voice; `./setup voice` brings one")
    })?;
    Ok(match name {
        None => Some((*default).to_owned()),
        Some(name) => services.speech.find(name).map(str::to_owned),
    })
}

fn voice(services: &Services, name: Option<&str>) -> Result<String, Failure> {
    let message = "Bad Request: No such model/version combination found.";
    voice_of(services, name)?
        .ok_or_else(|| Failure::new(StatusCode::BAD_REQUEST, "Bad Request", message).because("no such voice"))
}

/// Reads a body: JSON with `text`, or the text itself.
///
/// # Errors
/// 400, 408, 413, 415, 503.
async fn text(headers: &HeaderMap, body: Body) -> Result<String, Failure> {
    let media_type = headers.get(CONTENT_TYPE).map_or(&b"application/json"[..], HeaderValue::as_bytes);
    let essence = media_type.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    let is_json = essence.eq_ignore_ascii_case(b"application/json");
    if !is_json && !essence.eq_ignore_ascii_case(b"text/plain") {
        return Err(Failure::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "UNSUPPORTED_MEDIA_TYPE",
            "`Content-Type` header is not supported. `Content-Type` must be either `text/plain` or `application/json`.",
        ));
    }
    let body = body.collect_at_most(BODY_BYTES_MAX).await?;
    let payload = |message| Failure::new(StatusCode::BAD_REQUEST, "PAYLOAD_ERROR", message);
    if is_json {
        let text: Result<Text, _> = serde_json::from_slice(&body.bytes());
        let text = text.map_err(|_| {
            payload("Failed to deserialize JSON payload. Please specify exactly one `text` in the JSON body.")
        });
        return Ok(text?.text);
    }
    String::from_utf8(body.bytes().into()).map_err(|_| payload("Failed to decode payload as UTF-8."))
}

/// # Errors
/// 400 for an empty text, 413 for one of more than `most` characters.
pub(super) fn check(text: &str, most: usize) -> Result<(), Failure> {
    if text.trim().is_empty() {
        let message = "Input text contains no characters.";
        return Err(Failure::new(StatusCode::BAD_REQUEST, "Bad Request", message));
    }
    if text.chars().nth(most).is_some() {
        let message = format!("Input text exceeds maximum character limit of {most}.");
        return Err(Failure::new(StatusCode::PAYLOAD_TOO_LARGE, "Payload Too Large", message));
    }
    Ok(())
}

/// `GET /v1/speak` with an upgrade.
pub(super) async fn stream(services: Arc<Services>, request: Request) -> Result<Response, Failure> {
    open(services, request).await.map_err(|failure| match HeaderValue::from_str(failure.message()) {
        Ok(message) => failure.header(DG_ERROR, message),
        Err(_) => failure,
    })
}

async fn open(services: Arc<Services>, request: Request) -> Result<Response, Failure> {
    let (caller, protocol) = services.authenticator.websocket_caller(&request.headers).await?;
    let parameters = Parameters::of_stream(request.uri.query().unwrap_or_default())?;
    let format = parameters.wanted.format()?;
    Encoder::new(format, None).map_err(Failure::internal)?;
    let voice = voice(&services, parameters.model.as_deref())?;
    services.refuse_while_draining()?;
    let speech = services.speech.clone();
    let place = speech.open(caller.tenant)?;
    let limits = Limits::of_message(connection::BYTES_MAX);
    let metadata = wire::metadata(request.id, &voice);
    usage::worked(Work { model: Some(answer::model(&voice)), ..Work::default() });
    let manner = Manner { voice: Some(voice), speed: parameters.speed };
    let dictation = Dictation::new(speech, caller.tenant, manner);
    websocket::accept(request, limits, protocol, move |socket, stop| async move {
        let _place = place;
        Box::new(Connection::new(socket, dictation, format, metadata)).run(stop).await;
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_have_a_length() {
        assert!(check("a", 2000).is_ok());
        assert!(check(&"é".repeat(2000), 2000).is_ok());
        assert_eq!(check(&"é".repeat(2001), 2000).unwrap_err().status(), StatusCode::PAYLOAD_TOO_LARGE);
        for empty in ["", " \n"] {
            assert_eq!(check(empty, 2000).unwrap_err().status(), StatusCode::BAD_REQUEST);
        }
    }
}
