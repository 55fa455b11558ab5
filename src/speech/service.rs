//! Speech for clients: which of them may have some now, and sentence by sentence in fair turns.
//!
//! Synthesis takes a processor a good part of the time that the speech lasts, so texts wait for each other. Turns go
//! round the organisations piece by piece, and a piece is a second or a few of speech: a long text delays a short one
//! of another organisation by one piece.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::{FutureExt as _, StreamExt as _};
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use super::admission::{Admission, Full, Held};
use super::limits::Limits;
use super::names;
use super::pace::Pace;
use super::sentences::Sentences;
use super::voice::{Manner, Unspoken, Voice};
use super::wav::VOICE_RATE;
use crate::patience::Deadline;
use crate::share::{Asker, Busy, Refused, Stay, Stays, Tenants, Turn, Turns};
use crate::telemetry::metrics;

/// Speaks for clients. Cheap handle.
#[derive(Clone)]
pub struct Speech(Arc<Service>);

struct Service {
    voice: Voice,
    limits: Limits,
    turns: Turns,
    texts: Admission,
    streams: Stays,
    pace: Pace,
    samples: AtomicU64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SayError {
    #[error(transparent)]
    Unspoken(#[from] Unspoken),
    #[error("the text was not spoken in time")]
    TooLate,
}

impl Speech {
    pub fn new(voice: Voice, limits: Limits, tenants: Tenants) -> Self {
        Self(Arc::new(Service {
            voice,
            turns: Turns::brief(limits.at_once),
            texts: Admission::new(limits.held_characters_max, limits.at_once, tenants.clone()),
            streams: Stays::new(limits.streams_max, tenants),
            limits,
            pace: Pace::default(),
            samples: AtomicU64::new(0),
        }))
    }

    pub fn limits(&self) -> &Limits {
        &self.0.limits
    }

    /// The voices to choose from, the default first; empty if there is none, or speech is switched off.
    pub fn voices(&self) -> Vec<&str> {
        if self.0.limits.enabled { self.0.voice.voices() } else { Vec::new() }
    }

    /// The default voice's kind: `kokoro`, `piper`, `endpoint`, `program`, the name of a program, `none`.
    pub fn kind(&self) -> &'static str {
        self.0.voice.name()
    }

    /// The kind of the voice of this name.
    pub fn kind_of(&self, voice: &str) -> &'static str {
        self.0.voice.kind(voice)
    }

    /// The language of the voice of this name, a code; none if it speaks any.
    pub fn language(&self, voice: &str) -> Option<&'static str> {
        self.0.voice.language(voice)
    }

    /// Why an installed voice cannot be used.
    pub fn unread(&self, name: &str) -> Option<&str> {
        self.0.voice.unread(name)
    }

    /// The voice for a name that a client asks for; see [`names`].
    pub fn find(&self, name: &str) -> Option<&str> {
        names::find(name, &self.voices())
    }

    /// Takes a text to speak. `asker` has the same request whenever it sends this text.
    ///
    /// # Errors
    /// [`Full`].
    pub fn begin(
        &self,
        (tenant, asker): (u64, Asker),
        text: &str,
        manner: Manner,
    ) -> Result<Utterance, Full> {
        let characters = text.chars().count() as u64;
        let held = self.0.texts.admit((tenant, asker), characters, &self.0.pace, Instant::now());
        let held = held.inspect_err(|full| refuse(full.refused))?;
        let mut sentences = Sentences::default();
        sentences.push(text);
        let sentences = std::iter::from_fn(|| sentences.rest());
        let pieces = sentences.flat_map(|sentence| self.pieces(&sentence, &manner)).collect();
        let deadline = Deadline::after(Duration::from_millis(self.0.limits.timeout_ms));
        Ok(Utterance { speech: self.clone(), tenant, manner, pieces, speaking: None, deadline, held })
    }

    /// Takes a place for a stream of text.
    ///
    /// # Errors
    /// [`Full`].
    pub async fn open(&self, tenant: u64, asker: Asker) -> Result<Place, Full> {
        let stay = self.0.streams.begin_in_turn(tenant, asker).await;
        let stay = stay.map_err(|Busy { refused, retry_after }| {
            refuse(refused);
            Full { refused, retry_after }
        })?;
        metrics::TTS_STREAMS.with(&[]).increment(1);
        Ok(Place { _stay: stay })
    }

    /// The pieces of a sentence, the first of which is heard soon.
    pub fn pieces(&self, sentence: &str, manner: &Manner) -> Vec<String> {
        self.0.voice.pieces(sentence, manner).into_iter().map(str::to_owned).collect()
    }

    /// Speaks a piece when it is `tenant`'s turn. Dropping it withdraws the piece.
    pub fn say(&self, tenant: u64, piece: String, manner: Manner) -> Piece {
        let (sound, parts) = mpsc::unbounded_channel();
        let speech = self.clone();
        // By itself: a listener that takes nothing in keeps no turn.
        let work = tokio::spawn(async move { speech.speak(tenant, &piece, &manner, &sound).await });
        Piece { parts, _work: AbortOnDropHandle::new(work) }
    }

    /// Speaks a piece into `sound`, whose length is bounded by the piece.
    async fn speak(&self, tenant: u64, piece: &str, manner: &Manner, sound: &Sound) {
        let service = &*self.0;
        let _turn = service.turns.take(tenant).await;
        let begun = Instant::now();
        let mut saying = service.voice.say(piece, manner);
        let (mut is_whole, mut next) = (true, saying.next().await);
        while let Some(part) = next {
            is_whole &= part.is_ok();
            // If the end is known already, the part says so.
            let following = saying.next().now_or_never();
            let is_last = matches!(following, Some(None)) || part.is_err();
            let heard = part.map(|part| Heard { samples: part.samples, is_last });
            service.count(heard.as_ref().map_or(0, |heard| heard.samples.len() as u64));
            if sound.send(heard).is_err() || is_last {
                break;
            }
            next = match following {
                Some(following) => following,
                None => saying.next().await,
            };
            if next.is_none() {
                drop(sound.send(Ok(Heard { samples: Vec::new(), is_last: true })));
            }
        }
        if is_whole {
            let characters = piece.chars().count() as u64;
            service.pace.add(characters, begun.elapsed());
            metrics::TTS_CHARACTERS.with(&[]).increment(characters);
        }
    }
}

