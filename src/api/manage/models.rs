//! The models that the server has, with their metadata.

use std::sync::Arc;

use hyper::StatusCode;
use serde::Serialize;
use uuid::Uuid;

use super::project::manager;
use crate::api::answer::ARCHITECTURE;
use crate::api::error;
use crate::api::services::Services;
use crate::api::speak;
use crate::http::{Failure, Request, Response, json};
use crate::keys::Permission;
use crate::registry::Status;
use crate::speech::Speech;

/// Models by what they do.
#[derive(Serialize)]
pub(in crate::api) struct Models {
    stt: Vec<Model>,
    tts: Vec<VoiceModel>,
}

/// A voice of `/v1/speak`.
#[derive(Serialize)]
struct VoiceModel {
    name: String,
    canonical_name: String,
    architecture: &'static str,
    /// Empty if it speaks any.
    languages: Vec<&'static str>,
    version: &'static str,
    uuid: Uuid,
}

impl VoiceModel {
    fn of(name: &str, speech: &Speech) -> Self {
        Self {
            name: name.to_owned(),
            canonical_name: name.to_owned(),
            architecture: speech.kind_of(name),
            languages: speech.language(name).into_iter().collect(),
            version: env!("CARGO_PKG_VERSION"),
            uuid: speak::uuid(name),
        }
    }
}

#[derive(Serialize)]
struct Model {
    name: String,
    canonical_name: String,
    architecture: &'static str,
    /// Empty if its files don't tell, until the model is first loaded.
    languages: Vec<String>,
    version: String,
    uuid: Uuid,
    batch: bool,
    streaming: bool,
    formatted_output: bool,
}

impl Model {
    fn of(model: &Status) -> Self {
        Self {
            canonical_name: model.name.clone(),
            name: model.name.clone(),
            architecture: ARCHITECTURE,
            languages: model.languages.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uuid: model.uuid,
            batch: true,
            streaming: true,
            formatted_output: true,
        }
    }
}

/// The wire format's list of models.
pub(in crate::api) fn models(services: &Services) -> Models {
    let speech = &services.speech;
    let tts = speech.voices().into_iter().map(|name| VoiceModel::of(name, speech)).collect();
    Models { stt: services.models.statuses().iter().map(Model::of).collect(), tts }
}

pub(super) async fn of_project(services: Arc<Services>, request: Request) -> Result<Response, Failure> {
    manager(&services, &request, Permission::ProjectRead).await?;
    Ok(json(StatusCode::OK, &models(&services)))
}

pub(super) async fn one_of_project(services: Arc<Services>, request: Request) -> Result<Response, Failure> {
    manager(&services, &request, Permission::ProjectRead).await?;
    named(&services, request.capture("model_id").unwrap_or_default())
}

/// The answer with the model of this UUID or name.
///
/// # Errors
/// 404 if there is none.
pub(in crate::api) fn named(services: &Services, name: &str) -> Result<Response, Failure> {
    let models = models(services);
    let is = |uuid: Uuid, own: &str| Uuid::parse_str(name) == Ok(uuid) || own == name;
    if let Some(model) = models.stt.iter().find(|model| is(model.uuid, &model.name)) {
        return Ok(json(StatusCode::OK, model));
    }
    let voice = models.tts.iter().find(|voice| is(voice.uuid, &voice.name));
    Ok(json(StatusCode::OK, voice.ok_or_else(|| error::nothing_such("Model"))?))
}
