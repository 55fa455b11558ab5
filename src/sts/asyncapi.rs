//! The service's WebSocket for SDKs in AsyncAPI, as a part of the server's document.

use serde_json::{Map, Value, json};

use crate::asyncapi::{Message, Socket, sent};
use crate::room;

/// The messages of clients: what each is for, and its members.
fn said() -> [(&'static str, &'static str, Value); 14] {
    let text = json!({"type": "string"});
    let format = |sample_rate: u32| {
        let encoding = json!({"type": "string", "enum": ["linear16", "mulaw"], "default": "linear16"});
        let rate = json!({"type": "integer", "minimum": 8000, "maximum": 48_000, "default": sample_rate});
        json!({"type": "object", "properties": {"encoding": encoding, "sample_rate": rate}})
    };
    let provider = |members: Value| json!({"type": "object", "properties": {"provider": {"type": "object", "properties": members}}});
    let function = json!({"type": "object", "required": ["name"], "properties": {
        "name": {"type": "string", "pattern": "^[A-Za-z0-9_-]+$"}, "description": text, "parameters": {"type": "object"},
    }});
    [
        (
            "Settings",
            "The first message: the formats of audio, and the agent's setup.",
            json!({
                "audio": {"type": "object", "properties": {"input": format(16_000), "output": format(24_000)}},
                "agent": {"type": "object", "properties": {
                    "greeting": text, "think": {"type": "object", "properties": {"prompt": text}},
                }},
            }),
        ),
        ("KeepAlive", "Keeps a silent connection open.", json!({})),
        ("InjectUserMessage", "Typed instead of spoken.", json!({"content": text})),
        ("Dtmf", "A key of the telephone.", json!({"digit": {"type": "string", "pattern": "^[0-9*#A-D]$"}})),
        ("PlaybackMark", "Playback has reached a mark.", json!({"name": text})),
        (
            "PageContext",
            "The state of the page that the user sees.",
            json!({"page_context": {"type": "object"}}),
        ),
        ("UpdatePrompt", "Other instructions for the agent.", json!({"prompt": text})),
        (
            "UpdateThink",
            "Other instructions and functions.",
            json!({"think": {"type": "object", "properties": {"prompt": text, "functions": {"type": "array", "items": function}}}}),
        ),
        (
            "UpdateSpeak",
            "Another voice or pace.",
            json!({"speak": provider(json!({"model": text, "speed": {"type": "number", "minimum": 0.7, "maximum": 1.5}}))}),
        ),
        (
            "UpdateListen",
            "Another silence that ends a turn.",
            json!({"listen": provider(json!({"eot_timeout_ms": {"type": "integer", "minimum": 500, "maximum": 60_000}}))}),
        ),
        (
            "InjectAgentMessage",
            "The agent says it.",
            json!({"message": text, "behavior": {"type": "string", "enum": ["default", "queue", "interrupt"], "default": "default"}}),
        ),
        ("ForceEndTurn", "The user's turn is over.", json!({})),
        (
            "FunctionCallResponse",
            "The result of a function that the agent called.",
            json!({"id": text, "name": text, "content": text}),
        ),
        ("Close", "Ends the session.", json!({})),
    ]
}

pub fn sockets() -> Vec<Socket> {
    let mut accepts = vec![Message::binary("audio", "The user's voice, in the format of `Settings`.")];
    accepts.extend(said().map(|(kind, about, members)| {
        let mut payload =
            json!({"type": "object", "required": ["type"], "description": about, "properties": members});
        payload["properties"]["type"] = json!({"type": "string", "const": kind});
        Message::text(kind, payload)
    }));
    let mut sends = vec![Message::binary("audio", "The agent's voice, in the format of `Settings`.")];
    sends.extend(sent::<room::Message<'static>>());
    vec![Socket {
        name: "converse",
        address: "/v1/agent/converse",
        about: "A session of the voice agent. The key also as `Sec-WebSocket-Protocol: token, org_…`.",
        query: Map::new(),
        accepts,
        sends,
    }]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_of_clients_is_known() {
        for (kind, ..) in said() {
            let read = room::Said::read(&json!({"type": kind}).to_string());
            assert_ne!(read, Err("a message of this `type` is not known"), "{kind}");
        }
    }
}
