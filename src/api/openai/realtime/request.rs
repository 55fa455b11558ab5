//! The events that clients send
//! (<https://developers.openai.com/api/reference/resources/realtime/client-events>), typed. Pure.
//!
//! A session's update is strict: an unknown field is refused by its name, so that none is dropped silently. Fields
//! that concern replies alone are accepted, since a transcription has none.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::asyncapi::schema_accepted;

/// The names of all events that clients may send.
pub const ACCEPTED: [&str; 5] = [
    "session.update",
    "transcription_session.update",
    "input_audio_buffer.append",
    "input_audio_buffer.commit",
    "input_audio_buffer.clear",
];
/// The client's own ids that are repeated in errors, in characters.
const EVENT_ID_CHARACTERS_MAX: usize = 512;

/// Longer descriptions of what is wrong are cut.
const MESSAGE_CHARACTERS_MAX: usize = 300;

/// The member of an event of this kind beside its type and id, as JSON Schema.
pub fn schema(kind: &str) -> Option<(&'static str, Value)> {
    match kind {
        "session.update" => {
            let mut session = schema_accepted::<CurrentSession>();
            session["required"] = serde_json::json!(["type"]);
            session["properties"]["type"] = serde_json::json!({"type": "string", "const": "transcription"});
            Some(("session", session))
        }
        "transcription_session.update" => Some(("session", schema_accepted::<BetaSession>())),
        "input_audio_buffer.append" => {
            Some(("audio", serde_json::json!({"type": "string", "contentEncoding": "base64"})))
        }
        _ => None,
    }
}

/// An event, and the id that the client gave it.
#[derive(Debug, PartialEq)]
pub struct Request {
    pub event_id: Option<String>,
    pub event: Result<Event, Invalid>,
}

#[derive(Debug, PartialEq)]
pub enum Event {
    Update(Box<Update>),
    Append(Bytes),
    Commit,
    Clear,
}

/// Why an event was refused. The message names what to change.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Invalid {
    pub code: &'static str,
    pub param: Option<&'static str>,
    pub message: String,
}

impl Invalid {
    pub fn new(code: &'static str, param: Option<&'static str>, message: impl Into<String>) -> Self {
        Self { code, param, message: message.into() }
    }

    pub fn value(param: &'static str, message: impl Into<String>) -> Self {
        Self::new("invalid_value", Some(param), message)
    }
}

/// Settings to change. `None`: as it was; `Some(None)`: null.
#[derive(Debug, Default, PartialEq)]
pub struct Update {
    /// It came in the beta's shape, and is answered in it.
    pub is_beta: bool,
    pub format: Option<Format>,
    pub transcription: Option<Transcription>,
    pub turn_detection: Option<Option<TurnDetection>>,
    pub include: Option<Vec<String>>,
}

impl Update {
    /// The model, if it is to change.
    pub fn model(&self) -> Option<&str> {
        self.transcription.as_ref()?.model.as_deref()
    }
}

/// G.711 is at 8 kHz; all have one channel.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Format {
    /// Signed 16-bit samples, little-endian, at 24 kHz.
    #[default]
    Pcm,
    Mulaw,
    Alaw,
}

/// Absent fields stay as they were.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Transcription {
    pub model: Option<String>,
    #[serde(deserialize_with = "present")]
    pub language: Option<Option<String>>,
    #[serde(deserialize_with = "present")]
    pub languages: Option<Option<Vec<String>>>,
    #[serde(deserialize_with = "present")]
    pub prompt: Option<Option<String>>,
    #[serde(deserialize_with = "present")]
    pub keywords: Option<Option<Vec<String>>>,
    #[serde(deserialize_with = "present")]
    pub delay: Option<Option<Delay>>,
}

/// How long words wait before they are sent as deltas.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Delay {
    Minimal,
    Low,
    Medium,
    High,
    Xhigh,
}

