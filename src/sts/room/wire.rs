//! The room's messages: those of the voice-agent interface of the wire format's API, and a few of our
//! own beside them, which its SDKs pass over.

use serde_json::{Value, json};

use crate::figures::Seconds;
use crate::sts::action::page_context;
use crate::sts::fields::Fields;

/// What a client sends as text.
#[derive(Debug, Clone, PartialEq)]
pub enum Said {
    /// How the audio is to be, both ways, and what the agent is to be where there is no session yet.
    Settings(Box<Settings>),
    KeepAlive,
    /// Typed instead of spoken.
    UserMessage(String),
    /// A key of the telephone.
    Digit(char),
    /// A mark of ours was reached in playing.
    Played(u64),
    PageContext(Value),
    Close,
    /// Understood, and only the session's owner may: `prompt`, `speak` and the like.
    NotHere(String),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    pub input: Format,
    pub output: Format,
    pub greeting: Option<String>,
    pub instructions: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Format {
    pub is_mulaw: bool,
    pub sample_rate_hz: u32,
}

/// Where nothing is said of it.
pub const INPUT: Format = Format { is_mulaw: false, sample_rate_hz: 16_000 };
pub const OUTPUT: Format = Format { is_mulaw: false, sample_rate_hz: 24_000 };
const RATES: std::ops::RangeInclusive<u32> = 8_000..=48_000;
const TEXT_BYTES_MAX: usize = 8 << 10;

/// Why a message means nothing; for the client.
pub type Problem = &'static str;

impl Said {
    /// # Errors
    /// What is wrong with it.
    pub fn read(text: &str) -> Result<Self, Problem> {
        let value: Value = serde_json::from_str(text).map_err(|_| "the message is no JSON")?;
        let fields = Fields::of(&value).map_err(|_| "the message is no JSON object")?;
        let kind = fields.required_text("type", 100).map_err(|_| "the message has no `type`")?;
        Ok(match kind {
            "KeepAlive" => Self::KeepAlive,
            "Settings" => Self::Settings(Box::new(settings(&value)?)),
            "InjectUserMessage" => {
                let content = fields.required_text("content", TEXT_BYTES_MAX);
                Self::UserMessage(content.map_err(|_| "`content` must be a text")?.to_owned())
            }
            "Dtmf" => {
                let digit = fields.required_text("digit", 1).map_err(|_| "`digit` must be one key")?;
                let digit = digit.chars().next().filter(|c| is_key(*c));
                Self::Digit(digit.ok_or("`digit` must be one of 0-9, *, # and A-D")?)
            }
            "PlaybackMark" => {
                let name = fields.required_text("name", 100).map_err(|_| "`name` must be a text")?;
                Self::Played(name.parse().map_err(|_| "there is no such mark")?)
            }
            "PageContext" => {
                let context = page_context(fields);
                Self::PageContext(
                    context.map_err(|_| "`page_context` must be an object, neither large nor deep")?,
                )
            }
            "Close" => Self::Close,
            "UpdatePrompt"
            | "UpdateSpeak"
            | "UpdateThink"
            | "UpdateListen"
            | "InjectAgentMessage"
            | "FunctionCallResponse" => Self::NotHere(kind.to_owned()),
            _ => return Err("a message of this `type` is not known"),
        })
    }
}

pub fn is_key(c: char) -> bool {
    c.is_ascii_digit() || matches!(c, '*' | '#' | 'A'..='D')
}

fn settings(value: &Value) -> Result<Settings, Problem> {
    let text = |pointer: &str| {
        value
            .pointer(pointer)
            .and_then(Value::as_str)
            .filter(|text| text.len() <= 64 << 10)
            .map(str::to_owned)
    };
    Ok(Settings {
        input: format(value.pointer("/audio/input"), INPUT)?,
        output: format(value.pointer("/audio/output"), OUTPUT)?,
        greeting: text("/agent/greeting"),
        instructions: text("/agent/think/prompt").or_else(|| text("/agent/think/0/prompt")),
    })
}

fn format(value: Option<&Value>, default: Format) -> Result<Format, Problem> {
    let Some(value) = value.filter(|value| !value.is_null()) else { return Ok(default) };
    let is_mulaw = match value.get("encoding").map(|encoding| encoding.as_str().unwrap_or_default()) {
        None | Some("linear16") => false,
        Some("mulaw") => true,
        Some(_) => return Err("audio is taken and given as linear16 or mulaw"),
    };
    let usual = if is_mulaw { 8_000 } else { default.sample_rate_hz };
    let rate = match value.get("sample_rate").filter(|rate| !rate.is_null()) {
        None => usual,
        Some(rate) => rate.as_f64().filter(|rate| rate.fract() == 0.0).unwrap_or_default() as u32,
    };
    if !RATES.contains(&rate) {
        return Err("the sample rate must be from 8000 to 48000");
    }
    match value.get("container").and_then(Value::as_str) {
        None | Some("none" | "") => Ok(Format { is_mulaw, sample_rate_hz: rate }),
        Some(_) => Err("audio has no container"),
    }
}

pub fn welcome(request: uuid::Uuid, session: &str, room: &str) -> String {
    json!({"type": "Welcome", "request_id": request, "session_id": session, "room_name": room}).to_string()
}

pub fn bare(kind: &str) -> String {
    json!({ "type": kind }).to_string()
}

pub fn warning(code: &str, description: &str) -> String {
    json!({"type": "Warning", "code": code, "description": description}).to_string()
}

pub fn error(code: &str, description: &str) -> String {
    json!({"type": "Error", "code": code, "description": description}).to_string()
}

pub fn assistant(content: &str) -> String {
    json!({"type": "ConversationText", "role": "assistant", "content": content}).to_string()
}

pub fn thinking() -> String {
    json!({"type": "AgentThinking", "content": ""}).to_string()
}

/// Latencies in seconds: from the end of speech to the first sound, and of that the voice's and the
/// text's part.
pub fn started_speaking(total: f64, tts: f64, ttt: f64) -> String {
    let [total, tts, ttt] = [total, tts, ttt].map(Seconds::new);
    json!({"type": "AgentStartedSpeaking", "total_latency": total, "tts_latency": tts, "ttt_latency": ttt})
        .to_string()
}

pub fn state(name: &str) -> String {
    json!({"type": "AgentState", "state": name}).to_string()
}

pub fn mark(mark: u64) -> String {
    json!({"type": "Mark", "name": mark.to_string()}).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_say_how_the_audio_is() {
        let read = |text: &str| Said::read(text);
        let Ok(Said::Settings(settings)) = read(
            r#"{"type":"Settings","audio":{"input":{"encoding":"mulaw","sample_rate":8000},
                "output":{"encoding":"linear16","sample_rate":48000,"container":"none"}},
                "agent":{"greeting":"Hi","think":{"prompt":"Be kind.","provider":{"type":"x"}}}}"#,
        ) else {
            panic!("settings")
        };
        assert_eq!(settings.input, Format { is_mulaw: true, sample_rate_hz: 8_000 });
        assert_eq!(settings.output.sample_rate_hz, 48_000);
        assert_eq!(
            (settings.greeting.as_deref(), settings.instructions.as_deref()),
            (Some("Hi"), Some("Be kind."))
        );
        let bare = read(r#"{"type":"Settings"}"#);
        assert!(
            matches!(bare, Ok(Said::Settings(settings)) if settings.input == INPUT && settings.output == OUTPUT)
        );
    }

    #[test]
    fn what_means_nothing_is_told_apart() {
        for text in [
            "",
            "{",
            "[]",
            "{}",
            r#"{"type":1}"#,
            r#"{"type":"Dance"}"#,
            r#"{"type":"Dtmf","digit":"x"}"#,
            r#"{"type":"InjectUserMessage"}"#,
            r#"{"type":"PlaybackMark","name":"x"}"#,
            r#"{"type":"Settings","audio":{"input":{"encoding":"opus"}}}"#,
            r#"{"type":"Settings","audio":{"output":{"sample_rate":1}}}"#,
            r#"{"type":"Settings","audio":{"output":{"sample_rate":8000.5}}}"#,
            r#"{"type":"Settings","audio":{"output":{"container":"wav"}}}"#,
        ] {
            assert!(Said::read(text).is_err(), "{text}");
        }
        assert_eq!(Said::read(r##"{"type":"Dtmf","digit":"#"}"##), Ok(Said::Digit('#')));
        assert_eq!(
            Said::read(r#"{"type":"UpdatePrompt","prompt":"x"}"#),
            Ok(Said::NotHere("UpdatePrompt".into()))
        );
    }
}
