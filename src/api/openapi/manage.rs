//! The endpoints of tokens and of management.

use serde_json::{Map, Value, json};

use super::responses::{busy, failure};
use super::schemas::object;
use crate::keys::{
    LABEL_CHARACTERS_MAX, NAME_CHARACTERS_MAX, SCOPES, TAG_CHARACTERS_MAX, TAGS_MAX, TTL_DEFAULT, TTL_MAX,
};
use crate::usage::{FEATURES, Grouping};

pub fn paths() -> Map<String, Value> {
    let mut paths = Map::new();
    let grant = with_body(
        operation(
            "grant",
            "Make a token for a browser, which ends with its key, its scope `usage:write`.",
            "Granted",
            &[],
        ),
        "Grant",
        false,
    );
    paths.insert("/v1/auth/grant".to_owned(), json!({"post": grant}));
    let token = operation("token", "The facts about the credentials of this request.", "Credentials", &[]);
    paths.insert("/v1/auth/token".to_owned(), json!({"get": token}));
    let projects = operation("listProjects", "The project of the key: its organisation.", "Projects", &[]);
    paths.insert("/v1/projects".to_owned(), json!({"get": projects}));
    for (rest, operations) in of_project() {
        paths.insert(format!("/v1/projects/{{project_id}}{rest}"), operations);
    }
    paths
}

fn of_project() -> Vec<(&'static str, Value)> {
    let get = |id, about, schema| json!({"get": operation(id, about, schema, &["project_id"])});
    let key = ["project_id", "key_id"];
    let member = ["project_id", "member_id"];
    vec![
        (
            "",
            json!({
                "get": operation("project", "The key's organisation.", "Project", &["project_id"]),
                "patch": with_body(
                    operation("renameProject", "Name the key's organisation.", "Done", &["project_id"]), "ProjectChange", true),
                "delete": refused("deleteProject", "Organisations are ended by the operator.", &["project_id"]),
            }),
        ),
        ("/leave", json!({"delete": refused("leaveProject", "There are no members.", &["project_id"])})),
        (
            "/keys",
            json!({
                "get": with_query(
                    operation("listKeys", "The organisation's keys.", "Keys", &["project_id"]),
                    "status", "Only keys of this status.", json!({"type": "string", "enum": ["active", "expired"]})),
                "post": with_body(
                    operation("createKey", "Make a key for the organisation. It allows no more than the one that makes it, and \
                        does not outlive it.", "CreatedKey", &["project_id"]), "NewKey", true),
            }),
        ),
        (
            "/keys/{key_id}",
            json!({
                "get": operation("key", "A key, by UUID or by the id that the operator sees.", "OneKey", &key),
                "delete": deletion("deleteKey", "Refuse a key from now on. The last one of the scope `keys:write` stays.", &key),
            }),
        ),
        ("/members", get("listMembers", "None: an organisation has keys alone.", "Members")),
        (
            "/members/{member_id}",
            json!({"delete": refused("removeMember", "There are no members.", &member)}),
        ),
        (
            "/members/{member_id}/scopes",
            json!({
                "get": refused("memberScopes", "There are no members.", &member),
                "put": refused("setMemberScopes", "There are no members.", &member),
            }),
        ),
        (
            "/invites",
            json!({
                "get": operation("listInvites", "None: there are no members.", "Invites", &["project_id"]),
                "post": refused("invite", "There are no members.", &["project_id"]),
            }),
        ),
        (
            "/invites/{email}",
            json!({"delete": refused("withdrawInvite", "There are no members.", &["project_id", "email"])}),
        ),
        (
            "/requests",
            json!({"get": page_of(filtered(of_period(
                operation("listRequests", "The organisation's requests, newest first.", "Requests", &["project_id"]))))}),
        ),
        (
            "/requests/{request_id}",
            json!({"get": operation("request", "One of them.", "OneRequest", &["project_id", "request_id"])}),
        ),
        (
            "/usage",
            json!({"get": with_features(filtered(of_period(
                operation("usage", "The organisation's use, by day.", "Usage", &["project_id"]))))}),
        ),
        (
            "/usage/breakdown",
            json!({"get": with_query(
                with_features(filtered(of_period(
                    operation("usageBreakdown", "The organisation's use, by day and group.", "UsageBreakdown", &["project_id"])))),
                "grouping", "The property that sums are made for.", json!({"type": "string", "enum": Grouping::ALL.map(Grouping::name)}))}),
        ),
        (
            "/usage/fields",
            json!({"get": of_period(
                operation("usageFields", "The values that use can be filtered by.", "UsageFields", &["project_id"]))}),
        ),
        ("/balances", get("listBalances", "None: the server costs its clients nothing.", "Balances")),
        (
            "/balances/{balance_id}",
            json!({"get": refused("balance", "There are no balances.", &["project_id", "balance_id"])}),
        ),
        ("/purchases", get("listPurchases", "None.", "Purchases")),
        (
            "/billing/breakdown",
            json!({"get": of_period(operation("billingBreakdown", "Of no bills.", "BillingBreakdown", &["project_id"]))}),
        ),
        ("/billing/fields", get("billingFields", "What bills could be filtered by.", "BillingFields")),
        ("/models", get("listProjectModels", "The models of the server.", "SpeechModels")),
        (
            "/models/{model_id}",
            json!({"get": operation("projectModel", "A model, by UUID or name.", "SpeechModel", &["project_id", "model_id"])}),
        ),
    ]
}

