//! Conversational streams: the turns of a speaker.
//!
//! ```text
//! Session ┬ Voice: frames, pauses ─┬──────────────▶ Taker ─▶ TurnEvent
//!         │                        └─▶ TurnModel ──▶
//!         └ Results ──────────────────────────────▶
//! ```
//! A pause closes a span, as in every stream. While its final result is made, the model judges whether the speaker has
//! finished; [`Taker`] then decides by the judgement and the silence since. What comes after waits for the judgement, so
//! that decisions depend on the audio alone and not on the time at which an answer arrives.

mod event;
mod taker;
mod thresholds;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;

pub use event::{Kind, Trigger, TurnEvent};
pub use thresholds::Thresholds;

use taker::Taker;

use super::event::{Error, Event};
use super::session::{Progress, Session};
use super::voice::{Heard, Voice};
use crate::audio::{Pcm, SAMPLE_RATE};
use crate::engine::{LanguageChoice, Term};
use crate::turn::TurnModel;

/// A judgement that takes longer is done without.
const JUDGEMENT_TIMEOUT: Duration = Duration::from_secs(3);
/// Audio before the first frame of speech that the model hears too: words begin softly.
const LEAD_SECONDS: f64 = 0.3;

/// The outcome of one step of a conversational stream.
#[derive(Debug, PartialEq)]
pub enum TurnProgress {
    Event(TurnEvent),
    /// No event; [`TurnSession::wants_audio`] may have changed.
    Moved,
    /// There are no more events.
    Ended,
}

/// An open conversational stream. Dropping it ends it, and frees its share of the engine.
pub struct TurnSession {
    session: Session,
    taker: Taker,
    /// `None`: silence alone ends turns.
    model: Option<TurnModel>,
    /// The model's answer about the last pause.
    judging: Option<BoxFuture<'static, Option<f32>>>,
    /// The final result of the span before that pause has come.
    is_settled: bool,
    /// The session's end, returned after all events.
    end: Option<Result<(), Error>>,
}

impl TurnSession {
    pub(super) fn new(session: Session, thresholds: Thresholds, model: Option<TurnModel>) -> Self {
        let taker = Taker::new(thresholds, model.is_some());
        Self { session, taker, model, judging: None, is_settled: true, end: None }
    }

    /// As [`Session::wants_audio`].
    pub fn wants_audio(&self) -> bool {
        self.session.wants_audio()
    }

    /// As [`Session::push`].
    ///
    /// # Errors
    /// The first bytes are not audio.
    pub fn push(&mut self, bytes: Bytes) -> Result<(), Error> {
        self.session.push(bytes)
    }

    /// Names and terms to expect from here on.
    pub fn set_bias(&mut self, bias: &Arc<[Term]>) {
        self.session.set_bias(bias);
    }

    /// The language to expect from here on.
    pub fn set_language(&mut self, language: &LanguageChoice) {
        self.session.set_language(language);
    }

    pub fn set_thresholds(&mut self, thresholds: Thresholds) {
        self.taker.set_thresholds(thresholds);
    }

    /// Ends the turn that is going on once the audio pushed so far is recognised. Without one, nothing happens.
    pub fn force_end(&mut self) {
        self.taker.ask(Trigger::Client);
        self.session.finalize(None);
    }

    /// Ends the audio; [`Self::next`] returns [`TurnProgress::Ended`] after the last event, which ends the last turn.
    ///
    /// # Errors
    /// As [`Self::push`].
    pub fn finish(&mut self) -> Result<(), Error> {
        self.session.finish()
    }

    /// Seconds of audio so far.
    pub fn duration(&self) -> f64 {
        self.session.duration()
    }

    /// As [`Session::close`].
    pub fn close(&mut self) {
        self.judging = None;
        self.session.close();
    }

    /// Works until there is something to report; pending while that takes more audio. Cancel-safe.
    ///
    /// # Errors
    /// [`Error`]; the stream is over then.
    pub async fn next(&mut self) -> Result<TurnProgress, Error> {
        if let Some(event) = self.taker.pop() {
            return Ok(TurnProgress::Event(event));
        }
        if let Some(end) = self.end.take() {
            return end.map(|()| TurnProgress::Ended);
        }
        let waits_for_judgement = self.judging.is_some() && self.is_settled;
        tokio::select! {
            progress = self.session.next(), if !waits_for_judgement => self.take(progress),
            probability = answer(&mut self.judging) => {
                self.judging = None;
                self.taker.judged(probability);
            }
        }
        Ok(TurnProgress::Moved)
    }

    fn take(&mut self, progress: Result<Progress, Error>) {
        match progress {
            Ok(Progress::Event(Event::Voice(voice))) => self.hear(voice),
            Ok(Progress::Event(Event::Results(results))) => {
                self.is_settled |= results.is_final;
                self.taker.results(results);
            }
            Ok(Progress::Event(_) | Progress::Moved) => {}
            Ok(Progress::Ended) => {
                self.taker.end();
                self.end = Some(Ok(()));
            }
            Err(error) => {
                self.taker.end();
                self.end = Some(Err(error));
            }
        }
    }

    fn hear(&mut self, voice: Voice) {
        match voice.heard {
            Heard::Pause(recent) => {
                if let Some(model) = self.model.clone()
                    && self.taker.awaits_judgement()
                {
                    let speech = self.speech_in(&recent, voice.at);
                    self.is_settled = false;
                    self.judging = Some(Box::pin(judge(model, speech)));
                }
            }
            heard => {
                if self.taker.frame(voice.at, heard == Heard::Speech) {
                    self.taker.ask(Trigger::Timeout);
                    self.session.finalize(None);
                }
            }
        }
    }

    /// The part of `recent`, which ends at `end`, from the beginning of the turn's speech on.
    fn speech_in(&self, recent: &Pcm, end: f64) -> Pcm {
        let seconds = end - self.taker.speech_start() + LEAD_SECONDS;
        let samples = (seconds.max(0.0) * f64::from(SAMPLE_RATE)) as usize;
        recent.slice(recent.len().saturating_sub(samples)..recent.len())
    }
}

async fn judge(model: TurnModel, speech: Pcm) -> Option<f32> {
    tokio::time::timeout(JUDGEMENT_TIMEOUT, model.probability(speech)).await.ok().flatten()
}

/// The answer of the model; pending if it is not asked. Cancel-safe.
async fn answer(judging: &mut Option<BoxFuture<'static, Option<f32>>>) -> Option<f32> {
    match judging {
        Some(judging) => judging.await,
        None => std::future::pending().await,
    }
}
