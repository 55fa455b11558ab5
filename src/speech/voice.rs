//! The voice: picks a synthesizer, and keeps short sentences.

use std::collections::{HashSet, VecDeque};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::stream::{self, BoxStream, StreamExt as _};

use super::config::{Config, EmbeddedVoice};
use super::error::VoiceError;
use super::kokoro::Kokoro;
use super::memory::{Key, Memory};
use super::names;
use super::pieces;
use super::piper::Piper;
use super::program::Program;
use super::remote::Remote;
use super::sentences::Sentences;
use super::stretch::stretched;
use super::synthesizer::{Failed, Line, Part, Parts, Synthesizer};
use super::wording::Wording;

/// Time limit for a part of the speech.
const PART_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit for the last synthesizer on this machine: on a busy machine, late is better than never.
const LAST_TIMEOUT: Duration = Duration::from_secs(60);

/// Voices that learn texts.
const LEARNERS_MAX: usize = 8;

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

/// The speech of a text, part by part. Nothing comes after an error.
pub type Saying = BoxStream<'static, Result<Part, Unspoken>>;

/// Speaks sentences. Cheap handle.
#[derive(Clone)]
pub struct Voice(Arc<Synthesizers>);

struct Synthesizers {
    wording: Wording,
    /// To choose from, the default first.
    chosen: Vec<Arc<dyn Synthesizer>>,
    /// Speaks English if the others fail.
    fallback: Option<Arc<dyn Synthesizer>>,
    memory: Memory,
    /// Voices that have learned texts.
    learned: Mutex<HashSet<String>>,
}

fn sentences(text: &str) -> Vec<String> {
    let mut sentences = Sentences::default();
    sentences.push(text);
    std::iter::from_fn(|| sentences.rest()).collect()
}

impl Voice {
    /// `models`: the folder of models.
    ///
    /// # Errors
    /// [`VoiceError`].
    pub fn open(config: &Config, models: &Path) -> Result<Self, VoiceError> {
        let mut chosen: Vec<Arc<dyn Synthesizer>> = Vec::new();
        if let Some(base) = &config.base_url {
            chosen.push(Arc::new(Remote::open(base, config)?));
        }
        if !config.program.is_empty() {
            chosen.push(Arc::new(Program::of(&config.program)?));
        }
        let mut fallback: Option<Arc<dyn Synthesizer>> = None;
        let voice = &config.embedded_voice;
        match config.embedded {
            EmbeddedVoice::None => {}
            EmbeddedVoice::Kokoro => chosen.push(Arc::new(Kokoro::open(models, voice)?)),
            EmbeddedVoice::Piper => {
                chosen.push(Arc::new(Piper::open(models, voice)?));
                chosen.extend(Kokoro::open(models, KOKORO).ok().map(shared));
            }
            EmbeddedVoice::Flite => fallback = Some(Arc::new(Program::flite()?)),
            EmbeddedVoice::EspeakNg => fallback = Some(Arc::new(Program::espeak_ng()?)),
            EmbeddedVoice::Auto => {
                let note = |error: &VoiceError| {
                    let error: &dyn std::error::Error = error;
                    tracing::info!(error, "text is spoken without Kokoro: `./setup voice` installs it");
                };
                chosen.extend(Kokoro::open(models, voice).inspect_err(note).ok().map(shared));
                let program = Program::flite().or_else(|_| Program::espeak_ng());
                fallback = program.ok().map(shared);
            }
        }
        if matches!(config.embedded, EmbeddedVoice::Auto | EmbeddedVoice::Kokoro) {
            match Piper::open(models, voice) {
                Ok(piper) => chosen.push(Arc::new(piper)),
                Err(VoiceError::Missing(_)) => {}
                Err(error) => tracing::warn!(%error, "Piper's voices are left out"),
            }
        }
        let wording = Wording::new(&config.say_as);
        let voice = Self(Arc::new(Synthesizers {
            wording,
            chosen,
            fallback,
            memory: Memory::default(),
            learned: Mutex::default(),
        }));
        match voice.name() {
            "none" => {
                tracing::warn!(
                    "there is no voice for agents or `/v1/speak`: run `./setup voice`, install flite, or set sts.speech"
                );
            }
            name => tracing::info!(voice = name, voices = voice.voices().len(), "there is a voice"),
        }
        Ok(voice)
    }

