//! The silence that ends a turn, from everything known about its pause: the model's judgement, which is asked anew as the
//! silence grows, and the words so far. Pure.

use super::ending::Ending;
use super::judgement::Judgement;
use super::{THRESHOLD, Turn};

/// A probability from which the model is sure.
const SURE: f32 = 0.9;
/// Silence that ends a turn that the model calls complete but whose words have to go on. Seconds.
const OPEN_SECONDS: f64 = 1.5;
/// The same, where the words may be the end but are not closed, as the model is sure, or not.
const LOOSE_SECONDS: [f64; 2] = [1.1, 1.4];
/// The same, where the words are closed, or unknown, and the model is not sure.
const UNSURE_SECONDS: f64 = 0.5;
/// Silence for which words that are being recognised are waited for: an answer needs them anyway. Seconds.
const WORDS_SECONDS: f64 = 1.0;

/// The silences, in seconds, at which a pause is judged; the first is `sts.turn.pause_ms` instead.
pub const LOOKS: [f64; 6] = [0.25, 0.45, 0.65, 0.9, 1.2, 1.6];

/// How long a speaker is waited for. Seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rules {
    /// The first look at a pause.
    pub pause: f64,
    /// The end of a turn that no model judges.
    pub silence: f64,
    /// The end of every turn.
    pub wait: f64,
    /// How sure the end must be, 0.5 to 1; none: as the model has it.
    pub threshold: Option<f64>,
    /// The words of a pause will be known.
    pub awaits_words: bool,
}

impl Rules {
    pub fn of(turn: &Turn) -> Self {
        let seconds = |ms: u64| ms as f64 / 1000.0;
        Self {
            pause: seconds(turn.pause_ms),
            silence: seconds(turn.silence_ms),
            wait: seconds(turn.wait_ms),
            threshold: None,
            awaits_words: turn.eager,
        }
    }
}

/// The words of a pause.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Words {
    /// They are being recognised, or nothing recognises them.
    #[default]
    Unknown,
    Known(Ending),
}

/// Everything known about a pause.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Evidence {
    pub judgement: Judgement,
    pub words: Words,
}

impl Default for Evidence {
    fn default() -> Self {
        Self { judgement: Judgement::Awaited, words: Words::Unknown }
    }
}

impl Evidence {
    /// The silence, in seconds, after which the turn is over; it is not when more evidence is to be had before.
    pub fn silence(&self, rules: &Rules) -> f64 {
        let silence = match (self.words, self.judgement) {
            (Words::Known(Ending::Complete), _) => rules.pause,
            (_, Judgement::Awaited) => rules.wait,
            (_, judgement) if rules.threshold.is_some() => {
                rules.threshold.and_then(|threshold| judgement.silence_until(threshold)).unwrap_or(rules.wait)
            }
            (_, Judgement::Unknown) => rules.silence,
            (words, Judgement::Complete { probability, .. }) => {
                let is_complete = probability >= f64::from(THRESHOLD);
                let is_sure = probability >= f64::from(SURE);
                match words {
                    _ if !is_complete => rules.wait,
                    Words::Known(Ending::Open) => OPEN_SECONDS,
                    Words::Known(Ending::Loose) => LOOSE_SECONDS[usize::from(!is_sure)],
                    Words::Unknown if rules.awaits_words => WORDS_SECONDS,
                    _ if is_sure => rules.pause,
                    _ => UNSURE_SECONDS,
                }
            }
        };
        silence.min(rules.wait)
    }

    /// Whether the turn has probably ended: an answer may be prepared.
    pub fn is_probable(&self) -> bool {
        match (self.words, self.judgement) {
            (Words::Known(Ending::Complete), _) => true,
            (Words::Known(Ending::Open), _) => false,
            (_, Judgement::Complete { probability, .. }) => probability >= f64::from(THRESHOLD),
            (_, Judgement::Unknown) => true,
            (_, Judgement::Awaited) => false,
        }
    }
}
