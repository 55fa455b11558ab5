//! `GET /v1/models` and `/v1/models/{model}`, which OpenAI's clients and those of the wire format both call.

use std::sync::Arc;
use std::time::UNIX_EPOCH;

use hyper::StatusCode;
use url::form_urlencoded;

use super::super::manage;
use super::super::services::Services;
use super::error::{is_wire, no_such_model};
use super::speech::is_voice_model;
use super::wire;
use crate::http::{Failure, Request, Response, json};

const OWNER: &str = "verbatim";

/// Whether a client may ask for the model `name`.
pub fn is_served(services: &Services, name: &str) -> bool {
    services.model_names.any_model || services.models.name_of(Some(name)).is_some()
}

/// Whether `/v1/audio/speech` speaks by a model of this name.
fn is_voice(services: &Services, name: &str) -> bool {
    !services.speech.voices().is_empty() && is_voice_model(name)
}

/// `GET /v1/models`. Any valid credentials do: models are no secret.
pub(in crate::api) async fn list(services: Arc<Services>, request: Request) -> Result<Response, Failure> {
    services.authenticator.holder(&request.headers).await?;
    if is_wire(&request.headers) {
        return Ok(json(StatusCode::OK, &manage::models::models(&services)));
    }
    let voice = Some(services.speech.kind()).filter(|name| is_voice(&services, name));
    let data = services.models.names().chain(voice).map(|name| model(&services, name)).collect();
    Ok(json(StatusCode::OK, &wire::Models { object: "list", data }))
}

/// `GET /v1/models/{model}`: any name that a request may have as its `model`.
pub(in crate::api) async fn one(services: Arc<Services>, request: Request) -> Result<Response, Failure> {
    services.authenticator.holder(&request.headers).await?;
    let name = decoded(request.capture("model").unwrap_or_default());
    if is_wire(&request.headers) {
        return manage::models::named(&services, &name);
    }
    if !is_served(&services, &name) && !is_voice(&services, &name) {
        return Err(no_such_model(&name));
    }
    Ok(json(StatusCode::OK, &model(&services, &name)))
}

/// The end of a path, without percent encoding. `+` and `&` stand for themselves there.
fn decoded(path: &str) -> String {
    let value = format!("={}", path.replace('+', "%2B").replace('&', "%26"));
    form_urlencoded::parse(value.as_bytes()).map(|(_, value)| value.into_owned()).next().unwrap_or_default()
}

fn model(services: &Services, name: &str) -> wire::Model {
    let created = services.started.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    wire::Model { id: name.to_owned(), object: "model", created, owned_by: OWNER }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_paths_may_have_any_characters() {
        for (path, name) in [
            ("whisper-1", "whisper-1"),
            ("Systran%2Ffaster-whisper-base", "Systran/faster-whisper-base"),
            ("a+b&c=d%20e", "a+b&c=d e"),
            ("", ""),
        ] {
            assert_eq!(decoded(path), name, "{path}");
        }
    }
}
