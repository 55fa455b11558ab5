//! The events that the server sends, as OpenAI's Realtime API has them
//! (<https://developers.openai.com/api/reference/resources/realtime/server-events>). No logic.

use schemars::JsonSchema;
use serde::Serialize;
use uuid::Uuid;

use super::shape::Session;

/// An event with its id.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Message {
    pub event_id: String,
    #[serde(flatten)]
    pub event: Event,
}

impl From<Event> for Message {
    fn from(event: Event) -> Self {
        Self { event_id: id("event"), event }
    }
}

/// A new id: `item_5f0c…`.
pub fn id(kind: &str) -> String {
    format!("{kind}_{}", Uuid::new_v4().simple())
}

#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(tag = "type")]
pub enum Event {
    #[serde(rename = "session.created")]
    SessionCreated { session: Session },
    #[serde(rename = "session.updated")]
    SessionUpdated { session: Session },
    /// The older beta's name.
    #[serde(rename = "transcription_session.created")]
    BetaSessionCreated { session: Session },
    /// The older beta's name.
    #[serde(rename = "transcription_session.updated")]
    BetaSessionUpdated { session: Session },
    /// `audio_start_ms`: from the start of all audio, with the padding.
    #[serde(rename = "input_audio_buffer.speech_started")]
    SpeechStarted { audio_start_ms: u64, item_id: String },
    /// `audio_end_ms`: from the start of all audio, with the silence that ended it.
    #[serde(rename = "input_audio_buffer.speech_stopped")]
    SpeechStopped { audio_end_ms: u64, item_id: String },
    #[serde(rename = "input_audio_buffer.committed")]
    Committed { previous_item_id: Option<String>, item_id: String },
    #[serde(rename = "input_audio_buffer.cleared")]
    Cleared,
    #[serde(rename = "conversation.item.added")]
    ItemAdded { previous_item_id: Option<String>, item: Item },
    /// The older beta's name for an item that was added.
    #[serde(rename = "conversation.item.created")]
    ItemCreated { previous_item_id: Option<String>, item: Item },
    #[serde(rename = "conversation.item.done")]
    ItemDone { previous_item_id: Option<String>, item: Item },
    #[serde(rename = "conversation.item.input_audio_transcription.delta")]
    Delta {
        item_id: String,
        content_index: u32,
        delta: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        logprobs: Option<Vec<LogProbability>>,
    },
    #[serde(rename = "conversation.item.input_audio_transcription.segment")]
    Segment {
        item_id: String,
        content_index: u32,
        id: String,
        text: String,
        /// `A` for the first speaker of the session.
        speaker: String,
        /// Seconds from the start of all audio.
        start: f64,
        end: f64,
    },
    #[serde(rename = "conversation.item.input_audio_transcription.completed")]
    Completed {
        item_id: String,
        content_index: u32,
        /// All deltas of the item, one after another.
        transcript: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        logprobs: Option<Vec<LogProbability>>,
        languages: Vec<Language>,
        usage: Usage,
    },
    #[serde(rename = "conversation.item.input_audio_transcription.failed")]
    Failed { item_id: String, content_index: u32, error: Failed },
    #[serde(rename = "error")]
    Error { error: ErrorDetails },
}

/// A user's message of audio.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Item {
    pub id: String,
    pub object: &'static str,
    #[serde(rename = "type")]
    pub kind: &'static str,
    pub status: &'static str,
    pub role: &'static str,
    pub content: [Content; 1],
}

#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Content {
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// Not known yet.
    pub transcript: Option<String>,
}

impl Item {
    /// An item whose transcript is to come.
    pub fn new(id: String) -> Self {
        let content = [Content { kind: "input_audio", transcript: None }];
        Self { id, object: "realtime.item", kind: "message", status: "completed", role: "user", content }
    }
}

/// How likely a word is to be right: words stand for tokens.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct LogProbability {
    pub token: String,
    /// The token's UTF-8.
    pub bytes: Vec<u8>,
    /// The natural logarithm of a probability, at most 0.
    pub logprob: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Language {
    pub code: String,
}

/// The seconds of audio that an item used.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Usage {
    Duration { seconds: f64 },
}

/// Why an item has no transcript.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Failed {
    #[serde(rename = "type")]
    pub kind: &'static str,
    pub code: &'static str,
    pub message: &'static str,
    pub param: Option<&'static str>,
}

#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ErrorDetails {
    #[serde(rename = "type")]
    pub kind: &'static str,
    pub code: &'static str,
    pub message: String,
    pub param: Option<&'static str>,
    /// The id that the client gave its event.
    pub event_id: Option<String>,
}
