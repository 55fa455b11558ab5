//! Listening again to voice that gave no words: what whole files and streams have in common. Pure.

use super::window::DecodingOptions;
use crate::audio::SAMPLE_RATE;
use crate::transcript::{Word, mean_log_probability};

/// Rounds of listening again to voice without words: the second one hears what is left of a long stretch.
pub const LISTENINGS_MAX: usize = 2;
/// The audio before voice that was not understood by itself, and twice the audio after it, with which it is heard once more.
pub const CONTEXT_SAMPLES: usize = 4 * SAMPLE_RATE as usize;
/// The least mean log-probability of text over sound without voice, and the highest probability that there is no speech.
/// With `base`, whispers have -0.3 to -0.5 and 0.14 to 0.39; birds, doors, barks, wind and applause 0.62 to 0.89.
const WITHOUT_VOICE_LOG_PROBABILITY: f32 = -0.6;
const WITHOUT_VOICE_NO_SPEECH: f32 = 0.5;
/// The least mean log-probability of text over voice that gave no words at first. Of text below it, most is invented.
const SECOND_LOG_PROBABILITY: f32 = -0.8;

impl DecodingOptions {
    /// For voice that gave no words at first: one attempt, which must be surer than usual. Others would invent some.
    #[must_use]
    pub fn for_second_listening(mut self) -> Self {
        self.temperatures.truncate(1);
        self.log_probability_threshold = Some(SECOND_LOG_PROBABILITY);
        self
    }

    /// For sound in which the detector hears no voice: as [`Self::for_second_listening`], and surer again.
    #[must_use]
    pub fn for_sound_without_voice(mut self) -> Self {
        self.temperatures.truncate(1);
        self.log_probability_threshold = Some(WITHOUT_VOICE_LOG_PROBABILITY);
        self.no_speech_threshold = Some(WITHOUT_VOICE_NO_SPEECH);
        self
    }

    /// Whether `words` by themselves are as probable as a whole window's must be: the words around them may be surer.
    pub fn accept<'a>(&self, words: impl IntoIterator<Item = &'a Word>) -> bool {
        let mean = mean_log_probability(words);
        mean > f32::NEG_INFINITY && self.log_probability_threshold.is_none_or(|min| mean >= min)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_must_be_sure_by_themselves() {
        let options = DecodingOptions::default().for_second_listening();
        let word = |probability| Word { text: " a".into(), start: 0.0, end: 1.0, probability, speaker: None };
        assert!(options.accept(&[word(0.9)]));
        assert!(options.accept(&[word(0.3), word(0.9)]));
        assert!(!options.accept(&[word(0.3)]));
        assert!(!options.accept(&[]));
    }
}
