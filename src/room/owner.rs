//! Messages that only the owner of a session may send: how its agent hears, thinks and speaks from now on.
//!
//! Source: the voice-agent interface of the wire format (`deepgram/deepgram-api-specs`, `asyncapi.yml`), and the types of
//! its SDKs.

use serde_json::Value;

/// Why a message is invalid. For the client.
pub type Problem = &'static str;

const TEXT_BYTES_MAX: usize = 64 << 10;
const MESSAGE_BYTES_MAX: usize = 8 << 10;
const FUNCTIONS_MAX: usize = 64;
const NAME_BYTES_MAX: usize = 128;
const CONTEXT_MAX: usize = 100;
/// The paces of the wire format.
const SPEEDS: std::ops::RangeInclusive<f64> = 0.7..=1.5;
/// The confidence that ends a turn.
const END_THRESHOLDS: std::ops::RangeInclusive<f64> = 0.5..=1.0;
/// As on `/v1/listen`.
const KEYTERMS_MAX: usize = 500;
/// How long a turn may be silent before it ends, in milliseconds.
const TURN_TIMEOUTS_MS: std::ops::RangeInclusive<u64> = 500..=60_000;

/// Settings of the agent; an absent part stays as it is.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AgentSettings {
    pub think: Option<Think>,
    pub speak: Option<Speak>,
    pub listen: Option<Listen>,
    /// Report the lines of the talk as `History` too.
    pub history: Option<bool>,
    /// The conversation before: the caller's lines and the agent's, in order; the newest [`CONTEXT_MAX`].
    pub context: Vec<(Author, String)>,
    /// Lines of it that are left out.
    pub omitted: usize,
    /// The language that is spoken.
    pub language: Option<String>,
    /// Settings of the session that have no effect here.
    pub unused: Vec<&'static str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Author {
    User,
    Assistant,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Think {
    pub prompt: Option<String>,
    /// Functions that the client runs.
    pub functions: Option<Vec<Function>>,
    /// The name of the chat model.
    pub model: Option<String>,
    /// Settings that have no effect here.
    pub unused: Vec<&'static str>,
}

/// A function that the model may call.
#[derive(Debug, Clone, PartialEq)]
pub struct Function {
    pub name: String,
    pub description: String,
    /// JSON Schema.
    pub parameters: Value,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Speak {
    /// The name of a voice.
    pub voice: Option<String>,
    pub speed: Option<f32>,
    pub unused: Vec<&'static str>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Listen {
    /// Silence that ends a turn, whatever was said.
    pub turn_timeout_ms: Option<u64>,
    /// How sure it must be that a turn is over.
    pub end_threshold: Option<f64>,
    /// Terms to expect in the speech, instead of those before.
    pub keyterms: Option<Vec<String>>,
    pub unused: Vec<&'static str>,
}

/// How the agent says a line that its owner sends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Behavior {
    /// It is refused while anyone speaks.
    #[default]
    Default,
    /// It comes after what is being said.
    Queue,
    /// It replaces what is being said.
    Interrupt,
}

/// A message of the owner.
#[derive(Debug, Clone, PartialEq)]
pub enum Order {
    UpdatePrompt(String),
    UpdateThink(Think),
    UpdateSpeak(Speak),
    UpdateListen(Listen),
    InjectAgentMessage {
        message: String,
        behavior: Behavior,
    },
    /// The caller's turn is over, whether or not it sounds so.
    ForceEndTurn,
    FunctionCallResponse {
        id: Option<String>,
        name: String,
        content: String,
    },
}

