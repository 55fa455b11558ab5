//! The endpoint of OpenAI's Realtime API.

use serde_json::{Map, Value, json};

use super::openai::{busy, failure};

pub fn paths() -> Map<String, Value> {
    let mut paths = Map::new();
    paths.insert("/v1/realtime".to_owned(), json!({"get": realtime()}));
    let (current, beta) = (
        secret(
            "clientSecret",
            "A key for a browser that opens sessions for a short time, with their settings.",
            json!({
                "expires_after": expiry(), "session": {"type": "object", "description": "As in `session.update` of `/asyncapi.json`."},
            }),
        ),
        secret(
            "transcriptionSession",
            "The same in the shape of the older beta: the body is the session.",
            json!({
                "client_secret": {"type": "object", "properties": {"expires_at": expiry()}},
            }),
        ),
    );
    paths.insert("/v1/realtime/client_secrets".to_owned(), json!({"post": current}));
    paths.insert("/v1/realtime/transcription_sessions".to_owned(), json!({"post": beta}));
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

fn expiry() -> Value {
    json!({"type": "object", "properties": {
        "anchor": {"type": "string", "enum": ["created_at"]},
        "seconds": {"type": "integer", "minimum": 10, "maximum": 3600, "default": 600},
    }})
}

fn secret(id: &str, about: &str, properties: Value) -> Value {
    let body = json!({"application/json": {"schema": {"type": "object", "properties": properties}}});
    let answer = json!({"application/json": {"schema": {"type": "object"}}});
    json!({
        "operationId": id,
        "summary": about,
        "requestBody": {"content": body},
        "responses": {
            "200": {"description": "The secret and the session.", "content": answer},
            "4XX": failure("An invalid request; `param` names the field at fault."),
            "401": failure("No valid key."),
            "403": failure("A token, which cannot make secrets."),
            "429": busy("The organisation holds its share of the server."),
            "503": busy("Busy."),
        },
    })
}
