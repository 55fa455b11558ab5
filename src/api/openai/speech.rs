//! `POST /v1/audio/speech`: a text in, speech out, by the same voices as `/v1/speak`.
//!
//! Shapes are those of OpenAI's API reference (openai/openai-openapi, `CreateSpeechRequest`).

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use futures_util::{Stream, stream};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use serde_json::{Map, Value, json};

use super::super::services::Services;
use super::super::speak::{Order, Speaking, begin, voice_of};
use super::error::{invalid, malformed, no_such_model};
use crate::http::{Failure, Request, Response};
use crate::speech::encode::{Coding, Format};

/// Characters of a text.
pub const INPUT_CHARACTERS_MAX: usize = 4096;
const BODY_BYTES_MAX: u64 = 1 << 20;
const INSTRUCTIONS_CHARACTERS_MAX: usize = 4096;
const NAME_CHARACTERS_MAX: usize = 128;
const SPEED: std::ops::RangeInclusive<f64> = 0.25..=4.0;
/// The rate of all formats but Opus.
const RATE_HZ: u32 = 24_000;
/// Output tokens are counted as that API's own voices make them, 1250 to a minute of speech.
const TOKENS_PER_SECOND: f64 = 1250.0 / 60.0;
const EVENTS: &str = "text/event-stream; charset=utf-8";
/// Says that a parameter has no effect, or the audio is damaged, where the body has no place for that.
pub const WARNING: HeaderName = HeaderName::from_static("x-verbatim-warning");

/// Name, format and media type.
#[rustfmt::skip]
pub const FORMATS: [(&str, Format, &str); 6] = [
    ("mp3", Format { coding: Coding::Mp3 { bits_per_second: 64_000 }, sample_rate_hz: RATE_HZ, is_wave: false }, "audio/mpeg"),
    ("opus", Format { coding: Coding::Opus { bits_per_second: 32_000 }, sample_rate_hz: 48_000, is_wave: false }, "audio/opus"),
    ("aac", Format { coding: Coding::Aac { bits_per_second: 64_000 }, sample_rate_hz: RATE_HZ, is_wave: false }, "audio/aac"),
    ("flac", Format { coding: Coding::Flac, sample_rate_hz: RATE_HZ, is_wave: false }, "audio/flac"),
    ("wav", Format { coding: Coding::Linear16, sample_rate_hz: RATE_HZ, is_wave: true }, "audio/wav"),
    ("pcm", Format { coding: Coding::Linear16, sample_rate_hz: RATE_HZ, is_wave: false }, "audio/pcm"),
];

/// The body of a request, checked.
#[derive(Debug, PartialEq)]
struct Asked {
    input: String,
    model: String,
    voice: String,
    format: Format,
    content_type: &'static str,
    speed: f64,
    has_instructions: bool,
    /// As server-sent events.
    is_events: bool,
}

pub(in crate::api) async fn speech(services: Arc<Services>, request: Request) -> Result<Response, Failure> {
    let caller = services.authenticator.caller(&request.headers).await?;
    let body = request.body.charged_to(caller.tenant).collect_at_most(BODY_BYTES_MAX).await?;
    let asked = Asked::parse(&body.bytes())?;
    drop(body);
    if !services.model_names.any_model && !is_voice_model(&asked.model) {
        return Err(no_such_model(&asked.model));
    }
    let voice = voice_of(&services, Some(&asked.voice))?.ok_or_else(|| {
        let voices = services.speech.voices().join(", ");
        let reason = services.speech.unread(&asked.voice).map(|reason| format!("{reason} "));
        let reason = reason.unwrap_or_default();
        invalid(
            "voice",
            format!("Invalid voice. {reason}Use one of OpenAI's names, such as alloy, or one of: {voices}."),
        )
    })?;
    // The voice has no tokens; a recogniser of the same languages counts them alike.
    let input_tokens = services.models.default().model().prompt_tokens.of(&asked.input);
    let content_type = asked.content_type;
    // Both ends of the range are exact as `f32`.
    let speed = asked.speed as f32;
    let order = Order {
        tenant: caller.tenant,
        connection: Some(request.peer),
        text: asked.input,
        voice,
        speed,
        format: asked.format,
    };
    let (speaking, mut headers) = begin(&services, order).await?;
    let (body, content_type) = if asked.is_events {
        (StreamBody::new(events(speaking, input_tokens)).boxed_unsync(), EVENTS)
    } else {
        (StreamBody::new(speaking.frames()).boxed_unsync(), content_type)
    };
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    if asked.has_instructions {
        let note = "`instructions` has no effect: the voice takes none.";
        headers.insert(WARNING, HeaderValue::from_static(note));
    }
    let mut response = Response::new(body);
    *response.headers_mut() = headers;
    Ok(response)
}

/// Names of the hosted models, and of the embedded one.
pub fn is_voice_model(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.contains("tts") || name.contains("kokoro")
}

