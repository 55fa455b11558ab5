//! The settings of a session: what the client asked for, merged update by update, and what follows from it. Pure.

use std::time::Duration;

use super::request::{Delay, Eagerness, Format, Invalid, ServerVad, Transcription, TurnDetection, Update};
use super::shape;
use crate::api::language;
use crate::api::parameters::{DetectLanguage, Parameters};
use crate::api::terms::terms;
use crate::audio::{RawEncoding, RawFormat, StreamFormat};
use crate::engine::{LanguageChoice, ModelInfo, TenantId};
use crate::live::Options;
use crate::speakers;

/// Longer model names are refused, in characters.
pub const MODEL_CHARACTERS_MAX: usize = 256;
/// Longer prompts are refused, in characters; a model reads the last 200 words or so.
const PROMPT_CHARACTERS_MAX: usize = 8192;
/// More languages to choose from are refused.
const LANGUAGES_MAX: usize = 100;
/// Longer silences and paddings are refused, in milliseconds.
const PAUSE_MS_MAX: u32 = 60_000;
/// The only item of `include`.
const LOG_PROBABILITIES: &str = "item.input_audio_transcription.logprobs";
/// OpenAI's models without turn detection: their clients commit by themselves, and set nothing.
const COMMITTED_BY_CLIENTS: [&str; 2] = ["gpt-realtime-whisper", "gpt-live-transcribe"];

/// The silence after which a turn ends by `semantic_vad`, however unfinished it sounds, in seconds, by eagerness.
const LOW_SECONDS: f64 = 8.0;
const MEDIUM_SECONDS: f64 = 4.0;
const HIGH_SECONDS: f64 = 2.0;

/// The server, as far as settings depend on it.
#[derive(Clone, Copy)]
pub struct Server<'a> {
    pub model: &'a ModelInfo,
    pub can_diarize: bool,
    /// Whether a client may ask for a model of this name.
    pub serves: &'a dyn Fn(&str) -> bool,
}

/// When speech becomes an item.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Turns {
    /// At the client's commits.
    Commits,
    /// After a pause.
    Pause { threshold: f32, prefix_padding_ms: u32, silence_duration_ms: u32 },
    /// After a pause whose length depends on what was said.
    Semantic(Eagerness),
}

/// OpenAI's defaults of `server_vad`.
const PAUSE: Turns = Turns::Pause { threshold: 0.5, prefix_padding_ms: 300, silence_duration_ms: 500 };

#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    pub format: Format,
    /// The model that the client names, if any.
    model: Option<String>,
    prompt: Option<String>,
    delay: Option<Delay>,
    /// `None`: as the model has it.
    turns: Option<Turns>,
    pub log_probabilities: bool,
    /// The parameters that other endpoints have too: languages and terms.
    parameters: Parameters,
}

impl Settings {
    /// Those of a new session; `model` is the one in its address.
    pub fn new(model: Option<String>) -> Self {
        Self {
            format: Format::Pcm,
            model,
            prompt: None,
            delay: None,
            turns: None,
            log_probabilities: false,
            parameters: Parameters::default(),
        }
    }

    /// Makes the whole update, or none of it.
    ///
    /// # Errors
    /// [`Invalid`].
    pub fn update(&mut self, update: &Update, server: Server<'_>) -> Result<(), Invalid> {
        let mut updated = self.clone();
        if let Some(format) = update.format {
            updated.format = format;
        }
        if let Some(transcription) = &update.transcription {
            updated.transcribe(transcription)?;
        }
        if let Some(detection) = &update.turn_detection {
            updated.turns = Some(match detection {
                None => Turns::Commits,
                Some(TurnDetection::ServerVad(vad)) => paused(vad, self.turns)?,
                Some(TurnDetection::SemanticVad(vad)) => Turns::Semantic(vad.eagerness.unwrap_or_default()),
            });
        }
        if let Some(include) = &update.include {
            if include.iter().any(|item| item != LOG_PROBABILITIES) {
                let message = format!("The only item of `include` is `{LOG_PROBABILITIES}`.");
                return Err(Invalid::value("session.include", message));
            }
            updated.log_probabilities = !include.is_empty();
        }
        updated.language(server.model)?;
        updated.check_model(server)?;
        *self = updated;
        Ok(())
    }

