//! The stream in AsyncAPI.

use serde_json::{Map, Value};

use super::control::Control;
use super::wire::Message;
use crate::asyncapi::{self, Socket, accepted, sent};

/// The description; `query` has the parameters.
pub fn socket(query: Map<String, Value>) -> Socket {
    let mut accepts = vec![asyncapi::Message::binary(
        "audio",
        "Audio, cut anywhere; one packet of Opus or Speex without a container.",
    )];
    accepts.extend(accepted::<Control>());
    Socket {
        name: "listen",
        address: "/v1/listen",
        about: "Audio is transcribed while it arrives. The key also as `Sec-WebSocket-Protocol: token, org_…`.",
        query,
        accepts,
        sends: sent::<Message>(),
    }
}
