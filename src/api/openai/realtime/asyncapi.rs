//! The sessions in AsyncAPI.

use serde_json::{Value, json};

use super::event::Event;
use super::request::{ACCEPTED, schema};
use crate::asyncapi::{Message, Socket, sent, with_member};

pub fn socket() -> Socket {
    let text = |about: &str| json!({"type": "string", "description": about});
    let query = [
        ("intent", json!({"type": "string", "enum": ["transcription"]})),
        ("model", text("The transcription's model, unless the session names another.")),
    ];
    Socket {
        name: "realtime",
        address: "/v1/realtime",
        about: "A transcription session of OpenAI's Realtime API. The key also as `Sec-WebSocket-Protocol: realtime, \
                openai-insecure-api-key.org_…`.",
        query: query.map(|(name, schema)| (name.to_owned(), schema)).into_iter().collect(),
        accepts: ACCEPTED.map(|kind| Message::text(kind, event(kind))).into(),
        sends: with_member(sent::<Event>(), "event_id", &json!({"type": "string"})),
    }
}

/// An event of a client.
fn event(kind: &str) -> Value {
    let mut payload = json!({
        "type": "object",
        "required": ["type"],
        "properties": {
            "type": {"type": "string", "const": kind},
            "event_id": {"type": "string", "maxLength": 512, "description": "Repeated in an error."},
        },
    });
    if let Some((name, member)) = schema(kind) {
        payload["properties"][name] = member;
        payload["required"] = json!(["type", name]);
    }
    payload
}
