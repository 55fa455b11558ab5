//! `POST /v1/audio/transcriptions` and `/v1/audio/translations`.
//!
//! They take their turn with `/v1/listen`, under the same limits; only the form and the answer differ.

use std::sync::Arc;

use hyper::StatusCode;
use hyper::header::HeaderValue;

use super::super::asker::asker;
use super::super::decode::{Fetched, Origin};
use super::super::listen::while_expected;
use super::super::services::Services;
use super::super::transcription::{Wanted, recognise};
use super::answer::{Answer, answer};
use super::error::{no_such_model, of_file, unsupported};
use super::request::{Asked, FIELDS, ResponseFormat, model_of};
use super::speech::WARNING;
use super::{events, form, known_speakers, models};
use crate::engine::{Task, TenantId};
use crate::http::{Failure, Request, Response, json, text};
use crate::patience::Deadline;
use crate::speakers;
use crate::transcribe::TranscribeOptions;
use crate::voices::Voice;

/// Text, SubRip and WebVTT alike, as that API answers.
const PLAIN: &str = "text/plain; charset=utf-8";

pub(in crate::api) async fn transcribe(
    services: Arc<Services>,
    request: Request,
) -> Result<Response, Failure> {
    create(services, request, Task::Transcribe).await
}

pub(in crate::api) async fn translate(
    services: Arc<Services>,
    request: Request,
) -> Result<Response, Failure> {
    create(services, request, Task::Translate).await
}

async fn create(services: Arc<Services>, request: Request, task: Task) -> Result<Response, Failure> {
    let deadline = Deadline::after(services.processing_timeout);
    let caller = services.authenticator.caller(&request.headers).await?;
    services.refuse_without_model()?;
    let boundary = form::boundary(&request.headers)?;
    let tenant = TenantId(caller.tenant);
    let mut permit =
        services.models.default().transcriber().engine().enter(tenant, asker(&caller, &request)).await?;
    let active = services.activity.begin();
    let body = request.body.charged_to(tenant.0);
    let form::Form { file, fields, others } =
        while_expected(&mut permit, form::read(body, boundary, FIELDS)).await?;
    let name = model_of(&fields);
    if let Some(name) = &name
        && !models::is_served(&services, name)
    {
        return Err(no_such_model(name));
    }
    let model = services.models.choose(name.as_deref(), Some(deadline)).await?;
    if task == Task::Translate && !model.model().is_multilingual() {
        let name = &model.model().name;
        let message = format!("The model `{name}` knows English only and cannot translate.");
        return Err(unsupported("model", message));
    }
    let mut asked = Asked::parse(fields, task, model.model())?;
    let unknown = |name: String| format!("`{name}` had no effect: this endpoint has no such field.");
    asked.warnings.extend(others.into_iter().map(unknown));
    let diarizes = asked.format == ResponseFormat::DiarizedJson;
    if diarizes && services.diarizer.is_none() {
        let message = "`diarized_json` is not available: this server has no speaker models.";
        return Err(unsupported("response_format", message));
    }
    let origin = Origin::Request(permit);
    let options = TranscribeOptions {
        language: asked.language.clone(),
        task,
        prompt: asked.prompt.clone(),
        temperature: asked.temperature,
        bias: asked.keywords.clone(),
        class: origin.class(),
        tenant,
        deadline: Some(deadline),
    };
    let voices = match &services.diarizer {
        Some(diarizer) => {
            let engine = model.transcriber().engine();
            let known = &asked.known_speakers;
            known_speakers::voices((&services, engine), diarizer, known, &options, &origin).await?
        }
        None => Vec::new(),
    };
    let speakers = diarizes.then(speakers::Options::default);
    let wanted = Wanted { raw: None, split_channels: false, model, options, speakers };
    if asked.streams {
        return events::stream(services, asked, (wanted, voices), (origin, active), file).await;
    }
    whole(&services, &asked, (wanted, &voices), &origin, file).await
}

/// The answer after all of the audio is recognised.
async fn whole(
    services: &Services,
    asked: &Asked,
    (wanted, voices): (Wanted, &[Voice]),
    origin: &Origin,
    file: Fetched,
) -> Result<Response, Failure> {
    let recognised = recognise(services, wanted, origin, file).await.map_err(of_file)?;
    let no_channel = || Failure::internal("a file without a channel");
    let transcript = recognised.transcripts.first().ok_or_else(no_channel)?;
    let names = recognised.speakers.first().map(|found| known_speakers::names(voices, found));
    Ok(match answer(asked, transcript, &names.unwrap_or_default(), recognised.damaged) {
        Answer::Json(body) => json(StatusCode::OK, &body),
        Answer::Verbose(body) => json(StatusCode::OK, &body),
        Answer::Diarized(body) => json(StatusCode::OK, &body),
        Answer::Text(body, warnings) => {
            let mut response = text(PLAIN, body);
            response.headers_mut().extend(warnings.iter().filter_map(|text| Some((WARNING, header(text)?))));
            response
        }
    })
}

/// A warning as the value of a header.
fn header(warning: &str) -> Option<HeaderValue> {
    let ascii: String = warning.chars().filter(|c| matches!(c, ' '..='~')).collect();
    HeaderValue::from_str(&ascii).ok()
}
