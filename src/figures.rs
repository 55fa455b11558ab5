//! Numbers as JSON shows them: as many digits as they mean, and always finite.
//!
//! A sum of binary fractions prints as `3.3000000000000003`, and an `f32` that becomes an `f64` as
//! `0.8999999761581421`. The types here round once, where a value is made, so that a type with one of them as a
//! field cannot print more.

use schemars::JsonSchema;
use serde::Serialize;

/// Seconds to the millisecond: finer than the 20 ms that the models tell apart.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize, JsonSchema)]
#[serde(transparent)]
pub struct Seconds(f64);

impl Seconds {
    pub fn new(seconds: f64) -> Self {
        Self(rounded(seconds, 1e3))
    }

    /// The length of audio, to the microsecond: samples are counted, not estimated.
    pub fn of_audio(seconds: f64) -> Self {
        Self(rounded(seconds, 1e6))
    }

    /// From `self` to `end`. A span of this length that starts at `self` ends at `end` in the printed figures too.
    pub fn until(self, end: Self) -> Self {
        Self::new(end.0 - self.0)
    }

    pub fn get(self) -> f64 {
        self.0
    }
}

/// 0 to 1, to six digits: an `f32` has about seven.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize, JsonSchema)]
#[serde(transparent)]
pub struct Probability(f64);

impl Probability {
    pub fn new(probability: impl Into<f64>) -> Self {
        Self(rounded(probability.into().clamp(0.0, 1.0), 1e6))
    }
}

/// Any other measure of a model, to six digits.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize, JsonSchema)]
#[serde(transparent)]
pub struct Score(f64);

impl Score {
    pub fn new(score: impl Into<f64>) -> Self {
        Self(rounded(score.into(), 1e6))
    }
}

/// To the nearest 1/`scale`. JSON cannot write what is not finite, and `-0.0` is 0.
fn rounded(value: f64, scale: f64) -> f64 {
    if value.is_finite() { (value * scale).round() / scale + 0.0 } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn printed(value: impl Serialize) -> String {
        serde_json::to_string(&value).expect("a number")
    }

    #[test]
    fn figures_show_what_they_mean() {
        assert_eq!(printed(Seconds::new(1.1 + 2.2)), "3.3");
        assert_eq!(printed(Seconds::new(-0.000_1)), "0.0");
        assert_eq!(printed(Seconds::of_audio(25.933_312_51)), "25.933313");
        assert_eq!(printed(Seconds::new(1.234_567)), "1.235");
        assert_eq!(printed(Probability::new(0.9f32)), "0.9");
        assert_eq!(printed(Probability::new(1.5)), "1.0");
        assert_eq!(printed(Score::new(-0.1f32)), "-0.1");
        for nothing in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert_eq!(printed(Seconds::new(nothing)), "0.0");
        }
        assert_eq!(printed(Probability::new(f32::NAN)), "0.0");
    }

    proptest! {
        /// Spans that follow each other do so in print: thousandths are counted, not added.
        #[test]
        fn spans_join(start in 0.0f64..100_000.0, length in 0.0f64..100.0) {
            let (start, end) = (Seconds::new(start), Seconds::new(start + length));
            let thousandths = |seconds: Seconds| {
                let text = printed(seconds);
                let (whole, fraction) = text.split_once('.').expect("a point");
                assert!(fraction.len() <= 3, "{text}");
                format!("{whole}{fraction:0<3}").parse::<u64>().expect("digits")
            };
            prop_assert_eq!(thousandths(start) + thousandths(start.until(end)), thousandths(end));
        }
    }
}