/// An operation of these path parameters that answers with `schema`.
fn operation(id: &str, about: &str, schema: &str, captures: &[&str]) -> Value {
    let schema = json!({"$ref": format!("#/components/schemas/{schema}")});
    let mut operation = refused(id, about, captures);
    operation["responses"]["200"] =
        json!({"description": "Done.", "content": {"application/json": {"schema": schema}}});
    if captures.is_empty()
        && let Some(responses) = operation["responses"].as_object_mut()
    {
        responses.remove("404");
        responses.remove("501");
    }
    operation
}

fn deletion(id: &str, about: &str, captures: &[&str]) -> Value {
    let mut operation = operation(id, about, "Done", captures);
    operation["responses"]["409"] = failure("No other key of the organisation could make keys.");
    operation
}

/// An operation on what does not exist here.
fn refused(id: &str, about: &str, captures: &[&str]) -> Value {
    let captures = captures.iter().map(|name| {
        let schema = match *name {
            "project_id" => json!({"type": "string", "format": "uuid"}),
            _ => json!({"type": "string", "minLength": 1}),
        };
        json!({"name": name, "in": "path", "required": true, "schema": schema})
    });
    json!({
        "operationId": id,
        "summary": about,
        "parameters": captures.collect::<Vec<_>>(),
        "responses": {
            "4XX": failure("An invalid request; the message says what to change."),
            "401": failure("No valid key."),
            "403": failure("The key lacks the scope that the message names, or it is a token."),
            "404": failure("There is no such thing, or it belongs to another organisation."),
            "501": failure("There is no such thing here."),
            "503": busy("Busy."),
            "5XX": failure("The server's fault."),
        },
    })
}

fn with_body(mut operation: Value, schema: &str, is_required: bool) -> Value {
    let schema = json!({"$ref": format!("#/components/schemas/{schema}")});
    operation["requestBody"] =
        json!({"required": is_required, "content": {"application/json": {"schema": schema}}});
    operation
}

fn with_query(mut operation: Value, name: &str, about: &str, schema: Value) -> Value {
    if let Some(parameters) = operation["parameters"].as_array_mut() {
        parameters.push(json!({"name": name, "in": "query", "description": about, "schema": schema}));
    }
    operation
}

/// With `start` and `end`.
fn of_period(operation: Value) -> Value {
    let day = || json!({"type": "string", "format": "date"});
    let operation =
        with_query(operation, "start", "The first day, or a time; 30 days before the end by default.", day());
    with_query(operation, "end", "The last day, or a time; now by default.", day())
}

