//! The endpoint of OpenAI's Realtime API.

use serde_json::{Map, Value, json};

use super::responses::{busy, failure};

pub fn paths() -> Map<String, Value> {
    let mut paths = Map::new();
    paths.insert("/v1/realtime".to_owned(), json!({"get": realtime()}));
    paths
}

fn realtime() -> Value {
    let query = |name: &str, about: &str, schema: Value| json!({"name": name, "in": "query", "description": about, "schema": schema});
    json!({
        "operationId": "realtime",
        "summary": "A transcription session of OpenAI's Realtime API, over a WebSocket.",
        "description": "Events are JSON in text messages. The key also as \
            `Sec-WebSocket-Protocol: realtime, openai-insecure-api-key.org_…`.",
        "parameters": [
            query("intent", "Only transcription is available.", json!({"type": "string", "enum": ["transcription"]})),
            query("model", "The transcription's model, unless the session names another.", json!({"type": "string"})),
        ],
        "responses": {
            "101": {"description": "The WebSocket is open."},
            "400": failure("Not a transcription session, or a malformed handshake."),
            "401": failure("No valid key."),
            "426": failure("No WebSocket handshake."),
            "429": busy("The organisation holds its share of the server."),
            "503": busy("Busy."),
        },
    })
}
