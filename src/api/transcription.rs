//! The transcription of one file, for a request whose client waits and for a job.

use std::time::SystemTime;

use uuid::Uuid;

use super::answer::{self, Asked, Heard};
use super::decode::{Admitted, Fetched, Origin, decode};
use super::parameters::Parameters;
use super::services::Services;
use super::{error, language, terms, wire};
use crate::audio::{Bare, DecodeOptions};
use crate::engine::{LanguageChoice, TenantId};
use crate::fetch;
use crate::http::Failure;
use crate::patience::Deadline;
use crate::registry::Loaded;
use crate::speakers::{self, Diarization};
use crate::transcribe::TranscribeOptions;
use crate::transcript::Transcript;
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

/// How a file is decoded and recognised.
pub(super) struct Wanted {
    /// The format of bytes that are no container.
    pub raw: Option<Bare>,
    pub split_channels: bool,
    pub model: Loaded,
    pub options: TranscribeOptions,
    /// Limits on the number of speakers, if words are labelled with them.
    pub speakers: Option<speakers::Options>,
}

/// A file's transcription.
pub(super) struct Recognised {
    pub sha256: [u8; 32],
    pub duration_seconds: f64,
    pub source_channels: u16,
    pub damaged: bool,
    /// One for each channel.
    pub transcripts: Vec<Transcript>,
    /// The speakers of each channel, if they were wanted.
    pub speakers: Vec<Diarization>,
}

/// Decodes and recognises a file.
///
/// # Errors
/// Those of [`decode`] and of [`crate::transcribe::Transcriber`].
pub(super) async fn recognise(
    services: &Services,
    wanted: Wanted,
    origin: &Origin,
    audio: Fetched,
) -> Result<Recognised, Failure> {
    let Wanted { raw, split_channels, model, options, speakers } = wanted;
    let transcriber = model.transcriber();
    let decode_options = DecodeOptions { raw, split_channels, limits: services.audio.clone() };
    let whose = (options.tenant, options.deadline);
    let admitted = decode((services, transcriber.engine()), audio, decode_options, whose, origin).await?;
    admitted.log(transcriber.model());
    let Admitted { decoded, sha256, admission } = admitted;
    let channels = decoded.channels;
    let (transcripts, speakers) = match services.diarizer.as_ref().zip(speakers) {
        None => (transcriber.transcribe_all(channels, admission, &options).await?, Vec::new()),
        Some((diarizer, asked)) => {
            let found =
                transcriber.transcribe_speakers(channels, admission, &options, (diarizer, &asked)).await?;
            found.into_iter().unzip()
        }
    };
    let (duration_seconds, source_channels) = (decoded.duration_seconds, decoded.source_channels);
    let damaged = decoded.damaged;
    Ok(Recognised { sha256, duration_seconds, source_channels, damaged, transcripts, speakers })
}

/// Transcribes audio into the body of the answer.
pub(super) async fn transcribe(
    services: &Services,
    understood: &Understood,
    urgency: Urgency,
    audio: Fetched,
) -> Result<wire::Response, Failure> {
    let Understood { request_id, created, ref parameters, words, raw, ref model, ref language } = *understood;
    let Urgency { tenant, deadline, origin } = urgency;
    let options = TranscribeOptions {
        bias: terms::terms(parameters),
        class: origin.class(),
        tenant,
        deadline,
        ..TranscribeOptions::new(language.clone())
    };
    let split_channels = parameters.multichannel;
    let wanted =
        Wanted { raw, split_channels, model: model.clone(), options, speakers: parameters.speakers() };
    let recognised = recognise(services, wanted, &origin, audio).await?;
    let names: Vec<_> = match parameters.identify_speakers {
        true => {
            let voices = services.voices.latest(tenant.0).await;
            recognised.speakers.iter().map(|speakers| identify(&voices, &speakers.voices)).collect()
        }
        false => Vec::new(),
    };
    let asked = Asked { request_id, created, parameters, words };
    let heard = Heard {
        sha256: recognised.sha256,
        duration_seconds: recognised.duration_seconds,
        source_channels: recognised.source_channels,
        damaged: recognised.damaged,
        transcripts: &recognised.transcripts,
        names: &names,
        model: model.model(),
    };
    answer::respond(&asked, &heard).await.map_err(Failure::internal)
}
