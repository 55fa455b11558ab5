//! The silence that ends a turn, from everything known about its pause: the model's judgement, which is asked anew as the
//! silence grows, and the words so far. Pure.

use super::ending::Ending;
use super::judgement::Judgement;
use super::{THRESHOLD, Turn};

/// How much each sign says that the speaker has finished, in log-odds: the model's own count so much, words that are closed,
/// loose and open so much. Signs are taken for independent of each other, so they add up. From `benches/pauses.py`.
const MODEL: f64 = 0.6;
const CLOSED: f64 = 0.0;
const LOOSE: f64 = -2.0;
const OPEN: f64 = -3.0;
/// Log-odds from which the first look is enough.
const ENOUGH: f64 = 1.5;
/// Wanting log-odds for which a speaker is waited for as long as for any: `sts.turn.wait_ms`.
const RANGE: f64 = 6.0;
/// The model's answers are never surer than this: their tails are not calibrated.
const SUREST: f64 = 0.995;
/// An answer is prepared so long before the turn is over, in seconds: by then it can be heard.
const PREPARED_SECONDS: f64 = 0.6;
/// Silence for which words that are being recognised are waited for: an answer needs them anyway. Seconds.
const WORDS_SECONDS: f64 = 1.0;

/// The silences, in seconds, at which a pause is judged; the first is `sts.turn.pause_ms` instead.
pub const LOOKS: [f64; 6] = [0.25, 0.4, 0.65, 0.9, 1.2, 1.6];

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
            (Words::Unknown, Judgement::Complete { probability, .. }) if rules.awaits_words => {
                if probability >= f64::from(THRESHOLD) { WORDS_SECONDS } else { rules.wait }
            }
            (words, Judgement::Complete { probability, .. }) => {
                let wanting = ENOUGH - MODEL * log_odds(probability) - words.log_odds();
                rules.pause + (rules.wait - rules.pause) * (wanting / RANGE).clamp(0.0, 1.0)
            }
        };
        silence.min(rules.wait)
    }

    /// Whether the turn has probably ended after so many seconds of `silence`: an answer may be prepared.
    pub fn is_probable(&self, silence: f64, rules: &Rules) -> bool {
        match (self.words, self.judgement) {
            (Words::Known(Ending::Complete), _) | (_, Judgement::Unknown) => true,
            (Words::Unknown, _) | (_, Judgement::Awaited) => false,
            _ => self.silence(rules) - silence <= PREPARED_SECONDS,
        }
    }
}

impl Words {
    /// How much they say that the speaker has finished.
    fn log_odds(self) -> f64 {
        match self {
            Self::Unknown | Self::Known(Ending::Closed | Ending::Complete) => CLOSED,
            Self::Known(Ending::Loose) => LOOSE,
            Self::Known(Ending::Open) => OPEN,
        }
    }
}

fn log_odds(probability: f64) -> f64 {
    let probability = probability.clamp(1.0 - SUREST, SUREST);
    (probability / (1.0 - probability)).ln()
}
