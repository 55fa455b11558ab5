//! Windows of speech with their decoding options, and the engine's results.

use std::sync::Arc;
use std::time::Duration;

use crate::audio::{Pcm, SAMPLE_RATE};
use crate::patience::Deadline;
use crate::transcript::{DetectedLanguage, Segment};

/// The longest window: Whisper's encoder sees 30 s at a time.
pub const WINDOW_SAMPLES: usize = 30 * SAMPLE_RATE as usize;

/// A stretch of audio of at most [`WINDOW_SAMPLES`], to be recognised at once.
#[derive(Debug, Clone)]
pub struct Window {
    pub pcm: Pcm,
    pub options: DecodingOptions,
    pub class: Class,
    /// The tenant that capacity is charged to: tenants share it fairly.
    pub tenant: TenantId,
    /// A window that has not begun by then fails with [`super::Error::DeadlineExceeded`].
    pub deadline: Option<Deadline>,
}

/// The urgency of a window; lower classes go first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// A person waits for the next word.
    Live,
    /// A client waits for the answer.
    Interactive,
    /// No client is connected: the result is delivered later.
    Job,
}

/// One key, or one organisation. 0 is the local user.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TenantId(pub u64);

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LanguageChoice {
    /// A Whisper language code (`en`).
    Named(String),
    /// The likeliest of the codes `among`; of all the model's languages where there are none. The `expected` one stays
    /// unless another is surely spoken.
    Detect { among: Vec<String>, expected: Option<String> },
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Task {
    #[default]
    Transcribe,
    /// To English.
    Translate,
}

/// Terms of one request beyond this many are ignored.
pub const TERMS_MAX: usize = 600;

/// A word or phrase to expect, and how strongly.
#[derive(Debug, Clone, PartialEq)]
pub struct Term {
    pub text: String,
    /// 1 for an expected term, more for a likelier one; negative for an unwanted one.
    pub weight: f32,
}

/// How to decode. The defaults and thresholds are those of the reference (openai/whisper
/// `transcribe.py`), but for `temperatures`, see there.
#[derive(Debug, Clone, PartialEq)]
pub struct DecodingOptions {
    pub language: LanguageChoice,
    pub task: Task,
    /// Text that precedes the window, to condition on: names, terms, the words before.
    pub prompt: Option<String>,
    /// Terms to make likelier or less likely, at most [`TERMS_MAX`]. The windows of one request share them.
    pub bias: Arc<[Term]>,
    /// Align words in time. Costs a pass over the decoded tokens.
    pub word_times: bool,
    /// Tried in turn while a hypothesis repeats itself or is improbable. `[0.0]` is plain greedy.
    pub temperatures: Vec<f32>,
    /// Above this a hypothesis repeats itself. `None`: not checked.
    pub compression_ratio_threshold: Option<f32>,
    /// Below this mean log-probability a hypothesis is improbable. `None`: not checked.
    pub log_probability_threshold: Option<f32>,
    /// Above this no-speech probability an improbable window is silence. `None`: not checked.
    pub no_speech_threshold: Option<f32>,
}

impl DecodingOptions {
    /// The first attempt at `temperature`, then those of the usual temperatures that are above it.
    #[must_use]
    pub fn from_temperature(mut self, temperature: f32) -> Self {
        if temperature > 0.0 {
            let later = self.temperatures.iter().copied().filter(|&later| later > temperature);
            self.temperatures = std::iter::once(temperature).chain(later).collect();
        }
        self
    }
}

impl Default for DecodingOptions {
    fn default() -> Self {
        Self {
            language: LanguageChoice::Detect { among: Vec::new(), expected: None },
            task: Task::Transcribe,
            prompt: None,
            bias: Arc::default(),
            word_times: false,
            temperatures: vec![0.0, 0.2, 0.4, 0.6, 0.8, 1.0],
            compression_ratio_threshold: Some(2.4),
            log_probability_threshold: Some(-1.0),
            no_speech_threshold: Some(0.6),
        }
    }
}

/// The least progress of a recognition: a model that accounts for less is stuck, and goes on from here.
const MIN_ADVANCE_SAMPLES: usize = SAMPLE_RATE as usize / 10;
/// The rest of a window is recognised again if so many frames of 32 ms in it are surely speech: 0.3 s.
const MIN_REST_FRAMES: usize = 10;

/// The text of one window. Times count from the window's start.
#[derive(Debug, Clone)]
pub struct Recognition {
    pub segments: Vec<Segment>,
    pub language: DetectedLanguage,
    /// Samples of the window that `segments` account for; the caller hands in the rest again as
    /// a new window ([`Self::rest`]), so that nothing is lost when decoding stops early. Never 0.
    pub consumed_samples: usize,
    pub timings: Timings,
}

impl Recognition {
    /// Samples of the window after which the next one begins.
    pub fn advance(&self) -> usize {
        self.consumed_samples.max(MIN_ADVANCE_SAMPLES)
    }

    /// The sample of the window from which on it is to be recognised again; `None` if all of its speech is
    /// accounted for. `sure_frames_after` counts the frames of 32 ms that are surely speech from a sample on.
    pub fn rest(
        &self,
        window_samples: usize,
        sure_frames_after: impl FnOnce(usize) -> usize,
    ) -> Option<usize> {
        let rest = self.advance();
        (rest < window_samples && sure_frames_after(rest) >= MIN_REST_FRAMES).then_some(rest)
    }
}

/// How long a window spent in each stage.
#[derive(Debug, Clone, Copy, Default)]
pub struct Timings {
    pub queued: Duration,
    pub encoded: Duration,
    pub decoded: Duration,
    /// The device's time: the window's part of each call that it was in.
    pub busy: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_of_a_window_is_tried_again_only_where_there_is_speech() {
        let consumed = |consumed_samples| Recognition {
            segments: Vec::new(),
            language: DetectedLanguage { code: "en".into(), probability: 1.0 },
            consumed_samples,
            timings: Timings::default(),
        };
        let half = consumed(WINDOW_SAMPLES / 2);
        assert_eq!(half.rest(WINDOW_SAMPLES, |_| MIN_REST_FRAMES), Some(WINDOW_SAMPLES / 2));
        assert_eq!(half.rest(WINDOW_SAMPLES, |_| MIN_REST_FRAMES - 1), None);
        assert_eq!(consumed(WINDOW_SAMPLES).rest(WINDOW_SAMPLES, |_| 100), None);
        // A model that is stuck moves on all the same.
        assert_eq!(consumed(1).rest(WINDOW_SAMPLES, |rest| rest), Some(MIN_ADVANCE_SAMPLES));
    }
}
