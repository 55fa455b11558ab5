//! The messages of `wss /v2/speak`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::super::answer::uuid;

/// A message of the server.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(tag = "type")]
pub enum Message {
    /// The first one.
    Connected {
        request_id: Uuid,
        model_name: String,
        model_version: &'static str,
        model_uuids: Vec<Uuid>,
    },
    /// A turn begins; its audio follows.
    SpeechStarted {
        speech_id: String,
    },
    /// All audio of a turn was sent.
    Flushed {
        speech_id: String,
    },
    /// A turn is over.
    SpeechMetadata(Turn),
    /// Speech was cut off.
    SpeechInterrupted {
        /// The session's audio that the client has played, in milliseconds.
        audio_played_ms: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        text_spoken: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        text_remaining: Option<String>,
        metadata: Turn,
    },
    ConfigureSuccess {
        applied: Applied,
    },
    ConfigureFailure {
        code: &'static str,
        field: &'static str,
        value: Option<f64>,
        description: &'static str,
    },
    /// The sums of the session, before it is closed.
    SessionMetadata {
        total_audio_duration_ms: u64,
        total_input_character_count: u64,
        total_billable_character_count: u64,
    },
    /// A message was not obeyed; the session goes on.
    Warning {
        code: &'static str,
        description: &'static str,
    },
    /// The session ends with this.
    Error {
        code: &'static str,
        description: &'static str,
    },
}

/// The figures of a turn.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Turn {
    pub speech_id: String,
    pub audio_duration_ms: u64,
    pub input_character_count: u64,
    /// Without control characters.
    pub billable_character_count: u64,
    pub controls_applied: Controls,
}

/// Controls within texts. There are none here: texts are spoken as they are.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Controls {
    pub pronunciations_applied: u64,
    pub breaks_applied: u64,
    pub pronunciation_warnings: u64,
}

/// The controls that the client has set.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub struct Applied {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speed: Option<f64>,
}

/// A message of the client.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(tag = "type")]
pub enum Said {
    /// Text to speak: whole sentences, or any part of one.
    Speak { text: String },
    /// The turn has no more text.
    Flush,
    /// The listener has cut in: stop speaking.
    Interrupt { playback_offset: Option<Offset> },
    /// Change the pace.
    Configure { speed: Option<f64> },
    /// Speak the rest, and close.
    Close,
    /// Keeps the session open.
    KeepAlive,
}

/// The part of the session's audio that the client has played.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Offset {
    /// In milliseconds.
    TimeMs { value: u64 },
}

pub fn connected(request_id: Uuid, voice: &str) -> Message {
    Message::Connected {
        request_id,
        model_name: voice.to_owned(),
        model_version: env!("CARGO_PKG_VERSION"),
        model_uuids: vec![uuid(voice)],
    }
}

impl Said {
    /// `None` if it is none of these.
    pub fn read(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_the_form_that_sdks_read_and_send() {
        let turn = Turn { speech_id: "dg_sp_0".into(), audio_duration_ms: 5, ..Turn::default() };
        let told = serde_json::to_value(Message::SpeechMetadata(turn)).unwrap();
        assert_eq!((&told["type"], &told["audio_duration_ms"]), (&"SpeechMetadata".into(), &5.into()));
        assert_eq!(told["controls_applied"]["breaks_applied"], 0);
        let interrupt = r#"{"type":"Interrupt","playback_offset":{"type":"time_ms","value":1200}}"#;
        let offset = Some(Offset::TimeMs { value: 1200 });
        assert_eq!(Said::read(interrupt), Some(Said::Interrupt { playback_offset: offset }));
        // SDKs send what is not set as null.
        let bare = r#"{"type":"Interrupt","playback_offset":null}"#;
        assert_eq!(Said::read(bare), Some(Said::Interrupt { playback_offset: None }));
        assert_eq!(Said::read(r#"{"type":"Configure"}"#), Some(Said::Configure { speed: None }));
        for text in
            ["", "{}", r#"{"type":"Speak"}"#, r#"{"type":"Clear"}"#, r#"{"type":"Configure","speed":"1"}"#]
        {
            assert_eq!(Said::read(text), None, "{text}");
        }
    }
}
