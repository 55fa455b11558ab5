//! The voice: picks a synthesizer and caches short sentences.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::config::{Config, EmbeddedVoice};
use super::error::VoiceError;
use super::kokoro::Kokoro;
use super::names;
use super::pieces;
use super::program::Program;
use super::remote::Remote;
use super::stretch::stretched;
use super::wav::read_wav;
use super::wording::Wording;

/// Time limit for one sentence.
const SENTENCE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit for Kokoro if there is no program to fall back on: on a busy machine, late is better than never.
const LAST_TIMEOUT: Duration = Duration::from_secs(60);
/// The paces at which Kokoro speaks clearly; others are made of these.
const KOKORO_SPEEDS: std::ops::RangeInclusive<f32> = 0.7..=1.5;
/// Cached sentences: greetings and prompts repeat.
const CACHED_MAX: usize = 64;
const CACHED_CHARACTERS_MAX: usize = 300;

/// How to speak.
#[derive(Debug, Clone, PartialEq)]
pub struct Manner {
    /// One of [`Voice::voices`]; none: the one that the configuration names.
    pub voice: Option<String>,
    /// A factor: 2 is twice as fast.
    pub speed: f32,
}

impl Default for Manner {
    fn default() -> Self {
        Self { voice: None, speed: 1.0 }
    }
}

/// No voice has said a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unspoken {
    #[error("no voice could say the text")]
    Failed,
    /// One may say it when there is less to do.
    #[error("no voice said the text in time")]
    TooLate,
}

/// Speaks sentences. Cheap handle.
#[derive(Clone)]
pub struct Voice(Arc<Speaker>);

struct Speaker {
    wording: Wording,
    remote: Option<Remote>,
    kokoro: Option<Kokoro>,
    /// Also the fallback if the others fail.
    program: Option<Program>,
    spoken: Mutex<HashMap<String, Arc<[f32]>>>,
}

impl Voice {
    /// `models`: the folder of models.
    ///
    /// # Errors
    /// [`VoiceError`].
    pub fn open(config: &Config, models: &Path) -> Result<Self, VoiceError> {
        let remote = config.base_url.as_deref().map(|base| Remote::open(base, config)).transpose()?;
        let (kokoro, program) = match config.embedded {
            EmbeddedVoice::None => (None, None),
            EmbeddedVoice::Kokoro => (Some(Kokoro::open(models, &config.embedded_voice)?), None),
            EmbeddedVoice::Flite => (None, Some(Program::flite()?)),
            EmbeddedVoice::EspeakNg => (None, Some(Program::espeak_ng()?)),
            EmbeddedVoice::Auto => {
                let kokoro = Kokoro::open(models, &config.embedded_voice)
                    .inspect_err(|error| {
                        let error: &dyn std::error::Error = error;
                        tracing::info!(error, "text is spoken without Kokoro: `./setup voice` installs it");
                    })
                    .ok();
                (kokoro, Program::flite().or_else(|_| Program::espeak_ng()).ok())
            }
        };
        let wording = Wording::new(&config.say_as);
        let voice = Self(Arc::new(Speaker { wording, remote, kokoro, program, spoken: Mutex::default() }));
        match voice.name() {
            "none" => {
                tracing::warn!(
                    "there is no voice for agents or `/v1/speak`: run `./setup voice`, install flite, or set sts.speech"
                );
            }
            name => tracing::info!(voice = name, "there is a voice"),
        }
        Ok(voice)
    }

