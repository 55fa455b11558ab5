//! `/asyncapi.json`: the WebSockets in AsyncAPI 3.0, with the query parameters from their tables.

use serde_json::Value;

use super::{live, openai, openapi, speak, turns};
use crate::asyncapi::{Socket, document};

/// The document, with the sockets of other services on the same port.
pub(super) fn build(others: &[Socket]) -> Value {
    let own = [
        live::socket(openapi::live_query()),
        turns::socket(openapi::turns_query()),
        speak::socket(),
        speak::turns::socket(),
        openai::realtime::socket(),
    ];
    document(own.iter().chain(others))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_socket_has_its_messages_and_parameters() {
        let document = build(&[]);
        let channels = document["channels"].as_object().unwrap();
        let addresses: Vec<&Value> = channels.values().map(|channel| &channel["address"]).collect();
        assert_eq!(
            addresses,
            ["/v1/listen", "/v1/realtime", "/v1/speak", "/v2/speak", "/v2/listen"]
                .map(Value::from)
                .iter()
                .collect::<Vec<_>>()
        );
        let messages = document["components"]["messages"].as_object().unwrap();
        for name in [
            "listen.receive.audio",
            "listen.receive.KeepAlive",
            "listen.receive.Finalize",
            "listen.receive.CloseStream",
            "listen.receive.Configure",
            "listen.send.Results",
            "listen.send.SpeechStarted",
            "listen.send.UtteranceEnd",
            "listen.send.Metadata",
            "listen.send.Error",
            "turns.receive.ForceEndTurn",
            "turns.send.Connected",
            "turns.send.TurnInfo",
            "speak.receive.Speak",
            "speak.send.audio",
            "speak.send.Flushed",
            "speech_turns.receive.Interrupt",
            "speech_turns.send.SpeechInterrupted",
            "realtime.receive.session.update",
            "realtime.receive.input_audio_buffer.append",
            "realtime.send.session.created",
            "realtime.send.conversation.item.input_audio_transcription.completed",
            "realtime.send.error",
        ] {
            assert!(messages.contains_key(name), "{name}");
        }
        let query = &document["channels"]["listen"]["bindings"]["ws"]["query"]["properties"];
        assert_eq!(query["interim_results"]["type"], "boolean");
        assert_eq!(query["encoding"]["enum"].as_array().map(Vec::is_empty), Some(false));
        let session = &messages["realtime.receive.session.update"]["payload"]["properties"]["session"];
        assert_eq!(session["properties"]["type"]["const"], json!("transcription"));
        let kinds = &session["properties"]["audio"];
        assert!(kinds.to_string().contains("server_vad"), "{kinds}");
    }

    /// Every reference leads somewhere.
    #[test]
    fn references_resolve() {
        fn walk(value: &Value, document: &Value) {
            match value {
                Value::Object(members) => {
                    if let Some(reference) = members.get("$ref") {
                        let pointer = reference.as_str().unwrap().trim_start_matches('#');
                        assert!(document.pointer(pointer).is_some(), "{reference}");
                    }
                    members.values().for_each(|value| walk(value, document));
                }
                Value::Array(items) => items.iter().for_each(|value| walk(value, document)),
                _ => {}
            }
        }
        let document = build(&[]);
        walk(&document, &document);
    }
}
