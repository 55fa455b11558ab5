//! `/openapi.json`: the endpoints in OpenAPI 3.1, with the query parameters from their tables.

mod manage;
mod openai;
mod realtime;
mod responses;
mod schemas;
mod speak;
mod speakers;

use serde_json::{Map, Value, json};

use self::responses::{busy, failure};
use super::parameters::{Effect, Kind, LIVE_TABLE, Live, OF_TURNS, Parameter, TABLE, TURNS_TABLE};

/// Paths with the same behaviour.
const LISTEN: [(&str, &str); 4] = [
    ("/v1/listen", "listen"),
    ("/v1/listen/media", "listenMedia"),
    ("/v1/listen/media/transcribe", "listenMediaTranscribe"),
    ("/v1/listen/media/transcribe_file", "listenMediaTranscribeFile"),
];

/// The document, with the paths of other services on the same port.
pub(super) fn build(others: Map<String, Value>) -> Value {
    let mut paths = others;
    for (path, id) in LISTEN {
        paths.insert(path.to_owned(), json!({"post": listen(id)}));
    }
    paths["/v1/listen"]["get"] = live();
    paths.insert("/v2/listen".to_owned(), json!({"get": turns()}));
    paths.insert("/v1/listen/jobs/{request_id}".to_owned(), json!({"get": job()}));
    paths.extend(speak::paths());
    paths.extend(realtime::paths());
    paths.extend(speakers::paths());
    paths.extend(manage::paths());
    paths.extend(openai::paths());
    let mut schemas = schemas::schemas();
    for (name, schema) in manage::schemas().into_iter().chain(openai::schemas()) {
        schemas[name] = schema;
    }
    for (path, about) in [
        ("/health", "Liveness and readiness in one."),
        ("/livez", "Whether the process lives."),
        ("/readyz", "Whether the server accepts work."),
        ("/v1/status", "How much work there is, and which models are served and loaded."),
        (
            "/v1/status/engine",
            "Whether there is an engine that takes requests, and how many it would hold at its present speed.",
        ),
        ("/openapi.json", "This document."),
        ("/asyncapi.json", "The WebSockets, in AsyncAPI 3.0."),
    ] {
        paths.insert(path.to_owned(), json!({"get": plain(about)}));
    }
    let text = json!({"text/plain": {"schema": {"type": "string"}}});
    let metrics = json!({
        "summary": "Metrics, for Prometheus.",
        "responses": {"200": {"description": "In the text format of Prometheus.", "content": text}, "401": failure("No valid key."),
            "403": failure("The key is not an operator's.")},
    });
    paths.insert("/metrics".to_owned(), json!({"get": metrics}));
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
                "key": {"type": "http", "scheme": "bearer", "description": "`Bearer org_…`, or `Bearer` and a token of `/v1/auth/grant`."},
                "token": {"type": "apiKey", "in": "header", "name": "Authorization", "description": "`Token org_…`, as SDKs send it."},
            },
            "schemas": schemas,
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
            "503": failure("Not now."),
        },
    })
}

fn live() -> Value {
    let of_files = TABLE.iter().filter(|row| row.name != "redact").flat_map(query);
    let own = LIVE_TABLE.iter().map(of_streams);
    json!({
        "operationId": "listenLive",
        "summary": "Transcribe audio while it arrives, over a WebSocket.",
        "description": "Audio in binary messages; `KeepAlive`, `Finalize` and `CloseStream` in text ones. The key also as \
            `Sec-WebSocket-Protocol: token, org_…`. A parameter that only a whole file has a use for is accepted with a \
            warning in the `Metadata` message; `callback` is answered with 501.",
        "parameters": own.chain(of_files).collect::<Vec<_>>(),
        "responses": {
            "101": {"description": "The WebSocket is open."},
            "400": failure("An invalid request, or no WebSocket handshake."),
            "401": failure("No valid key."),
            "4XX": failure("An invalid request; the message says what to change."),
            "429": busy("The organisation holds its share of the server."),
            "501": failure("Not served on streams."),
            "503": busy("Busy."),
        },
    })
}

fn turns() -> Value {
    let of_files = TABLE.iter().filter(|row| row.name != "redact" && OF_TURNS.contains(&row.name));
    let of_streams_too = LIVE_TABLE.iter().filter(|row| OF_TURNS.contains(&row.name));
    let own = TURNS_TABLE.iter().chain(of_streams_too).map(of_streams);
    json!({
        "operationId": "listenTurns",
        "summary": "Transcribe a conversation turn by turn while it arrives, over a WebSocket.",
        "description": "Audio in binary messages; `Configure`, `ForceEndTurn`, `CloseStream` and `KeepAlive` in text ones. The \
            server sends `Connected`, `Warning`, `TurnInfo`, `ConfigureSuccess`, `ConfigureFailure` and `Error`. The key also as \
            `Sec-WebSocket-Protocol: token, org_…`. Parameters of other endpoints are accepted, with a `Warning`.",
        "parameters": own.chain(of_files.flat_map(query)).collect::<Vec<_>>(),
        "responses": {
            "101": {"description": "The WebSocket is open."},
            "400": failure("An invalid request, or no WebSocket handshake."),
            "401": failure("No valid key."),
            "4XX": failure("An invalid request; the message says what to change."),
            "429": busy("The organisation holds its share of the server."),
            "503": busy("Busy."),
        },
    })
}

