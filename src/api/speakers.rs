//! `/v1/speakers`: the enrolled voices of the caller's organisation. An extension.

use std::sync::Arc;
use std::time::Duration;

use hyper::StatusCode;
use url::form_urlencoded;
use uuid::Uuid;

use super::asker::asker;
use super::decode::{Origin, decode};
use super::listen::read;
use super::parameters::{self, Parameters};
use super::services::Services;
use super::{error, raw, wire};
use crate::audio::{DecodeOptions, Limits};
use crate::clock::rfc3339;
use crate::engine::{self, TenantId};
use crate::http::{Failure, Request, Response, empty, json};
use crate::patience::Deadline;
use crate::speakers::Options;
use crate::voices::{CLIP_SECONDS_MAX, Voice, enrolled};

const CLIP_TIMEOUT: Duration = Duration::from_secs(60);

/// `POST /v1/speakers?name=…`: enrols the voice of a clip. The clip itself is not kept.
pub(super) async fn enrol(services: Arc<Services>, request: Request) -> Result<Response, Failure> {
    let deadline = Deadline::after(services.processing_timeout.min(CLIP_TIMEOUT));
    let caller = services.authenticator.caller(&request.headers).await?;
    caller.require_key()?;
    let diarizer = services.diarizer.clone().ok_or_else(error::no_enrolment)?;
    let (name, parameters) = asked(request.uri.query().unwrap_or_default())?;
    let raw = raw::of_request(&request.headers, &parameters)?;
    services.voices.latest(caller.tenant).await;
    let name = services.voices.check(caller.tenant, &name)?;
    let tenant = TenantId(caller.tenant);
    // Nothing is transcribed, so any model's engine will do.
    let engine = services.models.default().transcriber().engine();
    let permit = engine.enter(tenant, asker(&caller, &request)).await?;
    let _active = services.activity.begin();
    let clip = read(&services, request, tenant, deadline).await?;
    let limits =
        Limits { max_seconds: services.audio.max_seconds.min(CLIP_SECONDS_MAX), ..services.audio.clone() };
    let decode_options = DecodeOptions { raw, split_channels: false, limits };
    let whose = (tenant, Some(deadline));
    let clip = decode((&services, engine), clip, decode_options, whose, &Origin::Request(permit)).await?;
    let sound = clip.decoded.channels.first().ok_or_else(error::no_audio)?;
    let diarization = deadline.wait(diarizer.for_tenant(tenant.0).diarize(sound, &Options::default())).await;
    let diarization = diarization.ok_or(engine::Error::DeadlineExceeded)??;
    let embedding = enrolled(&diarization)?;
    drop(clip);
    let voices = services.voices.clone();
    let add = move || voices.add(tenant.0, &name, embedding);
    let voice = tokio::task::spawn_blocking(add).await.map_err(Failure::internal)??;
    Ok(json(StatusCode::CREATED, &answer(&voice)))
}

/// `GET /v1/speakers`: all, oldest first.
pub(super) async fn list(services: Arc<Services>, request: Request) -> Result<Response, Failure> {
    let caller = services.authenticator.caller(&request.headers).await?;
    caller.require_key()?;
    let speakers = services.voices.latest(caller.tenant).await.iter().map(answer).collect();
    Ok(json(StatusCode::OK, &wire::EnrolledSpeakers { speakers }))
}

/// `GET /v1/speakers/{speaker_id}`.
pub(super) async fn one(services: Arc<Services>, request: Request) -> Result<Response, Failure> {
    let caller = services.authenticator.caller(&request.headers).await?;
    caller.require_key()?;
    let id = id(&request)?;
    let voices = services.voices.latest(caller.tenant).await;
    let voice = voices.iter().find(|voice| voice.id == id).ok_or_else(error::no_such_speaker)?;
    Ok(json(StatusCode::OK, &answer(voice)))
}

/// `DELETE /v1/speakers/{speaker_id}`: the voice is gone from memory and disk when this is answered.
pub(super) async fn delete(services: Arc<Services>, request: Request) -> Result<Response, Failure> {
    let caller = services.authenticator.caller(&request.headers).await?;
    caller.require_key()?;
    let id = id(&request)?;
    let voices = services.voices.clone();
    let remove = move || voices.remove(caller.tenant, id);
    let removed = tokio::task::spawn_blocking(remove).await.map_err(Failure::internal)??;
    if removed { Ok(empty(StatusCode::NO_CONTENT)) } else { Err(error::no_such_speaker()) }
}

fn id(request: &Request) -> Result<Uuid, Failure> {
    let id = request.capture("speaker_id").and_then(|id| Uuid::parse_str(id).ok());
    id.ok_or_else(error::no_such_speaker)
}

/// The name, and what describes raw audio.
fn asked(query: &str) -> Result<(String, Parameters), parameters::Error> {
    let (mut names, mut rest) = (Vec::new(), form_urlencoded::Serializer::new(String::new()));
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        match &*name {
            "name" => names.push(value.into_owned()),
            "encoding" | "sample_rate" | "channels" => {
                rest.append_pair(&name, &value);
            }
            // As in `/v1/listen`, other names are ignored.
            _ => {}
        }
    }
    if names.len() > 1 {
        return Err(parameters::Error::Duplicate("name".to_owned()));
    }
    // An empty name is refused with the valid ones.
    Ok((names.pop().unwrap_or_default(), Parameters::parse(&rest.finish())?))
}

fn answer(voice: &Voice) -> wire::EnrolledSpeaker {
    wire::EnrolledSpeaker { speaker_id: voice.id, name: voice.name.clone(), created: rfc3339(voice.created) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audio::RawEncoding;

    #[test]
    fn the_name_is_taken_apart_from_what_describes_the_audio() {
        let (name, parameters) =
            asked("encoding=linear16&name=Ada%20L&sample_rate=8000&diarize=perhaps").unwrap();
        assert_eq!(name, "Ada L");
        let crate::audio::Bare::Samples(format) = raw::of_parameters(&parameters).unwrap() else { panic!() };
        assert_eq!((format.encoding, format.sample_rate_hz), (RawEncoding::Linear16, 8000));
        assert_eq!(asked("").unwrap().0, "");
        assert!(asked("name=a&name=b").is_err());
        assert!(asked("name=a&sample_rate=fast").is_err());
    }
}
