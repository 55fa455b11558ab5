//! `/openapi.json`: the endpoints in OpenAPI 3.1, the query parameters from their table.

use std::sync::{Arc, LazyLock};

use hyper::StatusCode;
use serde_json::{Value, json};

use super::Services;
use super::parameters::{Effect, Kind, Parameter, TABLE};
use crate::http::{Failure, Request, Response, json as reply};

static DOCUMENT: LazyLock<Value> = LazyLock::new(build);

pub(super) async fn document(_: Arc<Services>, _: Request) -> Result<Response, Failure> {
    Ok(reply(StatusCode::OK, &*DOCUMENT))
}

/// Paths that answer alike.
const LISTEN: [(&str, &str); 4] = [
    ("/v1/listen", "listen"),
    ("/v1/listen/media", "listenMedia"),
    ("/v1/listen/media/transcribe", "listenMediaTranscribe"),
    ("/v1/listen/media/transcribe_file", "listenMediaTranscribeFile"),
];

fn build() -> Value {
    let mut paths = serde_json::Map::new();
    for (path, id) in LISTEN {
        paths.insert(path.to_owned(), json!({"post": listen(id)}));
    }
    for (path, about) in [
        ("/health", "Alive and ready, in one."),
        ("/livez", "Whether the process lives."),
        ("/readyz", "Whether work is taken."),
        ("/v1/status", "How much work there is."),
    ] {
        paths.insert(path.to_owned(), json!({"get": plain(about)}));
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Verbatim",
            "version": env!("CARGO_PKG_VERSION"),
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{"key": []}, {"token": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "key": {"type": "http", "scheme": "bearer", "description": "`Bearer org_…`."},
                "token": {"type": "apiKey", "in": "header", "name": "Authorization", "description": "`Token org_…`, as SDKs send it."},
            },
            "schemas": schemas(),
        },
    })
}

fn plain(about: &str) -> Value {
    let body = json!({"application/json": {"schema": {"type": "object"}}});
    json!({
        "summary": about,
        "security": [],
        "responses": {
            "200": {"description": "Yes.", "content": body},
            "503": {"description": "Not now.", "content": body},
        },
    })
}

fn listen(id: &str) -> Value {
    let timestamps = json!({
        "name": "timestamps", "in": "header", "schema": {"type": "string", "enum": ["true", "false"]},
        "description": "`true`: words with their times.",
    });
    let parameters: Vec<Value> = TABLE.iter().flat_map(query).chain([timestamps]).collect();
    let failure = |about: &str| json!({"description": about, "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Failure"}}}});
    json!({
        "operationId": id,
        "summary": "Transcribe audio.",
        "parameters": parameters,
        "requestBody": {"required": true, "content": {
            "application/json": {"schema": {"$ref": "#/components/schemas/Source"}},
            "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
            "audio/*": {"schema": {"type": "string", "format": "binary"}},
        }},
        "responses": {
            "200": {"description": "The transcript; with `callback` the id of the request.", "content": {"application/json": {
                "schema": {"oneOf": [
                    {"$ref": "#/components/schemas/Response"},
                    {"$ref": "#/components/schemas/Accepted"},
                ]},
            }}},
            "4XX": failure("The request's fault; it says what to change."),
            "401": failure("No valid key."),
            "415": failure("Audio of no known format."),
            "5XX": failure("The server's fault."),
            "503": {
                "description": "Busy.",
                "headers": {"Retry-After": {"schema": {"type": "integer"}, "description": "Seconds."}},
                "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Failure"}}},
            },
        },
    })
}

/// A row of the table under each of its names.
fn query(row: &Parameter) -> Vec<Value> {
    let effect = match row.effect {
        Effect::Honoured => "",
        Effect::Warned => " Not supported: accepted, with a warning in `metadata.warnings`.",
        Effect::Refused => " Answered with 400.",
    };
    let parameter = |name: &str, about: String| {
        let mut parameter = json!({"name": name, "in": "query", "description": about, "schema": schema(row)});
        if name == row.name && !row.default.is_empty() {
            parameter["schema"]["default"] = default(row);
        }
        parameter
    };
    let aliases = row.aliases.iter().map(|alias| parameter(alias, format!("The same as `{}`.", row.name)));
    std::iter::once(parameter(row.name, format!("{}{effect}", row.about))).chain(aliases).collect()
}

fn default(row: &Parameter) -> Value {
    match row.kind {
        Kind::Flag | Kind::Count { .. } | Kind::Seconds { .. } => {
            serde_json::from_str(row.default).unwrap_or_else(|_| row.default.into())
        }
        Kind::Languages { .. } => json!([row.default]),
        _ => row.default.into(),
    }
}

fn schema(row: &Parameter) -> Value {
    match row.kind {
        Kind::Flag => json!({"type": "boolean"}),
        Kind::Text => json!({"type": "string"}),
        Kind::OneOf(names) => json!({"type": "string", "enum": names}),
        Kind::Count { min, max } => json!({"type": "integer", "minimum": min, "maximum": max}),
        Kind::Seconds { max } => json!({"type": "number", "minimum": 0, "maximum": max}),
        Kind::Url => json!({"type": "string", "format": "uri"}),
        Kind::Items { most } | Kind::Languages { most } => {
            json!({"type": "array", "items": {"type": "string", "minLength": 1}, "maxItems": most})
        }
        Kind::Texts { most, characters } => {
            json!({"type": "array", "items": {"type": "string", "maxLength": characters}, "maxItems": most})
        }
    }
}

