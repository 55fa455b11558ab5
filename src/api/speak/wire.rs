//! The messages of `wss /v1/speak`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::answer::uuid;

/// A message of the server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(tag = "type")]
pub enum Message {
    /// The first one.
    Metadata { request_id: Uuid, model_name: String, model_version: &'static str, model_uuid: Uuid },
    /// All audio of the text before a `Flush` was sent.
    Flushed { sequence_id: u64 },
    /// Unspoken text was discarded.
    Cleared { sequence_id: u64 },
    /// A message was not obeyed; the stream goes on.
    Warning { description: &'static str, code: &'static str },
}

/// A message of the client.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(tag = "type")]
pub enum Said {
    /// Text to speak: whole sentences, or any part of one.
    Speak { text: String },
    /// Speak the buffered text, even mid-sentence.
    Flush,
    /// Discard unspoken text.
    Clear,
    /// Speak the rest, and close.
    Close,
    /// Keeps the stream open.
    KeepAlive,
}

pub fn metadata(request_id: Uuid, voice: &str) -> Message {
    Message::Metadata {
        request_id,
        model_name: voice.to_owned(),
        model_version: env!("CARGO_PKG_VERSION"),
        model_uuid: uuid(voice),
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
    fn messages_have_the_form_that_sdks_read() {
        let json = |message: &Message| serde_json::to_string(message).unwrap();
        assert_eq!(json(&Message::Flushed { sequence_id: 0 }), r#"{"type":"Flushed","sequence_id":0}"#);
        let metadata = serde_json::to_value(metadata(Uuid::nil(), "af_heart")).unwrap();
        assert_eq!((&metadata["type"], &metadata["model_name"]), (&"Metadata".into(), &"af_heart".into()));
        assert_eq!(
            Said::read(r#"{"type":"Speak","text":"a","more":1}"#),
            Some(Said::Speak { text: "a".into() })
        );
        assert_eq!(Said::read(r#"{"type":"Flush"}"#), Some(Said::Flush));
        for text in ["", "{}", r#"{"type":"Speak"}"#, r#"{"type":"Sing"}"#, "[]"] {
            assert_eq!(Said::read(text), None, "{text}");
        }
    }
}