impl Order {
    /// The `type` of its message.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::UpdatePrompt(_) => "UpdatePrompt",
            Self::UpdateThink(_) => "UpdateThink",
            Self::UpdateSpeak(_) => "UpdateSpeak",
            Self::UpdateListen(_) => "UpdateListen",
            Self::InjectAgentMessage { .. } => "InjectAgentMessage",
            Self::ForceEndTurn => "ForceEndTurn",
            Self::FunctionCallResponse { .. } => "FunctionCallResponse",
        }
    }

    /// The order in a message of this `type`; none if it is none of the owner's.
    ///
    /// # Errors
    /// [`Problem`].
    pub fn read(kind: &str, value: &Value) -> Result<Option<Self>, Problem> {
        let text = |name: &str, most: usize| {
            value.get(name).and_then(Value::as_str).filter(|text| text.len() <= most).map(str::to_owned)
        };
        Ok(Some(match kind {
            "UpdatePrompt" => {
                Self::UpdatePrompt(text("prompt", TEXT_BYTES_MAX).ok_or("`prompt` must be a text")?)
            }
            "UpdateThink" => Self::UpdateThink(think(value.get("think").ok_or("`think` is missing")?)?),
            "UpdateSpeak" => Self::UpdateSpeak(speak(value.get("speak").ok_or("`speak` is missing")?)?),
            "UpdateListen" => Self::UpdateListen(listen(value.get("listen").ok_or("`listen` is missing")?)?),
            "InjectAgentMessage" => Self::InjectAgentMessage {
                message: text("message", MESSAGE_BYTES_MAX)
                    .filter(|message| !message.trim().is_empty())
                    .ok_or("`message` must be a text")?,
                behavior: match value.get("behavior").map(|behavior| behavior.as_str().unwrap_or("")) {
                    None | Some("default") => Behavior::Default,
                    Some("queue") => Behavior::Queue,
                    Some("interrupt") => Behavior::Interrupt,
                    Some(_) => return Err("`behavior` must be default, queue or interrupt"),
                },
            },
            "ForceEndTurn" => Self::ForceEndTurn,
            "FunctionCallResponse" => Self::FunctionCallResponse {
                id: text("id", NAME_BYTES_MAX),
                name: text("name", NAME_BYTES_MAX).ok_or("`name` must be a text")?,
                content: text("content", TEXT_BYTES_MAX).ok_or("`content` must be a text")?,
            },
            _ => return Ok(None),
        }))
    }
}

impl AgentSettings {
    /// Those of a `Settings` message.
    ///
    /// # Errors
    /// [`Problem`].
    pub fn read(value: &Value) -> Result<Self, Problem> {
        let part = |pointer: &str| value.pointer(pointer).filter(|part| !part.is_null());
        let messages = match part("/agent/context/messages") {
            None => &[][..],
            Some(messages) => messages.as_array().ok_or("`messages` must be a list")?,
        };
        // The newest say the most about what comes next.
        let lines = messages.iter().rev().filter_map(|message| {
            let author = match message.get("role")?.as_str()? {
                "user" => Author::User,
                "assistant" => Author::Assistant,
                _ => return None,
            };
            let content = message.get("content")?.as_str()?;
            (content.len() <= MESSAGE_BYTES_MAX).then(|| (author, content.to_owned()))
        });
        let mut context: Vec<_> = lines.take(CONTEXT_MAX).collect();
        context.reverse();
        Ok(Self {
            think: part("/agent/think").map(think).transpose()?,
            speak: part("/agent/speak").map(speak).transpose()?,
            listen: part("/agent/listen").map(listen).transpose()?,
            history: part("/flags/history")
                .map(|flag| flag.as_bool().ok_or("`history` must be true or false"))
                .transpose()?,
            omitted: messages.len() - context.len(),
            context,
            language: part("/agent/language").and_then(Value::as_str).map(str::to_owned),
            unused: unused(value, &["tags", "experimental", "mip_opt_out"], &[]),
        })
    }
}

/// The first of several providers: the others would stand in for it.
fn first(value: &Value) -> &Value {
    value.get(0).unwrap_or(value)
}

fn think(value: &Value) -> Result<Think, Problem> {
    let value = first(value);
    let prompt = match value.get("prompt") {
        None | Some(Value::Null) => None,
        Some(prompt) => {
            let prompt = prompt.as_str().filter(|prompt| prompt.len() <= TEXT_BYTES_MAX);
            Some(prompt.ok_or("`prompt` must be a text of at most 64 KiB")?.to_owned())
        }
    };
    let functions = match value.get("functions") {
        None | Some(Value::Null) => None,
        Some(functions) => {
            let listed = functions.as_array().ok_or("`functions` must be a list of at most 64")?;
            Some(self::functions(listed)?)
        }
    };
    let model = value.pointer("/provider/model").and_then(Value::as_str).map(str::to_owned);
    // The server's operator chooses the chat model and where it is.
    let unused = unused(value, &["endpoint", "context_length"], &["temperature"]);
    Ok(Think { prompt, functions, model, unused })
}

/// Functions that the chat model may call, each `{name, description, parameters}`.
///
/// # Errors
/// [`Problem`].
pub fn functions(values: &[Value]) -> Result<Vec<Function>, Problem> {
    if values.len() > FUNCTIONS_MAX {
        return Err("`functions` must be a list of at most 64");
    }
    values.iter().map(function).collect()
}