/// The parameters of `/v1/listen` as a WebSocket: JSON Schema by name.
pub(super) fn live_query() -> Map<String, Value> {
    by_name(&live())
}

/// Those of `/v2/listen`.
pub(super) fn turns_query() -> Map<String, Value> {
    by_name(&turns())
}

fn by_name(operation: &Value) -> Map<String, Value> {
    let parameters = operation["parameters"].as_array().map(Vec::as_slice).unwrap_or_default();
    let named = |parameter: &Value| {
        let mut schema = parameter["schema"].clone();
        schema["description"] = parameter["description"].clone();
        Some((parameter["name"].as_str()?.to_owned(), schema))
    };
    parameters.iter().filter_map(named).collect()
}

/// A parameter that only streams have.
fn of_streams(row: &Live) -> Value {
    let Live { name, kind, default, about } = *row;
    let mut parameter = described(name, kind, about.to_owned());
    if !default.is_empty() {
        parameter["schema"]["default"] = default_of(kind, default);
    }
    parameter
}

fn job() -> Value {
    let id = json!({
        "name": "request_id", "in": "path", "required": true, "schema": {"type": "string", "format": "uuid"},
    });
    let body = json!({"application/json": {"schema": {"$ref": "#/components/schemas/Job"}}});
    json!({
        "operationId": "job",
        "summary": "The status of a request with `callback`.",
        "parameters": [id],
        "responses": {
            "200": {"description": "A job of the key's organisation.", "content": body},
            "401": failure("No valid key."),
            "404": failure("There is no such job, or it belongs to another organisation."),
        },
    })
}

fn listen(id: &str) -> Value {
    let timestamps = json!({
        "name": "timestamps", "in": "header", "schema": {"type": "string", "enum": ["true", "false"]},
        "description": "`true`: words with their times.",
    });
    let idempotency_key = json!({
        "name": "Idempotency-Key", "in": "header", "schema": {"type": "string", "minLength": 1, "maxLength": 255},
        "description": "With `callback`: the same request, sent again under the same key, is the same job.",
    });
    let parameters: Vec<Value> = TABLE.iter().flat_map(query).chain([timestamps, idempotency_key]).collect();
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
            "4XX": failure("An invalid request; the message says what to change."),
            "401": failure("No valid key."),
            "415": failure("An unsupported format; the message names it."),
            "429": busy("The organisation holds its share of the server."),
            "5XX": failure("The server's fault."),
            "503": busy("Busy."),
        },
    })
}

/// A row of the table, under each of its names.
fn query(row: &Parameter) -> Vec<Value> {
    let effect = match row.effect {
        Effect::Honoured => "",
        Effect::Warned => " Not supported: accepted, with a warning in `metadata.warnings`.",
        Effect::Refused => " Answered with 400.",
    };
    let mut first = described(row.name, row.kind, format!("{}{effect}", row.about));
    if !row.default.is_empty() {
        first["schema"]["default"] = default_of(row.kind, row.default);
    }
    let aliases =
        row.aliases.iter().map(|alias| described(alias, row.kind, format!("The same as `{}`.", row.name)));
    std::iter::once(first).chain(aliases).collect()
}

fn described(name: &str, kind: Kind, about: String) -> Value {
    json!({"name": name, "in": "query", "description": about, "schema": schema(kind)})
}

fn default_of(kind: Kind, default: &str) -> Value {
    match kind {
        Kind::Flag | Kind::Count { .. } | Kind::Number { .. } | Kind::Seconds { .. } | Kind::Pause { .. } => {
            serde_json::from_str(default).unwrap_or_else(|_| default.into())
        }
        Kind::Languages { .. } => json!([default]),
        _ => default.into(),
    }
}

fn schema(kind: Kind) -> Value {
    match kind {
        Kind::Flag => json!({"type": "boolean"}),
        Kind::Text => json!({"type": "string"}),
        Kind::OneOf(names) => json!({"type": "string", "enum": names}),
        Kind::Count { min, max } => json!({"type": "integer", "minimum": min, "maximum": max}),
        Kind::Number { min, max } => json!({"type": "number", "minimum": min, "maximum": max}),
        Kind::Seconds { max } => json!({"type": "number", "minimum": 0, "maximum": max}),
        Kind::Pause { max_ms } => {
            json!({"anyOf": [{"type": "integer", "minimum": 0, "maximum": max_ms}, {"type": "boolean"}]})
        }
        Kind::Url => json!({"type": "string", "format": "uri"}),
        Kind::Items { most } | Kind::Languages { most } => {
            json!({"type": "array", "items": {"type": "string", "minLength": 1}, "maxItems": most})
        }
        Kind::Texts { most, characters } => {
            json!({"type": "array", "items": {"type": "string", "maxLength": characters}, "maxItems": most})
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use super::*;

    static DOCUMENT: LazyLock<Value> = LazyLock::new(|| build(Map::new()));

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
