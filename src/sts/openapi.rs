//! The service's paths in OpenAPI 3.1, as a part of the server's document.

use serde_json::{Map, Value, json};

/// Operations by path. Failures use the document's schema `Failure`.
pub fn paths() -> Map<String, Value> {
    let mut paths = Map::new();
    let mut add = |path: &str, operations: Value| paths.insert(path.to_owned(), operations);
    add("/STS/interactiveAgent", json!({"post": interactive_agent()}));
    add("/api/livekit/sts", json!({"post": web_session()}));
    add("/api/livekit/webhook", json!({"post": webhook()}));
    add("/STS/rooms/{room}", json!({"get": room()}));
    add("/STS/sessions/{session_id}/recording", recording());
    add("/v1/agent/converse", json!({"get": converse()}));
    add("/v1/agent/settings/think/models", json!({"get": think_models()}));
    add(
        "/api/twilio/incoming-call",
        json!({"get": incoming_call("incomingCall"), "post": incoming_call("incomingCallForm")}),
    );
    add("/api/twilio/media", json!({"get": media()}));
    add(
        "/api/twilio/stream-ended",
        json!({"get": stream_ended("streamEnded"), "post": stream_ended("streamEndedForm")}),
    );
    paths
}

fn failure(about: &str) -> Value {
    let schema = json!({"$ref": "#/components/schemas/Failure"});
    json!({"description": about, "content": {"application/json": {"schema": schema}}})
}

fn interactive_agent() -> Value {
    let actions = [
        "start",
        "status",
        "bind_caller",
        "page_context",
        "verification",
        "completion",
        "transfer",
        "observe",
    ];
    json!({
        "operationId": "interactiveAgent",
        "summary": "Start a session of the voice agent, or steer one.",
        "requestBody": body(json!({
            "type": "object",
            "required": ["action"],
            "properties": {
                "action": {"type": "string", "enum": actions},
                "session_id": {"type": "string", "description": "Of every action but `start`."},
                "caller_number": {"type": "string"},
                "page_context": {"type": "object"},
                "category": {"type": "string"},
                "verified": {"type": "boolean"},
                "details": {"type": "object"},
                "status": {"type": "string"},
                "message": {"type": "string"},
                "voice": {"type": "string", "description": "Of a start: a name as for `/v1/speak`."},
                "functions": functions(),
                "recording": {"type": "boolean", "description": "Of a start: record the talk, and say so."},
                "silence_seconds": {
                    "type": "integer", "minimum": 0,
                    "description": "Of a start: silence after which the caller is asked whether they are there; 0: never.",
                },
                "max_duration_seconds": {
                    "type": "integer", "minimum": 1,
                    "description": "Of a start: the longest talk, if it is shorter than the server's.",
                },
                "transfer_to": {
                    "type": "string",
                    "description": "Of a start: the number that telephone callers who ask for a person are connected with.",
                },
                "webhook_url": {"type": "string", "description": "Of a start: its session's events are sent there."},
                "to": {
                    "type": "string",
                    "description": "Of `transfer`: a number of `sts.transfer.numbers`; by default that of the start.",
                },
            },
        })),
        "responses": answers(),
    })
}

fn web_session() -> Value {
    json!({
        "operationId": "webSession",
        "summary": "Start a session for a browser.",
        "requestBody": body(json!({
            "type": "object",
            "properties": {
                "instructions": {"type": "string"},
                "greeting": {"type": "string"},
                "website_url": {"type": "string"},
                "documents": {"type": "array", "items": {
                    "type": "object",
                    "properties": {
                        "title": {"type": "string"},
                        "type": {"type": "string", "enum": ["text", "url"]},
                        "content": {"type": "string"},
                    },
                }},
                "voice": {"type": "string", "description": "A name as for `/v1/speak`."},
                "functions": functions(),
            },
        })),
        "responses": answers(),
    })
}

fn functions() -> Value {
    json!({
        "type": "array", "maxItems": 64,
        "description": "Of a start: what the chat model may call, and the room's clients run.",
        "items": {
            "type": "object", "required": ["name"],
            "properties": {
                "name": {"type": "string", "pattern": "^[A-Za-z0-9_-]+$"},
                "description": {"type": "string"},
                "parameters": {"type": "object"},
            },
        },
    })
}

fn body(schema: Value) -> Value {
    json!({"required": true, "content": {"application/json": {"schema": schema}}})
}

fn answers() -> Value {
    let session = json!({
        "type": "object",
        "required": ["ok", "session_id"],
        "properties": {
            "ok": {"type": "boolean"},
            "session_id": {"type": "string"},
            "warnings": {
                "type": "array", "items": {"type": "string"},
                "description": "After a start: unknown fields, and fields whose values could not be used.",
            },
        },
    });
    json!({
        "200": {"description": "Done.", "content": {"application/json": {"schema": session}}},
        "400": failure("A field that means nothing; it says which."),
        "401": failure("No valid key."),
        "403": failure("A `transfer` to a number that the operator does not list."),
        "404": failure("There is no such session, or it is not the key's."),
        "409": failure("The session is over; or, for `transfer`, no telephone caller is in its room."),
        "429": failure("The organisation has its share of the sessions, or of what they may hold; `Retry-After` says when to try again."),
        "4XX": failure("The request's fault."),
        "503": failure("As many sessions as may be, or they hold as much as they may, or the LiveKit server cannot be reached; `Retry-After` says when to try again."),
    })
}

