//! Messages of the room: those of the voice-agent interface whose wire format the API follows, and a few
//! additional ones that its SDKs ignore.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use uuid::Uuid;

use super::media::Format;
use super::owner::{AgentSettings, Order, Problem};
use super::seat::is_key;
use crate::fields::{self, Fields};
use crate::figures::Seconds;
use crate::identity::without_identity_within;

/// A message from a client.
#[derive(Debug, Clone, PartialEq)]
pub enum Said {
    /// The audio formats of both directions and, if there is no session yet, the agent's setup.
    Settings(Box<Settings>),
    KeepAlive,
    /// Typed instead of spoken.
    UserMessage(String),
    /// A key of the telephone.
    Digit(char),
    /// Playback has reached a mark.
    Played(u64),
    PageContext(Value),
    Close,
    /// A message that only the session's owner may send, such as `UpdatePrompt`.
    Order(Box<Order>),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    pub input: Format,
    pub output: Format,
    pub greeting: Option<String>,
    pub agent: AgentSettings,
}

/// The format if a client names none.
pub const INPUT: Format = Format { is_mulaw: false, sample_rate_hz: 16_000 };
pub const OUTPUT: Format = Format { is_mulaw: false, sample_rate_hz: 24_000 };
const RATES: std::ops::RangeInclusive<u32> = 8_000..=48_000;
const TEXT_BYTES_MAX: usize = 8 << 10;
const GREETING_BYTES_MAX: usize = 64 << 10;

impl Said {
    /// # Errors
    /// [`Problem`] if it is invalid.
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
            _ => {
                let order = Order::read(kind, &value)?;
                Self::Order(Box::new(order.ok_or("a message of this `type` is not known")?))
            }
        })
    }
}

fn settings(value: &Value) -> Result<Settings, Problem> {
    let greeting = match value.pointer("/agent/greeting") {
        None | Some(Value::Null) => None,
        Some(greeting) => {
            let greeting = greeting.as_str().filter(|text| text.len() <= GREETING_BYTES_MAX);
            Some(greeting.ok_or("`greeting` must be a text of at most 64 KiB")?.to_owned())
        }
    };
    Ok(Settings {
        input: format(value.pointer("/audio/input"), INPUT)?,
        output: format(value.pointer("/audio/output"), OUTPUT)?,
        greeting,
        agent: AgentSettings::read(value)?,
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

/// A message to a participant. Its JSON lists members in alphabetical order.
#[derive(Serialize, JsonSchema)]
#[serde(tag = "type")]
pub enum Message<'a> {
    Welcome {
        request_id: Uuid,
        /// Empty while the client has not sent `Settings`.
        session_id: &'a str,
        room_name: &'a str,
    },
    SettingsApplied,
    UserStartedSpeaking,
    UserStoppedSpeaking,
    AgentThinking {
        /// Always empty.
        content: &'static str,
    },
    /// Latencies in seconds: from the end of the caller's speech to the first sound, and the parts of it that voice
    /// and text took.
    AgentStartedSpeaking {
        total_latency: Seconds,
        tts_latency: Seconds,
        ttt_latency: Seconds,
    },
    AgentAudioDone,
    /// The parts of [`Self::AgentStartedSpeaking`]'s latency, in seconds.
    LatencyReport {
        total_latency: Seconds,
        tts_latency: Seconds,
        ttt_text_latency: Seconds,
    },
    PromptUpdated,
    ThinkUpdated,
    SpeakUpdated,
    ListenUpdated,
    /// The agent does not say this now.
    InjectionRefused {
        message: &'a str,
    },
    /// The client runs these and answers with a `FunctionCallResponse` each.
    FunctionCallRequest {
        functions: &'a [FunctionCall],
    },
    /// A line of the talk, for clients that keep its history.
    History {
        role: &'a str,
        content: &'a str,
    },
    AgentState {
        state: &'a str,
    },
    /// A sentence of the agent.
    ConversationText {
        /// Always `assistant`: the caller's lines are events of the session.
        role: &'static str,
        content: &'a str,
    },
    /// Drops audio that has not been played.
    Clear,
    Mark {
        name: String,
    },
    Warning {
        code: &'a str,
        description: &'a str,
    },
    Error {
        code: &'a str,
        description: &'a str,
    },
}

/// A function to be called.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct FunctionCall {
    pub id: String,
    pub name: String,
    /// JSON.
    pub arguments: String,
    /// Always true.
    pub client_side: bool,
}

impl Message<'_> {
    pub fn assistant(content: &str) -> Message<'_> {
        Message::ConversationText { role: "assistant", content }
    }

    pub fn mark(mark: u64) -> Self {
        Message::Mark { name: mark.to_string() }
    }

    pub fn to_json(&self) -> String {
        // A `Value` sorts the members.
        let value = serde_json::to_value(self).expect("names are strings and numbers finite; this is a bug");
        value.to_string()
    }
}

/// The page state in a message or request.
///
/// # Errors
/// It is missing, not an object, too large or nested too deeply.
pub fn page_context(fields: Fields<'_>) -> Result<Value, fields::Error> {
    fields.object("page_context")?.ok_or(fields::Error::Missing("page_context"))?;
    fields.bounded("page_context").map(without_identity_within)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_list_their_members_in_alphabetical_order() {
        assert_eq!(Message::Clear.to_json(), r#"{"type":"Clear"}"#);
        assert_eq!(Message::mark(7).to_json(), r#"{"name":"7","type":"Mark"}"#);
        assert_eq!(
            Message::assistant("Hi").to_json(),
            r#"{"content":"Hi","role":"assistant","type":"ConversationText"}"#
        );
        let [total_latency, tts_latency, ttt_latency] = [0.5, 0.25, 0.125].map(Seconds::new);
        assert_eq!(
            Message::AgentStartedSpeaking { total_latency, tts_latency, ttt_latency }.to_json(),
            r#"{"total_latency":0.5,"tts_latency":0.25,"ttt_latency":0.125,"type":"AgentStartedSpeaking"}"#
        );
    }

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
            (settings.greeting.as_deref(), settings.agent.think.and_then(|think| think.prompt).as_deref()),
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
            r#"{"type":"Settings","agent":{"greeting":7}}"#,
            &format!(
                r#"{{"type":"Settings","agent":{{"greeting":"{}"}}}}"#,
                "x".repeat(GREETING_BYTES_MAX + 1)
            ),
            r#"{"type":"Settings","audio":{"output":{"sample_rate":1}}}"#,
            r#"{"type":"Settings","audio":{"output":{"sample_rate":8000.5}}}"#,
            r#"{"type":"Settings","audio":{"output":{"container":"wav"}}}"#,
        ] {
            assert!(Said::read(text).is_err(), "{text}");
        }
        assert_eq!(Said::read(r##"{"type":"Dtmf","digit":"#"}"##), Ok(Said::Digit('#')));
        assert_eq!(
            Said::read(r#"{"type":"UpdatePrompt","prompt":"x"}"#),
            Ok(Said::Order(Box::new(Order::UpdatePrompt("x".into()))))
        );
    }
}
