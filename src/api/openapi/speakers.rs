//! The endpoints of enrolled voices.

use serde_json::{Map, Value, json};

use super::responses::{busy, failure};
use crate::voices::NAME_CHARACTERS_MAX;

pub fn paths() -> Map<String, Value> {
    let mut paths = Map::new();
    paths.insert("/v1/speakers".to_owned(), json!({"get": list(), "post": enrol()}));
    paths.insert("/v1/speakers/{speaker_id}".to_owned(), json!({"get": one(), "delete": delete()}));
    paths
}

fn content(schema: &str) -> Value {
    json!({"application/json": {"schema": {"$ref": format!("#/components/schemas/{schema}")}}})
}

fn enrol() -> Value {
    let query = |name: &str, about: &str, schema: Value| {
        let required = name == "name";
        json!({"name": name, "in": "query", "description": about, "schema": schema, "required": required})
    };
    let bytes = json!({"schema": {"type": "string", "format": "binary"}});
    json!({
        "operationId": "enrolSpeaker",
        "summary": "Enrol a voice by a clip of at least 3 s of one person's speech.",
        "parameters": [
            query("name", "The speaker's name.", json!({"type": "string", "minLength": 1, "maxLength": NAME_CHARACTERS_MAX})),
            query("encoding", "Of raw audio, as for `/v1/listen`.", json!({"type": "string"})),
            query("sample_rate", "Of raw audio, in Hz.", json!({"type": "integer"})),
            query("channels", "Of raw audio.", json!({"type": "integer"})),
        ],
        "requestBody": {"required": true, "content": {
            "application/json": {"schema": {"$ref": "#/components/schemas/Source"}},
            "application/octet-stream": bytes,
            "audio/*": bytes,
        }},
        "responses": {
            "201": {"description": "The voice is enrolled. The clip is not kept.", "content": content("Speaker")},
            "4XX": failure("An invalid request; the message says what to change."),
            "401": failure("No valid key."),
            "409": failure("A speaker of this name is enrolled."),
            "422": failure("The clip holds no speech, too little, or several speakers; or the organisation has enrolled as many as it may."),
            "429": busy("The organisation holds its share of the server."),
            "501": failure("The server has no speaker models."),
            "503": busy("Busy."),
            "5XX": failure("The server's fault."),
        },
    })
}

fn list() -> Value {
    json!({
        "operationId": "listSpeakers",
        "summary": "The enrolled voices of the key's organisation.",
        "responses": {
            "200": {"description": "Oldest first.", "content": content("Speakers")},
            "401": failure("No valid key."),
        },
    })
}

fn id() -> Value {
    json!({"name": "speaker_id", "in": "path", "required": true, "schema": {"type": "string", "format": "uuid"}})
}

fn one() -> Value {
    json!({
        "operationId": "speaker",
        "summary": "An enrolled voice.",
        "parameters": [id()],
        "responses": {
            "200": {"description": "One of the key's organisation.", "content": content("Speaker")},
            "401": failure("No valid key."),
            "404": failure("There is no such speaker, or it belongs to another organisation."),
        },
    })
}

fn delete() -> Value {
    json!({
        "operationId": "deleteSpeaker",
        "summary": "Delete an enrolled voice, from memory and disk.",
        "parameters": [id()],
        "responses": {
            "204": {"description": "It is deleted."},
            "401": failure("No valid key."),
            "404": failure("There is no such speaker, or it belongs to another organisation."),
        },
    })
}
