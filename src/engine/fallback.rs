//! Whether a hypothesis is good enough, and which of several is the best (openai/whisper
//! `decode_with_fallback`). Pure.

use super::model::Hypothesis;
use super::window::{DecodingOptions, Recognition};
use crate::transcript::{Segment, loop_in};

/// Text of less than so many times the threshold of mean log-probability means nothing. At high temperatures most
/// attempts are like that.
const NOISE_FACTOR: f32 = 2.0;

/// The numbers by which a model's hypothesis is judged.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Quality {
    pub average_log_probability: f32,
    pub no_speech_probability: f32,
    pub compression_ratio: f32,
    /// See [`loop_in`].
    pub loops: bool,
}

impl From<&Hypothesis> for Quality {
    fn from(hypothesis: &Hypothesis) -> Self {
        Self {
            average_log_probability: hypothesis.average_log_probability,
            no_speech_probability: hypothesis.no_speech_probability,
            compression_ratio: hypothesis.compression_ratio,
            loops: loop_in(&hypothesis.segments),
        }
    }
}

impl From<&Segment> for Quality {
    fn from(segment: &Segment) -> Self {
        Self {
            average_log_probability: segment.average_log_probability,
            no_speech_probability: segment.no_speech_probability,
            compression_ratio: segment.compression_ratio,
            loops: segment.loops(),
        }
    }
}

impl Quality {
    /// Whether another attempt may do better.
    pub fn needs_fallback(self, options: &DecodingOptions) -> bool {
        let improbable =
            options.log_probability_threshold.is_some_and(|min| self.average_log_probability < min);
        // Improbable text over likely silence is silence, not a reason to try again.
        (self.repeats(options) || improbable) && !(self.is_unspoken(options) && improbable)
    }

    /// Whether this attempt is better than `other`, where neither is good enough: one that does not repeat
    /// itself comes first, unless its tokens are as good as drawn by lot, then the more probable one.
    pub fn is_better_than(self, other: Self, options: &DecodingOptions) -> bool {
        let rank = |quality: Self| {
            let is_noise = options
                .log_probability_threshold
                .is_some_and(|min| quality.average_log_probability < NOISE_FACTOR * min);
            (!quality.repeats(options) && !is_noise, quality.average_log_probability)
        };
        rank(self) > rank(other)
    }

    /// Whether the window holds no speech, whatever the text.
    pub fn is_silence(self, options: &DecodingOptions) -> bool {
        let probable =
            options.log_probability_threshold.is_some_and(|min| self.average_log_probability > min);
        self.is_unspoken(options) && !probable
    }

    fn repeats(self, options: &DecodingOptions) -> bool {
        options.compression_ratio_threshold.is_some_and(|max| self.compression_ratio > max || self.loops)
    }

    fn is_unspoken(self, options: &DecodingOptions) -> bool {
        options.no_speech_threshold.is_some_and(|max| self.no_speech_probability > max)
    }
}

impl Recognition {
    /// Whether the text is good enough and the model heard speech, however probable the text is: over tones and clicks
    /// it likes to repeat itself with growing conviction.
    pub fn is_certain(&self, options: &DecodingOptions) -> bool {
        !self.needs_fallback(options)
            && !self.segments.iter().any(|segment| Quality::from(segment).is_unspoken(options))
    }

    /// Whether attempts at higher temperatures may do better; for a window that was tried at one alone.
    pub fn needs_fallback(&self, options: &DecodingOptions) -> bool {
        let loops = || options.compression_ratio_threshold.is_some() && loop_in(&self.segments);
        self.segments.iter().any(|segment| Quality::from(segment).needs_fallback(options)) || loops()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repetition_and_improbable_text_fall_back_and_silence_does_not() {
        let options = DecodingOptions::default();
        let good = Quality {
            average_log_probability: -0.3,
            no_speech_probability: 0.1,
            compression_ratio: 1.5,
            loops: false,
        };
        let repeats = Quality { compression_ratio: 2.5, ..good };
        let improbable = Quality { average_log_probability: -1.5, ..good };
        let silence = Quality { no_speech_probability: 0.7, ..improbable };
        let judged = |quality: Quality| (quality.needs_fallback(&options), quality.is_silence(&options));
        assert_eq!(judged(good), (false, false));
        assert_eq!(judged(repeats), (true, false));
        assert_eq!(judged(Quality { loops: true, ..good }), (true, false));
        assert_eq!(judged(improbable), (true, false));
        assert_eq!(judged(silence), (false, true));
        assert!(improbable.is_better_than(repeats, &options));
        assert!(good.is_better_than(improbable, &options));
        assert!(!improbable.is_better_than(improbable, &options));
        let noise = Quality { average_log_probability: -3.5, ..good };
        assert!(repeats.is_better_than(noise, &options), "said twice, or drawn by lot");
    }
}
