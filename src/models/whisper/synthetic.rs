//! A stand-in for a checkpoint in measurements: a vocabulary without meaning, attempts of given lengths, and hypotheses that
//! count as good.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::tokenizer::{TokenId, Tokenizer};
use crate::engine::{Hypothesis, WINDOW_SAMPLES};
use crate::models::Error;

/// Timestamp tokens at the end of every vocabulary, 0.00 to 30.00.
const TIMESTAMPS: usize = 1501;
/// Vocabularies of this size and larger are multilingual; each further token is a further language.
const MULTILINGUAL: usize = 51_865;
const LANGUAGES: usize = 99;
/// Codes of Whisper's languages, in the order of their tokens (openai/whisper `tokenizer.py`).
const CODES: &str = "en zh de es ru ko fr ja pt tr pl ca nl ar sv it id hi fi vi he uk el ms cs ro da hu ta no th ur hr \
    bg lt la mi ml cy sk te fa lv bn sr az sl kn et mk br eu is hy ne mn bs kk sq sw gl mr pa si km sn yo so af oc ka be \
    tg sd gu am yi lo uz fo ht ps tk nn mt sa lb my bo tl mg as tt haw ln ha ba jw su yue";
/// Tokens of single bytes, at the vocabulary's start.
const BYTES: usize = 256;
/// The first token that begins a word; those between the bytes and this one continue it.
const FIRST_WORD: usize = 1000;

/// Pseudo-random lengths of attempts, in tokens.
#[derive(Debug, Clone)]
pub struct Lengths {
    min: usize,
    max: usize,
    /// Whether a window shorter than 30 s has proportionately fewer tokens.
    proportional: bool,
    state: u64,
}

impl Lengths {
    /// Uniform between `min` and `max`, at most 400. The same lengths at every start.
    pub fn between(min: usize, max: usize) -> Self {
        let max = max.clamp(1, 400);
        Self { min: min.clamp(1, max), max, proportional: false, state: 0 }
    }

    /// The same lengths for windows of 30 s, and proportionately fewer tokens for shorter ones, as in speech; but at least
    /// two, a timestamp and a word.
    #[must_use]
    pub fn in_proportion(self) -> Self {
        Self { proportional: true, ..self }
    }

    /// Tokens of the next attempt at a window of `samples`.
    pub fn draw(&mut self, samples: usize) -> usize {
        let drawn = self.min + (split_mix(&mut self.state) % (self.max - self.min + 1) as u64) as usize;
        if !self.proportional {
            return drawn;
        }
        (drawn * samples.min(WINDOW_SAMPLES)).div_ceil(WINDOW_SAMPLES).max(drawn.min(2))
    }
}

/// Makes `hypothesis`, of a window of `samples`, one that is accepted at the first attempt and leaves nothing of its window:
/// the numbers that a model of random weights gives mean nothing, and would have every window decoded at every temperature.
pub fn accept(hypothesis: &mut Hypothesis, samples: usize) {
    hypothesis.average_log_probability = 0.0;
    hypothesis.no_speech_probability = 0.0;
    hypothesis.compression_ratio = 1.0;
    for segment in &mut hypothesis.segments {
        segment.average_log_probability = 0.0;
        segment.no_speech_probability = 0.0;
        segment.compression_ratio = 1.0;
    }
    hypothesis.consumed_samples = samples.max(1);
    hypothesis.ends_in_silence = true;
}

/// The constant that SplitMix64 adds to its state for each number.
pub const GOLDEN_GAMMA: u64 = 0x9E37_79B9_7F4A_7C15;

/// The next number of SplitMix64 (Steele, Lea and Flood, 2014).
pub fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(GOLDEN_GAMMA);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

impl Tokenizer {
    /// A vocabulary of `vocabulary` tokens: bytes, pieces of words and words without meaning, and Whisper's special ones.
    pub fn synthetic(vocabulary: usize) -> Result<Self, Error> {
        let path = Path::new("tokenizer.json");
        let languages = match vocabulary.checked_sub(MULTILINGUAL) {
            Some(more) => LANGUAGES + more,
            None => 1,
        };
        let mut specials = vec!["<|endoftext|>".to_owned(), "<|startoftranscript|>".into()];
        let mut codes = CODES.split_whitespace();
        specials.extend((0..languages).map(|n| match codes.next() {
            Some(code) => format!("<|{code}|>"),
            None => format!("<|x{n}|>"),
        }));
        let rest = ["translate", "transcribe", "startoflm", "startofprev", "nospeech", "notimestamps"];
        specials.extend(rest.map(|name| format!("<|{name}|>")));
        let text = vocabulary.checked_sub(specials.len() + TIMESTAMPS).filter(|&text| text >= BYTES);
        let text = text.ok_or_else(|| Error::BadTokenizer {
            path: path.to_owned(),
            reason: format!("{vocabulary} tokens are too few"),
        })?;
        // The alphabet of byte-level BPE: printable bytes stand for themselves, the others for characters above 255.
        let mut others = '\u{100}'..;
        let bytes = (0..=u8::MAX).filter_map(|byte| match byte {
            b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF => Some(char::from(byte)),
            _ => others.next(),
        });
        let words = (BYTES..text).map(|n| match n {
            // Byte-level BPE's space.
            FIRST_WORD.. => format!("\u{120}{}", word(n)),
            _ => format!("w{n}"),
        });
        let known: Map<String, Value> =
            bytes.map(String::from).chain(words).enumerate().map(|(id, word)| (word, json!(id))).collect();
        let added: Vec<Value> = specials
            .iter()
            .enumerate()
            .map(|(index, content)| {
                json!({"id": text + index, "content": content, "single_word": false, "lstrip": false,
                       "rstrip": false, "normalized": false, "special": true})
            })
            .collect();
        let byte_level =
            json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
        let file = json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": added, "normalizer": null,
            "pre_tokenizer": byte_level, "post_processor": null, "decoder": byte_level,
            "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
                      "end_of_word_suffix": null, "fuse_unk": false, "vocab": known, "merges": []},
        });
        Self::parse(file.to_string().as_bytes(), path, vocabulary)
    }

    /// Tokens that a synthetic model doesn't write: all but the first timestamp, which opens a transcript, and words and
    /// their pieces. Random weights give timestamps together more weight than any word, and would write little else.
    pub fn synthetic_suppressed(&self) -> Vec<TokenId> {
        let special = &self.special;
        let specials = special.end_of_text + 1..special.timestamp_begin;
        let later = special.timestamp_begin + 1..self.vocabulary() as TokenId;
        (0..BYTES as TokenId).chain(specials).chain(later).collect()
    }
}

