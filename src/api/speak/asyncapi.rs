//! The stream of speech in AsyncAPI.

use serde_json::{Map, Value, json};

use super::parameters::TABLE;
use super::wire::{Message, Said};
use crate::asyncapi::{self, Socket, accepted, sent};

pub fn socket() -> Socket {
    let parameter =
        |name: &str, about: &str| (name.to_owned(), json!({"type": "string", "description": about}));
    let rows = TABLE.iter().filter(|row| row.is_of_streams);
    let query: Map<String, Value> = rows.map(|row| parameter(row.name, row.about)).collect();
    let mut sends = vec![asyncapi::Message::binary("audio", "Speech, in the encoding that was asked for.")];
    sends.extend(sent::<Message>());
    Socket {
        name: "speak",
        address: "/v1/speak",
        about: "Text is spoken while it arrives. The key also as `Sec-WebSocket-Protocol: token, org_…`.",
        query,
        accepts: accepted::<Said>(),
        sends,
    }
}
