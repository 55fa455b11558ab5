//! The messages of conversational streams. No logic.
//!
//! Names and nesting are those of the wire format's AsyncAPI document (deepgram/deepgram-api-specs, `ListenV2…`), with
//! the additions of deepgram-sdk 7.17: `trigger`, `numerals` and `Warning`.

use schemars::JsonSchema;
use serde::Serialize;
use uuid::Uuid;

use crate::figures::{Probability, Score, Seconds};

/// A message with its number in the stream, from 0.
#[derive(Debug, Serialize)]
pub struct Numbered<'a> {
    #[serde(flatten)]
    pub message: &'a Message,
    pub sequence_id: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(tag = "type")]
pub enum Message {
    /// The first message.
    Connected {
        request_id: Uuid,
    },
    /// A parameter that was understood has no effect. After `Connected`, one for each.
    Warning {
        request_id: Uuid,
        code: WarningKind,
        description: String,
    },
    TurnInfo(Box<TurnInfo>),
    /// A change has been made.
    ConfigureSuccess {
        request_id: Uuid,
        /// All options, as they are now.
        thresholds: Thresholds,
        keyterms: Vec<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        language_hints: Option<Vec<String>>,
        numerals: bool,
    },
    /// Nothing was changed, and the stream goes on.
    ConfigureFailure {
        request_id: Uuid,
        code: &'static str,
        description: String,
    },
    /// The stream ends.
    Error {
        code: &'static str,
        description: &'static str,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum WarningKind {
    UnsupportedParameter,
    UnsupportedModel,
    UnsupportedLanguage,
    /// It means nothing here, or not without another parameter.
    WithoutEffect,
}

#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct TurnInfo {
    pub request_id: Uuid,
    pub event: Event,
    pub turn_index: u64,
    pub audio_window_start: Seconds,
    pub audio_window_end: Seconds,
    pub transcript: String,
    pub words: Vec<Word>,
    pub end_of_turn_confidence: Probability,
    /// Only of `EndOfTurn`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trigger: Option<Trigger>,
    /// Where the language is detected: those of the words, most frequent first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub languages: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub languages_hinted: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub enum Event {
    Update,
    StartOfTurn,
    EagerEndOfTurn,
    TurnResumed,
    EndOfTurn,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Trigger {
    Model,
    Manual,
    Timeout,
}

/// A word with its capitals and punctuation.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Word {
    pub word: String,
    pub confidence: Probability,
    pub start: Seconds,
    pub end: Seconds,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Thresholds {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eager_eot_threshold: Option<Score>,
    pub eot_threshold: Score,
    pub eot_timeout_ms: u64,
}
