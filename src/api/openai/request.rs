//! The parameters of a transcription or translation, from the fields of its form. Pure.
//!
//! Names and values are those of `CreateTranscriptionRequest` and `CreateTranslationRequest` (openai/openai-openapi). Lists
//! come as `name[]`, `name[0]` or `name`, once for each value.

use std::sync::Arc;

use serde_json::Value;

use super::super::language;
use super::error::{invalid, unsupported};
use super::form::Field;
use super::language_names::code_of;
use crate::engine::{LanguageChoice, ModelInfo, Task, Term};
use crate::http::Failure;

/// The fields that mean something, besides `file`.
pub const FIELDS: &[&str] = &[
    "model",
    "language",
    "languages",
    "keywords",
    "prompt",
    "response_format",
    "temperature",
    "timestamp_granularities",
    "include",
    "stream",
    "chunking_strategy",
    "known_speaker_names",
    "known_speaker_references",
];

/// As for `keyterm`.
const KEYWORDS_MAX: usize = 100;
const KEYWORD_CHARACTERS_MAX: usize = 200;
/// That API's limit.
const KNOWN_SPEAKERS_MAX: usize = 4;
const LANGUAGES_MAX: usize = 100;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseFormat {
    Json,
    Text,
    Srt,
    Vtt,
    VerboseJson,
    DiarizedJson,
}

/// By name.
pub const RESPONSE_FORMATS: [(&str, ResponseFormat); 6] = [
    ("json", ResponseFormat::Json),
    ("text", ResponseFormat::Text),
    ("srt", ResponseFormat::Srt),
    ("verbose_json", ResponseFormat::VerboseJson),
    ("vtt", ResponseFormat::Vtt),
    ("diarized_json", ResponseFormat::DiarizedJson),
];

/// A speaker's name and a clip of their voice, as a data URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownSpeaker {
    pub name: String,
    pub clip: String,
}

/// The parameters of one request.
#[derive(Debug, Clone)]
pub struct Asked {
    pub task: Task,
    pub language: LanguageChoice,
    pub prompt: Option<String>,
    /// Tokens of `prompt` that the model reads.
    pub prompt_tokens: u64,
    /// 0 to 1.
    pub temperature: f32,
    pub keywords: Arc<[Term]>,
    pub format: ResponseFormat,
    /// Words, in `verbose_json`.
    pub words: bool,
    /// Segments, in `verbose_json`.
    pub segments: bool,
    pub log_probabilities: bool,
    pub streams: bool,
    pub known_speakers: Vec<KnownSpeaker>,
    /// For the client: what was accepted and had no effect.
    pub warnings: Vec<String>,
}

impl Asked {
    /// # Errors
    /// 400 with the parameter at fault.
    pub fn parse(fields: Vec<Field>, task: Task, model: &ModelInfo) -> Result<Self, Failure> {
        let given = Given(fields);
        given.text("model")?;
        let format = response_format(&given, task)?;
        let mut warnings = chunking(&given)?;
        if given.text("language")?.is_some() && !given.list("languages", LANGUAGES_MAX)?.is_empty() {
            warnings.push("`languages` had no effect, as `language` names one.".to_owned());
        }
        let [words, segments] = granularities(&given, format, &mut warnings)?;
        let log_probabilities = includes_log_probabilities(&given, format)?;
        let streams = given.flag("stream")?;
        let streamed = [ResponseFormat::Json, ResponseFormat::Text, ResponseFormat::DiarizedJson];
        if streams && !streamed.contains(&format) {
            let message = "`stream` works with `response_format` json, text and diarized_json.";
            return Err(unsupported("stream", message));
        }
        let known_speakers = known_speakers(&given, format)?;
        let temperature = given.number("temperature", 0.0..=1.0)?.unwrap_or(0.0) as f32;
        Ok(Self {
            task,
            language: language_choice(&given, model)?,
            prompt_tokens: given.text("prompt")?.map_or(0, |prompt| model.prompt_tokens.of(prompt) as u64),
            prompt: given.text("prompt")?.map(str::to_owned),
            temperature,
            keywords: keywords(&given)?,
            format,
            words,
            segments,
            log_probabilities,
            streams,
            known_speakers,
            warnings,
        })
    }
}

/// The model that the fields name.
pub fn model_of(fields: &[Field]) -> Option<String> {
    let names = fields.iter().filter(|field| field.name == "model").map(|field| field.value.trim());
    names.map(str::to_owned).find(|name| !name.is_empty())
}

/// The fields as they came.
struct Given(Vec<Field>);

impl Given {
    fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Field> {
        self.0.iter().filter(move |field| field.name == name)
    }