    fn transcribe(&mut self, transcription: &Transcription) -> Result<(), Invalid> {
        let too_long =
            |param, most| Invalid::value(param, format!("`{param}` has more than {most} characters."));
        if let Some(model) = &transcription.model {
            if model.is_empty() || model.chars().count() > MODEL_CHARACTERS_MAX {
                return Err(Invalid::value("transcription.model", "`model` is empty, or too long."));
            }
            self.model = Some(model.clone());
        }
        if let Some(prompt) = &transcription.prompt {
            if prompt.as_ref().is_some_and(|prompt| prompt.chars().count() > PROMPT_CHARACTERS_MAX) {
                return Err(too_long("transcription.prompt", PROMPT_CHARACTERS_MAX));
            }
            self.prompt = prompt.clone().filter(|prompt| !prompt.trim().is_empty());
        }
        if let Some(language) = &transcription.language {
            self.parameters.language = language.clone().filter(|language| !language.is_empty());
            self.parameters.detect_language = DetectLanguage::default();
        }
        if let Some(languages) = &transcription.languages {
            let languages = languages.clone().unwrap_or_default();
            if languages.len() > LANGUAGES_MAX {
                return Err(Invalid::value("transcription.languages", "These are too many `languages`."));
            }
            // Clients write all members, and null for those that they do not use.
            let is_named = matches!(&transcription.language, Some(Some(language)) if !language.is_empty());
            match languages.as_slice() {
                [] if is_named => {}
                [] => {
                    self.parameters.language = None;
                    self.parameters.detect_language = DetectLanguage::default();
                }
                [only] => {
                    self.parameters.language = Some(only.clone());
                    self.parameters.detect_language = DetectLanguage::default();
                }
                _ => {
                    self.parameters.language = None;
                    self.parameters.detect_language = DetectLanguage::Among(languages);
                }
            }
        }
        if let Some(keywords) = &transcription.keywords {
            let replaced = self.parameters.replace_keyterms(&keywords.clone().unwrap_or_default());
            replaced.map_err(|error| {
                Invalid::value("transcription.keywords", format!("`keywords` are not accepted: {error}"))
            })?;
        }
        if let Some(delay) = transcription.delay {
            self.delay = delay;
        }
        Ok(())
    }

    /// # Errors
    /// A language that the model does not know.
    fn language(&self, model: &ModelInfo) -> Result<LanguageChoice, Invalid> {
        language::choice(&self.parameters, model).map_err(|_| {
            Invalid::value(
                "transcription.language",
                "The model does not know this language. Use an ISO-639-1 code.",
            )
        })
    }

    /// # Errors
    /// A model that is not served, or whose speakers cannot be told apart.
    fn check_model(&self, server: Server<'_>) -> Result<(), Invalid> {
        let param = "transcription.model";
        match &self.model {
            Some(model) if !(server.serves)(model) => {
                Err(Invalid::new("model_not_found", Some(param), "This model is not served."))
            }
            Some(_) if self.has_speakers() && !server.can_diarize => {
                let message = "This server cannot tell speakers apart: choose a model whose name does not end with \
                               `-diarize`.";
                Err(Invalid::value(param, message))
            }
            _ => Ok(()),
        }
    }

    pub fn turns(&self) -> Turns {
        self.turns.unwrap_or_else(|| match &self.model {
            Some(model) if COMMITTED_BY_CLIENTS.iter().any(|name| model.starts_with(name)) => Turns::Commits,
            _ => PAUSE,
        })
    }

    /// How long a word waits before it is a delta.
    pub fn delay(&self) -> Delay {
        // Interim words have the speaker of the last final one, which may be another.
        if self.has_speakers() { Delay::Xhigh } else { self.delay.unwrap_or(Delay::Low) }
    }

    /// The model's name asks for speakers, as `gpt-4o-transcribe-diarize` does.
    pub fn has_speakers(&self) -> bool {
        self.model.as_ref().is_some_and(|model| model.ends_with("-diarize"))
    }

    /// Bytes of the format in a millisecond.
    pub fn bytes_per_ms(&self) -> u64 {
        if self.format == Format::Pcm { 48 } else { 8 }
    }

    /// Audio before speech that belongs to it.
    pub fn prefix_padding_ms(&self) -> u32 {
        match self.turns() {
            Turns::Pause { prefix_padding_ms, .. } => prefix_padding_ms,
            Turns::Semantic(_) => 300,
            Turns::Commits => 0,
        }
    }

    /// With `semantic_vad`: the silence after which a turn ends in any case.
    pub fn longest_silence(&self) -> Option<f64> {
        match self.turns() {
            Turns::Semantic(Eagerness::Low) => Some(LOW_SECONDS),
            Turns::Semantic(Eagerness::Medium | Eagerness::Auto) => Some(MEDIUM_SECONDS),
            Turns::Semantic(Eagerness::High) => Some(HIGH_SECONDS),
            Turns::Commits | Turns::Pause { .. } => None,
        }
    }

    /// The stream's options.
    ///
    /// # Errors
    /// As [`Self::update`].
    pub fn options(&self, model: &ModelInfo, tenant: u64) -> Result<Options, Invalid> {
        let (encoding, sample_rate_hz) = match self.format {
            Format::Pcm => (RawEncoding::Linear16, 24_000),
            Format::Mulaw => (RawEncoding::Mulaw, 8_000),
            Format::Alaw => (RawEncoding::Alaw, 8_000),
        };
        let (endpointing, voice_threshold) = match self.turns() {
            Turns::Commits => (None, None),
            Turns::Pause { threshold, silence_duration_ms, .. } => {
                (Some(u64::from(silence_duration_ms)), Some(voice_threshold(threshold)))
            }
            // The shortest that there is: the model is asked at each.
            Turns::Semantic(_) => (Some(0), None),
        };
        let detects_turns = self.turns() != Turns::Commits;
        Ok(Options {
            format: StreamFormat::Raw(RawFormat { encoding, sample_rate_hz, channels: 1 }),
            multichannel: false,
            language: self.language(model)?,
            interim_results: self.delay() != Delay::Xhigh,
            endpointing: endpointing.map(Duration::from_millis),
            utterance_end: None,
            speech_started: detects_turns,
            voice: detects_turns,
            voice_threshold,
            speakers: self.has_speakers().then(speakers::Options::default),
            voices: None,
            prompt: self.prompt.clone(),
            bias: terms(&self.parameters),
            tenant: TenantId(tenant),
        })
    }

