//! How likely a word is to be right, from the probabilities of its tokens.
//!
//! The mean probability of a word's tokens orders words well and is too low: of words from 0.5 to 0.7, 76 % are right.
//! Platt scaling (Platt, 1999) of the mean's logit mends that without changing the order. `benches/accuracy.py
//! --calibration` measures how far off the result is, and fits the constants again.

/// Fitted to `base` in int8; see «Confidence» in benches/RESULTS.md. For other models, which were not measured, they keep
/// the order of words.
const SLOPE: f32 = 1.256;
const OFFSET: f32 = 0.636;
/// A mean that is closer to 0 or 1 says no more.
const EXTREME: f32 = 1e-4;

/// The probability that a word is right whose tokens have this mean probability. Rises with it; both 0 to 1.
pub fn confidence(mean_probability: f32) -> f32 {
    let probability = mean_probability.clamp(EXTREME, 1.0 - EXTREME);
    let logit = (probability / (1.0 - probability)).ln();
    1.0 / (1.0 + (-(SLOPE * logit + OFFSET)).exp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn confidence_rises_with_the_mean_and_stays_between_0_and_1() {
        let at = |hundredth: u16| confidence(f32::from(hundredth) / 100.0);
        assert!((0..100).all(|hundredth| at(hundredth) < at(hundredth + 1)));
        assert!((0.0..0.01).contains(&at(0)));
        assert!((0.99..=1.0).contains(&at(100)));
    }
}
