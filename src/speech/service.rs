//! Speech for clients: which of them may have some now, and sentence by sentence in fair turns.
//!
//! Synthesis takes a processor a good part of the time that the speech lasts, so texts wait for each other. Turns go
//! round the organisations piece by piece, and a piece is a second or a few of speech: a long text delays a short one
//! of another organisation by one piece.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::limits::Limits;
use super::names;
use super::pace::Pace;
use super::sentences::Sentences;
use super::voice::{Manner, Unspoken, Voice};
use super::wav::VOICE_RATE;
use crate::patience::Deadline;
use crate::share::{Part, Refused, Share, Tenants, Turn, Turns};
use crate::telemetry::metrics;

/// The time to wait before another try for a stream.
const STREAM_RETRY: Duration = Duration::from_secs(5);

/// Speaks for clients. Cheap handle.
#[derive(Clone)]
pub struct Speech(Arc<Service>);

struct Service {
    voice: Voice,
    limits: Limits,
    turns: Turns,
    /// In characters.
    held: Share,
    streams: Share,
    pace: Pace,
    samples: AtomicU64,
}

/// There is no room for another text or stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("there is no room for more speech: {refused}")]
pub struct Full {
    pub retry_after: Duration,
    pub refused: Refused,
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
            held: Share::new(limits.held_characters_max, tenants.clone()),
            streams: Share::new(limits.streams_max, tenants),
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

    /// The voice's kind: `kokoro`, `endpoint`, the name of a program, `none`.
    pub fn kind(&self) -> &'static str {
        self.0.voice.name()
    }

    /// The voice for a name that a client asks for; see [`names`].
    pub fn find(&self, name: &str) -> Option<&str> {
        names::find(name, &self.voices())
    }

    /// Takes a text to speak.
    ///
    /// # Errors
    /// [`Full`].
    pub fn begin(&self, tenant: u64, text: &str, manner: Manner) -> Result<Utterance, Full> {
        let characters = text.chars().count() as u64;
        let held = self.0.held.take(tenant, characters).map_err(|refused| {
            refuse(refused);
            // By the time it is spoken, what is held now has gone.
            Full { refused, retry_after: self.0.pace.time_for(self.0.held.total()) }
        })?;
        let mut sentences = Sentences::default();
        sentences.push(text);
        let sentences = std::iter::from_fn(|| sentences.rest());
        let pieces = sentences.flat_map(|sentence| self.pieces(&sentence)).collect();
        let deadline = Deadline::after(Duration::from_millis(self.0.limits.timeout_ms));
        Ok(Utterance { speech: self.clone(), tenant, manner, pieces, deadline, _held: held })
    }

    /// Takes a place for a stream of text.
    ///
    /// # Errors
    /// [`Full`].
    pub fn open(&self, tenant: u64) -> Result<Place, Full> {
        let part = self.0.streams.take(tenant, 1).map_err(|refused| {
            refuse(refused);
            Full { refused, retry_after: STREAM_RETRY }
        })?;
        metrics::TTS_STREAMS.with(&[]).increment(1);
        Ok(Place { _part: part })
    }

    /// The pieces of a sentence, the first of which is heard soon.
    pub fn pieces(&self, sentence: &str) -> Vec<String> {
        self.0.voice.pieces(sentence).into_iter().map(str::to_owned).collect()
    }

    /// Speaks a piece when it is `tenant`'s turn: samples at [`VOICE_RATE`]. Dropping the future withdraws the piece,
    /// unless it is being spoken.
    ///
    /// # Errors
    /// [`Unspoken`].
    pub async fn say(&self, tenant: u64, piece: &str, manner: &Manner) -> Result<Vec<f32>, Unspoken> {
        let service = &*self.0;
        let _turn = service.turns.take(tenant).await;
        let begun = Instant::now();
        let samples = service.voice.say(piece, manner).await?;
        let characters = piece.chars().count() as u64;
        service.pace.add(characters, begun.elapsed());
        metrics::TTS_CHARACTERS.with(&[]).increment(characters);
        let more = samples.len() as u64;
        let before = service.samples.fetch_add(more, Ordering::Relaxed);
        let rate = u64::from(VOICE_RATE);
        metrics::TTS_AUDIO.with(&[]).increment((before + more) / rate - before / rate);
        Ok(samples)
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
    _part: Part,
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
    deadline: Deadline,
    _held: Part,
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
        self.pieces.is_empty()
    }

    /// The next samples, at [`VOICE_RATE`]; `None` after the last.
    ///
    /// # Errors
    /// [`SayError`]; nothing comes after it.
    pub async fn next(&mut self) -> Option<Result<Vec<f32>, SayError>> {
        let piece = self.pieces.pop_front()?;
        let said = self.deadline.wait(self.speech.say(self.tenant, &piece, &self.manner)).await;
        let said = said.ok_or(SayError::TooLate).and_then(|said| Ok(said?));
        if said.is_err() {
            self.pieces.clear();
        }
        Some(said)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use futures_util::FutureExt as _;

    use super::super::{Config, EmbeddedVoice};
    use super::*;

    #[tokio::test]
    async fn encoding_takes_its_turn_with_all_other_speech() {
        let config = Config { embedded: EmbeddedVoice::None, ..Config::default() };
        let voice = Voice::open(&config, Path::new("no models")).unwrap();
        let limits = Limits { at_once: 1, ..Limits::default() };
        let speech = Speech::new(voice, limits, Tenants::default());
        let begin = |tenant| speech.begin(tenant, "Hello.", Manner::default()).unwrap();
        let (one, other) = (begin(1), begin(2));
        let turn = one.turn().await.unwrap();
        assert!(other.turn().now_or_never().is_none());
        drop(turn);
        assert!(other.turn().now_or_never().is_some_and(|turn| turn.is_ok()));
    }
}