    /// The kind of the voice in use: `none` if there is none.
    pub fn name(&self) -> &'static str {
        self.0.all().next().map_or("none", |synthesizer| synthesizer.kind())
    }

    /// The kind of the voice of this name.
    pub fn kind(&self, voice: &str) -> &'static str {
        self.0.owner(voice).map_or("none", |synthesizer| synthesizer.kind())
    }

    /// The voices to choose from, the one that the configuration names first; empty if there is none.
    pub fn voices(&self) -> Vec<&str> {
        self.0.offered().flat_map(|synthesizer| synthesizer.speakers()).map(|voice| &*voice.name).collect()
    }

    /// The voice for a language, a code such as `es`: the default one if it speaks it, else the first that does.
    pub fn for_language(&self, code: &str) -> Option<&str> {
        let code = code.split('-').next().unwrap_or_default();
        let mut speakers = self.0.offered().flat_map(|synthesizer| synthesizer.speakers());
        speakers.find(|voice| voice.language.is_empty() || voice.language == code).map(|voice| &*voice.name)
    }

    /// The language that a voice speaks, a code; none if it speaks any, or no voice has this name.
    pub fn language(&self, voice: &str) -> Option<&'static str> {
        let mut speakers = self.0.offered().flat_map(|synthesizer| synthesizer.speakers());
        speakers.find(|own| own.name == voice).map(|own| own.language).filter(|code| !code.is_empty())
    }

    /// Why an installed voice cannot be used.
    pub fn unread(&self, name: &str) -> Option<&str> {
        let mut unread = self.0.chosen.iter().flat_map(|synthesizer| synthesizer.unread());
        unread.find(|(own, _)| own == name).map(|(_, reason)| &**reason)
    }

    /// Splits a sentence into the pieces to [`speak`](Self::speak), so that the first is heard soon.
    pub fn pieces<'t>(&self, sentence: &'t str, manner: &Manner) -> Vec<&'t str> {
        let owner = manner.voice.as_deref().and_then(|voice| self.0.owner(voice));
        let synthesizer = owner.or_else(|| self.0.all().next());
        // The other voices are fast enough, or stream by themselves.
        let wants_pieces = synthesizer.is_some_and(|synthesizer| synthesizer.wants_pieces());
        if wants_pieces { pieces::of(sentence) } else { vec![sentence] }
    }

    /// The voice for a name that clients know; see [`super::names`].
    pub fn find(&self, name: &str) -> Option<&str> {
        names::find(name, &self.voices())
    }

    /// Speaks a sentence or a piece of one, and keeps it if it is short. One empty part if there is no word in it.
    pub fn speak(&self, text: &str, manner: &Manner) -> Saying {
        self.speak_when(text, manner, true)
    }

    /// The work of speaking texts of a language that may be needed, when there is nothing else to say, so that they are
    /// ready. None if that was begun before, or the voice does not speak the language.
    pub fn learn<const N: usize>(
        &self,
        language: &str,
        texts: [&'static str; N],
        manner: Manner,
    ) -> Option<impl Future<Output = ()> + Send + 'static + use<N>> {
        let (name, ..) = self.key("", &manner);
        let name = name?;
        // The others speak at once, and some of them for money.
        let is_slow = self.0.owner(&name).is_some_and(|synthesizer| synthesizer.wants_pieces());
        if !is_slow || self.language(&name).is_some_and(|own| own != language) {
            return None;
        }
        let mut learned = self.0.learned.lock().unwrap_or_else(PoisonError::into_inner);
        if learned.len() >= LEARNERS_MAX || !learned.insert(name) {
            return None;
        }
        let voice = self.clone();
        Some(async move {
            for sentence in texts.iter().flat_map(|text| sentences(text)) {
                for piece in voice.pieces(&sentence, &manner) {
                    voice.speak_when(piece, &manner, false).for_each(|_| async {}).await;
                }
            }
        })
    }

    fn speak_when(&self, text: &str, manner: &Manner, is_urgent: bool) -> Saying {
        let key = self.key(text, manner);
        if let Some(parts) = self.0.memory.recall(&key) {
            // Remembered speech is there at once, as a whole.
            return stream::iter(parts.to_vec()).map(Ok).boxed();
        }
        let memory = self.0.memory.clone();
        let speech = self.say_when(text, manner, is_urgent);
        let keep = (speech, Some((memory, key, Vec::new())));
        stream::unfold(keep, |(mut speech, mut kept)| async move {
            let said = speech.next().await;
            match (&said, &mut kept) {
                (Some(Ok(part)), Some((_, _, parts))) => parts.push(part.clone()),
                (Some(Err(_)), kept) => drop(kept.take()),
                (None, kept) => {
                    if let Some((memory, key, parts)) = kept.take() {
                        memory.keep(key, parts);
                    }
                }
                _ => {}
            }
            Some((said?, (speech, kept)))
        })
        .boxed()
    }

    fn key(&self, text: &str, manner: &Manner) -> Key {
        let voice = manner.voice.clone().or_else(|| self.voices().first().map(|name| (*name).to_owned()));
        (voice, (manner.speed * 1000.0).round() as u32, text.to_owned())
    }

    /// As [`Self::speak`], and keeps nothing of it.
    pub fn say(&self, text: &str, manner: &Manner) -> Saying {
        self.say_when(text, manner, true)
    }

    fn say_when(&self, text: &str, manner: &Manner, is_urgent: bool) -> Saying {
        let text = self.0.wording.of(text);
        if !text.contains(char::is_alphanumeric) {
            return stream::once(async { Ok(Part { samples: Vec::new(), until: 1.0 }) }).boxed();
        }
        let tries = Tries { left: self.0.tries(manner), text, speed: manner.speed, is_urgent };
        stream::unfold(
            State { tries, speaking: None, has_sound: false, is_over: false, is_reported: false },
            State::step,
        )
        .boxed()
    }
}