/// With the filters of requests.
fn filtered(operation: Value) -> Value {
    let text = |names: &[&str]| json!({"type": "string", "enum": names});
    let uuid = || json!({"type": "string", "format": "uuid"});
    [
        (
            "endpoint",
            "Only of this endpoint; nothing is logged of `read`.",
            text(&["listen", "read", "speak", "agent"]),
        ),
        ("method", "Only requests answered in this way.", text(&["sync", "async", "streaming"])),
        ("status", "Only those that ended like this.", text(&["succeeded", "failed"])),
        (
            "deployment",
            "This server is `self-hosted`.",
            text(&["hosted", "beta", "dedicated", "self-hosted"]),
        ),
        ("accessor", "Only of this key, by its `api_key_id`.", uuid()),
        ("request_id", "Only this request.", uuid()),
        ("model", "Only by this model, by UUID or name.", json!({"type": "string"})),
        ("tag", "Only those of this tag.", json!({"type": "string"})),
    ]
    .into_iter()
    .fold(operation, |operation, (name, about, schema)| with_query(operation, name, about, schema))
}

/// With the features that sums can be filtered by.
fn with_features(operation: Value) -> Value {
    FEATURES.into_iter().fold(operation, |operation, name| {
        with_query(
            operation,
            name,
            "Only requests with this parameter, or without it.",
            json!({"type": "boolean"}),
        )
    })
}

fn page_of(operation: Value) -> Value {
    let count = |most: u32, default: u32| json!({"type": "integer", "minimum": 0, "maximum": most, "default": default});
    let operation = with_query(operation, "limit", "Requests on a page.", count(1000, 10));
    with_query(operation, "page", "The page, from 0.", count(u32::MAX, 0))
}

