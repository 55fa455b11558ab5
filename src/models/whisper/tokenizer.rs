//! Token ids and text: special tokens, languages, and the split into words.
//!
//! After openai/whisper `tokenizer.py`. The vocabulary is byte-level BPE: a token is a run of
//! bytes, not always whole characters.

use std::collections::HashMap;
use std::path::Path;

use serde::Deserialize;

use crate::models::Error;
use crate::transcript::script;

pub type TokenId = u32;

/// In the reference's order, as the check is for substrings.
const ASCII_PUNCTUATION: &str = r##"!"#$%&'()*+,-./:;<=>?@[\]^_`{|}~"##;

/// Seconds between neighbouring timestamp tokens.
pub const SECONDS_PER_TIMESTAMP: f64 = 0.02;

/// Timestamps: 0.00 to 30.00.
const TIMESTAMPS: TokenId = 1501;
/// The vocabulary from which a model is multilingual.
const MULTILINGUAL_MIN: TokenId = 51_865;

/// The part of `tokenizer.json` that has the special tokens.
#[derive(Deserialize)]
struct AddedTokens {
    added_tokens: Vec<AddedToken>,
}

#[derive(Deserialize)]
struct AddedToken {
    id: TokenId,
    content: String,
}

/// Ids of the special tokens.
#[derive(Debug, Clone)]
pub struct Special {
    pub end_of_text: TokenId,
    pub start_of_transcript: TokenId,
    pub translate: TokenId,
    pub transcribe: TokenId,
    pub start_of_language_model: TokenId,
    pub start_of_previous: TokenId,
    pub no_speech: TokenId,
    pub no_timestamps: TokenId,
    /// `<|0.00|>`; the token of time t is this plus t / 0.02 s.
    pub timestamp_begin: TokenId,
}

pub struct Tokenizer {
    encoder: tokenizers::Tokenizer,
    /// Bytes of each text token, by id; specials are empty.
    bytes: Vec<Vec<u8>>,
    pub special: Special,
    /// Language code and its token, in token order. Empty for an English-only model.
    pub languages: Vec<(String, TokenId)>,
}

/// The language codes of the model in `folder`, in the order of its tokens, from `tokenizer.json` alone; `["en"]` if it
/// knows English only. `None` if the file cannot be read.
pub fn languages_of(folder: &Path) -> Option<Vec<String>> {
    let text = std::fs::read(folder.join("tokenizer.json")).ok()?;
    let AddedTokens { mut added_tokens } = serde_json::from_slice(&text).ok()?;
    added_tokens.sort_by_key(|token| token.id);
    let find = |name: &str| added_tokens.iter().find(|token| token.content == name).map(|token| token.id);
    let (first, last) = (find("<|startoftranscript|>")?, find("<|translate|>")?);
    // As in [`Tokenizer::parse`].
    if find("<|notimestamps|>")? + 1 + TIMESTAMPS < MULTILINGUAL_MIN {
        return Some(vec!["en".into()]);
    }
    let between = added_tokens.iter().filter(|token| (first + 1..last).contains(&token.id));
    let code = |token: &AddedToken| Some(token.content.strip_prefix("<|")?.strip_suffix("|>")?.to_owned());
    Some(between.filter_map(code).collect())
}

impl Tokenizer {
    /// Reads `tokenizer.json`. `vocabulary` is the number of rows of the model's embedding.
    ///
    /// # Errors
    /// [`Error::BadTokenizer`] if the file does not belong to a Whisper model with such a vocabulary.
    pub fn read(folder: &Path, vocabulary: usize) -> Result<Self, Error> {
        let path = folder.join("tokenizer.json");
        let text = std::fs::read(&path)
            .map_err(|error| Error::BadTokenizer { path: path.clone(), reason: error.to_string() })?;
        Self::parse(&text, &path, vocabulary)
    }

