//! A description of WebSockets in AsyncAPI 3.0 (<https://www.asyncapi.com/docs/reference/specification/v3.0.0>), from the
//! types of their messages. Pure.
//!
//! A message for each variant of the type that is serialised or parsed: none can be forgotten.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

/// A WebSocket of the server.
pub struct Socket {
    /// For programs: `listen`.
    pub name: &'static str,
    /// Its path.
    pub address: &'static str,
    pub about: &'static str,
    /// The query's parameters: JSON Schema by name.
    pub query: Map<String, Value>,
    /// Messages of clients.
    pub accepts: Vec<Message>,
    /// Messages of the server.
    pub sends: Vec<Message>,
}

pub struct Message {
    /// The `type` of a text message, or the content of a binary one.
    pub name: String,
    pub about: String,
    pub content_type: &'static str,
    /// JSON Schema.
    pub payload: Value,
}

impl Message {
    /// A text message.
    pub fn text(name: impl Into<String>, payload: Value) -> Self {
        let about = payload["description"].as_str().unwrap_or_default().to_owned();
        Self { name: name.into(), about, content_type: "application/json", payload }
    }

    /// A binary message.
    pub fn binary(name: &str, about: &str) -> Self {
        let payload = json!({"type": "string", "format": "binary"});
        Self {
            name: name.to_owned(),
            about: about.to_owned(),
            content_type: "application/octet-stream",
            payload,
        }
    }
}

/// The messages that `T` serialises to, one for each variant.
///
/// # Panics
/// If `T` is no enum with a `type` in each variant.
pub fn sent<T: JsonSchema>() -> Vec<Message> {
    variants(schema_sent::<T>())
}

/// The messages that `T` is parsed from, one for each variant.
///
/// # Panics
/// As [`sent`].
pub fn accepted<T: JsonSchema>() -> Vec<Message> {
    variants(schema_accepted::<T>())
}

/// JSON Schema of what `T` serialises to.
pub fn schema_sent<T: JsonSchema>() -> Value {
    settings().for_serialize().into_generator().into_root_schema_for::<T>().to_value()
}

/// JSON Schema of what `T` is parsed from.
pub fn schema_accepted<T: JsonSchema>() -> Value {
    settings().for_deserialize().into_generator().into_root_schema_for::<T>().to_value()
}

/// `messages`, each with one more member of this schema.
pub fn with_member(mut messages: Vec<Message>, name: &str, schema: &Value) -> Vec<Message> {
    for Message { payload, .. } in &mut messages {
        payload["properties"][name] = schema.clone();
        if let Some(required) = payload["required"].as_array_mut() {
            required.push(name.into());
        }
    }
    messages
}

fn settings() -> SchemaSettings {
    SchemaSettings::draft07().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    })
}

fn variants(schema: Value) -> Vec<Message> {
    let variants = schema["oneOf"].as_array().cloned().expect("an enum of messages; this is a bug");
    let message = |variant: Value| {
        let kind = &variant["properties"]["type"]["const"];
        let name = kind.as_str().expect("each variant has a type; this is a bug").to_owned();
        Message::text(name, variant)
    };
    variants.into_iter().map(message).collect()
}

/// The document of these sockets.
pub fn document<'a>(sockets: impl IntoIterator<Item = &'a Socket>) -> Value {
    let (mut channels, mut operations, mut messages) = (Map::new(), Map::new(), Map::new());
    for socket in sockets {
        let mut listed = Map::new();
        for (action, own) in [("receive", &socket.accepts), ("send", &socket.sends)] {
            let mut references = Vec::new();
            for message in own {
                // One type may go both ways.
                let key = format!("{action}.{}", message.name);
                let component = format!("{}.{key}", socket.name);
                listed.insert(key.clone(), reference(&["components", "messages", &component]));
                references.push(reference(&["channels", socket.name, "messages", &key]));
                messages.insert(component, described(message));
            }
            let operation = json!({
                "action": action, "channel": reference(&["channels", socket.name]), "messages": references,
            });
            operations.insert(format!("{}.{action}", socket.name), operation);
        }
        let query = json!({"type": "object", "properties": socket.query});
        channels.insert(
            socket.name.to_owned(),
            json!({
                "address": socket.address,
                "description": socket.about,
                "messages": listed,
                "bindings": {"ws": {"method": "GET", "query": query, "bindingVersion": "0.1.0"}},
            }),
        );
    }
    json!({
        "asyncapi": "3.0.0",
        "info": {
            "title": "Verbatim",
            "version": env!("CARGO_PKG_VERSION"),
            "license": {"name": "Apache-2.0"},
            "description": "The WebSockets of the server; `/openapi.json` describes its other endpoints.",
        },
        "defaultContentType": "application/json",
        "servers": {
            "here": {
                "host": "{host}", "protocol": "wss",
                "variables": {"host": {"default": "localhost:8000", "description": "The server's host and port."}},
                "security": [reference(&["components", "securitySchemes", "key"])],
            },
        },
        "channels": channels,
        "operations": operations,
        "components": {
            "messages": messages,
            "securitySchemes": {
                "key": {"type": "http", "scheme": "bearer", "description": "`Bearer org_…`, or `Token org_…`."},
            },
        },
    })
}

fn described(message: &Message) -> Value {
    let Message { name, about, content_type, payload } = message;
    json!({"name": name, "summary": about, "contentType": content_type, "payload": payload})
}

/// A reference to a part of the document (RFC 6901).
fn reference(path: &[&str]) -> Value {
    let escaped = path.iter().map(|part| part.replace('~', "~0").replace('/', "~1"));
    let path: Vec<String> = escaped.collect();
    json!({"$ref": format!("#/{}", path.join("/"))})
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};

    use super::*;

    #[derive(Serialize, Deserialize, JsonSchema)]
    #[serde(tag = "type")]
    enum Spoken {
        /// A greeting.
        #[serde(rename = "hello.there")]
        Hello {
            name: String,
            #[serde(default, skip_serializing_if = "Option::is_none")]
            again: Option<u8>,
        },
        Bye,
    }

    #[test]
    fn each_variant_is_a_message_of_its_direction() {
        let socket = Socket {
            name: "talk",
            address: "/talk",
            about: "Talks.",
            query: Map::from_iter([("loud".to_owned(), json!({"type": "boolean"}))]),
            accepts: accepted::<Spoken>(),
            sends: sent::<Spoken>(),
        };
        let document = document([&socket]);
        let messages = document["components"]["messages"].as_object().unwrap();
        let names =
            ["talk.receive.Bye", "talk.receive.hello.there", "talk.send.Bye", "talk.send.hello.there"];
        assert_eq!(messages.keys().collect::<Vec<_>>(), names);
        let hello = &messages["talk.receive.hello.there"];
        assert_eq!(hello["summary"], "A greeting.");
        assert_eq!(hello["payload"]["required"], json!(["type", "name"]));
        assert_eq!(hello["payload"]["properties"]["name"], json!({"type": "string"}));
        let operation = &document["operations"]["talk.send"];
        assert_eq!(operation["messages"][0]["$ref"], "#/channels/talk/messages/send.hello.there");
        let channel = &document["channels"]["talk"];
        assert_eq!(channel["messages"]["send.Bye"]["$ref"], "#/components/messages/talk.send.Bye");
        assert_eq!(channel["bindings"]["ws"]["query"]["properties"]["loud"]["type"], "boolean");
    }
}