fn function(value: &Value) -> Result<Function, Problem> {
    let name = value.get("name").and_then(Value::as_str).filter(|name| {
        (1..=NAME_BYTES_MAX).contains(&name.len())
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
    });
    if value.get("endpoint").is_some_and(|endpoint| !endpoint.is_null()) {
        return Err("functions are run by the client: `endpoint` is not served");
    }
    let parameters = value.get("parameters").filter(|parameters| parameters.is_object());
    let description = value.get("description").and_then(Value::as_str).unwrap_or_default();
    let empty = || serde_json::json!({"type": "object", "properties": {}});
    Ok(Function {
        name: name.ok_or("a function's `name` must be letters, digits, _ and -")?.to_owned(),
        description: description.chars().take(MESSAGE_BYTES_MAX).collect(),
        parameters: parameters.cloned().unwrap_or_else(empty),
    })
}

fn speak(value: &Value) -> Result<Speak, Problem> {
    let value = first(value);
    let provider = value.get("provider").unwrap_or(&Value::Null);
    // Other providers than the wire format's own call the voice so.
    let voice = ["model", "voice"].into_iter().filter_map(|name| provider.get(name)?.as_str());
    let voices: Vec<&str> = voice.filter(|name| (1..=NAME_BYTES_MAX).contains(&name.len())).collect();
    let is_own = matches!(provider.get("type").and_then(Value::as_str), None | Some("deepgram"));
    let voice = if is_own { voices.first() } else { voices.last() };
    let speed = match provider.get("speed") {
        None | Some(Value::Null) => None,
        Some(speed) => {
            let speed = speed.as_f64().filter(|speed| SPEEDS.contains(speed));
            Some(speed.ok_or("`speed` must be a number from 0.7 to 1.5")? as f32)
        }
    };
    Ok(Speak {
        voice: voice.map(|name| (*name).to_owned()),
        speed,
        unused: unused(value, &["endpoint"], &["language"]),
    })
}

fn listen(value: &Value) -> Result<Listen, Problem> {
    let provider = value.get("provider").unwrap_or(&Value::Null);
    let turn_timeout_ms = match provider.get("eot_timeout_ms") {
        None | Some(Value::Null) => None,
        Some(timeout) => {
            let timeout = timeout.as_f64().filter(|ms| ms.fract() == 0.0).map(|ms| ms as u64);
            let timeout = timeout.filter(|timeout| TURN_TIMEOUTS_MS.contains(timeout));
            Some(timeout.ok_or("`eot_timeout_ms` must be from 500 to 60000")?)
        }
    };
    let end_threshold = match provider.get("eot_threshold") {
        None | Some(Value::Null) => None,
        Some(threshold) => {
            let threshold = threshold.as_f64().filter(|threshold| END_THRESHOLDS.contains(threshold));
            Some(threshold.ok_or("`eot_threshold` must be from 0.5 to 1")?)
        }
    };
    let keyterms = ["keyterms", "keyterm"].into_iter().filter_map(|name| provider.get(name));
    let keyterms = keyterms.filter(|terms| !terms.is_null()).map(terms).next().transpose()?;
    // The answer is begun when a turn ends: an end that is only likely begins nothing.
    let names = ["eager_eot_threshold", "smart_format", "language_hint", "language_hints"];
    Ok(Listen { turn_timeout_ms, end_threshold, keyterms, unused: unused(value, &[], &names) })
}

/// A term or several.
fn terms(value: &Value) -> Result<Vec<String>, Problem> {
    let items = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
    let term = |item: &Value| {
        let text = item.as_str().map(str::trim)?;
        (1..=NAME_BYTES_MAX).contains(&text.len()).then(|| text.to_owned())
    };
    let terms = (items.len() <= KEYTERMS_MAX).then(|| items.iter().map(term).collect::<Option<Vec<_>>>());
    terms.flatten().ok_or("`keyterms` must be at most 500 texts, of at most 128 bytes each")
}

