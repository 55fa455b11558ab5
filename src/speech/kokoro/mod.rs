//! Kokoro (82M parameters, int8): phonemes to speech at [`VOICE_RATE`](super::wav::VOICE_RATE).
//!
//! Source of the model's form: `hexgrad/kokoro` (`KPipeline.infer`, `KModel.forward`; Apache-2.0), and its
//! `config.json` for the symbols.

mod languages;
mod model;
mod styles;
mod symbols;
mod thread;

use std::fs::File;
use std::ops::RangeInclusive;
use std::path::Path;

use futures_util::stream::{self, StreamExt as _};
use tokio::sync::mpsc;

use super::error::VoiceError;
use super::synthesizer::{Failed, Line, Part, Parts, Speaker, Synthesizer};
use crate::onnx;
use languages::Language;
use styles::{Styles, installed, is_name};
use thread::{Order, Thread};

const FILE: &str = "kokoro/model.onnx";

/// Loads the model when it first speaks, so that a server that only transcribes does not hold it.
pub struct Kokoro {
    thread: Thread,
    /// The one that the configuration names first.
    speakers: Vec<Speaker>,
    /// Installed voices whose language cannot be read, and why.
    unread: Vec<(String, String)>,
}

impl Kokoro {
    /// Checks that all files exist. `voice` is a file in the model's folder, such as `af_heart`; its first letter
    /// is the language.
    ///
    /// # Errors
    /// [`VoiceError`].
    pub fn open(models: &Path, voice: &str) -> Result<Self, VoiceError> {
        let language = is_name(voice).then(|| Language::of(voice)).flatten();
        let language = language.ok_or_else(|| VoiceError::Name(voice.to_owned()))?;
        Styles::read(models, voice)?;
        let file = models.join(FILE);
        File::open(&file).map_err(|source| VoiceError::Unreadable { path: file, source })?;
        if let Some(reason) = language.unread() {
            return Err(VoiceError::Language { voice: voice.to_owned(), reason });
        }
        onnx::open_runtime(models)?;
        let mut speakers = vec![Speaker { name: voice.to_owned(), language: language.code() }];
        let mut unread = Vec::new();
        for name in installed(models).into_iter().filter(|name| name != voice) {
            let Some(language) = Language::of(&name) else { continue };
            match language.unread() {
                None => speakers.push(Speaker { name, language: language.code() }),
                Some(reason) => unread.push((name, reason)),
            }
        }
        Ok(Self { thread: Thread::start(models.to_owned())?, speakers, unread })
    }
}

impl Synthesizer for Kokoro {
    fn kind(&self) -> &'static str {
        "kokoro"
    }

    fn speakers(&self) -> &[Speaker] {
        &self.speakers
    }

    fn unread(&self) -> &[(String, String)] {
        &self.unread
    }

    /// Further from its usual pace the model slurs.
    fn speeds(&self) -> RangeInclusive<f32> {
        0.7..=1.5
    }

    fn wants_pieces(&self) -> bool {
        true
    }

    fn speak(&self, line: Line) -> Parts {
        let default = self.speakers.first().map(|speaker| speaker.name.clone());
        let (sound, parts) = mpsc::unbounded_channel();
        let order = Order {
            text: line.text,
            voice: line.voice.or(default).unwrap_or_default(),
            speed: line.speed,
            is_urgent: line.is_urgent,
            sound,
        };
        if !self.thread.ask(order) {
            return stream::once(async { Err(Failed) }).boxed();
        }
        let next = |mut parts: mpsc::UnboundedReceiver<Result<Part, Failed>>| async {
            Some((parts.recv().await?, parts))
        };
        stream::unfold(parts, next).boxed()
    }
}
