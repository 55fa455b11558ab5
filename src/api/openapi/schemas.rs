//! The objects of requests and answers, as JSON Schema.

use serde_json::{Value, json};

use crate::jobs::State;

/// Objects by their properties; a name that ends with `?` may be absent.
pub fn object(properties: Value) -> Value {
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

pub fn schemas() -> Value {
    let list = |items: Value| json!({"type": "array", "items": items});
    let of = |name: &str| json!({"$ref": format!("#/components/schemas/{name}")});
    let (text, number) = (json!({"type": "string"}), json!({"type": "number"}));
    let (count, uuid) =
        (json!({"type": "integer", "minimum": 0}), json!({"type": "string", "format": "uuid"}));
    let time = json!({"type": "string", "format": "date-time"});
    let share = json!({"type": "number", "minimum": 0, "maximum": 1});
    let confidence = json!({
        "type": "number", "minimum": 0, "maximum": 1,
        "description": "The share of words of this confidence that are right, of several words their mean.",
    });
    json!({
        "Source": object(json!({"url": {"type": "string", "format": "uri"}})),
        "Accepted": object(json!({"request_id": uuid})),
        "Failure": object(json!({"err_code": text, "err_msg": text, "request_id": uuid})),
        "Job": object(json!({
            "request_id": uuid, "state": {"type": "string", "enum": State::ALL.map(State::name)},
            "created": time, "next?": time, "finished?": time, "ended?": time, "runs": count, "attempts": count,
            "last_error?": text, "result?": {"type": "object"},
        })),
        "Speaker": object(json!({"speaker_id": uuid, "name": text, "created": time})),
        "Speakers": object(json!({"speakers": list(of("Speaker"))})),
        "Response": object(json!({"metadata": of("Metadata"), "results": of("Results")})),
        "Metadata": object(json!({
            "transaction_key": text, "request_id": uuid, "sha256": text,
            "created": time, "duration": number, "channels": count,
            "models": list(uuid.clone()),
            "model_info": {"type": "object", "additionalProperties": of("ModelInfo")},
            "diarize_info?": of("DiarizeInfo"), "voice_without_words?": number, "warnings?": list(of("Warning")), "tags?": list(text.clone()),
            "extra?": {"type": "object", "additionalProperties": text},
            "metadata?": text,
        })),
        "ModelInfo": object(json!({"name": text, "version": text, "arch": text})),
        "DiarizeInfo": object(json!({"model_uuid": uuid, "arch": text})),
        "Warning": object(json!({"parameter": text, "type": text, "message": text})),
        "Results": object(json!({"channels": list(of("Channel")), "utterances?": list(of("Utterance"))})),
        "Channel": object(json!({
            "alternatives": list(of("Alternative")), "search?": list(of("Search")),
            "detected_language?": text, "language_confidence?": share,
        })),
        "Alternative": object(json!({
            "transcript": text, "confidence": confidence, "words?": list(of("Word")),
            "paragraphs?": of("Paragraphs"), "languages?": list(text.clone()),
        })),
        "Word": object(json!({
            "word": text, "start": number, "end": number, "confidence": confidence, "punctuated_word?": text,
            "speaker?": count, "speaker_confidence?": share, "speaker_name?": text, "speaker_name_confidence?": share,
            "language?": text,
        })),
        "Paragraphs": object(json!({"transcript": text, "paragraphs": list(of("Paragraph"))})),
        "Paragraph": object(json!({
            "sentences": list(of("Sentence")), "num_words": count, "start": number, "end": number,
            "speaker?": count, "speaker_name?": text, "speaker_name_confidence?": share,
        })),
        "Sentence": object(json!({
            "text": text, "start": number, "end": number,
            "speaker?": count, "speaker_name?": text, "speaker_name_confidence?": share,
        })),
        "Search": object(json!({"query": text, "hits": list(of("Hit"))})),
        "Hit": object(json!({"confidence": share, "start": number, "end": number, "snippet": text})),
        "Utterance": object(json!({
            "start": number, "end": number, "confidence": confidence, "channel": count, "transcript": text,
            "words": list(of("Word")), "speaker?": count, "speaker_name?": text, "speaker_name_confidence?": share,
            "id": uuid,
        })),
    })
}