/// `speech.audio.delta` for each piece, and `speech.audio.done`; an `error` if the speech breaks off.
fn events(
    speaking: Speaking,
    input_tokens: usize,
) -> impl Stream<Item = std::io::Result<Frame<Bytes>>> + Send {
    stream::unfold(Some(speaking), move |speaking| async move {
        let mut speaking = speaking?;
        let (event, next) = match speaking.bytes().await {
            Ok(Some(bytes)) => {
                (json!({"type": "speech.audio.delta", "audio": BASE64.encode(bytes)}), Some(speaking))
            }
            Ok(None) => {
                let output_tokens = (speaking.seconds() * TOKENS_PER_SECOND).round() as u64;
                let total_tokens = input_tokens as u64 + output_tokens;
                let usage = json!({
                    "input_tokens": input_tokens, "output_tokens": output_tokens, "total_tokens": total_tokens,
                });
                (json!({"type": "speech.audio.done", "usage": usage}), None)
            }
            Err(error) => {
                tracing::warn!(error = &*error, "speech broke off");
                (super::error::body(&Failure::internal("speech broke off"), None), None)
            }
        };
        let piece = Bytes::from(format!("data: {event}\n\n"));
        Some((Ok(Frame::data(piece)), next))
    })
}

impl Asked {
    fn parse(body: &[u8]) -> Result<Self, Failure> {
        let Ok(Value::Object(members)) = serde_json::from_slice(body) else {
            return Err(malformed("We could not parse the JSON body of your request."));
        };
        let input = text(&members, "input", INPUT_CHARACTERS_MAX)?;
        if input.trim().is_empty() {
            return Err(invalid("input", "`input` has no characters."));
        }
        let format = optional(&members, "response_format")?.unwrap_or("mp3");
        let named = FORMATS.iter().find(|(name, ..)| *name == format).ok_or_else(|| {
            invalid("response_format", "`response_format` must be one of mp3, opus, aac, flac, wav, pcm.")
        })?;
        let is_events = match optional(&members, "stream_format")? {
            None | Some("audio") => false,
            Some("sse") => true,
            Some(_) => return Err(invalid("stream_format", "`stream_format` must be audio or sse.")),
        };
        let speed = match members.get("speed") {
            None | Some(Value::Null) => 1.0,
            Some(speed) => speed
                .as_f64()
                .filter(|speed| SPEED.contains(speed))
                .ok_or_else(|| invalid("speed", "`speed` must be a number from 0.25 to 4.0."))?,
        };
        let has_instructions = match optional(&members, "instructions")? {
            Some(text) if text.chars().nth(INSTRUCTIONS_CHARACTERS_MAX).is_some() => {
                let message =
                    format!("`instructions` has more than {INSTRUCTIONS_CHARACTERS_MAX} characters.");
                return Err(invalid("instructions", message));
            }
            text => text.is_some_and(|text| !text.trim().is_empty()),
        };
        // Newer clients may name a voice of their own by an object.
        let voice = match members.get("voice") {
            Some(Value::Object(voice)) => text(voice, "id", NAME_CHARACTERS_MAX)?,
            _ => text(&members, "voice", NAME_CHARACTERS_MAX)?,
        };
        Ok(Self {
            input,
            model: text(&members, "model", NAME_CHARACTERS_MAX)?,
            voice,
            format: named.1,
            content_type: named.2,
            speed,
            has_instructions,
            is_events,
        })
    }
}

fn optional<'m>(members: &'m Map<String, Value>, name: &'static str) -> Result<Option<&'m str>, Failure> {
    match members.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(invalid(name, format!("`{name}` must be a string."))),
    }
}

fn text(members: &Map<String, Value>, name: &'static str, most: usize) -> Result<String, Failure> {
    let text = optional(members, name)?
        .ok_or_else(|| invalid(name, format!("Missing required parameter: `{name}`.")))?;
    if text.chars().nth(most).is_some() {
        return Err(invalid(name, format!("`{name}` has more than {most} characters.")));
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(body: &Value) -> Result<Asked, Failure> {
        Asked::parse(body.to_string().as_bytes())
    }

    #[test]
    fn defaults_are_those_of_the_api() {
        let asked = parse(&json!({"model": "tts-1", "input": "Hello.", "voice": "alloy"})).unwrap();
        assert_eq!((asked.content_type, asked.speed, asked.is_events), ("audio/mpeg", 1.0, false));
        let asked = parse(&json!({
            "model": "gpt-4o-mini-tts", "input": "é".repeat(4096), "voice": {"id": "nova"}, "response_format": "pcm",
            "speed": 4, "instructions": "Whisper.", "stream_format": "sse",
        }));
        let asked = asked.unwrap();
        assert_eq!((asked.voice.as_str(), asked.content_type, asked.speed), ("nova", "audio/pcm", 4.0));
        assert!(asked.has_instructions && asked.is_events);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let whole = json!({"model": "tts-1", "input": "Hello.", "voice": "alloy"});
        for (name, value) in [
            ("model", Value::Null),
            ("model", json!(1)),
            ("input", json!("")),
            ("input", json!("a".repeat(4097))),
            ("voice", json!([])),
            ("response_format", json!("wma")),
            ("speed", json!(0.1)),
            ("speed", json!("fast")),
            ("stream_format", json!("xml")),
            ("instructions", json!({})),
        ] {
            let mut body = whole.clone();
            body[name] = value;
            let failure = parse(&body).unwrap_err();
            assert_eq!(failure.own_body().unwrap()["error"]["param"], name, "{body}");
        }
        assert!(Asked::parse(b"[]").is_err() && Asked::parse(b"").is_err());
    }

    #[test]
    fn models_that_speak_are_known_by_name() {
        for name in ["tts-1", "tts-1-hd", "gpt-4o-mini-tts-2025-12-15", "Kokoro"] {
            assert!(is_voice_model(name), "{name}");
        }
        assert!(!is_voice_model("whisper-1"));
    }
}
