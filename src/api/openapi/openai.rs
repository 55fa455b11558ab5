//! The endpoints of OpenAI's clients.

use serde_json::{Map, Value, json};

use super::super::openai::RESPONSE_FORMATS;
use super::super::openai::speech::{FORMATS, INPUT_CHARACTERS_MAX};
use super::schemas::object;

pub fn paths() -> Map<String, Value> {
    let mut paths = Map::new();
    paths.insert("/v1/audio/transcriptions".to_owned(), json!({"post": transcribe()}));
    paths.insert("/v1/audio/speech".to_owned(), json!({"post": speech()}));
    paths.insert("/v1/audio/translations".to_owned(), json!({"post": translate()}));
    paths.insert("/v1/models".to_owned(), json!({"get": models()}));
    paths.insert("/v1/models/{model}".to_owned(), json!({"get": model()}));
    paths
}

pub fn failure(about: &str) -> Value {
    let schema = json!({"$ref": "#/components/schemas/OpenAiFailure"});
    json!({"description": about, "content": {"application/json": {"schema": schema}}})
}

pub fn busy(about: &str) -> Value {
    let mut busy = failure(about);
    busy["headers"] = json!({"Retry-After": {"schema": {"type": "integer"}, "description": "Seconds."}});
    busy
}

fn content(schemas: &[&str]) -> Value {
    let schema = |name: &&str| json!({"$ref": format!("#/components/schemas/{name}")});
    json!({"schema": {"oneOf": schemas.iter().map(schema).collect::<Vec<_>>()}})
}