    /// The values of a list.
    fn list<'a>(&'a self, name: &'a str, most: usize) -> Result<Vec<&'a str>, Failure> {
        let values: Vec<&str> = self.all(name).map(|field| field.value.as_str()).collect();
        if values.len() > most {
            return Err(invalid(name, format!("`{name}` may have at most {most} values.")));
        }
        Ok(values)
    }

    /// A single value; empty counts as absent.
    fn text(&self, name: &'static str) -> Result<Option<&str>, Failure> {
        let mut values = self.all(name).map(|field| field.value.trim());
        let value = values.next().filter(|value| !value.is_empty());
        match values.next() {
            Some(_) => Err(invalid(name, format!("`{name}` must be given once."))),
            None => Ok(value),
        }
    }

    fn flag(&self, name: &'static str) -> Result<bool, Failure> {
        match self.text(name)? {
            None => Ok(false),
            Some(value) if value.eq_ignore_ascii_case("true") || value == "1" => Ok(true),
            Some(value) if value.eq_ignore_ascii_case("false") || value == "0" => Ok(false),
            Some(_) => Err(invalid(name, format!("`{name}` must be true or false."))),
        }
    }

    fn number(
        &self,
        name: &'static str,
        range: std::ops::RangeInclusive<f64>,
    ) -> Result<Option<f64>, Failure> {
        let Some(value) = self.text(name)? else { return Ok(None) };
        let number = value.parse::<f64>().ok().filter(|number| range.contains(number));
        let wrong = || {
            let message = format!("`{name}` must be a number from {} to {}.", range.start(), range.end());
            invalid(name, message)
        };
        number.map(Some).ok_or_else(wrong)
    }
}

fn response_format(given: &Given, task: Task) -> Result<ResponseFormat, Failure> {
    let Some(value) = given.text("response_format")? else { return Ok(ResponseFormat::Json) };
    let may_be = |format: ResponseFormat| format != ResponseFormat::DiarizedJson || task == Task::Transcribe;
    let known = RESPONSE_FORMATS.iter().filter(|(_, format)| may_be(*format));
    known.clone().find(|(name, _)| *name == value).map(|(_, format)| *format).ok_or_else(|| {
        let names: Vec<&str> = known.map(|(name, _)| *name).collect();
        invalid("response_format", format!("`response_format` must be one of {}.", names.join(", ")))
    })
}

/// Whether words and segments are wanted. Vercel's AI SDK asks for segments whatever the format is, so `json` has a warning.
fn granularities(
    given: &Given,
    format: ResponseFormat,
    warnings: &mut Vec<String>,
) -> Result<[bool; 2], Failure> {
    const NAME: &str = "timestamp_granularities";
    let mut wanted = [false, false];
    for value in given.list(NAME, 10)?.into_iter().filter(|value| !value.is_empty()) {
        match value {
            "word" => wanted[0] = true,
            "segment" => wanted[1] = true,
            _ => return Err(invalid(NAME, "`timestamp_granularities` has the values word and segment.")),
        }
    }
    if wanted == [false, false] {
        return Ok([false, true]);
    }
    const MESSAGE: &str = "`timestamp_granularities` works with `response_format=verbose_json`.";
    match format {
        ResponseFormat::VerboseJson => Ok(wanted),
        ResponseFormat::Json => {
            warnings.push(MESSAGE.to_owned());
            Ok([false, true])
        }
        _ => Err(unsupported(NAME, MESSAGE)),
    }
}

fn includes_log_probabilities(given: &Given, format: ResponseFormat) -> Result<bool, Failure> {
    let values = given.list("include", 10)?;
    let mut wanted = values.into_iter().filter(|value| !value.is_empty()).peekable();
    let is_wanted = wanted.peek().is_some();
    if wanted.any(|value| value != "logprobs") {
        return Err(invalid("include", "`include` has the one value logprobs."));
    }
    if is_wanted && format != ResponseFormat::Json {
        return Err(unsupported("include", "`include[]=logprobs` works with `response_format=json`."));
    }
    Ok(is_wanted)
}

