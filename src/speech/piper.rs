//! Piper's voices: one model (VITS) each, at its own sample rate, read by espeak-ng's phonemes.
//!
//! Source of the form: `rhasspy/piper` (`VoiceConfig`, `PiperVoice.synthesize`; MIT). A voice is `NAME.onnx` and
//! `NAME.onnx.json` in the folder `piper` of the models.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::stream::{self, StreamExt as _};
use serde::Deserialize;

use super::error::VoiceError;
use super::espeak::{self, Espeak};
use super::synthesizer::{Failed, Line, Part, Parts, Speaker, Synthesizer};
use super::wav::VOICE_RATE;
use crate::audio::RateConverter;
use crate::onnx::{self, Input, Session, Worker};

const FOLDER: &str = "piper";
/// Compute threads: these models are small.
const THREADS: usize = 1;
/// The marks around a text, and between its phonemes.
const BEGIN: &str = "^";
const END: &str = "$";
const BETWEEN: &str = "_";
/// Symbols of one run.
const SYMBOLS_MAX: usize = 2000;
/// Loudest sample of the speech: the models leave their level open.
const PEAK: f32 = 0.8;

/// Loads a voice when it first speaks.
pub struct Piper {
    worker: Arc<Worker<Line, Option<Vec<f32>>>>,
    speakers: Vec<Speaker>,
    unread: Vec<(String, String)>,
}

/// The settings in `NAME.onnx.json`.
#[derive(Debug, Clone, Deserialize)]
struct Settings {
    audio: Audio,
    espeak: Transcription,
    #[serde(default)]
    language: Spoken,
    #[serde(default)]
    inference: Inference,
    phoneme_id_map: HashMap<String, Vec<i64>>,
    #[serde(default)]
    num_speakers: u32,
}

#[derive(Debug, Clone, Deserialize)]
struct Audio {
    sample_rate: u32,
}

#[derive(Debug, Clone, Deserialize)]
struct Transcription {
    voice: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct Spoken {
    #[serde(default)]
    family: String,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(default)]
struct Inference {
    noise_scale: f32,
    length_scale: f32,
    noise_w: f32,
}

impl Default for Inference {
    fn default() -> Self {
        Self { noise_scale: 0.667, length_scale: 1.0, noise_w: 0.8 }
    }
}

impl Piper {
    /// Finds the voices; `first` is the default, if it is one of them.
    ///
    /// # Errors
    /// [`VoiceError`], also where there is none.
    pub fn open(models: &Path, first: &str) -> Result<Self, VoiceError> {
        let mut voices = installed(&models.join(FOLDER))?;
        voices.sort_by_key(|(name, _)| (name != first, name.clone()));
        if voices.is_empty() {
            return Err(VoiceError::Missing("a voice of Piper"));
        }
        onnx::open_runtime(models)?;
        let named = |(name, settings): &(String, Settings)| Speaker {
            name: name.clone(),
            language: code(&settings.language.family),
        };
        let (mut speakers, mut unread) = (Vec::new(), Vec::new());
        if espeak::is_installed() {
            speakers = voices.iter().map(named).collect();
        } else {
            let reason = "Piper's voices need the program espeak-ng, which is not installed.";
            unread = voices.iter().map(|(name, _)| (name.clone(), reason.to_owned())).collect();
        }
        if speakers.is_empty() {
            let [(voice, reason), ..] = unread.as_slice() else {
                return Err(VoiceError::Missing("espeak-ng"));
            };
            return Err(VoiceError::Language { voice: voice.clone(), reason: reason.clone() });
        }
        let (models, voices) = (models.to_owned(), voices.into_iter().collect());
        let load = move || {
            let mut reader = Reader { models, voices, loaded: HashMap::new() };
            Ok::<_, VoiceError>(move |line: Line| reader.speak(&line))
        };
        Ok(Self { worker: Arc::new(Worker::start("piper", load)?), speakers, unread })
    }
}

/// The codes under which this server knows languages.
fn code(family: &str) -> &'static str {
    const KNOWN: [&str; 12] = ["en", "es", "fr", "it", "pt", "hi", "ja", "zh", "de", "nl", "pl", "ru"];
    KNOWN.into_iter().find(|known| *known == family).unwrap_or("other")
}

/// The voices in `folder`, with their settings.
fn installed(folder: &Path) -> Result<Vec<(String, Settings)>, VoiceError> {
    let mut voices = Vec::new();
    for file in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = file.file_name();
        let Some(name) = name.to_str().and_then(|name| name.strip_suffix(".onnx")) else { continue };
        let path: PathBuf = folder.join(format!("{name}.onnx.json"));
        let text = fs::read(&path).map_err(|source| VoiceError::Unreadable { path: path.clone(), source })?;
        let settings: Settings =
            serde_json::from_slice(&text).map_err(|_| VoiceError::Piper(path.clone()))?;
        let marks = [BEGIN, END, BETWEEN].iter().all(|mark| settings.phoneme_id_map.contains_key(*mark));
        if !marks || RateConverter::new(settings.audio.sample_rate, VOICE_RATE).is_err() {
            return Err(VoiceError::Piper(path));
        }
        voices.push((name.to_owned(), settings));
    }
    Ok(voices)
}

