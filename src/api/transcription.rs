//! The transcription of one file, for a request whose client waits and for a job.

use std::time::SystemTime;

use uuid::Uuid;

use super::answer::{self, Asked, Heard};
use super::decode::{Admitted, Fetched, Origin, decode};
use super::parameters::Parameters;
use super::services::Services;
use super::{error, language, terms, wire};
use crate::audio::{Bare, DecodeOptions};
use crate::engine::{LanguageChoice, Task, TenantId};
use crate::fetch;
use crate::http::Failure;
use crate::patience::Deadline;
use crate::registry::Loaded;
use crate::transcribe::TranscribeOptions;
use crate::voices::identify;

/// A valid request: everything that its answer depends on, except the audio.
pub(super) struct Understood {
    pub request_id: Uuid,
    pub created: SystemTime,
    pub parameters: Parameters,
    pub words: bool,
    pub raw: Option<Bare>,
    pub model: Loaded,
    language: LanguageChoice,
}

impl Understood {
    /// # Errors
    /// 400 for a language that the model lacks, and for speakers without the models for them; those of
    /// [`Services::model`].
    pub async fn new(
        services: &Services,
        request_id: Uuid,
        created: SystemTime,
        mut parameters: Parameters,
        (words, raw): (bool, Option<Bare>),
        deadline: Option<Deadline>,
    ) -> Result<Self, Failure> {
        let model = services.model(&mut parameters, deadline).await?;
        let language = language::choice(&parameters, model.model())?;
        if let (None, Some(asked)) = (&services.diarizer, parameters.diarize.first()) {
            return Err(error::no_speakers(asked));
        }
        Ok(Self { request_id, created, parameters, words, raw, model, language })
    }
}

/// The tenant of the work, and how long it may wait.
pub(super) struct Urgency {
    pub tenant: TenantId,
    pub deadline: Option<Deadline>,
    pub origin: Origin,
}

/// # Errors
/// As [`crate::fetch::Fetcher::fetch`].
pub(super) async fn fetch(services: &Services, url: &str, tenant: TenantId) -> Result<Fetched, fetch::Error> {
    let turn = services.downloads.take(tenant.0).await;
    let download = services.fetcher.fetch(url).await?;
    Ok(Fetched { bytes: download.bytes, held: Box::new(turn) })
}

/// Transcribes audio into the body of the answer.
pub(super) async fn transcribe(
    services: &Services,
    understood: &Understood,
    urgency: Urgency,
    audio: Fetched,
) -> Result<wire::Response, Failure> {
    let Understood { request_id, created, ref parameters, words, raw, ref model, ref language } = *understood;
    let transcriber = &model.transcriber;
    let decode_options =
        DecodeOptions { raw, split_channels: parameters.multichannel, limits: services.audio.clone() };
    let options = TranscribeOptions {
        language: language.clone(),
        task: Task::Transcribe,
        prompt: None,
        bias: terms::terms(parameters),
        class: urgency.origin.class(),
        tenant: urgency.tenant,
        deadline: urgency.deadline,
    };
    let decoded = decode(services, audio, decode_options, (transcriber, &options), &urgency.origin).await?;
    let Admitted { decoded, sha256, admission } = decoded;
    let channels = decoded.channels;
    let (transcripts, names) = match services.diarizer.as_ref().zip(parameters.speakers()) {
        None => (transcriber.transcribe_all(channels, admission, &options).await?, Vec::new()),
        Some((diarizer, asked)) => {
            let found =
                transcriber.transcribe_speakers(channels, admission, &options, (diarizer, &asked)).await?;
            let (transcripts, speakers): (Vec<_>, Vec<_>) = found.into_iter().unzip();
            let names = match parameters.identify_speakers {
                true => {
                    let voices = services.voices.of(urgency.tenant.0);
                    speakers.iter().map(|speakers| identify(&voices, &speakers.voices)).collect()
                }
                false => Vec::new(),
            };
            (transcripts, names)
        }
    };

    let asked = Asked { request_id, created, parameters, words };
    let heard = Heard {
        sha256,
        duration_seconds: decoded.duration_seconds,
        source_channels: decoded.source_channels,
        damaged: decoded.damaged,
        transcripts: &transcripts,
        names: &names,
        model: transcriber.model(),
    };
    answer::respond(&asked, &heard).await.map_err(Failure::internal)
}
