//! The messages of the wire format's streams. No logic.
//!
//! Names and nesting are those that the types of the SDKs require; a feature that was not asked for is an
//! absent key.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use uuid::Uuid;

use crate::api::wire::{ModelInfo, Search, Warning, Word};
use crate::figures::{Probability, Seconds};

#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(tag = "type")]
pub enum Message {
    Results(Box<Results>),
    /// Speech begins; only with `vad_events`.
    SpeechStarted {
        channel: [usize; 2],
        timestamp: Seconds,
    },
    /// A pause after the last word; only with `utterance_end_ms`.
    UtteranceEnd {
        channel: [usize; 2],
        last_word_end: Seconds,
    },
    /// The last message of a stream.
    Metadata(Box<Metadata>),
    /// An invalid text message; the stream goes on.
    Error {
        variant: &'static str,
        description: &'static str,
        message: &'static str,
    },
    /// A change has been made.
    ConfigureSuccess {
        request_id: Uuid,
        /// The terms in effect, if they were replaced.
        #[serde(skip_serializing_if = "Option::is_none")]
        keyterms: Option<Vec<String>>,
    },
    ConfigureFailure {
        request_id: Uuid,
        code: &'static str,
        description: &'static str,
    },
}

#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Results {
    /// The channel, and how many there are.
    pub channel_index: [usize; 2],
    pub duration: Seconds,
    pub start: Seconds,
    pub is_final: bool,
    pub speech_final: bool,
    pub channel: Channel,
    pub metadata: ResultsMetadata,
    pub from_finalize: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Channel {
    pub alternatives: [Alternative; 1],
    /// With `search`: where each term is in this result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub search: Option<Vec<Search>>,
}

#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Alternative {
    pub transcript: String,
    /// Mean of the words' confidences, 0 to 1; 0 without words.
    pub confidence: Probability,
    /// With `language=multi`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub languages: Option<Vec<String>>,
    pub words: Vec<Word>,
}

#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ResultsMetadata {
    pub request_id: Uuid,
    pub model_info: ModelInfo,
    pub model_uuid: Uuid,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Metadata {
    /// Always `deprecated`.
    pub transaction_key: &'static str,
    pub request_id: Uuid,
    /// SHA-256 of all audio received, 64 hexadecimal digits.
    pub sha256: String,
    pub created: String,
    /// Seconds of audio.
    pub duration: Seconds,
    /// Channels of the audio; 0 if there was none.
    pub channels: u16,
    pub models: [Uuid; 1],
    pub model_info: BTreeMap<Uuid, ModelInfo>,
    /// Voice that gave no words, all channels added up; absent if there is none. An extension.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub voice_without_words: Option<Seconds>,
    /// Parameters that were understood and not honoured.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Warning>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// The request's `metadata`, untouched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<String>,
}