/// Which of these members are there, of `value` and of its provider.
fn unused(value: &Value, own: &[&'static str], provider: &[&'static str]) -> Vec<&'static str> {
    let is_set = |value: Option<&Value>| match value {
        None | Some(Value::Null | Value::Bool(false)) => false,
        Some(Value::Array(items)) => !items.is_empty(),
        Some(_) => true,
    };
    let provided = value.get("provider").unwrap_or(&Value::Null);
    let own = own.iter().filter(|name| is_set(value.get(**name)));
    own.chain(provider.iter().filter(|name| is_set(provided.get(**name)))).copied().collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn order(message: Value) -> Result<Option<Order>, Problem> {
        Order::read(message["type"].as_str().expect("a type"), &message)
    }

    #[test]
    fn settings_of_sdks_are_read() {
        let settings = AgentSettings::read(&json!({
            "type": "Settings", "flags": {"history": true},
            "agent": {
                "context": {"messages": [
                    {"type": "History", "role": "user", "content": "Hi"},
                    {"type": "History", "role": "assistant", "content": "Hello"},
                    {"type": "History", "function_calls": []},
                ]},
                "listen": {"provider": {"type": "deepgram", "version": "v2", "model": "flux-general-en", "eot_timeout_ms": 3000,
                    "eot_threshold": 0.8, "eager_eot_threshold": 0.4, "keyterms": ["Verbatim"], "smart_format": false}},
                "think": [{"provider": {"type": "open_ai", "model": "gpt-4o-mini"}, "prompt": "Be kind.",
                    "endpoint": {"url": "https://a.example"}, "functions": [{"name": "weather", "description": "Tells it."}]}],
                "speak": {"provider": {"type": "deepgram", "model": "aura-2-zeus-en", "speed": 0.9}},
            },
        }));
        let settings = settings.expect("read");
        assert_eq!(settings.history, Some(true));
        assert_eq!((settings.context.len(), settings.omitted), (2, 1));
        let think = settings.think.expect("think");
        assert_eq!((think.prompt.as_deref(), think.unused), (Some("Be kind."), vec!["endpoint"]));
        assert_eq!(think.functions.expect("functions")[0].name, "weather");
        let speak = settings.speak.expect("speak");
        assert_eq!((speak.voice.as_deref(), speak.speed), (Some("aura-2-zeus-en"), Some(0.9)));
        let listen = settings.listen.expect("listen");
        assert_eq!((listen.turn_timeout_ms, listen.end_threshold), (Some(3000), Some(0.8)));
        assert_eq!(
            (listen.keyterms, listen.unused),
            (Some(vec!["Verbatim".into()]), vec!["eager_eot_threshold"])
        );
    }

    #[test]
    fn of_a_long_conversation_the_newest_lines_count() {
        let lines: Vec<Value> =
            (0..150).map(|number| json!({"role": "user", "content": number.to_string()})).collect();
        let read = |messages: Value| {
            AgentSettings::read(&json!({"tags": ["a"], "agent": {"context": {"messages": messages}}}))
        };
        let settings = read(json!(lines)).expect("read");
        assert_eq!((settings.context.len(), settings.omitted), (CONTEXT_MAX, 50));
        assert_eq!(settings.context.first(), Some(&(Author::User, "50".into())));
        assert_eq!(settings.unused, ["tags"]);
        let long = json!([{"role": "user", "content": "x".repeat(MESSAGE_BYTES_MAX + 1)}, {"role": "system", "content": "a"}]);
        assert_eq!(read(long).expect("read").omitted, 2);
        assert!(read(json!("Hi")).is_err());
    }

    #[test]
    fn orders_are_read_and_nonsense_is_refused() {
        assert_eq!(
            order(json!({"type": "InjectAgentMessage", "message": "Hi", "behavior": "queue"})),
            Ok(Some(Order::InjectAgentMessage { message: "Hi".into(), behavior: Behavior::Queue }))
        );
        assert_eq!(order(json!({"type": "ForceEndTurn"})), Ok(Some(Order::ForceEndTurn)));
        assert_eq!(order(json!({"type": "Dance"})), Ok(None));
        let speak = order(
            json!({"type": "UpdateSpeak", "speak": {"provider": {"type": "open_ai", "model": "tts-1", "voice": "onyx"}}}),
        );
        assert!(
            matches!(speak, Ok(Some(Order::UpdateSpeak(Speak { voice: Some(voice), .. }))) if voice == "onyx")
        );
        for message in [
            json!({"type": "UpdatePrompt"}),
            json!({"type": "UpdateThink"}),
            json!({"type": "UpdateThink", "think": {"functions": [{"name": "a b"}]}}),
            json!({"type": "UpdateThink", "think": {"functions": [{"name": "a", "endpoint": {"url": "http://10.0.0.1"}}]}}),
            json!({"type": "UpdateSpeak", "speak": {"provider": {"speed": 9}}}),
            json!({"type": "UpdateListen", "listen": {"provider": {"eot_timeout_ms": 1}}}),
            json!({"type": "UpdateListen", "listen": {"provider": {"eot_threshold": 0.2}}}),
            json!({"type": "UpdateListen", "listen": {"provider": {"keyterms": [""]}}}),
            json!({"type": "UpdateListen", "listen": {"provider": {"keyterms": 7}}}),
            json!({"type": "InjectAgentMessage", "message": " "}),
            json!({"type": "InjectAgentMessage", "message": "a", "behavior": "shout"}),
            json!({"type": "FunctionCallResponse", "name": "a"}),
        ] {
            assert!(order(message.clone()).is_err(), "{message}");
        }
    }
}