    /// The session as its client reads it; `served` is the model where the client names none.
    pub fn shown(&self, id: &str, is_beta: bool, served: &str) -> shape::Session {
        let languages = match &self.parameters.detect_language {
            DetectLanguage::Among(languages) => languages.clone(),
            _ => Vec::new(),
        };
        let transcription = shape::Transcription {
            model: self.model.clone().unwrap_or_else(|| served.to_owned()),
            language: self.parameters.language.clone(),
            languages,
            prompt: self.prompt.clone(),
            keywords: self.parameters.keyterms.clone(),
            delay: self.delay.map(Delay::name),
        };
        let turn_detection = match self.turns() {
            Turns::Commits => None,
            Turns::Pause { threshold, prefix_padding_ms, silence_duration_ms } => {
                Some(shape::TurnDetection::ServerVad { threshold, prefix_padding_ms, silence_duration_ms })
            }
            Turns::Semantic(eagerness) => {
                Some(shape::TurnDetection::SemanticVad { eagerness: eagerness.name() })
            }
        };
        let include = self.log_probabilities.then_some(LOG_PROBABILITIES).into_iter().collect();
        let (object, id) = ("realtime.transcription_session", id.to_owned());
        if is_beta {
            return shape::Session::Beta(Box::new(shape::Beta {
                id,
                object,
                input_audio_format: match self.format {
                    Format::Pcm => "pcm16",
                    Format::Mulaw => "g711_ulaw",
                    Format::Alaw => "g711_alaw",
                },
                input_audio_transcription: transcription,
                input_audio_noise_reduction: None,
                turn_detection,
                include,
                client_secret: None,
            }));
        }
        let format = match self.format {
            Format::Pcm => shape::Format { kind: "audio/pcm", rate: Some(24_000) },
            Format::Mulaw => shape::Format { kind: "audio/pcmu", rate: None },
            Format::Alaw => shape::Format { kind: "audio/pcma", rate: None },
        };
        let input = shape::Input { format, transcription, noise_reduction: None, turn_detection };
        let audio = shape::Audio { input };
        shape::Session::Current(Box::new(shape::Current {
            id,
            object,
            kind: "transcription",
            audio,
            include,
        }))
    }
}

/// `vad` over `before`: what it leaves out stays as it was.
fn paused(vad: &ServerVad, before: Option<Turns>) -> Result<Turns, Invalid> {
    let before = before.filter(|turns| matches!(turns, Turns::Pause { .. })).unwrap_or(PAUSE);
    let Turns::Pause { threshold, prefix_padding_ms, silence_duration_ms } = before else {
        return Ok(before);
    };
    let threshold = vad.threshold.unwrap_or(threshold);
    let prefix_padding_ms = vad.prefix_padding_ms.unwrap_or(prefix_padding_ms);
    let silence_duration_ms = vad.silence_duration_ms.unwrap_or(silence_duration_ms);
    if !(0.0..=1.0).contains(&threshold) {
        return Err(Invalid::value("turn_detection.threshold", "`threshold` must lie between 0 and 1."));
    }
    if prefix_padding_ms.max(silence_duration_ms) > PAUSE_MS_MAX {
        let message = format!("Durations of `turn_detection` are at most {PAUSE_MS_MAX} ms.");
        return Err(Invalid::value("turn_detection", message));
    }
    Ok(Turns::Pause { threshold, prefix_padding_ms, silence_duration_ms })
}

/// The probability from which a frame is voice, for a client's `threshold`, both 0 to 1. The API's default, 0.5, is the
/// threshold of this server's detector for whole files; below and above it the two go evenly to the ends.
fn voice_threshold(threshold: f32) -> f32 {
    const USUAL: f32 = 0.2;
    const RANGE: std::ops::RangeInclusive<f32> = 0.02..=0.95;
    let place = if threshold <= 0.5 {
        RANGE.start() + (USUAL - RANGE.start()) * threshold / 0.5
    } else {
        USUAL + (RANGE.end() - USUAL) * (threshold - 0.5) / 0.5
    };
    place.clamp(*RANGE.start(), *RANGE.end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clients_threshold_orders_the_detectors() {
        let all = [0.0, 0.25, 0.5, 0.75, 1.0].map(voice_threshold);
        assert!(all.is_sorted(), "{all:?}");
        assert!((all[2] - 0.2).abs() < 1e-6 && all[0] >= 0.02 && all[4] <= 0.95, "{all:?}");
    }
}