    /// Reads the contents of the `tokenizer.json` at `path`.
    ///
    /// # Errors
    /// As [`Tokenizer::read`].
    pub fn parse(text: &[u8], path: &Path, vocabulary: usize) -> Result<Self, Error> {
        let bad = |reason: String| Error::BadTokenizer { path: path.to_owned(), reason };
        let encoder = tokenizers::Tokenizer::from_bytes(text).map_err(|error| bad(error.to_string()))?;
        let ids: HashMap<String, TokenId> = encoder.get_vocab(true);
        let find =
            |name: &str| ids.get(name).copied().ok_or_else(|| bad(format!("it lacks the token {name}")));
        let no_timestamps = find("<|notimestamps|>")?;
        let special = Special {
            end_of_text: find("<|endoftext|>")?,
            start_of_transcript: find("<|startoftranscript|>")?,
            translate: find("<|translate|>")?,
            transcribe: find("<|transcribe|>")?,
            start_of_language_model: find("<|startoflm|>")?,
            start_of_previous: find("<|startofprev|>")?,
            // Renamed by transformers in the files of large-v3.
            no_speech: find("<|nospeech|>").or_else(|_| find("<|nocaptions|>"))?,
            no_timestamps,
            timestamp_begin: no_timestamps + 1,
        };
        // The timestamps close the vocabulary.
        let expected = (special.timestamp_begin + TIMESTAMPS) as usize;
        if vocabulary != expected {
            return Err(bad(format!("it describes {expected} tokens, the weights have {vocabulary}")));
        }
        // openai/whisper: only models with the larger vocabulary know other languages; the tokens
        // are in the English-only files too.
        let is_multilingual = expected >= MULTILINGUAL_MIN as usize;
        let mut languages: Vec<(String, TokenId)> = ids
            .iter()
            .filter(|&(_, id)| {
                is_multilingual && (special.start_of_transcript..special.translate).contains(id)
            })
            .filter_map(|(name, id)| {
                let code = name.strip_prefix("<|")?.strip_suffix("|>")?;
                (*id != special.start_of_transcript).then(|| (code.to_owned(), *id))
            })
            .collect();
        languages.sort_by_key(|&(_, id)| id);

        let alphabet = byte_alphabet();
        let mut bytes = vec![Vec::new(); vocabulary];
        for (name, &id) in &ids {
            if id < special.end_of_text
                && let Some(entry) = bytes.get_mut(id as usize)
            {
                *entry = name.chars().filter_map(|c| alphabet.get(&c).copied()).collect();
            }
        }
        Ok(Self { encoder, bytes, special, languages })
    }

    /// Rows of the embedding.
    pub fn vocabulary(&self) -> usize {
        self.bytes.len()
    }

    pub fn is_timestamp(&self, token: TokenId) -> bool {
        token >= self.special.timestamp_begin
    }

    /// Whether the token is text, not a special token or a timestamp.
    pub fn is_text(&self, token: TokenId) -> bool {
        token < self.special.end_of_text
    }

    /// Seconds from the window's start.
    pub fn timestamp_seconds(&self, token: TokenId) -> f64 {
        f64::from(token.saturating_sub(self.special.timestamp_begin)) * SECONDS_PER_TIMESTAMP
    }

    pub fn language_token(&self, code: &str) -> Option<TokenId> {
        self.languages.iter().find(|(known, _)| known == code).map(|&(_, id)| id)
    }

    /// Text to tokens; special tokens written out in `text` are plain text here.
    pub fn encode(&self, text: &str) -> Vec<TokenId> {
        let plain = text.replace("<|", "< |");
        self.encoder.encode(plain, false).map(|encoding| encoding.get_ids().to_vec()).unwrap_or_default()
    }

    /// Tokens to text; specials and timestamps are left out, broken characters become U+FFFD.
    pub fn decode(&self, tokens: &[TokenId]) -> String {
        String::from_utf8_lossy(&self.decode_bytes(tokens)).into_owned()
    }

    /// The bytes of a text token; none of a special one.
    pub fn bytes(&self, token: TokenId) -> &[u8] {
        self.bytes.get(token as usize).map(Vec::as_slice).unwrap_or_default()
    }

    fn decode_bytes(&self, tokens: &[TokenId]) -> Vec<u8> {
        tokens.iter().filter_map(|&token| self.bytes.get(token as usize)).flatten().copied().collect()
    }

