//! The JSON of the wire format. No logic: `answer.rs` decides what goes where.
//!
//! Field names and nesting are those of the contract and of the SDKs' response types; a feature that was not
//! asked for is an absent key, never null.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use uuid::Uuid;

use crate::figures::{Probability, Seconds};

/// The answer to a transcription.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Response {
    pub metadata: Metadata,
    pub results: Results,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Metadata {
    /// Always `deprecated`; SDKs require the key.
    pub transaction_key: &'static str,
    pub request_id: Uuid,
    /// SHA-256 of the bytes that were transcribed, 64 hexadecimal digits.
    pub sha256: String,
    /// When the request arrived, `2024-02-06T19:56:16.180Z`.
    pub created: String,
    /// Seconds of audio.
    pub duration: Seconds,
    /// Channels of the audio as it was sent.
    pub channels: u16,
    pub models: Vec<Uuid>,
    pub model_info: BTreeMap<Uuid, ModelInfo>,
    /// With `diarize`: the model that found the speakers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diarize_info: Option<DiarizeInfo>,
    /// Voice that gave no words, all channels added up; absent if there is none. An extension.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub voice_without_words: Option<Seconds>,
    /// Parameters that were understood and not honoured.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Warning>,
    /// The request's `extra` pairs.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, String>,
    /// The request's `tag` values.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// The request's `metadata`, as it was sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<String>,
}

/// The answer to a request with `callback`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Acknowledgement {
    pub request_id: Uuid,
}

/// Delivered in place of a [`Response`] if a job fails: the error object of any request, with the labels that
/// a [`Response`] would have.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JobError<E> {
    #[serde(flatten)]
    pub error: E,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Echo>,
}

/// As in [`Metadata`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Echo {
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<String>,
}

/// The status of a job.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Job {
    pub request_id: Uuid,
    /// `queued`, `running`, `delivering`, `delivered` or `dead`.
    pub state: &'static str,
    /// When the request arrived, as in [`Metadata::created`].
    pub created: String,
    /// When it runs or is sent next, if it waits for that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// When the result was stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished: Option<String>,
    /// When it was delivered, or given up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
    /// How often transcription was begun.
    pub runs: u32,
    /// How often delivery was attempted.
    pub attempts: u32,
    /// The code of the last error, of either.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// The delivered result, or the one to deliver, if the server keeps it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<serde_json::Value>,
}

/// An enrolled voice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EnrolledSpeaker {
    pub speaker_id: Uuid,
    pub name: String,
    /// As in [`Metadata::created`].
    pub created: String,
}

/// The enrolled voices of an organisation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EnrolledSpeakers {
    pub speakers: Vec<EnrolledSpeaker>,
}

#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ModelInfo {
    pub name: String,
    pub version: String,
    pub arch: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DiarizeInfo {
    pub model_uuid: Uuid,
    pub arch: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Warning {
    pub parameter: &'static str,
    #[serde(rename = "type")]
    pub kind: WarningKind,
    pub message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WarningKind {
    UnsupportedParameter,
    UnsupportedModel,
    /// A feature does not support the audio's language.
    UnsupportedLanguage,
    /// Some of its values had no effect.
    PartlyUsed,
    /// It means nothing without another parameter.
    WithoutEffect,
    /// The audio is truncated or damaged: the rest was transcribed.
    DamagedAudio,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Results {
    /// One for all channels mixed, or one for each.
    pub channels: Vec<Channel>,
    /// Those of all channels, in order of time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub utterances: Option<Vec<Utterance>>,
}

/// Words of one speaker without a long pause between them.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Utterance {
    pub start: Seconds,
    pub end: Seconds,
    pub confidence: Probability,
    pub channel: usize,
    pub transcript: String,
    pub words: Vec<Word>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speaker: Option<usize>,
    /// As in [`Word`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speaker_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speaker_name_confidence: Option<Probability>,
    pub id: Uuid,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Channel {
    /// One for each search term.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub search: Option<Vec<Search>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detected_language: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub language_confidence: Option<Probability>,
    /// The best first.
    pub alternatives: Vec<Alternative>,
}

#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Search {
    pub query: String,
    /// The surest first.
    pub hits: Vec<Hit>,
}

#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Hit {
    /// 0 to 1.
    pub confidence: Probability,
    pub start: Seconds,
    pub end: Seconds,
    /// The words found.
    pub snippet: String,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Alternative {
    pub transcript: String,
    /// Mean of the words' confidences, 0 to 1; 0 without words.
    pub confidence: Probability,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub words: Option<Vec<Word>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paragraphs: Option<Paragraphs>,
    /// With `language=multi`: the languages spoken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub languages: Option<Vec<String>>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Paragraphs {
    /// A line break, then the paragraphs with an empty line between them; with `diarize` each behind `Speaker N: `.
    pub transcript: String,
    pub paragraphs: Vec<Paragraph>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Paragraph {
    pub sentences: Vec<Sentence>,
    pub num_words: usize,
    pub start: Seconds,
    pub end: Seconds,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speaker: Option<usize>,
    /// As in [`Word`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speaker_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speaker_name_confidence: Option<Probability>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Sentence {
    pub text: String,
    pub start: Seconds,
    pub end: Seconds,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speaker: Option<usize>,
    /// As in [`Word`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speaker_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speaker_name_confidence: Option<Probability>,
}

#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Word {
    /// Lower case, without adjoining punctuation.
    pub word: String,
    /// Seconds from the start of the audio.
    pub start: Seconds,
    pub end: Seconds,
    /// 0 to 1.
    pub confidence: Probability,
    /// As written, if punctuation was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub punctuated_word: Option<String>,
    /// With `diarize`: the speaker, by first appearance in the channel, from 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speaker: Option<usize>,
    /// 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speaker_confidence: Option<Probability>,
    /// With `identify_speakers`: the speaker's name, if its voice is enrolled. An extension.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speaker_name: Option<String>,
    /// 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speaker_name_confidence: Option<Probability>,
    /// With `language=multi`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub language: Option<String>,
}