fn language_choice(given: &Given, model: &ModelInfo) -> Result<LanguageChoice, Failure> {
    let code = |param: &'static str, tag: &str| {
        let tag = tag.trim();
        let named = code_of(&tag.to_ascii_lowercase()).unwrap_or(tag);
        language::code(named, model).map_err(|_| match code_of(&tag.to_ascii_lowercase()) {
            None if !is_tag(tag) => {
                let message = "Invalid language: it must be given in ISO-639-1 format, such as `en`.";
                invalid(param, message)
            }
            _ => {
                let message = format!("The model `{}` does not know the language `{tag}`.", model.name);
                unsupported(param, message)
            }
        })
    };
    let among = given.list("languages", LANGUAGES_MAX)?;
    let among = among.into_iter().filter(|tag| !tag.trim().is_empty()).map(|tag| code("languages", tag));
    let among: Vec<String> = among.collect::<Result<_, _>>()?;
    match given.text("language")? {
        Some(tag) => Ok(LanguageChoice::Named(code("language", tag)?)),
        None => Ok(match (model.languages.as_slice(), among.as_slice()) {
            // There is nothing to detect.
            ([only], _) | (_, [only]) => LanguageChoice::Named(only.clone()),
            _ => LanguageChoice::Detect { among, expected: None },
        }),
    }
}

/// Whether it has the form of a language tag (BCP 47).
fn is_tag(text: &str) -> bool {
    let primary = text.split(['-', '_']).next().unwrap_or_default();
    (2..=3).contains(&primary.len()) && primary.bytes().all(|byte| byte.is_ascii_alphabetic())
}

fn keywords(given: &Given) -> Result<Arc<[Term]>, Failure> {
    let keywords = given.list("keywords", KEYWORDS_MAX)?;
    if keywords.iter().any(|keyword| keyword.chars().count() > KEYWORD_CHARACTERS_MAX) {
        let message = format!("Each of `keywords` may have at most {KEYWORD_CHARACTERS_MAX} characters.");
        return Err(invalid("keywords", message));
    }
    let keywords = keywords.into_iter().map(str::trim).filter(|keyword| !keyword.is_empty());
    Ok(keywords.map(|text| Term { text: text.to_owned(), weight: 1.0 }).collect())
}

fn known_speakers(given: &Given, format: ResponseFormat) -> Result<Vec<KnownSpeaker>, Failure> {
    const NAMES: &str = "known_speaker_names";
    let names = given.list(NAMES, KNOWN_SPEAKERS_MAX)?;
    let clips = given.list("known_speaker_references", KNOWN_SPEAKERS_MAX)?;
    if names.len() != clips.len() {
        let message =
            "`known_speaker_names` and `known_speaker_references` must have the same number of values.";
        return Err(invalid(NAMES, message));
    }
    if !names.is_empty() && format != ResponseFormat::DiarizedJson {
        let message = "`known_speaker_names` works with `response_format=diarized_json`.";
        return Err(unsupported(NAMES, message));
    }
    if names.iter().any(|name| name.trim().is_empty() || name.len() > 256) {
        return Err(invalid(NAMES, "Each of `known_speaker_names` must have 1 to 256 bytes."));
    }
    let pairs = names.into_iter().zip(clips);
    Ok(pairs
        .map(|(name, clip)| KnownSpeaker { name: name.trim().to_owned(), clip: clip.to_owned() })
        .collect())
}

/// Speech is found in every file, by the server's settings: `auto` says that, and parts of `server_vad` get a warning.
fn chunking(given: &Given) -> Result<Vec<String>, Failure> {
    const NAME: &str = "chunking_strategy";
    let wrong = || invalid(NAME, "`chunking_strategy` must be `auto` or an object of type `server_vad`.");
    let mut parts: Vec<(String, String)> = Vec::new();
    for field in given.all(NAME) {
        let value = field.value.trim();
        match field.key.as_str() {
            "" if matches!(value, "" | "auto" | "null") => {}
            "" => {
                let Ok(Value::Object(object)) = serde_json::from_str::<Value>(value) else {
                    return Err(wrong());
                };
                let written = |value: Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                parts.extend(object.into_iter().map(|(name, value)| (name, written(value))));
            }
            key => parts.push((key.to_owned(), value.to_owned())),
        }
    }
    if parts.is_empty() {
        return Ok(Vec::new());
    }
    let (kind, settings): (Vec<_>, Vec<_>) = parts.into_iter().partition(|(name, _)| name == "type");
    if !matches!(kind.as_slice(), [(_, kind)] if kind == "server_vad") {
        return Err(wrong());
    }
    let is_setting = |name: &str| matches!(name, "threshold" | "prefix_padding_ms" | "silence_duration_ms");
    let settings: Vec<_> = settings.into_iter().filter(|(name, _)| is_setting(name)).collect();
    if settings.iter().any(|(_, value)| !value.parse::<f64>().is_ok_and(|number| number >= 0.0)) {
        return Err(wrong());
    }
    let warning = |(name, _): (String, String)| {
        format!(
            "`chunking_strategy`: `{name}` had no effect, as the server's settings say how speech is found."
        )
    };
    Ok(settings.into_iter().map(warning).collect())
}

#[cfg(test)]
#[path = "request/tests.rs"]
mod tests;
