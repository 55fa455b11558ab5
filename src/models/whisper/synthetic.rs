//! A stand-in for a checkpoint in benchmarks: a vocabulary without meaning, and attempts of given lengths.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::tokenizer::Tokenizer;
use crate::models::Error;

/// Timestamp tokens at the end of every vocabulary, 0.00 to 30.00.
const TIMESTAMPS: usize = 1501;
/// Vocabularies of this size and larger are multilingual; each further token is a further language.
const MULTILINGUAL: usize = 51_865;
const LANGUAGES: usize = 99;

/// Pseudo-random lengths of attempts, in tokens.
#[derive(Debug, Clone)]
pub struct Lengths {
    min: usize,
    max: usize,
    state: u64,
}

impl Lengths {
    /// Uniform between `min` and `max`, at most 400. The same lengths at every start.
    pub fn between(min: usize, max: usize) -> Self {
        let max = max.clamp(1, 400);
        Self { min: min.clamp(1, max), max, state: 0 }
    }

    pub fn draw(&mut self) -> usize {
        self.min + (split_mix(&mut self.state) % (self.max - self.min + 1) as u64) as usize
    }
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
    /// A vocabulary of `vocabulary` tokens: bytes, tokens without meaning, and Whisper's special ones.
    pub fn synthetic(vocabulary: usize) -> Result<Self, Error> {
        let path = Path::new("tokenizer.json");
        let languages = match vocabulary.checked_sub(MULTILINGUAL) {
            Some(more) => LANGUAGES + more,
            None => 1,
        };
        let mut specials = vec!["<|endoftext|>".to_owned(), "<|startoftranscript|>".into(), "<|en|>".into()];
        specials.extend((1..languages).map(|n| format!("<|x{n}|>")));
        let rest = ["translate", "transcribe", "startoflm", "startofprev", "nospeech", "notimestamps"];
        specials.extend(rest.map(|name| format!("<|{name}|>")));
        let text = vocabulary.checked_sub(specials.len() + TIMESTAMPS).filter(|&text| text >= 256);
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
        let words = (256..text).map(|n| format!("w{n}"));
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
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let drawn: Vec<usize> = (0..2000).map(|_| lengths.draw()).collect();
        assert_eq!((drawn.iter().min(), drawn.iter().max()), (Some(&20), Some(&220)));
        let mean = drawn.iter().sum::<usize>() as f64 / 2000.0;
        assert!((mean - 120.0).abs() < 5.0, "{mean}");
        assert_eq!(Lengths::between(100, 100).draw(), 100);
    }
}
