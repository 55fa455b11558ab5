//! Turns by `semantic_vad`: a pause ends the turn at once if it sounds finished; the less finished, the longer the wait.
//!
//! The model of turns is asked at each pause, while its words are recognised. What comes after waits for its answer, so
//! that the end depends on the audio alone and not on the time at which the answer arrives.

use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::audio::{Pcm, SAMPLE_RATE};
use crate::live::{Heard, Voice};
use crate::turn::TurnModel;

/// An answer that takes longer is done without.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(1000);
/// Audio before the first frame of speech that the model hears too: words begin softly.
const LEAD_SECONDS: f64 = 0.3;
/// The probability that a turn is finished, if there is no answer.
const UNKNOWN: f32 = 0.375;

/// Judges where turns end.
pub struct Judge {
    model: Option<TurnModel>,
    /// The silence after which a turn ends in any case, in seconds.
    longest_silence: f64,
    /// The end of the audio so far, in seconds.
    now: f64,
    /// Where the turn's speech began.
    speech_start: Option<f64>,
    pause: Option<Pause>,
    asked: Option<BoxFuture<'static, Option<f32>>>,
}

struct Pause {
    at: f64,
    /// All words before it have come.
    is_settled: bool,
    /// The silence after it that ends the turn, in seconds; `None` until that is known.
    limit: Option<f64>,
}

impl Judge {
    pub fn new(model: Option<TurnModel>, longest_silence: f64) -> Self {
        Self { model, longest_silence, now: 0.0, speech_start: None, pause: None, asked: None }
    }

    /// Takes what the stream hears.
    pub fn hear(&mut self, voice: Voice) {
        self.now = voice.at;
        match voice.heard {
            Heard::Speech => {
                self.speech_start.get_or_insert(voice.at);
                (self.pause, self.asked) = (None, None);
            }
            Heard::Silence => {}
            Heard::Pause(recent) => {
                let limit = self.model.is_none().then(|| self.limit(UNKNOWN));
                self.pause = Some(Pause { at: voice.at, is_settled: false, limit });
                if let Some(model) = self.model.clone() {
                    let speech = self.speech_in(&recent);
                    self.asked = Some(Box::pin(ask(model, speech)));
                }
            }
        }
    }

    /// A final result has come.
    pub fn settled(&mut self) {
        if let Some(pause) = &mut self.pause {
            pause.is_settled = true;
        }
    }

    /// Whether the stream must wait for the model.
    pub fn holds(&self) -> bool {
        self.asked.is_some() && self.pause.as_ref().is_some_and(|pause| pause.is_settled)
    }

    /// Waits for the model's answer; pending if it is not asked. Cancel-safe.
    pub async fn answered(&mut self) {
        let Some(asked) = &mut self.asked else { return std::future::pending().await };
        let probability = asked.await.unwrap_or(UNKNOWN);
        self.asked = None;
        let limit = self.limit(probability);
        if let Some(pause) = &mut self.pause {
            pause.limit = Some(limit);
        }
    }

    /// Where the turn ends, in seconds, if it does now: once for each turn.
    pub fn end(&mut self) -> Option<f64> {
        let Pause { at, is_settled, limit } = self.pause.as_ref()?;
        let is_over = *is_settled && limit.is_some_and(|limit| self.now - at >= limit);
        is_over.then(|| {
            (self.pause, self.speech_start) = (None, None);
            self.now
        })
    }

    /// The silence that ends a turn which has finished with this probability: none from a half on.
    fn limit(&self, probability: f32) -> f64 {
        self.longest_silence * (1.0 - 2.0 * f64::from(probability)).max(0.0)
    }

    /// The part of `recent`, which ends now, from the beginning of the turn's speech on.
    fn speech_in(&self, recent: &Pcm) -> Pcm {
        let seconds = self.now - self.speech_start.unwrap_or(self.now) + LEAD_SECONDS;
        let samples = (seconds.max(0.0) * f64::from(SAMPLE_RATE)) as usize;
        recent.slice(recent.len().saturating_sub(samples)..recent.len())
    }
}

async fn ask(model: TurnModel, speech: Pcm) -> Option<f32> {
    tokio::time::timeout(ANSWER_TIMEOUT, model.probability(speech)).await.ok().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(judge: &mut Judge, at: f64, heard: Heard) -> Option<f64> {
        judge.hear(Voice { channel: 0, at, heard });
        judge.end()
    }

    #[test]
    fn without_the_model_a_quarter_of_the_longest_silence_ends_a_turn() {
        let mut judge = Judge::new(None, 4.0);
        assert_eq!(heard(&mut judge, 0.5, Heard::Speech), None);
        assert_eq!(heard(&mut judge, 1.0, Heard::Pause(Pcm::new(vec![0.0; 16]))), None);
        assert_eq!(heard(&mut judge, 9.0, Heard::Silence), None, "its words have not come");
        judge.settled();
        assert_eq!(judge.end(), Some(9.0));
        assert_eq!(heard(&mut judge, 9.5, Heard::Silence), None, "it has ended");

        assert_eq!(heard(&mut judge, 10.0, Heard::Pause(Pcm::new(vec![0.0; 16]))), None);
        judge.settled();
        assert_eq!(heard(&mut judge, 10.9, Heard::Silence), None);
        assert_eq!(heard(&mut judge, 10.95, Heard::Speech), None, "it goes on");
        assert_eq!(heard(&mut judge, 12.5, Heard::Silence), None);
    }

    #[test]
    fn what_sounds_finished_ends_at_once() {
        let judge = Judge::new(None, 8.0);
        assert_eq!(judge.limit(0.9), 0.0);
        assert_eq!(judge.limit(0.5), 0.0);
        assert_eq!(judge.limit(0.25), 4.0);
        assert_eq!(judge.limit(0.0), 8.0);
    }
}