/// A word that can be said, different for each `n` below a million.
fn word(n: usize) -> String {
    const CONSONANTS: &[u8; 20] = b"bcdfghjklmnpqrstvwxz";
    const VOWELS: &[u8; 5] = b"aeiou";
    let syllable = |n: usize| [CONSONANTS[n / 5 % 20], VOWELS[n % 5]].map(char::from);
    [n, n / 100, n / 10_000].into_iter().flat_map(syllable).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{DecodingOptions, Quality};
    use crate::transcript::{DetectedLanguage, Segment};

    #[test]
    fn vocabularies_of_every_size_are_those_of_whisper() {
        for (vocabulary, languages, end_of_text) in
            [(51_864, 0, 50_354), (51_865, 99, 50_257), (51_866, 100, 50_257), (1766, 0, 256)]
        {
            let tokenizer = Tokenizer::synthetic(vocabulary).expect("large enough");
            assert_eq!(tokenizer.vocabulary(), vocabulary);
            assert_eq!(tokenizer.languages.len(), languages);
            assert_eq!(tokenizer.special.end_of_text, end_of_text, "{vocabulary}");
            assert_eq!(tokenizer.special.timestamp_begin as usize, vocabulary - TIMESTAMPS);
        }
        assert!(Tokenizer::synthetic(1700).is_err());
    }

    #[test]
    fn lengths_are_spread_over_all_that_may_be() {
        let mut lengths = Lengths::between(20, 220);
        let drawn: Vec<usize> = (0..2000).map(|_| lengths.draw(WINDOW_SAMPLES)).collect();
        assert_eq!((drawn.iter().min(), drawn.iter().max()), (Some(&20), Some(&220)));
        let mean = drawn.iter().sum::<usize>() as f64 / 2000.0;
        assert!((mean - 120.0).abs() < 5.0, "{mean}");
        assert_eq!(Lengths::between(100, 100).draw(1), 100);
        let mut lengths = Lengths::between(100, 100).in_proportion();
        let of_seconds = [(30.0, 100), (60.0, 100), (15.0, 50), (3.1, 11), (0.5, 2), (0.0, 2)];
        for (seconds, tokens) in of_seconds {
            assert_eq!(lengths.draw((seconds * 16_000.0) as usize), tokens, "{seconds} s");
        }
        assert_eq!(Lengths::between(1, 1).in_proportion().draw(0), 1);
    }

    #[test]
    fn only_words_and_the_first_timestamp_are_written() {
        let tokenizer = Tokenizer::synthetic(51_866).expect("large enough");
        let suppressed = tokenizer.synthetic_suppressed();
        let written: Vec<TokenId> =
            (0..51_866).filter(|token| suppressed.binary_search(token).is_err()).collect();
        let special = &tokenizer.special;
        let expected = (BYTES as TokenId..=special.end_of_text).chain([special.timestamp_begin]);
        assert_eq!(written, expected.collect::<Vec<_>>());
        // Two words, of which the second is continued.
        let tokens: Vec<TokenId> = vec![1000, 50_000, 300];
        let (first, second) = (word(1000), word(50_000));
        assert_eq!(tokenizer.decode(&tokens), format!(" {first} {second}w300"));
        assert_eq!(tokenizer.split_to_words(&tokens, "en").len(), 2);
        let words: std::collections::HashSet<String> = (FIRST_WORD..51_866).map(word).collect();
        assert_eq!(words.len(), 51_866 - FIRST_WORD);
        assert_eq!((CODES.split_whitespace().count(), tokenizer.languages[99].0.as_str()), (100, "yue"));
    }

    #[test]
    fn a_synthetic_hypothesis_is_good_and_leaves_nothing_of_its_window() {
        let options = DecodingOptions::default();
        let bad = Segment { compression_ratio: 9.0, no_speech_probability: 1.0, ..Segment::default() };
        let mut hypothesis = Hypothesis {
            segments: vec![bad],
            language: DetectedLanguage { code: "en".into(), probability: 1.0 },
            average_log_probability: -9.0,
            no_speech_probability: 0.0,
            compression_ratio: 9.0,
            consumed_samples: 1,
            tokens: Vec::new(),
            ranges: Vec::new(),
            ends_in_silence: false,
        };
        assert!(Quality::from(&hypothesis).needs_fallback(&options));
        accept(&mut hypothesis, 32_000);
        for quality in [Quality::from(&hypothesis), Quality::from(&hypothesis.segments[0])] {
            assert!(!quality.needs_fallback(&options) && !quality.is_silence(&options));
        }
        assert_eq!((hypothesis.consumed_samples, hypothesis.ends_in_silence), (32_000, true));
    }
}