impl Delay {
    pub fn name(self) -> &'static str {
        match self {
            Self::Minimal => "minimal",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Xhigh => "xhigh",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum TurnDetection {
    ServerVad(ServerVad),
    SemanticVad(SemanticVad),
}

/// `create_response`, `interrupt_response` and `idle_timeout_ms` are about replies, which a transcription has not.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ServerVad {
    pub threshold: Option<f32>,
    pub prefix_padding_ms: Option<u32>,
    pub silence_duration_ms: Option<u32>,
    pub create_response: Option<bool>,
    pub interrupt_response: Option<bool>,
    pub idle_timeout_ms: Option<u32>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SemanticVad {
    pub eagerness: Option<Eagerness>,
    pub create_response: Option<bool>,
    pub interrupt_response: Option<bool>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Eagerness {
    Low,
    Medium,
    High,
    #[default]
    Auto,
}

impl Eagerness {
    pub fn name(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Auto => "auto",
        }
    }
}

/// `session` of `session.update`. What the server itself puts into a session is accepted, for clients that send a
/// session back.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct CurrentSession {
    #[serde(rename = "type")]
    _kind: Option<String>,
    audio: Option<CurrentAudio>,
    include: Option<Vec<String>>,
    #[serde(rename = "id")]
    _id: Option<String>,
    #[serde(rename = "object")]
    _object: Option<String>,
    #[serde(rename = "expires_at")]
    _expires_at: Option<u64>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct CurrentAudio {
    input: Option<CurrentInput>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct CurrentInput {
    format: Option<CurrentFormat>,
    #[serde(deserialize_with = "present")]
    transcription: Option<Option<Transcription>>,
    #[serde(rename = "noise_reduction")]
    _noise_reduction: Option<NoiseReduction>,
    #[serde(deserialize_with = "present")]
    turn_detection: Option<Option<TurnDetection>>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CurrentFormat {
    #[serde(rename = "type")]
    kind: CurrentFormatKind,
    rate: Option<u32>,
}

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
enum CurrentFormatKind {
    #[serde(rename = "audio/pcm")]
    Pcm,
    #[serde(rename = "audio/pcmu")]
    Mulaw,
    #[serde(rename = "audio/pcma")]
    Alaw,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NoiseReduction {
    #[serde(rename = "type")]
    _kind: Option<NoiseReductionKind>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum NoiseReductionKind {
    NearField,
    FarField,
}

/// `session` of `transcription_session.update`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct BetaSession {
    input_audio_format: Option<BetaFormat>,
    #[serde(deserialize_with = "present")]
    input_audio_transcription: Option<Option<Transcription>>,
    #[serde(rename = "input_audio_noise_reduction")]
    _noise_reduction: Option<NoiseReduction>,
    #[serde(deserialize_with = "present")]
    turn_detection: Option<Option<TurnDetection>>,
    include: Option<Vec<String>>,
    #[serde(rename = "modalities")]
    _modalities: Option<Vec<String>>,
    #[serde(rename = "client_secret")]
    _client_secret: Option<Value>,
    #[serde(rename = "id")]
    _id: Option<String>,
    #[serde(rename = "object")]
    _object: Option<String>,
    #[serde(rename = "expires_at")]
    _expires_at: Option<u64>,
}

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
enum BetaFormat {
    #[serde(rename = "pcm16")]
    Pcm,
    #[serde(rename = "g711_ulaw")]
    Mulaw,
    #[serde(rename = "g711_alaw")]
    Alaw,
}

/// Tells null apart from an absent field, which is the default.
fn present<'de, T: Deserialize<'de>, D: Deserializer<'de>>(from: D) -> Result<Option<Option<T>>, D::Error> {
    Option::deserialize(from).map(Some)
}

/// The members of events that matter here.
#[derive(Deserialize)]
struct Members {
    #[serde(rename = "type")]
    kind: Option<Value>,
    event_id: Option<Value>,
    audio: Option<Value>,
    session: Option<Value>,
}

impl Request {
    /// Reads a text message.
    pub fn read(text: &str) -> Self {
        let Ok(members) = serde_json::from_str::<Members>(text) else {
            let message = "The message is not a JSON object with the members of an event.";
            return Self { event_id: None, event: Err(Invalid::new("invalid_event", None, message)) };
        };
        let event_id = members.event_id.as_ref().and_then(Value::as_str);
        let event_id = event_id.filter(|id| id.chars().count() <= EVENT_ID_CHARACTERS_MAX).map(str::to_owned);
        Self { event_id, event: members.event() }
    }
}

impl Members {
    fn event(self) -> Result<Event, Invalid> {
        let Some(Value::String(kind)) = self.kind else {
            let message = "The `type` field is missing, or is not a string.";
            return Err(Invalid::new("invalid_event", Some("type"), message));
        };
        match kind.as_str() {
            "session.update" => current(session(self.session)?),
            "transcription_session.update" => beta(session(self.session)?),
            "input_audio_buffer.append" => append(self.audio),
            "input_audio_buffer.commit" => Ok(Event::Commit),
            "input_audio_buffer.clear" => Ok(Event::Clear),
            _ => Err(Invalid::value("type", unsupported(&kind))),
        }
    }
}

/// The client's word is repeated as far as it may be an event's name.
fn unsupported(kind: &str) -> String {
    let is_name = kind.len() <= 64 && kind.chars().all(|c| c.is_ascii_alphanumeric() || "._".contains(c));
    let name = if is_name { format!("`{kind}`") } else { "This event".to_owned() };
    format!("{name} is not available in a transcription session. Available are {}.", ACCEPTED.join(", "))
}

fn session(value: Option<Value>) -> Result<Value, Invalid> {
    let missing = || Invalid::new("missing_required_parameter", Some("session"), "`session` is missing.");
    value.ok_or_else(missing)
}

fn append(audio: Option<Value>) -> Result<Event, Invalid> {
    let Some(Value::String(audio)) = audio else {
        let message = "`audio` is missing, or is not a string.";
        return Err(Invalid::new("missing_required_parameter", Some("audio"), message));
    };
    let bytes = STANDARD
        .decode(audio)
        .map_err(|_| Invalid::value("audio", "`audio` is not base64 of bytes in the session's format."))?;
    Ok(Event::Append(bytes.into()))
}

/// Reads a session strictly; the message names the field.
fn strict<'de, T: Deserialize<'de>>(session: Value) -> Result<T, Invalid> {
    T::deserialize(session).map_err(|error| {
        // The client's own words are in it.
        let message: String = error.to_string().chars().take(MESSAGE_CHARACTERS_MAX).collect();
        let code = if message.starts_with("unknown field") { "unknown_parameter" } else { "invalid_value" };
        Invalid::new(code, Some("session"), format!("Invalid `session`: {message}."))
    })
}

fn current(session: Value) -> Result<Event, Invalid> {
    match session.get("type").and_then(Value::as_str) {
        Some("transcription") => {}
        Some("realtime") => {
            let message =
                "This server has transcription sessions only: `session.type` must be `transcription`.";
            return Err(Invalid::value("session.type", message));
        }
        Some(_) => return Err(Invalid::value("session.type", "`session.type` must be `transcription`.")),
        None => {
            let message = "`session.type` is missing; it must be `transcription`.";
            return Err(Invalid::new("missing_required_parameter", Some("session.type"), message));
        }
    }
    let CurrentSession { audio, include, .. } = strict(session)?;
    let input = audio.and_then(|audio| audio.input).unwrap_or_default();
    let format = input.format.map(|CurrentFormat { kind, rate }| match (kind, rate) {
        (CurrentFormatKind::Pcm, None | Some(24_000)) => Ok(Format::Pcm),
        (CurrentFormatKind::Pcm, Some(_)) => {
            Err(Invalid::value("session.audio.input.format.rate", "`audio/pcm` must have a rate of 24000."))
        }
        (CurrentFormatKind::Mulaw, _) => Ok(Format::Mulaw),
        (CurrentFormatKind::Alaw, _) => Ok(Format::Alaw),
    });
    let update = Update {
        is_beta: false,
        format: format.transpose()?,
        transcription: transcribed(input.transcription, "session.audio.input.transcription")?,
        turn_detection: input.turn_detection,
        include,
    };
    Ok(Event::Update(Box::new(update)))
}

fn beta(session: Value) -> Result<Event, Invalid> {
    let session: BetaSession = strict(session)?;
    let update = Update {
        is_beta: true,
        format: session.input_audio_format.map(|format| match format {
            BetaFormat::Pcm => Format::Pcm,
            BetaFormat::Mulaw => Format::Mulaw,
            BetaFormat::Alaw => Format::Alaw,
        }),
        transcription: transcribed(session.input_audio_transcription, "session.input_audio_transcription")?,
        turn_detection: session.turn_detection,
        include: session.include,
    };
    Ok(Event::Update(Box::new(update)))
}

fn transcribed(
    transcription: Option<Option<Transcription>>,
    param: &'static str,
) -> Result<Option<Transcription>, Invalid> {
    match transcription {
        Some(None) => {
            Err(Invalid::value(param, "A transcription session always transcribes: this cannot be null."))
        }
        given => Ok(given.flatten()),
    }
}

#[cfg(test)]
mod tests;
