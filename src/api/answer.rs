//! Transcripts to the wire format. Pure.
//!
//! The transcript is what the model wrote, with punctuation and capitals, unless `punctuate=false` asks
//! for it without. A word is always told bare and in lower case as `word`: that is what the SDKs' users
//! compare and search by, in every mode of the wire format. As written it is `punctuated_word`, present
//! where the wire format has it: with `punctuate`, `smart_format` and what implies them.

use std::collections::BTreeMap;
use std::time::SystemTime;

use uuid::Uuid;

use super::parameters::{DetectLanguage, Parameters};
use super::wire;
use crate::engine::ModelInfo;
use crate::transcript::{Transcript, Word};

/// What the request said.
pub struct Asked<'a> {
    pub request_id: Uuid,
    pub created: SystemTime,
    pub parameters: &'a Parameters,
    pub words: bool,
}

/// What came of it.
pub struct Heard<'a> {
    /// Of the bytes that were sent or fetched.
    pub sha256: [u8; 32],
    pub duration_seconds: f64,
    pub source_channels: u16,
    /// One for each channel that was transcribed by itself.
    pub transcripts: &'a [Transcript],
    pub model: &'a ModelInfo,
}

pub fn response(asked: &Asked<'_>, heard: &Heard<'_>) -> wire::Response {
    let channels = heard.transcripts.iter().map(|transcript| channel(asked, transcript)).collect();
    wire::Response { metadata: metadata(asked, heard), results: wire::Results { channels } }
}

fn metadata(asked: &Asked<'_>, heard: &Heard<'_>) -> wire::Metadata {
    wire::Metadata {
        transaction_key: "deprecated",
        request_id: asked.request_id,
        sha256: data_encoding::HEXLOWER.encode(&heard.sha256),
        created: humantime::format_rfc3339_millis(asked.created).to_string(),
        duration: rounded(heard.duration_seconds, 1e6),
        channels: heard.source_channels,
        models: vec![heard.model.uuid],
        model_info: BTreeMap::from([(heard.model.uuid, model_info(heard.model))]),
        warnings: warnings(asked.parameters.unsupported(), asked.parameters, heard.model),
        extra: asked.parameters.extra.clone(),
        tags: asked.parameters.tags.clone(),
    }
}

pub(super) fn model_info(model: &ModelInfo) -> wire::ModelInfo {
    wire::ModelInfo {
        name: model.name.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        arch: "whisper",
    }
}

pub(super) fn warnings(
    unsupported: Vec<&'static str>,
    parameters: &Parameters,
    model: &ModelInfo,
) -> Vec<wire::Warning> {
    let mut warnings: Vec<_> = unsupported
        .into_iter()
        .map(|parameter| wire::Warning {
            parameter,
            kind: wire::WarningKind::UnsupportedParameter,
            message: format!("`{parameter}` is not supported and had no effect."),
        })
        .collect();
    if parameters.model.as_deref().is_some_and(|asked| !names(asked, model)) {
        warnings.push(wire::Warning {
            parameter: "model",
            kind: wire::WarningKind::UnsupportedModel,
            message: format!("The model asked for is not served here; `{}` was used.", model.name),
        });
    }
    warnings
}

/// Whether `asked` means `model`, or none in particular: one SDK sends `None` for no model.
fn names(asked: &str, model: &ModelInfo) -> bool {
    let name = asked.strip_prefix("whisper-").unwrap_or(asked);
    matches!(asked, "" | "None" | "whisper") || name == model.name || asked == model.uuid.to_string()
}

fn channel(asked: &Asked<'_>, transcript: &Transcript) -> wire::Channel {
    let parameters = asked.parameters;
    let detects = parameters.detect_language != DetectLanguage::Off
        || parameters.language.as_deref().is_some_and(|tag| tag.eq_ignore_ascii_case("multi"));
    let text =
        if parameters.strips_punctuation() { bare_text(transcript.words()) } else { transcript.text() };
    let words = || transcript.words().map(|spoken| word(spoken, parameters.shows_punctuation())).collect();
    let alternative = wire::Alternative {
        transcript: text,
        confidence: confidence(transcript.confidence()),
        words: asked.words.then(words),
    };
    wire::Channel {
        detected_language: detects.then(|| transcript.language.code.clone()),
        language_confidence: detects.then(|| confidence(transcript.language.probability)),
        alternatives: vec![alternative],
    }
}

pub(super) fn word(spoken: &Word, punctuated: bool) -> wire::Word {
    wire::Word {
        word: bare(&spoken.text),
        start: rounded(spoken.start, 1e3),
        end: rounded(spoken.end, 1e3),
        confidence: confidence(spoken.probability),
        punctuated_word: punctuated.then(|| spoken.text.trim().to_owned()),
    }
}

/// The text of bare words; those of scripts without spaces stay without.
pub(super) fn bare_text<'a>(words: impl IntoIterator<Item = &'a Word>) -> String {
    let mut text = String::new();
    for word in words {
        let bare = bare(&word.text);
        if word.text.starts_with(char::is_whitespace) && !text.is_empty() && !bare.is_empty() {
            text.push(' ');
        }
        text.push_str(&bare);
    }
    text
}

/// Lower case, without the punctuation around it. Signs that are spoken stay: `$5`, `50%`, `c++`.
fn bare(text: &str) -> String {
    let text = text.trim();
    let inner = text.trim_matches(is_punctuation);
    // A dash that the model took for a word is told as it is; a word may also be hidden by asterisks.
    match text.trim_matches(|c| is_punctuation(c) && c != '*') {
        _ if !inner.is_empty() => inner.to_lowercase(),
        "" => text.to_owned(),
        asterisks => asterisks.to_owned(),
    }
}

fn is_punctuation(character: char) -> bool {
    match character {
        '.' | ',' | '!' | '?' | ':' | ';' | '-' | '_' | '*' | '/' | '\\' | '~' | '`' => true,
        '"' | '\'' | '(' | ')' | '[' | ']' | '{' | '}' | '<' | '>' | '|' => true,
        '¡' | '¿' | '«' | '»' | '·' | '؟' | '،' | '؛' | '।' | '♪' => true,
        // General punctuation (dashes, quotes, ellipsis), that of CJK, and its full-width forms.
        '\u{2010}'..='\u{2027}' | '\u{2039}'..='\u{203a}' | '\u{3001}'..='\u{3003}' => true,
        '\u{3008}'..='\u{3011}' | '\u{3014}'..='\u{301f}' | '\u{30fb}' => true,
        '\u{ff01}'
        | '\u{ff08}'
        | '\u{ff09}'
        | '\u{ff0c}'..='\u{ff0f}'
        | '\u{ff1a}'
        | '\u{ff1b}'
        | '\u{ff1f}' => true,
        '\u{ff3b}' | '\u{ff3d}' | '\u{ff5b}' | '\u{ff5d}' | '\u{ff5e}'..='\u{ff65}' => true,
        _ => false,
    }
}

/// As short in JSON as it is exact: an f32 written as f64 shows digits that it does not have.
pub(super) fn confidence(probability: f32) -> f64 {
    rounded(f64::from(probability).clamp(0.0, 1.0), 1e6)
}

/// To the nearest 1/`scale`. JSON has no way to write what is not finite.
pub(super) fn rounded(value: f64, scale: f64) -> f64 {
    if value.is_finite() { (value * scale).round() / scale } else { 0.0 }
}

#[cfg(test)]
mod tests;
