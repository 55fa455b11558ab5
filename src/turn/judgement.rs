//! The confidence that a turn is over, from a judgement on its pause and from the silence since. Pure.

/// After so much silence, an end by silence alone is as probable as 1 − 1/e. At 0.6 s it is 0.7: by default a turn ends
/// after the same silence as a voice agent's (`sts.turn.silence_ms`).
const SILENCE_SECONDS: f64 = 0.5;
/// The same after a pause that a model judged. What the model calls unfinished reaches 0.7 after 2 s, as with a voice agent
/// (`sts.turn.wait_ms`).
const JUDGED_SECONDS: f64 = 1.66;

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

    /// The silence, in seconds from the speaker's last word, at which [`Self::confidence`] reaches `threshold`; `None`: never.
    pub fn silence_until(self, threshold: f64) -> Option<f64> {
        if threshold >= 1.0 {
            return None;
        }
        let lasts = |doubt: f64, scale: f64| scale * (doubt / (1.0 - threshold)).ln().max(0.0);
        match self {
            Self::Awaited => None,
            Self::Complete { probability, after } => {
                Some(after + lasts(1.0 - probability.clamp(0.0, 1.0), JUDGED_SECONDS))
            }
            Self::Unknown => Some(lasts(1.0, SILENCE_SECONDS)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threshold_is_reached_when_the_confidence_says_so() {
        let judged = |probability| Judgement::Complete { probability, after: 0.25 };
        for judgement in [Judgement::Unknown, judged(0.0), judged(0.4), judged(0.69)] {
            for threshold in [0.5, 0.7, 0.9, 0.99] {
                let silence = judgement.silence_until(threshold).expect("some time");
                assert!(judgement.confidence(silence + 1e-6) >= threshold, "{judgement:?} {threshold}");
                let is_early = silence <= 0.25 || judgement.confidence(silence - 0.01) < threshold;
                assert!(is_early, "{judgement:?} {threshold}");
            }
        }
        assert_eq!(judged(0.95).silence_until(0.9), Some(0.25), "at once");
        assert_eq!(judged(1.0).silence_until(0.9), Some(0.25));
        assert_eq!((judged(0.9).silence_until(1.0), Judgement::Awaited.silence_until(0.5)), (None, None));
    }
}
