//! The thresholds by which a turn ends, and the confidence that is held against them. Pure.

use std::time::Duration;

/// After so much silence, an end by silence alone is as probable as 1 − 1/e. At 0.6 s it is 0.7: by default a turn ends
/// after the same silence as a voice agent's (`sts.turn.silence_ms`).
const SILENCE_SECONDS: f64 = 0.5;
/// The same after a pause that a model judged. What the model calls unfinished reaches 0.7 after 2 s, as with a voice agent
/// (`sts.turn.wait_ms`).
const JUDGED_SECONDS: f64 = 1.66;

/// When a turn ends.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Thresholds {
    /// The confidence that ends a turn; from 1 on none does.
    pub end: f64,
    /// The confidence that announces an end; `None`: none is announced.
    pub eager_end: Option<f64>,
    /// The silence that ends a turn, whatever the confidence.
    pub timeout: Duration,
}

impl Thresholds {
    pub fn ends(&self, confidence: f64) -> bool {
        self.end < 1.0 && confidence >= self.end
    }

    pub fn announces_end(&self, confidence: f64) -> bool {
        self.eager_end.is_some_and(|eager| confidence >= eager)
    }
}

/// The judgement on a pause.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Judgement {
    /// A model judges it, and has not answered yet.
    Awaited,
    /// The model's probability, 0 to 1, that the speaker has finished, and the silence that it heard, in seconds.
    Complete { probability: f64, after: f64 },
    /// There is no model, or it cannot tell: silence decides.
    Unknown,
}

impl Judgement {
    /// How probable it is that no more speech comes after so many seconds of `silence`: 0 to 1, and never falling while the
    /// silence goes on. The judgement and the silence since are taken for independent signs.
    pub fn confidence(self, silence: f64) -> f64 {
        let goes_on = |silence: f64, scale: f64| (-silence.max(0.0) / scale).exp();
        match self {
            Self::Awaited => 0.0,
            Self::Complete { probability, after } => {
                1.0 - (1.0 - probability.clamp(0.0, 1.0)) * goes_on(silence - after, JUDGED_SECONDS)
            }
            Self::Unknown => 1.0 - goes_on(silence, SILENCE_SECONDS),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The silence at which a turn ends by default.
    fn ends_after(judgement: Judgement) -> f64 {
        let thresholds = Thresholds { end: 0.7, eager_end: None, timeout: Duration::from_secs(5) };
        let silences = (0..5000).map(|ms| f64::from(ms) / 1000.0);
        let mut ends = silences.filter(|&silence| thresholds.ends(judgement.confidence(silence)));
        ends.next().expect("it ends")
    }

    #[test]
    fn silence_ends_a_turn_as_late_as_a_voice_agents() {
        assert!((ends_after(Judgement::Unknown) - 0.6).abs() < 0.01);
        let unfinished = Judgement::Complete { probability: 0.0, after: 0.3 };
        assert!((ends_after(unfinished) - 2.3).abs() < 0.01);
        let nearly = Judgement::Complete { probability: 0.65, after: 0.3 };
        assert!((0.5..0.6).contains(&ends_after(nearly)));
        assert!(ends_after(Judgement::Complete { probability: 0.9, after: 0.3 }) <= 0.3);
    }

    #[test]
    fn a_threshold_of_one_is_never_reached() {
        let thresholds = Thresholds { end: 1.0, eager_end: None, timeout: Duration::from_secs(5) };
        assert!(!thresholds.ends(1.0) && !thresholds.announces_end(1.0));
    }
}