/// The form's fields that both have.
fn fields() -> Map<String, Value> {
    let fields = json!({
        "file": {"type": "string", "format": "binary", "description": "The audio, in any known format."},
        "model": {"type": "string", "description": "A served model, as `GET /v1/models` lists them; any other name means the default, unless `api.openai.any_model` is false."},
        "prompt": {"type": "string", "description": "Text that comes before the audio: its style, names and spellings. The model reads its last 223 tokens."},
        "response_format": {"type": "string", "enum": RESPONSE_FORMATS.map(|(name, _)| name), "default": "json"},
        "temperature": {"type": "number", "minimum": 0, "maximum": 1, "default": 0, "description": "Of the first attempt; others follow at higher ones if it fails."},
        "language": {"type": "string", "description": "The language of the audio: a code of ISO 639-1. Without it the language is detected."},
    });
    match fields {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

fn form(fields: Map<String, Value>, example: &Value) -> Value {
    let schema = json!({"type": "object", "properties": fields, "required": ["file"]});
    json!({"required": true, "content": {"multipart/form-data": {"schema": schema, "example": example}}})
}

fn refusals(responses: &mut Value) {
    for (status, response) in [
        ("4XX", failure("An invalid request; `param` names the field at fault.")),
        ("401", failure("No valid key.")),
        ("413", failure("More bytes than are taken.")),
        ("429", busy("The organisation holds its share of the server.")),
        ("503", busy("Busy.")),
        ("5XX", failure("The server's fault.")),
    ] {
        responses[status] = response;
    }
}

fn transcribe() -> Value {
    let mut fields = fields();
    let list = |about: &str, most: usize| json!({"type": "array", "items": {"type": "string"}, "maxItems": most, "description": about});
    let of = |values: &[&str], about: &str| json!({"type": "array", "items": {"type": "string", "enum": values}, "description": about});
    fields.extend([
        ("languages".to_owned(), list("Languages to choose among.", 100)),
        ("keywords".to_owned(), list("Terms to expect.", 100)),
        (
            "timestamp_granularities".to_owned(),
            of(&["word", "segment"], "With `verbose_json`. As `timestamp_granularities[]` too."),
        ),
        ("include".to_owned(), of(&["logprobs"], "With `json`: the tokens' log probabilities.")),
        (
            "stream".to_owned(),
            json!({"type": "boolean", "default": false, "description": "Server-sent events, as the text becomes final. With json, text and diarized_json."}),
        ),
        (
            "chunking_strategy".to_owned(),
            json!({"description": "`auto`, or an object of type `server_vad`, whose settings get a warning.", "anyOf": [
                {"type": "string", "enum": ["auto"]}, {"type": "object"},
            ]}),
        ),
        ("known_speaker_names".to_owned(), list("With `diarized_json`.", 4)),
        (
            "known_speaker_references".to_owned(),
            list("For each name a clip of 2 to 10 s, with at least 3 s of speech, as a data URL.", 4),
        ),
    ]);
    let example =
        json!({"model": "whisper-1", "response_format": "verbose_json", "timestamp_granularities": ["word"]});
    let json = content(&["OpenAiTranscription", "OpenAiVerbose", "OpenAiDiarized"]);
    let text = json!({"schema": {"type": "string"}});
    let headers = warning_header();
    let events = json!({"schema": {"description": "Server-sent events; `data` of each is a JSON object."}, "example":
        "data: {\"type\":\"transcript.text.delta\",\"delta\":\"Hello.\"}\n\ndata: {\"type\":\"transcript.text.done\",\"text\":\"Hello.\"}\n\n"});
    let mut responses = json!({
        "200": {"description": "The transcript, in the format asked for.", "headers": headers, "content": {
            "application/json": json, "text/plain": text, "text/event-stream": events,
        }},
    });
    refusals(&mut responses);
    json!({
        "operationId": "createTranscription",
        "summary": "Transcribe audio, for OpenAI's clients.",
        "requestBody": form(fields, &example),
        "responses": responses,
    })
}

/// The header that carries warnings where the answer is plain text.
fn warning_header() -> Value {
    json!({"x-verbatim-warning": {
        "description": "With `text`, `srt` and `vtt`: a field that had no effect, or damaged audio; one for each.",
        "schema": {"type": "string"},
    }})
}

fn translate() -> Value {
    let mut fields = fields();
    let formats = RESPONSE_FORMATS.map(|(name, _)| name);
    let formats: Vec<&str> = formats.into_iter().filter(|name| *name != "diarized_json").collect();
    fields["response_format"]["enum"] = json!(formats);
    let mut responses = json!({
        "200": {"description": "The translation, in the format asked for.", "headers": warning_header(), "content": {
            "application/json": content(&["OpenAiTranscription", "OpenAiVerbose"]),
            "text/plain": {"schema": {"type": "string"}},
        }},
    });
    refusals(&mut responses);
    json!({
        "operationId": "createTranslation",
        "summary": "Translate speech to English text, for OpenAI's clients. 400 by a model that knows English only.",
        "requestBody": form(fields, &json!({"model": "whisper-1"})),
        "responses": responses,
    })
}

fn speech() -> Value {
    let text = |about: &str, most: usize| json!({"type": "string", "minLength": 1, "maxLength": most, "description": about});
    let formats = FORMATS.map(|(name, ..)| name);
    let about = "OpenAI's, or an installed voice.";
    let properties = json!({
        "model": text("Any name, unless `openai.any_model` is false.", 128),
        "input": text("The text.", INPUT_CHARACTERS_MAX),
        "voice": {"description": about, "anyOf": [
            {"type": "string", "maxLength": 128},
            {"type": "object", "properties": {"id": {"type": "string", "maxLength": 128}}, "required": ["id"]},
        ]},
        "response_format": {"type": "string", "enum": formats, "default": "mp3"},
        "speed": {"type": "number", "minimum": 0.25, "maximum": 4, "default": 1},
        "instructions": text("Has no effect; the header `x-verbatim-warning` says so.", 4096),
        "stream_format": {"type": "string", "enum": ["audio", "sse"], "default": "audio"},
    });
    let body = json!({"type": "object", "properties": properties, "required": ["model", "input", "voice"]});
    let example = json!({"model": "tts-1", "input": "We are open from nine to five.", "voice": "alloy"});
    let events = json!({"schema": {"description": "Server-sent events; `data` of each is a JSON object."}, "example":
        "data: {\"type\":\"speech.audio.delta\",\"audio\":\"…\"}\n\ndata: {\"type\":\"speech.audio.done\",\"usage\":{}}\n\n"});
    let mut responses = json!({
        "200": {"description": "The speech, while the rest of it is still being spoken.", "content": {
            "audio/*": {"schema": {"type": "string", "format": "binary"}}, "text/event-stream": events,
        }},
    });
    refusals(&mut responses);
    json!({
        "operationId": "createSpeech",
        "summary": "Speak a text, for OpenAI's clients.",
        "requestBody": {"required": true, "content": {"application/json": {"schema": body, "example": example}}},
        "responses": responses,
    })
}

fn models() -> Value {
    json!({
        "operationId": "listModels",
        "summary": "The models, in the form that the client knows.",
        "description": "OpenAI's clients get a list. The wire format's SDKs, and others with the scheme `Token`, get `stt` and `tts`.",
        "responses": {
            "200": {"description": "The models and their aliases.", "content": {"application/json": content(&["OpenAiModels", "SpeechModels"])}},
            "401": failure("No valid key."),
        },
    })
}

fn model() -> Value {
    json!({
        "operationId": "retrieveModel",
        "summary": "A model, in the form that the client knows.",
        "parameters": [{"name": "model", "in": "path", "required": true, "schema": {"type": "string"}, "description": "A name or UUID."}],
        "responses": {
            "200": {"description": "The model.", "content": {"application/json": content(&["OpenAiModel", "SpeechModel"])}},
            "401": failure("No valid key."),
            "404": failure("There is no such model."),
        },
    })
}

pub fn schemas() -> Map<String, Value> {
    let list = |items: Value| json!({"type": "array", "items": items});
    let of = |name: &str| json!({"$ref": format!("#/components/schemas/{name}")});
    let (text, number) = (json!({"type": "string"}), json!({"type": "number"}));
    let count = json!({"type": "integer", "minimum": 0});
    let usage = object(json!({"type": {"type": "string", "enum": ["duration"]}, "seconds": count}));
    let word = object(json!({"word": text, "start": number, "end": number}));
    let segment = object(json!({
        "id": count, "seek": count, "start": number, "end": number, "text": text, "tokens": list(count.clone()),
        "temperature": number, "avg_logprob": number, "compression_ratio": number, "no_speech_prob": number,
    }));
    let turn = object(json!({
        "type": text, "id": text, "start": number, "end": number, "text": text, "speaker": text,
    }));
    let token = object(json!({"token": text, "logprob": number, "bytes": list(count.clone())}));
    let nullable = json!({"type": ["string", "null"]});
    let schemas = json!({
        "OpenAiFailure": object(json!({"error": object(json!({
            "message": text, "type": text, "param": nullable, "code": nullable,
        }))})),
        "OpenAiTranscription": object(json!({
            "text": text, "languages?": list(object(json!({"code": text}))), "logprobs?": list(token), "usage?": usage,
            "warnings?": list(text.clone()),
        })),
        "OpenAiVerbose": object(json!({
            "task": text, "language": text, "duration": number, "text": text, "words?": list(word),
            "segments?": list(segment), "usage?": usage, "warnings?": list(text.clone()),
        })),
        "OpenAiDiarized": object(json!({
            "task": text, "duration": number, "text": text, "segments": list(turn), "usage": usage,
            "warnings?": list(text.clone()),
        })),
        "OpenAiModel": object(json!({"id": text, "object": text, "created": count, "owned_by": text})),
        "OpenAiModels": object(json!({"object": text, "data": list(of("OpenAiModel"))})),
    });
    match schemas {
        Value::Object(schemas) => schemas,
        _ => Map::new(),
    }
}
