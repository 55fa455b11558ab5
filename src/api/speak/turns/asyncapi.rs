//! The session of turns in AsyncAPI.

use serde_json::{Map, Value, json};

use super::super::parameters::of_version;
use super::wire::{Message, Said};
use crate::asyncapi::{self, Socket, accepted, sent};

pub fn socket() -> Socket {
    let parameter =
        |name: &str, about: &str| (name.to_owned(), json!({"type": "string", "description": about}));
    let rows = of_version(2).filter(|row| row.is_of_streams);
    let query: Map<String, Value> = rows.map(|row| parameter(row.name, row.about)).collect();
    let mut sends = vec![asyncapi::Message::binary("audio", "Speech, in the encoding that was asked for.")];
    sends.extend(sent::<Message>());
    Socket {
        name: "speech_turns",
        address: "/v2/speak",
        about: "A conversation's turns are spoken while their text arrives, and may be interrupted. The key also as \
                `Sec-WebSocket-Protocol: token, org_…`.",
        query,
        accepts: accepted::<Said>(),
        sends,
    }
}