/// Kokoro's voice beside another default.
const KOKORO: &str = "af_heart";

fn shared<S: Synthesizer + 'static>(synthesizer: S) -> Arc<dyn Synthesizer> {
    Arc::new(synthesizer)
}

impl Synthesizers {
    fn all(&self) -> impl Iterator<Item = &Arc<dyn Synthesizer>> {
        self.chosen.iter().chain(&self.fallback)
    }

    /// A fallback is offered if there is nothing else.
    fn offered(&self) -> impl Iterator<Item = &Arc<dyn Synthesizer>> {
        let fallback = self.fallback.iter().filter(|_| self.chosen.is_empty());
        self.chosen.iter().chain(fallback)
    }

    fn owner(&self, voice: &str) -> Option<&Arc<dyn Synthesizer>> {
        self.offered().find(|synthesizer| synthesizer.speakers().iter().any(|own| own.name == voice))
    }

    /// The synthesizers to try, in order, each with its voice: the voice asked for, then others that speak its language.
    fn tries(&self, manner: &Manner) -> VecDeque<(Arc<dyn Synthesizer>, Option<String>)> {
        let Some(wanted) = &manner.voice else {
            return self.all().map(|synthesizer| (synthesizer.clone(), None)).collect();
        };
        let mut speakers = self.all().flat_map(|synthesizer| synthesizer.speakers());
        let language = speakers.find(|own| own.name == *wanted).map_or("", |own| own.language);
        let mut tries = VecDeque::new();
        for synthesizer in self.all() {
            if synthesizer.speakers().iter().any(|own| own.name == *wanted) {
                tries.push_front((synthesizer.clone(), Some(wanted.clone())));
                continue;
            }
            let fits = |code: &str| code == language || code.is_empty() || language.is_empty();
            if let Some(other) = synthesizer.speakers().iter().find(|own| fits(own.language)) {
                tries.push_back((synthesizer.clone(), Some(other.name.clone())));
            }
        }
        tries
    }
}

