//! A session as clients read it: the shape of the current API, and that of the older beta. No logic.

use schemars::JsonSchema;
use serde::Serialize;

#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum Session {
    Current(Box<Current>),
    Beta(Box<Beta>),
}

#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Current {
    pub id: String,
    pub object: &'static str,
    #[serde(rename = "type")]
    pub kind: &'static str,
    pub audio: Audio,
    pub include: Vec<&'static str>,
}

#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Audio {
    pub input: Input,
}

#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Input {
    pub format: Format,
    pub transcription: Transcription,
    /// Always null: none is done.
    pub noise_reduction: Option<()>,
    pub turn_detection: Option<TurnDetection>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Format {
    #[serde(rename = "type")]
    pub kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Transcription {
    pub model: String,
    pub language: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub languages: Vec<String>,
    pub prompt: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub keywords: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay: Option<&'static str>,
}

#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum TurnDetection {
    ServerVad { threshold: f32, prefix_padding_ms: u32, silence_duration_ms: u32 },
    SemanticVad { eagerness: &'static str },
}

#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Beta {
    pub id: String,
    pub object: &'static str,
    pub input_audio_format: &'static str,
    pub input_audio_transcription: Transcription,
    /// Always null: none is done.
    pub input_audio_noise_reduction: Option<()>,
    pub turn_detection: Option<TurnDetection>,
    pub include: Vec<&'static str>,
    /// Only of sessions that are made over HTTP.
    pub client_secret: Option<ClientSecret>,
}

#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ClientSecret {
    pub value: String,
    /// Unix time in seconds.
    pub expires_at: u64,
}