/// Objects by their properties; a name that ends with `?` may be absent.
fn object(properties: Value) -> Value {
    let mut named = serde_json::Map::new();
    let mut required = Vec::new();
    if let Value::Object(properties) = properties {
        for (name, schema) in properties {
            match name.strip_suffix('?') {
                Some(optional) => {
                    named.insert(optional.to_owned(), schema);
                }
                None => {
                    required.push(name.clone());
                    named.insert(name, schema);
                }
            }
        }
    }
    json!({"type": "object", "properties": named, "required": required})
}

fn schemas() -> Value {
    let list = |items: Value| json!({"type": "array", "items": items});
    let of = |name: &str| json!({"$ref": format!("#/components/schemas/{name}")});
    let (text, number) = (json!({"type": "string"}), json!({"type": "number"}));
    let (count, uuid) =
        (json!({"type": "integer", "minimum": 0}), json!({"type": "string", "format": "uuid"}));
    let share = json!({"type": "number", "minimum": 0, "maximum": 1});
    json!({
        "Source": object(json!({"url": {"type": "string", "format": "uri"}})),
        "Accepted": object(json!({"request_id": uuid})),
        "Failure": object(json!({"err_code": text, "err_msg": text, "request_id": uuid})),
        "Response": object(json!({"metadata": of("Metadata"), "results": of("Results")})),
        "Metadata": object(json!({
            "transaction_key": text, "request_id": uuid, "sha256": text,
            "created": {"type": "string", "format": "date-time"}, "duration": number, "channels": count,
            "models": list(uuid.clone()),
            "model_info": {"type": "object", "additionalProperties": of("ModelInfo")},
            "warnings?": list(of("Warning")), "tags?": list(text.clone()),
            "extra?": {"type": "object", "additionalProperties": text},
            "metadata?": text,
        })),
        "ModelInfo": object(json!({"name": text, "version": text, "arch": text})),
        "Warning": object(json!({"parameter": text, "type": text, "message": text})),
        "Results": object(json!({"channels": list(of("Channel")), "utterances?": list(of("Utterance"))})),
        "Channel": object(json!({
            "alternatives": list(of("Alternative")), "search?": list(of("Search")),
            "detected_language?": text, "language_confidence?": share,
        })),
        "Alternative": object(json!({
            "transcript": text, "confidence": share, "words?": list(of("Word")),
            "paragraphs?": of("Paragraphs"), "languages?": list(text.clone()),
        })),
        "Word": object(json!({
            "word": text, "start": number, "end": number, "confidence": share, "punctuated_word?": text,
            "language?": text,
        })),
        "Paragraphs": object(json!({"transcript": text, "paragraphs": list(of("Paragraph"))})),
        "Paragraph": object(json!({
            "sentences": list(of("Sentence")), "num_words": count, "start": number, "end": number,
        })),
        "Sentence": object(json!({"text": text, "start": number, "end": number})),
        "Search": object(json!({"query": text, "hits": list(of("Hit"))})),
        "Hit": object(json!({"confidence": share, "start": number, "end": number, "snippet": text})),
        "Utterance": object(json!({
            "start": number, "end": number, "confidence": share, "channel": count, "transcript": text,
            "words": list(of("Word")), "id": uuid,
        })),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_parameter_is_described_on_every_path() {
        for (path, _) in LISTEN {
            let listed = DOCUMENT["paths"][path]["post"]["parameters"].as_array().unwrap();
            let named: Vec<&str> = listed
                .iter()
                .filter(|parameter| parameter["in"] == "query")
                .map(|parameter| parameter["name"].as_str().unwrap())
                .collect();
            let names =
                TABLE.iter().flat_map(|row| std::iter::once(row.name).chain(row.aliases.iter().copied()));
            assert_eq!(named, names.collect::<Vec<_>>());
        }
    }

    #[test]
    fn values_and_defaults_have_their_types() {
        let listed = &DOCUMENT["paths"]["/v1/listen"]["post"]["parameters"];
        let schema = |name: &str| {
            let all = listed.as_array().unwrap();
            all.iter().find(|parameter| parameter["name"] == name).unwrap()["schema"].clone()
        };
        assert_eq!(schema("smart_format"), json!({"type": "boolean", "default": false}));
        assert_eq!(
            schema("utt_split"),
            json!({"type": "number", "minimum": 0, "maximum": 3600.0, "default": 0.8})
        );
        assert_eq!(
            schema("callback_method"),
            json!({"type": "string", "enum": ["POST", "PUT"], "default": "POST"})
        );
        assert_eq!(schema("lang"), json!({"type": "string"}));
        assert_eq!(schema("search")["type"], "array");
    }

    /// Every reference leads somewhere.
    #[test]
    fn references_resolve() {
        fn walk(value: &Value) {
            match value {
                Value::Object(members) => {
                    if let Some(reference) = members.get("$ref") {
                        let pointer = reference.as_str().unwrap().trim_start_matches('#');
                        assert!(DOCUMENT.pointer(pointer).is_some(), "{reference}");
                    }
                    members.values().for_each(walk);
                }
                Value::Array(items) => items.iter().for_each(walk),
                _ => {}
            }
        }
        walk(&DOCUMENT);
    }
}