    /// The name of the voice in use: `none` if there is none.
    pub fn name(&self) -> &'static str {
        match (&self.0.remote, &self.0.kokoro, &self.0.program) {
            (Some(_), _, _) => "endpoint",
            (None, Some(_), _) => "kokoro",
            (None, None, Some(program)) => program.name,
            (None, None, None) => "none",
        }
    }

    /// The voices to choose from, the one that the configuration names first; empty if there is none.
    pub fn voices(&self) -> Vec<&str> {
        let Speaker { remote, kokoro, program, .. } = &*self.0;
        match (remote, kokoro, program) {
            (Some(remote), _, _) if remote.voice().is_empty() => vec!["endpoint"],
            (Some(remote), _, _) => vec![remote.voice()],
            (None, Some(kokoro), _) => {
                let others =
                    kokoro.voices().iter().map(String::as_str).filter(|name| *name != kokoro.voice());
                std::iter::once(kokoro.voice()).chain(others).collect()
            }
            (None, None, Some(program)) => vec![program.name],
            (None, None, None) => Vec::new(),
        }
    }

    /// Splits a sentence into the pieces to [`speak`](Self::speak), so that the first is heard soon.
    pub fn pieces<'t>(&self, sentence: &'t str) -> Vec<&'t str> {
        // The other voices are fast enough, or stream by themselves.
        if self.name() == "kokoro" { pieces::of(sentence) } else { vec![sentence] }
    }

    /// Speaks a sentence or a piece of one: samples at [`VOICE_RATE`], empty if no voice can say it.
    pub async fn speak(&self, text: &str) -> Arc<[f32]> {
        let cache = || self.0.spoken.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(samples) = cache().get(text) {
            return samples.clone();
        }
        let samples: Arc<[f32]> = self.say(text, &Manner::default()).await.unwrap_or_default().into();
        if !samples.is_empty() && text.len() <= CACHED_CHARACTERS_MAX {
            let mut spoken = cache();
            if spoken.len() >= CACHED_MAX {
                spoken.clear();
            }
            spoken.insert(text.to_owned(), samples.clone());
        }
        samples
    }

    /// As [`Self::speak`], in this manner. Only the default manner is cached.
    pub async fn speak_as(&self, text: &str, manner: &Manner) -> Arc<[f32]> {
        if *manner == Manner::default() {
            return self.speak(text).await;
        }
        self.say(text, manner).await.unwrap_or_default().into()
    }

    /// The voice for a name that clients know; see [`super::names`].
    pub fn find(&self, name: &str) -> Option<&str> {
        names::find(name, &self.voices())
    }

    /// Speaks a sentence or a piece of one, and keeps nothing of it: samples at [`VOICE_RATE`], none if there is no word
    /// in it.
    ///
    /// # Errors
    /// [`Unspoken`].
    pub async fn say(&self, text: &str, manner: &Manner) -> Result<Vec<f32>, Unspoken> {
        let text = self.0.wording.of(text);
        if !text.contains(char::is_alphanumeric) {
            return Ok(Vec::new());
        }
        self.synthesize(&text, manner).await
    }

    async fn synthesize(&self, text: &str, manner: &Manner) -> Result<Vec<f32>, Unspoken> {
        let Manner { voice, speed } = manner;
        let mut unspoken = Unspoken::Failed;
        if let Some(remote) = &self.0.remote {
            match tokio::time::timeout(SENTENCE_TIMEOUT, remote.speak(text, *speed)).await {
                Ok(Some(samples)) => return Ok(samples),
                _ => tracing::warn!("the speech interface failed"),
            }
        }
        if let Some(kokoro) = &self.0.kokoro {
            kokoro.prepare().await;
            let limit = if self.0.program.is_some() { SENTENCE_TIMEOUT } else { LAST_TIMEOUT };
            // Further from its usual pace the model slurs.
            let own = speed.clamp(*KOKORO_SPEEDS.start(), *KOKORO_SPEEDS.end());
            let speaking = kokoro.speak(text.to_owned(), voice.as_deref(), own);
            match tokio::time::timeout(limit, speaking).await {
                Ok(Some(samples)) if own == *speed => return Ok(samples),
                Ok(Some(samples)) => {
                    let rest = speed / own;
                    let stretch = tokio::task::spawn_blocking(move || stretched(&samples, rest));
                    return stretch.await.map_err(|_| Unspoken::Failed);
                }
                Ok(None) => tracing::warn!(voice = "kokoro", "the voice failed"),
                Err(_) => {
                    unspoken = Unspoken::TooLate;
                    tracing::warn!(voice = "kokoro", "the voice took too long");
                }
            }
        }
        let Some(program) = &self.0.program else { return Err(unspoken) };
        match tokio::time::timeout(SENTENCE_TIMEOUT, program.speak(text, *speed)).await {
            Ok(Ok(wav)) => read_wav(&wav).ok_or(Unspoken::Failed),
            Ok(Err(error)) => {
                tracing::warn!(voice = program.name, %error, "the voice failed");
                Err(unspoken)
            }
            Err(_) => {
                tracing::warn!(voice = program.name, "the voice took too long");
                Err(Unspoken::TooLate)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::wav::VOICE_RATE;
    use super::*;

    #[tokio::test]
    async fn a_program_of_this_machine_speaks() {
        for (embedded, name) in [(EmbeddedVoice::Flite, "flite"), (EmbeddedVoice::EspeakNg, "espeak-ng")] {
            let Ok(voice) = Voice::open(&Config { embedded, ..Config::default() }, Path::new(".")) else {
                eprintln!("{name} is not installed: its voice is not tested");
                continue;
            };
            assert_eq!(voice.name(), name);
            let samples = voice.speak("We are open from nine to five.").await;
            let seconds = samples.len() as f64 / f64::from(VOICE_RATE);
            assert!((1.0..5.0).contains(&seconds), "{name}: {seconds} s");
            assert!(samples.iter().any(|sample| sample.abs() > 0.05), "{name} is silent");
        }
    }
}
