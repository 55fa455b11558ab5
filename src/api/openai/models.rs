//! `GET /v1/models` and `/v1/models/{model}`, which OpenAI's clients and those of the wire format both call.

use std::sync::Arc;
use std::time::UNIX_EPOCH;

use hyper::StatusCode;
use url::form_urlencoded;

use super::super::answer::{model_info, names};
use super::super::error::no_such_model as no_such_wire_model;
use super::super::services::Services;
use super::error::{is_wire, no_such_model};
use super::wire;
use crate::http::{Failure, Request, Response, json};

const OWNER: &str = "verbatim";

/// Whether a client may ask for the model `name`.
pub fn is_served(services: &Services, name: &str) -> bool {
    services.model_names.means(name, |name| names(name, services.transcriber.model()))
}

/// `GET /v1/models`.
pub(in crate::api) async fn list(services: Arc<Services>, request: Request) -> Result<Response, Failure> {
    services.authenticator.caller(&request.headers).await?;
    if is_wire(&request.headers) {
        let models = wire::WireModels { stt: vec![wire_model(&services)], tts: Vec::new() };
        return Ok(json(StatusCode::OK, &models));
    }
    let aliases = services.model_names.aliases.keys().filter(|name| is_served(&services, name));
    let own = services.transcriber.model().name.as_str();
    let others = aliases.map(String::as_str).filter(|name| *name != own);
    let data = std::iter::once(own).chain(others).map(|name| model(&services, name)).collect();
    Ok(json(StatusCode::OK, &wire::Models { object: "list", data }))
}

/// `GET /v1/models/{model}`: any name that a request may have as its `model`.
pub(in crate::api) async fn one(services: Arc<Services>, request: Request) -> Result<Response, Failure> {
    services.authenticator.caller(&request.headers).await?;
    let path = request.captures.iter().find(|(name, _)| name == "model").map(|(_, path)| path.as_str());
    let name = decoded(path.unwrap_or_default());
    if is_wire(&request.headers) {
        let is_it = names(&name, services.transcriber.model());
        return if is_it {
            Ok(json(StatusCode::OK, &wire_model(&services)))
        } else {
            Err(no_such_wire_model())
        };
    }
    if !is_served(&services, &name) {
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

fn wire_model(services: &Services) -> wire::WireModel {
    let model = services.transcriber.model();
    let info = model_info(model);
    wire::WireModel {
        name: model.name.clone(),
        canonical_name: model.name.clone(),
        architecture: info.arch,
        languages: model.languages.clone(),
        version: env!("CARGO_PKG_VERSION"),
        uuid: model.uuid,
        batch: true,
        streaming: true,
        formatted_output: true,
    }
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
