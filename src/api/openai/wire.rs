//! The JSON of OpenAI's audio routes and models (openai/openai-openapi). No logic: `answer.rs` decides what goes where.

use serde::Serialize;

use crate::figures::{Probability, Score, Seconds};

/// `CreateTranscriptionResponseJson`; of a translation, only the text.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Transcription {
    pub text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub languages: Option<Vec<Language>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logprobs: Option<Vec<LogProbability>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// `CreateTranscriptionResponseVerboseJson`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Verbose {
    pub task: &'static str,
    /// Its English name.
    pub language: String,
    pub duration: Seconds,
    pub text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub words: Option<Vec<Word>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub segments: Option<Vec<Segment>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Word {
    /// Without adjoining punctuation.
    pub word: String,
    pub start: Seconds,
    pub end: Seconds,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Segment {
    pub id: usize,
    /// The start of the window it was decoded in, in hundredths of a second.
    pub seek: u64,
    pub start: Seconds,
    pub end: Seconds,
    pub text: String,
    pub tokens: Vec<u32>,
    pub temperature: Score,
    pub avg_logprob: Score,
    pub compression_ratio: Score,
    pub no_speech_prob: Probability,
}

/// `CreateTranscriptionResponseDiarizedJson`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Diarized {
    pub task: &'static str,
    pub duration: Seconds,
    pub text: String,
    pub segments: Vec<DiarizedSegment>,
    pub usage: Usage,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// Also an event of its own.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DiarizedSegment {
    #[serde(rename = "type")]
    pub kind: &'static str,
    pub id: String,
    pub start: Seconds,
    pub end: Seconds,
    pub text: String,
    pub speaker: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Language {
    pub code: String,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LogProbability {
    pub token: String,
    pub logprob: Score,
    pub bytes: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Usage {
    /// Whole seconds of audio.
    Duration {
        seconds: u64,
    },
    Tokens {
        input_tokens: u64,
        input_token_details: InputTokens,
        output_tokens: u64,
        total_tokens: u64,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct InputTokens {
    pub text_tokens: u64,
    pub audio_tokens: u64,
}

/// Events of a stream.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type")]
pub enum Event {
    #[serde(rename = "transcript.text.delta")]
    Delta {
        delta: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        logprobs: Option<Vec<LogProbability>>,
    },
    #[serde(rename = "transcript.text.done")]
    Done {
        text: String,
        languages: Vec<Language>,
        #[serde(skip_serializing_if = "Option::is_none")]
        logprobs: Option<Vec<LogProbability>>,
        usage: Usage,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        warnings: Vec<String>,
    },
}

/// `Model`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Model {
    pub id: String,
    pub object: &'static str,
    /// Seconds since 1970: when the server loaded it.
    pub created: u64,
    pub owned_by: &'static str,
}

/// `ListModelsResponse`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Models {
    pub object: &'static str,
    pub data: Vec<Model>,
}
