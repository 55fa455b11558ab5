//! Phrases: words without a pause between them, and how sure the model is of them.

use std::ops::Range;

use super::Word;

/// A pause of so many seconds ends a phrase.
const PAUSE: f64 = 0.3;

/// The phrases of `words`, in order of time: ranges of indices, none empty.
pub fn phrases(words: &[Word]) -> Vec<Range<usize>> {
    let mut phrases = Vec::new();
    let mut start = 0;
    for phrase in words.chunk_by(|word, next| next.start - word.end < PAUSE) {
        phrases.push(start..start + phrase.len());
        start += phrase.len();
    }
    phrases
}

/// The mean log-probability of `words`; that of no words is the least.
pub fn mean_log_probability<'a>(words: impl IntoIterator<Item = &'a Word>) -> f32 {
    let (mut sum, mut count) = (0.0, 0);
    for word in words {
        sum += word.probability.ln();
        count += 1;
    }
    if count == 0 { f32::NEG_INFINITY } else { sum / count as f32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(start: f64, end: f64, probability: f32) -> Word {
        Word { text: " a".into(), start, end, probability, speaker: None }
    }

    #[test]
    fn a_pause_ends_a_phrase() {
        let words = [word(0.0, 0.5, 1.0), word(0.7, 1.0, 1.0), word(1.4, 2.0, 1.0)];
        assert_eq!(phrases(&words), [0..2, 2..3]);
        assert!(phrases(&[]).is_empty());
    }

    #[test]
    fn the_mean_is_that_of_logarithms() {
        let mean = mean_log_probability(&[word(0.0, 0.5, 1.0), word(0.5, 1.0, 0.25)]);
        assert!((mean - 0.5_f32.ln()).abs() < 1e-6, "{mean}");
        assert_eq!(mean_log_probability(&[]), f32::NEG_INFINITY);
    }
}