    /// Words of `tokens` with the tokens of each, in order; the pieces join to the whole.
    pub fn split_to_words(&self, tokens: &[TokenId], language: &str) -> Vec<(String, Vec<TokenId>)> {
        let pieces = self.split_on_characters(tokens);
        if !script::is_spaced(language) {
            return pieces;
        }
        // A piece begins a word if it begins with a space or is punctuation alone.
        let mut words: Vec<(String, Vec<TokenId>)> = Vec::new();
        for (text, tokens) in pieces {
            let special = tokens.first().is_some_and(|&token| !self.is_text(token));
            let punctuation = ASCII_PUNCTUATION.contains(text.trim());
            match words.last_mut() {
                Some(last) if !special && !text.starts_with(' ') && !punctuation => {
                    last.0.push_str(&text);
                    last.1.extend(tokens);
                }
                _ => words.push((text, tokens)),
            }
        }
        words
    }

    /// The shortest runs of tokens that are whole characters.
    fn split_on_characters(&self, tokens: &[TokenId]) -> Vec<(String, Vec<TokenId>)> {
        let mut pieces = Vec::new();
        let mut run: Vec<TokenId> = Vec::new();
        for &token in tokens {
            run.push(token);
            match std::str::from_utf8(&self.decode_bytes(&run)) {
                // Ends inside a character, which the next token may complete.
                Err(error) if error.error_len().is_none() => {}
                _ => pieces.push((self.decode(&run), std::mem::take(&mut run))),
            }
        }
        if !run.is_empty() {
            pieces.push((self.decode(&run), run));
        }
        pieces
    }

    /// Tokens of symbols that are not spoken, such as brackets and notes (openai/whisper `non_speech_tokens`). For
    /// checkpoints without a list.
    pub fn non_speech_tokens(&self) -> Vec<TokenId> {
        const SYMBOLS: &str = "\" # ( ) * + / : ; < = > @ [ \\ ] ^ _ ` { | } ~ 「 」 『 』 \
            << >> <<< >>> -- --- -( -[ (' (\" (( )) ((( ))) [[ ]] {{ }} ♪♪ ♪♪♪";
        const MUSIC: &str = "♩ ♪ ♫ ♬ ♭ ♮ ♯";
        let first_of = |text: String, whole_only: bool| {
            let tokens = self.encode(&text);
            tokens.first().copied().filter(|_| tokens.len() == 1 || !whole_only)
        };
        let spaced = |symbol: &str| [symbol.to_owned(), format!(" {symbol}")];
        let mut tokens: Vec<TokenId> =
            [" -", " '"].into_iter().filter_map(|t| first_of(t.into(), false)).collect();
        tokens.extend(SYMBOLS.split(' ').flat_map(spaced).filter_map(|text| first_of(text, true)));
        tokens.extend(MUSIC.split(' ').flat_map(spaced).filter_map(|text| first_of(text, false)));
        tokens.sort_unstable();
        tokens.dedup();
        tokens
    }
}

/// GPT-2's printable stand-ins for bytes, inverted (openai/gpt-2 `encoder.py`, `bytes_to_unicode`).
fn byte_alphabet() -> HashMap<char, u8> {
    let printable = |byte: &u8| matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    let mut alphabet: HashMap<char, u8> =
        (0..=u8::MAX).filter(printable).map(|byte| (char::from(byte), byte)).collect();
    let others = (0..=u8::MAX).filter(|byte| !printable(byte));
    alphabet.extend(('\u{100}'..).zip(others));
    alphabet
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_languages_without_spaces_are_characters() {
        let tokenizer = Tokenizer::synthetic(1766).expect("large enough");
        for (language, text, words) in [("en", " two words", 2), ("km", "ខ្មែរ", 5), ("ja", "ｶﾅ", 2)]
        {
            let split = tokenizer.split_to_words(&tokenizer.encode(text), language);
            assert_eq!(split.len(), words, "{language}");
            assert_eq!(split.into_iter().map(|(word, _)| word).collect::<String>(), text);
        }
    }
}
