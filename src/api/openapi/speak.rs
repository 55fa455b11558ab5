//! The endpoints of text to speech.

use serde_json::{Map, Value, json};

use super::responses::{busy, failure};
use crate::api::speak::TEXT_CHARACTERS_MAX;
use crate::api::speak::format::{CONTAINERS, ENCODINGS, STREAM_ENCODINGS};
use crate::api::speak::parameters::of_version;

pub fn paths() -> Map<String, Value> {
    let mut paths = Map::new();
    paths.insert("/v1/speak".to_owned(), json!({"post": request(1), "get": stream(1)}));
    paths.insert("/v2/speak".to_owned(), json!({"post": request(2), "get": stream(2)}));
    paths
}

fn query(version: u8, is_stream: bool) -> Vec<Value> {
    let rows = of_version(version).filter(|row| row.is_of_streams || !is_stream);
    let described = rows.map(|row| {
        let schema = match row.name {
            "encoding" if is_stream => {
                json!({"type": "string", "enum": STREAM_ENCODINGS, "default": "linear16"})
            }
            "encoding" => json!({"type": "string", "enum": ENCODINGS, "default": "mp3"}),
            "container" => json!({"type": "string", "enum": CONTAINERS}),
            "callback_method" => json!({"type": "string", "enum": ["POST", "PUT"]}),
            "callback" => json!({"type": "string", "format": "uri"}),
            "sample_rate" | "bit_rate" => json!({"type": "integer"}),
            "model" if version == 2 => {
                json!({"type": "string", "maxLength": 128, "example": "flux-alexis-en"})
            }
            "expressivity" => json!({"type": "integer", "minimum": -2, "maximum": 2, "default": 0}),
            "priority" => json!({"type": "string", "enum": ["low"]}),
            "speed" if version == 2 => {
                json!({"type": "number", "minimum": 0.5, "maximum": 1.5, "default": 1})
            }
            "speed" => json!({"type": "number", "minimum": 0.7, "maximum": 1.5, "default": 1}),
            "mip_opt_out" => json!({"type": "boolean"}),
            _ => json!({"type": "string", "maxLength": 128}),
        };
        let is_required = version == 2 && row.name == "model";
        json!({
            "name": row.name, "in": "query", "description": row.about, "schema": schema, "required": is_required,
        })
    });
    described.collect()
}

fn request(version: u8) -> Value {
    let text = json!({"type": "string", "minLength": 1, "maxLength": TEXT_CHARACTERS_MAX});
    let body = json!({"type": "object", "properties": {"text": text}, "required": ["text"]});
    let acknowledgement = json!({
        "type": "object", "properties": {"request_id": {"type": "string", "format": "uuid"}}, "required": ["request_id"],
    });
    let example = json!({"text": "We are open from nine to five."});
    json!({
        "operationId": if version == 2 { "speakTurn" } else { "speak" },
        "summary": "Speak a text.",
        "description": "The answer begins with the first piece of the text, while the rest is still being spoken.",
        "parameters": query(version, false),
        "requestBody": {"required": true, "content": {
            "application/json": {"schema": body, "example": example},
            "text/plain": {"schema": text},
        }},
        "responses": {
            "200": {
                "description": "The speech.",
                "headers": {
                    "dg-model-name": {"schema": {"type": "string"}, "description": "The voice that speaks."},
                    "dg-model-uuid": {"schema": {"type": "string", "format": "uuid"}},
                    "dg-char-count": {"schema": {"type": "integer"}, "description": "Characters of the text."},
                },
                "content": {
                    "audio/*": {"schema": {"type": "string", "format": "binary"}},
                    // With `callback`.
                    "application/json": {"schema": acknowledgement},
                },
            },
            "4XX": failure("An invalid request; the message says what to change."),
            "400": failure("An unknown voice, an unsupported format, or no text."),
            "401": failure("No valid key."),
            "413": failure("The text is too long."),
            "429": busy("The organisation holds its share of the server."),
            "501": failure("The server has no voice; or, with `callback`, no jobs."),
            "503": busy("Busy."),
            "5XX": failure("The server's fault."),
        },
    })
}

fn stream(version: u8) -> Value {
    let (id, summary, about) = match version {
        2 => (
            "speakTurns",
            "Speak a conversation's turns as they come, over a WebSocket.",
            "`Speak`, `Flush` (the end of a turn), `Interrupt`, `Configure` and `Close` in text messages; audio in binary \
             ones, between the `SpeechStarted` and the `SpeechMetadata` of its turn.",
        ),
        _ => (
            "speakLive",
            "Speak text as it comes, over a WebSocket.",
            "`Speak`, `Flush`, `Clear` and `Close` in text messages; audio in binary ones, beside `Metadata`, `Flushed`, \
             `Cleared` and `Warning`.",
        ),
    };
    json!({
        "operationId": id,
        "summary": summary,
        "description": about,
        "parameters": query(version, true),
        "responses": {
            "101": {"description": "The WebSocket is open."},
            "400": failure("An unknown voice, an unsupported format, or no WebSocket handshake."),
            "401": failure("No valid key."),
            "4XX": failure("An invalid request; the message says what to change."),
            "429": busy("The organisation holds its share of the server."),
            "501": failure("The server has no voice."),
            "503": busy("Busy."),
        },
    })
}
