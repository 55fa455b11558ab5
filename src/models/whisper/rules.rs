//! The rules for the next token: suppression lists and the grammar of timestamps. `kernels/choose.cu` applies the same
//! rules on a GPU.
//!
//! After openai/whisper `decoding.py`: `SuppressBlank`, `SuppressTokens`, `ApplyTimestampRules`.

use super::bias::continues_word;
use super::tokenizer::{TokenId, Tokenizer};
use crate::cpu::{Level, rows};
use crate::engine::Token;

/// The first timestamp is at most this late, so that a window's first words are not skipped.
const MAX_INITIAL_TIMESTAMP_SECONDS: f64 = 1.0;

pub struct Rules {
    /// Tokens that are never written.
    suppressed: Vec<TokenId>,
    /// Tokens that are not written first: a blank, the end of the text.
    suppressed_first: Vec<TokenId>,
    pub end_of_text: TokenId,
    no_timestamps: TokenId,
    timestamp_begin: TokenId,
    max_initial_timestamp: TokenId,
}

/// The rules as the kernel `choose` reads them.
pub struct Table {
    /// Bits for each token: 1 never written, 2 not written first, 4 continues the word before it.
    pub suppressed: Vec<u8>,
    pub end_of_text: usize,
    pub timestamp_begin: usize,
    pub initial_timestamp_max: usize,
    pub no_speech: usize,
}

impl Rules {
    /// `suppressed` and `suppressed_first`: the lists of the checkpoint's configuration, if any.
    pub fn new(
        tokenizer: &Tokenizer,
        suppressed: Option<Vec<TokenId>>,
        suppressed_first: Option<Vec<TokenId>>,
    ) -> Self {
        let special = &tokenizer.special;
        let mut suppressed = suppressed.unwrap_or_else(|| tokenizer.non_speech_tokens());
        suppressed.extend([
            special.start_of_transcript,
            special.translate,
            special.transcribe,
            special.start_of_language_model,
            special.start_of_previous,
            special.no_speech,
        ]);
        let suppressed_first = suppressed_first.unwrap_or_else(|| {
            let mut blank = tokenizer.encode(" ");
            blank.push(special.end_of_text);
            blank
        });
        let max_initial = (MAX_INITIAL_TIMESTAMP_SECONDS / super::tokenizer::SECONDS_PER_TIMESTAMP).round();
        Self {
            suppressed,
            suppressed_first,
            end_of_text: special.end_of_text,
            no_timestamps: special.no_timestamps,
            timestamp_begin: special.timestamp_begin,
            max_initial_timestamp: special.timestamp_begin + max_initial as TokenId,
        }
    }

    /// The same rules for a device.
    pub fn table(&self, tokenizer: &Tokenizer) -> Table {
        let mut suppressed = vec![0; tokenizer.vocabulary()];
        let mut mark = |tokens: &[TokenId], bit: u8| {
            for &token in tokens {
                if let Some(bits) = suppressed.get_mut(token as usize) {
                    *bits |= bit;
                }
            }
        };
        mark(&self.suppressed, 1);
        mark(&[self.no_timestamps], 1);
        mark(&self.suppressed_first, 2);
        let continuing = (0..self.end_of_text).filter(|&token| continues_word(tokenizer.bytes(token)));
        mark(&continuing.collect::<Vec<_>>(), 4);
        Table {
            suppressed,
            end_of_text: self.end_of_text as usize,
            timestamp_begin: self.timestamp_begin as usize,
            initial_timestamp_max: self.max_initial_timestamp as usize,
            no_speech: tokenizer.special.no_speech as usize,
        }
    }

    /// Sets the logits of forbidden tokens to minus infinity. `written`: the tokens of this
    /// attempt so far, without the prompt.
    pub fn apply(&self, logits: &mut [f32], written: &[Token]) {
        let mut forbid = |tokens: &[TokenId]| {
            for &token in tokens {
                if let Some(logit) = logits.get_mut(token as usize) {
                    *logit = f32::NEG_INFINITY;
                }
            }
        };
        forbid(&self.suppressed);
        forbid(&[self.no_timestamps]);
        if written.is_empty() {
            forbid(&self.suppressed_first);
        }
        self.apply_timestamps(logits, written);
    }

    fn apply_timestamps(&self, logits: &mut [f32], written: &[Token]) {
        let begin = (self.timestamp_begin as usize).min(logits.len());
        let end_of_text = (self.end_of_text as usize).min(begin);
        let is_timestamp = |token: &Token| token.id >= self.timestamp_begin;
        let last_was_timestamp = written.last().is_some_and(is_timestamp);
        let penultimate_was_timestamp = written.len() < 2 || is_timestamp(&written[written.len() - 2]);

        // Timestamps come in pairs, except directly before the end.
        if last_was_timestamp && penultimate_was_timestamp {
            logits[begin..].fill(f32::NEG_INFINITY);
        } else if last_was_timestamp {
            logits[..end_of_text].fill(f32::NEG_INFINITY);
        }
        // Time never goes back, and a segment is never empty.
        if let Some(last) = written.iter().rev().find(|token| is_timestamp(token)).map(|token| token.id) {
            let pair_closes_here = last_was_timestamp && !penultimate_was_timestamp;
            let first_allowed = if pair_closes_here { last } else { last + 1 };
            let first_allowed = (first_allowed as usize).clamp(begin, logits.len());
            logits[begin..first_allowed].fill(f32::NEG_INFINITY);
        }
        if written.is_empty() {
            logits[..begin].fill(f32::NEG_INFINITY);
            let after = (self.max_initial_timestamp as usize + 1).min(logits.len());
            logits[after..].fill(f32::NEG_INFINITY);
        }
        // If timestamps together are likelier than any single text token, force a timestamp.
        let (text, timestamps) = logits.split_at(begin);
        let (likeliest_text, _) = rows::arg_max(Level::detect(), text);
        if log_sum_exp(timestamps) > likeliest_text {
            logits[..begin].fill(f32::NEG_INFINITY);
        }
    }
}

/// ln Σ eˣ.
pub fn log_sum_exp(logits: &[f32]) -> f32 {
    rows::log_sum_exp(Level::detect(), logits)
}