impl Service {
    /// Counts samples that were spoken.
    fn count(&self, more: u64) {
        let before = self.samples.fetch_add(more, Ordering::Relaxed);
        let rate = u64::from(VOICE_RATE);
        metrics::TTS_AUDIO.with(&[]).increment((before + more) / rate - before / rate);
    }
}

type Sound = mpsc::UnboundedSender<Result<Heard, Unspoken>>;

/// A part of a piece.
#[derive(Debug, PartialEq)]
pub struct Heard {
    /// At [`VOICE_RATE`].
    pub samples: Vec<f32>,
    /// Nothing comes after it.
    pub is_last: bool,
}

/// A piece that is being spoken.
pub struct Piece {
    parts: mpsc::UnboundedReceiver<Result<Heard, Unspoken>>,
    _work: AbortOnDropHandle<()>,
}

impl Piece {
    /// The next part; not to be asked for after the last. Cancel-safe.
    ///
    /// # Errors
    /// [`Unspoken`]; nothing comes after it.
    pub async fn next(&mut self) -> Result<Heard, Unspoken> {
        self.parts.recv().await.unwrap_or(Err(Unspoken::Failed))
    }
}

fn refuse(refused: Refused) {
    let reason = match refused {
        Refused::Full => "busy",
        Refused::OverShare => "share",
    };
    metrics::TTS_REFUSED.with(&[("reason", reason)]).increment(1);
}

/// A stream's place; dropping it gives it back.
pub struct Place {
    _stay: Stay,
}

impl Drop for Place {
    fn drop(&mut self) {
        metrics::TTS_STREAMS.with(&[]).decrement(1);
    }
}

/// A text that is being spoken. Dropping it stops the work on it.
pub struct Utterance {
    speech: Speech,
    tenant: u64,
    manner: Manner,
    pieces: VecDeque<String>,
    /// With its length in characters.
    speaking: Option<(Piece, u64)>,
    deadline: Deadline,
    held: Held,
}

impl Utterance {
    /// A turn at a processor, as the voice takes it: for the encoding of the speech.
    ///
    /// # Errors
    /// [`SayError::TooLate`].
    pub async fn turn(&self) -> Result<Turn, SayError> {
        let turn = self.speech.0.turns.take(self.tenant);
        self.deadline.wait(turn).await.ok_or(SayError::TooLate)
    }

    /// Whether all of it was spoken.
    pub fn is_over(&self) -> bool {
        self.pieces.is_empty() && self.speaking.is_none()
    }

    /// Whether nothing comes after the piece that is being spoken.
    pub fn is_last_piece(&self) -> bool {
        self.pieces.is_empty()
    }

    /// The next samples, at [`VOICE_RATE`]; `None` after the last.
    ///
    /// # Errors
    /// [`SayError`]; nothing comes after it.
    pub async fn next(&mut self) -> Option<Result<Vec<f32>, SayError>> {
        let (speaking, characters) = match &mut self.speaking {
            Some(speaking) => speaking,
            none => {
                let piece = self.pieces.pop_front()?;
                let characters = piece.chars().count() as u64;
                none.insert((self.speech.say(self.tenant, piece, self.manner.clone()), characters))
            }
        };
        let heard = self.deadline.wait(speaking.next()).await;
        let heard = heard.ok_or(SayError::TooLate).and_then(|heard| Ok(heard?));
        match &heard {
            Ok(heard) if !heard.is_last => {}
            Ok(_) => {
                self.held.spoken(*characters);
                self.speaking = None;
            }
            Err(_) => {
                self.pieces.clear();
                self.speaking = None;
            }
        }
        Some(heard.map(|heard| heard.samples))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::{Config, EmbeddedVoice};
    use super::*;

    #[tokio::test]
    async fn encoding_takes_its_turn_with_all_other_speech() {
        let config = Config { embedded: EmbeddedVoice::None, ..Config::default() };
        let voice = Voice::open(&config, Path::new("no models")).unwrap();
        let limits = Limits { at_once: 1, ..Limits::default() };
        let speech = Speech::new(voice, limits, Tenants::default());
        let begin = |tenant| {
            speech.begin((tenant, Asker::new("Hello.", tenant)), "Hello.", Manner::default()).unwrap()
        };
        let (one, other) = (begin(1), begin(2));
        let turn = one.turn().await.unwrap();
        assert!(other.turn().now_or_never().is_none());
        drop(turn);
        assert!(other.turn().now_or_never().is_some_and(|turn| turn.is_ok()));
    }
}