impl Synthesizer for Piper {
    fn kind(&self) -> &'static str {
        "piper"
    }

    fn speakers(&self) -> &[Speaker] {
        &self.speakers
    }

    fn unread(&self) -> &[(String, String)] {
        &self.unread
    }

    fn speeds(&self) -> std::ops::RangeInclusive<f32> {
        0.5..=2.0
    }

    fn speak(&self, mut line: Line) -> Parts {
        line.voice = line.voice.or_else(|| self.speakers.first().map(|speaker| speaker.name.clone()));
        let worker = self.worker.clone();
        let said = async move {
            let samples = worker.ask(line).await.flatten().ok_or(Failed)?;
            Ok(Part { samples, until: 1.0 })
        };
        stream::once(said).boxed()
    }
}

struct Reader {
    models: PathBuf,
    voices: HashMap<String, Settings>,
    loaded: HashMap<String, Session>,
}

impl Reader {
    fn speak(&mut self, line: &Line) -> Option<Vec<f32>> {
        let name = line.voice.as_deref()?;
        let settings = self.voices.get(name)?;
        if !self.loaded.contains_key(name) {
            let session = Session::load(&self.models, &format!("{FOLDER}/{name}.onnx"), THREADS);
            let session = session
                .inspect_err(|error| tracing::warn!(%error, "the model of a voice cannot be loaded"))
                .ok()?;
            self.loaded.insert(name.to_owned(), session);
        }
        let session = self.loaded.get_mut(name)?;
        let transcription = Espeak::find(&settings.espeak.voice)?.transcribe(&line.text)?;
        let symbols = settings.symbols(&transcription);
        let length = symbols.len() as i64;
        let Inference { noise_scale, length_scale, noise_w } = settings.inference;
        let scales = vec![noise_scale, length_scale / line.speed, noise_w];
        let text = ("input", Input::Integers(vec![1, length], symbols));
        let lengths = ("input_lengths", Input::Integers(vec![1], vec![length]));
        let scales = ("scales", Input::Floats(vec![3], scales));
        let made = match settings.num_speakers > 1 {
            true => session.run([text, lengths, scales, ("sid", Input::Integers(vec![1], vec![0]))]),
            false => session.run([text, lengths, scales]),
        };
        let mut samples =
            made.inspect_err(|error| tracing::warn!(%error, "the model of a voice failed")).ok()?;
        let peak = samples.iter().fold(0.0_f32, |peak, sample| peak.max(sample.abs()));
        if peak > 0.0 {
            samples.iter_mut().for_each(|sample| *sample *= PEAK / peak);
        }
        if settings.audio.sample_rate == VOICE_RATE {
            return Some(samples);
        }
        let mut converter = RateConverter::new(settings.audio.sample_rate, VOICE_RATE).ok()?;
        let mut converted = converter.push(&samples);
        converted.extend(converter.finish());
        Some(converted)
    }
}

impl Settings {
    /// The numbers of a transcription's symbols, with the marks around and between them.
    fn symbols(&self, transcription: &str) -> Vec<i64> {
        let of = |symbol: &str| self.phoneme_id_map.get(symbol).into_iter().flatten().copied();
        let mut symbols: Vec<i64> = of(BEGIN).chain(of(BETWEEN)).collect();
        let mut buffer = [0; 4];
        for c in transcription.chars().filter(|c| *c != '^').take(SYMBOLS_MAX) {
            let found: Vec<i64> = of(c.encode_utf8(&mut buffer)).collect();
            if !found.is_empty() {
                symbols.extend(found.into_iter().chain(of(BETWEEN)));
            }
        }
        symbols.extend(of(END));
        symbols
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_stand_between_marks_and_unknown_ones_are_left_out() {
        let settings: Settings = serde_json::from_str(
            r#"{"audio": {"sample_rate": 22050}, "espeak": {"voice": "en-us"}, "language": {"family": "en"},
                "phoneme_id_map": {"^": [1], "$": [2], "_": [0], "a": [14], " ": [3]}}"#,
        )
        .expect("settings");
        assert_eq!(settings.symbols("a x^a"), [1, 0, 14, 0, 3, 0, 14, 0, 2]);
        assert_eq!((settings.num_speakers, code(&settings.language.family)), (0, "en"));
    }

    #[test]
    fn a_folder_without_settings_is_refused_and_an_empty_one_has_no_voice() {
        let folder = tempfile::tempdir().expect("a folder");
        let none = Piper::open(folder.path(), "x").map(drop);
        assert!(matches!(none, Err(VoiceError::Missing(_))), "{none:?}");
        let voices = folder.path().join(FOLDER);
        fs::create_dir(&voices).expect("made");
        fs::write(voices.join("joe.onnx"), "").expect("written");
        assert!(matches!(Piper::open(folder.path(), "x"), Err(VoiceError::Unreadable { .. })));
        fs::write(voices.join("joe.onnx.json"), "{}").expect("written");
        assert!(matches!(Piper::open(folder.path(), "x"), Err(VoiceError::Piper(_))));
    }
}