/// The synthesizers that have not yet tried to say a text.
struct Tries {
    left: VecDeque<(Arc<dyn Synthesizer>, Option<String>)>,
    text: String,
    speed: f32,
    is_urgent: bool,
}

impl Tries {
    /// The kind of the next synthesizer, its speech, and the time limit for each part of it.
    fn next(&mut self) -> Option<(&'static str, Parts, Duration)> {
        let (synthesizer, voice) = self.left.pop_front()?;
        let speeds = synthesizer.speeds();
        let own = self.speed.clamp(*speeds.start(), *speeds.end());
        let parts =
            synthesizer.speak(Line { text: self.text.clone(), voice, speed: own, is_urgent: self.is_urgent });
        let rest = self.speed / own;
        let parts = if rest == 1.0 { parts } else { stream::once(at_pace(parts, rest)).boxed() };
        let is_last = self.left.is_empty() && !synthesizer.is_remote();
        Some((synthesizer.kind(), parts, if is_last { LAST_TIMEOUT } else { PART_TIMEOUT }))
    }
}

/// All of `parts` at `speed` times their pace.
async fn at_pace(mut parts: Parts, speed: f32) -> Result<Part, Failed> {
    let mut samples = Vec::new();
    while let Some(part) = parts.next().await {
        samples.extend(part?.samples);
    }
    let stretch = tokio::task::spawn_blocking(move || stretched(&samples, speed));
    Ok(Part { samples: stretch.await.map_err(|_| Failed)?, until: 1.0 })
}

/// Where the speech of a text is.
struct State {
    tries: Tries,
    speaking: Option<(&'static str, Parts, Duration)>,
    /// Another synthesizer would begin anew.
    has_sound: bool,
    is_over: bool,
    /// Its error was given out.
    is_reported: bool,
}

impl State {
    async fn step(mut self) -> Option<(Result<Part, Unspoken>, Self)> {
        let mut unspoken = Unspoken::Failed;
        while !self.is_over {
            if self.speaking.is_none() {
                self.speaking = self.tries.next();
            }
            let Some((voice, parts, limit)) = &mut self.speaking else { break };
            match tokio::time::timeout(*limit, parts.next()).await {
                Ok(Some(Ok(part))) => {
                    self.has_sound = true;
                    return Some((Ok(part), self));
                }
                Ok(None) if self.has_sound => return None,
                Ok(None | Some(Err(Failed))) => tracing::warn!(voice, "the voice failed"),
                Err(_) => {
                    unspoken = Unspoken::TooLate;
                    tracing::warn!(voice, "the voice took too long");
                }
            }
            self.speaking = None;
            self.is_over = self.has_sound;
        }
        if self.is_reported {
            return None;
        }
        (self.is_over, self.is_reported) = (true, true);
        Some((Err(unspoken), self))
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
            let parts: Vec<_> =
                voice.speak("We are open from nine to five.", &Manner::default()).collect().await;
            let samples: Vec<f32> =
                parts.into_iter().flat_map(|part| part.expect("speech").samples).collect();
            let seconds = samples.len() as f64 / f64::from(VOICE_RATE);
            assert!((1.0..5.0).contains(&seconds), "{name}: {seconds} s");
            assert!(samples.iter().any(|sample| sample.abs() > 0.05), "{name} is silent");
        }
    }
}