fn webhook() -> Value {
    json!({
        "operationId": "livekitWebhook",
        "summary": "Where a LiveKit server reports its events. Signed by it.",
        "security": [],
        "requestBody": {"required": true, "content": {"application/webhook+json": {"schema": {"type": "object"}}}},
        "responses": {
            "200": {"description": "Taken.", "content": {"application/json": {"schema": {"type": "object"}}}},
            "400": failure("The event is no JSON of LiveKit's form."),
            "401": failure("It is not signed by the LiveKit server."),
            "4XX": failure("The request's fault."),
        },
    })
}

fn room() -> Value {
    let text = json!({"type": "string"});
    json!({
        "operationId": "joinRoom",
        "summary": "Join a session's room, over a WebSocket.",
        "security": [],
        "parameters": [
            {"name": "room", "in": "path", "required": true, "schema": text},
            {"name": "access_token", "in": "query", "schema": text, "description": "As the session's start told it."},
        ],
        "responses": {
            "101": {"description": "The WebSocket is open."},
            "401": failure("The token is not for this room, or its time is over."),
            "4XX": failure("The session is over, or this is no WebSocket's handshake."),
        },
    })
}

fn converse() -> Value {
    json!({
        "operationId": "converse",
        "summary": "A session of its own, over a WebSocket, for SDKs of the wire format.",
        "responses": {
            "101": {"description": "The WebSocket is open; `Settings` comes first."},
            "401": failure("No valid key."),
            "4XX": failure("No WebSocket's handshake."),
            "503": failure("As many sessions as may be."),
        },
    })
}

fn think_models() -> Value {
    let text = json!({"type": "string"});
    let model = json!({"type": "object", "properties": {"id": text, "name": text, "provider": text}});
    let schema = json!({"type": "object", "properties": {"models": {"type": "array", "items": model}}, "required": ["models"]});
    json!({
        "operationId": "thinkModels",
        "summary": "The chat model that agents answer by; none if the embedded responder does.",
        "responses": {
            "200": {"description": "The models.", "content": {"application/json": {"schema": schema}}},
            "401": failure("No valid key."),
        },
    })
}

fn incoming_call(id: &str) -> Value {
    let parameter = |name: &str| json!({"name": name, "in": "query", "schema": {"type": "string"}});
    let parameters = ["session_id", "room_name", "to", "from"].map(parameter);
    let twiml = json!({"text/xml": {"schema": {"type": "string"}}});
    json!({
        "operationId": id,
        "summary": "Where a telephone call is sent to be connected to a session. Signed by the provider.",
        "security": [],
        "parameters": parameters,
        "responses": {
            "200": {"description": "What the provider is to do with the call.", "content": twiml},
            "4XX": failure("It is not signed by the provider."),
        },
    })
}

fn recording() -> Value {
    let parameters =
        json!([{"name": "session_id", "in": "path", "required": true, "schema": {"type": "string"}}]);
    let missing = "There is no recording of such a session of the key's organisation.";
    let wave = json!({"audio/wav": {"schema": {"type": "string", "contentMediaType": "audio/wav"}}});
    json!({
        "get": {
            "operationId": "fetchRecording",
            "summary": "A talk's recording: the callers in the left channel, the agent in the right.",
            "parameters": parameters,
            "responses": {
                "200": {"description": "16-bit WAVE at 16 kHz; of a talk that goes on, what there is so far.", "content": wave},
                "401": failure("No valid key."),
                "404": failure(missing),
            },
        },
        "delete": {
            "operationId": "deleteRecording",
            "summary": "Delete a talk's recording. A talk that goes on is not recorded any more.",
            "parameters": parameters,
            "responses": {
                "204": {"description": "Deleted."},
                "401": failure("No valid key."),
                "404": failure(missing),
            },
        },
    })
}

fn stream_ended(id: &str) -> Value {
    let parameter = |name: &str| json!({"name": name, "in": "query", "schema": {"type": "string"}});
    let parameters = ["session_id", "room_name"].map(parameter);
    let twiml = json!({"text/xml": {"schema": {"type": "string"}}});
    json!({
        "operationId": id,
        "summary": "Where the provider asks what comes after a call's stream: the number that it is handed over to, or its end.",
        "security": [],
        "parameters": parameters,
        "responses": {
            "200": {"description": "What the provider is to do with the call.", "content": twiml},
            "4XX": failure("It is not signed by the provider."),
        },
    })
}

fn media() -> Value {
    json!({
        "operationId": "callMedia",
        "summary": "A call's audio, over a WebSocket whose first frames have the token.",
        "security": [],
        "responses": {
            "101": {"description": "The WebSocket is open."},
            "4XX": failure("No WebSocket's handshake."),
        },
    })
}