/// The objects of these endpoints, as JSON Schema, by name.
pub fn schemas() -> Map<String, Value> {
    let list = |items: Value| json!({"type": "array", "items": items});
    let none = || json!({"type": "array", "maxItems": 0});
    let of = |name: &str| json!({"$ref": format!("#/components/schemas/{name}")});
    let (text, uuid) = (json!({"type": "string"}), json!({"type": "string", "format": "uuid"}));
    let texts = list(text.clone());
    let (time, day) =
        (json!({"type": "string", "format": "date-time"}), json!({"type": "string", "format": "date"}));
    let key = json!({
        "api_key_id": uuid, "comment": text, "scopes": texts, "tags": texts, "created": time, "expiration_date?": time,
    });
    let mut created = key.clone();
    created["key"] = text.clone();
    let member = json!({"member_id": uuid, "email": text, "first_name": text, "last_name": text});
    let mut member_and_key = member.clone();
    member_and_key["api_key"] = of("ApiKey");
    let ttl = json!({
        "type": "number", "minimum": 1, "maximum": TTL_MAX.as_secs(), "default": TTL_DEFAULT.as_secs(),
    });
    let (number, count) = (json!({"type": "number"}), json!({"type": "integer", "minimum": 0}));
    let details = json!({
        "duration": number, "total_audio": number, "channels": count, "streams": count, "models": list(uuid.clone()),
        "method": text, "tags": texts, "features": texts, "config": {"type": "object"},
    });
    let response = json!({"code": count, "completed": time, "details": object(details)});
    let logged = json!({
        "request_id": uuid, "project_uuid": uuid, "created": time, "path": text, "api_key_id": uuid, "code": count,
        "deployment": text, "response": object(response),
    });
    let mut one_request = logged.clone();
    one_request["request"] = of("LoggedRequest");
    let amounts = json!({
        "hours": number, "total_hours": number, "agent_hours": number, "tokens_in": count, "tokens_out": count,
        "tts_characters": count, "requests": count,
    });
    let (mut summary, mut group) = (amounts.clone(), amounts);
    (summary["start"], summary["end"]) = (day.clone(), day.clone());
    let or_null = |schema: Value| json!({"anyOf": [schema, {"type": "null"}]});
    group["grouping"] = object(json!({
        "start": day, "end": day, "accessor": or_null(text.clone()), "endpoint": or_null(text.clone()),
        "feature_set": or_null(text.clone()), "models": texts, "method": or_null(text.clone()),
        "tags": or_null(texts.clone()), "deployment": or_null(text.clone()),
    }));
    let schemas = json!({
        "Grant": object(json!({"ttl_seconds?": ttl})),
        "Granted": object(json!({"access_token": text, "expires_in": {"type": "integer"}})),
        "Credentials": object(json!({
            "project_id": uuid, "api_key_id": uuid, "scopes": texts, "expiration_date?": time,
            "kind": {"type": "string", "enum": ["key", "token"]},
        })),
        "Projects": object(json!({"projects": list(of("Project"))})),
        "Project": object(json!({"project_id": uuid, "name": text, "mip_opt_out": {"type": "boolean"}})),
        "ProjectChange": object(json!({"name?": {"type": "string", "minLength": 1, "maxLength": NAME_CHARACTERS_MAX}})),
        "Done": object(json!({"message": text})),
        "ApiKey": object(key),
        "CreatedKey": object(created),
        "NewKey": object(json!({
            "comment": {"type": "string", "minLength": 1, "maxLength": LABEL_CHARACTERS_MAX},
            "scopes": {"type": "array", "items": {"type": "string", "enum": SCOPES.as_slice()}, "minItems": 1},
            "tags?": {"type": "array", "maxItems": TAGS_MAX, "items": {"type": "string", "minLength": 1, "maxLength": TAG_CHARACTERS_MAX}},
            "expiration_date?": time,
            "time_to_live_in_seconds?": {"type": "number", "minimum": 1},
        })),
        "Holder": object(member),
        "HeldKey": object(json!({"member": of("Holder"), "api_key": of("ApiKey")})),
        "Keys": object(json!({"api_keys": list(of("HeldKey"))})),
        "OneKey": object(json!({
            "item": object(json!({"member": object(member_and_key)})), "member": of("Holder"), "api_key": of("ApiKey"),
        })),
        "Members": object(json!({"members": none()})),
        "Invites": object(json!({"invites": none()})),
        "Balances": object(json!({"balances": none()})),
        "Purchases": object(json!({"orders": none()})),
        "BillingBreakdown": object(json!({"start": day, "end": day, "resolution": of("Resolution"), "results": none()})),
        "BillingFields": object(json!({
            "accessors": list(uuid.clone()), "deployments": texts, "tags": texts, "line_items": {"type": "object"},
        })),
        "Requests": object(json!({
            "page": {"type": "integer"}, "limit": {"type": "integer"}, "requests": list(of("LoggedRequest")),
        })),
        "OneRequest": object(one_request),
        "LoggedRequest": object(logged),
        "Usage": object(json!({"start": day, "end": day, "resolution": of("Resolution"), "results": list(object(summary))})),
        "UsageBreakdown": object(json!({"start": day, "end": day, "resolution": of("Resolution"), "results": list(object(group))})),
        "UsageFields": object(json!({
            "tags": texts, "processing_methods": texts, "features": texts,
            "models": list(object(json!({"name": text, "language": text, "version": text, "model_id": uuid}))),
        })),
        "Resolution": object(json!({"units": text, "amount": {"type": "integer"}})),
        "SpeechModels": object(json!({"stt": list(of("SpeechModel")), "tts": list(of("VoiceModel"))})),
        "VoiceModel": object(json!({
            "name": text, "canonical_name": text, "architecture": text, "languages": texts, "version": text, "uuid": uuid,
        })),
        "SpeechModel": object(json!({
            "name": text, "canonical_name": text, "architecture": text, "languages": texts, "version": text, "uuid": uuid,
            "batch": {"type": "boolean"}, "streaming": {"type": "boolean"}, "formatted_output": {"type": "boolean"},
        })),
    });
    match schemas {
        Value::Object(schemas) => schemas,
        _ => Map::new(),
    }
}
