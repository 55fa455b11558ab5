//! The conversational stream in AsyncAPI.

use serde_json::{Map, Value, json};

use super::control::Control;
use super::wire::Message;
use crate::asyncapi::{self, Socket, accepted, sent, with_member};

/// The description; `query` has the parameters.
pub fn socket(query: Map<String, Value>) -> Socket {
    let mut accepts = vec![asyncapi::Message::binary("audio", "Audio, cut anywhere.")];
    accepts.extend(accepted::<Control>());
    Socket {
        name: "turns",
        address: "/v2/listen",
        about: "The turns of a conversation. The key also as `Sec-WebSocket-Protocol: token, org_…`.",
        query,
        accepts,
        sends: with_member(sent::<Message>(), "sequence_id", &json!({"type": "integer", "minimum": 0})),
    }
}
