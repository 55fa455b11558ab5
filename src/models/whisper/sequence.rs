//! The tokens of one attempt at one window, and the segments that they make.

use std::ops::Range;
use std::sync::Arc;

use super::bias::{Bias, Choice, Search, Step};
use super::loops::before_loop;
use super::rules::{Rules, log_sum_exp};
use super::synthetic::{GOLDEN_GAMMA, split_mix};
use super::tokenizer::{TokenId, Tokenizer};
use crate::audio::SAMPLE_RATE;
use crate::cpu::{Level, rows};
use crate::cuda::{Outcome, State};
use crate::engine::{Hypothesis, SlotId, Token};
use crate::transcript::Segment;

/// The most tokens of one attempt: half the text context (openai/whisper `sample_len`).
pub const MAX_TOKENS: usize = 224;

pub struct Sequence {
    /// The tokens after the prompt.
    pub tokens: Vec<Token>,
    pub temperature: f32,
    pub finished: bool,
    /// A loop ends the attempt.
    pub ends_in_loops: bool,
    /// The attempt was ended in a loop. What came before it, and what it says for the first time, are left.
    pub looped: bool,
    /// Tokens before these in the text cache.
    pub prompt: usize,
    /// From the logits at the start of the transcript.
    pub no_speech_probability: f32,
    /// For each token, and for the end of the text once it is reached.
    log_probabilities: Vec<f32>,
    /// The attempt ends at this many tokens and, if `forced`, not before.
    tokens_max: usize,
    forced: bool,
    seed: u32,
    /// Present if there are terms.
    search: Option<Search>,
}

/// Where an attempt's tokens were predicted: the positions in the text cache of the queries that did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Predicted {
    /// For all tokens, timestamps included, and for the end of the text if it was reached.
    pub all: Range<usize>,
    /// For tokens of the text, and for what follows the last of them: some of `all`.
    pub text: Vec<usize>,
}

impl Sequence {
    /// `seed`: equal for equal attempts, so that results are reproducible. `forced`: the exact number of tokens,
    /// regardless of the model.
    pub fn new(temperature: f32, seed: u32, forced: Option<usize>, bias: Option<Arc<Bias>>) -> Self {
        Self {
            tokens: Vec::new(),
            temperature,
            finished: false,
            ends_in_loops: false,
            looped: false,
            prompt: 0,
            no_speech_probability: 0.0,
            log_probabilities: Vec::new(),
            tokens_max: forced.unwrap_or(MAX_TOKENS),
            forced: forced.is_some(),
            seed,
            search: bias.map(Search::new),
        }
    }

    /// Chooses the next token from `logits` (vocabulary), which it overwrites. The token's probability is the
    /// model's, with or without terms. If a term on trial fails, its tokens are removed.
    pub fn advance(&mut self, logits: &mut [f32], rules: &Rules) {
        let end_of_text = rules.end_of_text;
        let all_text = log_sum_exp(&logits[..end_of_text as usize]);
        if self.forced {
            logits[end_of_text as usize] = f32::NEG_INFINITY;
        }
        rules.apply(logits, &self.tokens);
        let allowed = log_sum_exp(logits);
        let before = self.search.as_ref().map(|search| search.penalise(logits)).unwrap_or_default();
        let choice = |token: TokenId, logits: &[f32]| {
            let known = before.iter().find(|(penalised, _)| *penalised == token);
            let logit = known.map_or(logits[token as usize], |&(_, logit)| logit);
            let probability = (logit - all_text).exp().min(1.0);
            Choice { token, log_probability: logit - allowed, probability }
        };
        let token = if self.temperature > 0.0 {
            self.sample(logits)
        } else {
            rows::arg_max(Level::detect(), logits).1 as TokenId
        };
        let own = choice(token, logits);
        let step =
            self.search.as_mut().map_or(Step::Own, |search| search.next(logits, self.tokens.len(), own));
        let (written, next) = match step {
            Step::Own => (self.tokens.len(), own),
            Step::Term(token) => (self.tokens.len(), choice(token, logits)),
            Step::Back { written, instead } => (written, instead),
        };
        self.write(written, next, end_of_text);
        self.finished |= self.tokens.len() >= self.tokens_max;
    }

    /// Ends the attempt if it is caught in a loop. Call it after each token.
    pub fn end_in_loop(&mut self, tokenizer: &Tokenizer) {
        if !self.ends_in_loops || self.looped {
            return;
        }
        if let Some(before) = before_loop(&self.tokens, tokenizer) {
            self.tokens.truncate(before);
            // And that of what followed.
            self.log_probabilities.truncate(before + 1);
            self.looped = true;
            self.finished = true;
        }
    }

    /// Position of the last token in the text cache.
    pub fn last_position(&self) -> usize {
        (self.prompt + self.tokens.len()).saturating_sub(1)
    }

    /// Whether `hypothesis` came from these tokens.
    pub fn has_tokens_of(&self, hypothesis: &Hypothesis) -> bool {
        let ids = |tokens: &[Token]| tokens.iter().map(|token| token.id).collect::<Vec<_>>();
        ids(&self.tokens) == ids(&hypothesis.tokens)
    }

    /// Where the tokens at `indices`, and what follows the last of them, were predicted. `None` for no tokens, and if
    /// the attempt was cut off right after the last one: no query followed.
    pub fn predicted_at(&self, indices: &[usize]) -> Option<Predicted> {
        let last = *indices.last()?;
        let has_end = self.log_probabilities.len() > self.tokens.len();
        let is_followed = last + 1 < self.tokens.len() || has_end;
        // The times of forced tokens mean nothing: any row will do.
        if !is_followed && !self.forced {
            return None;
        }
        let after = if is_followed { last + 1 } else { last };
        let first = self.prompt.checked_sub(1)?;
        Some(Predicted {
            all: first..first + self.log_probabilities.len(),
            text: indices.iter().chain([&after]).map(|index| first + index).collect(),
        })
    }

    /// Writes `next` after the first `written` tokens.
    fn write(&mut self, written: usize, next: Choice, end_of_text: TokenId) {
        self.tokens.truncate(written);
        self.log_probabilities.truncate(written);
        self.log_probabilities.push(next.log_probability);
        if next.token == end_of_text {
            self.finished = true;
            return;
        }
        self.tokens.push(Token { id: next.token, probability: next.probability });
        if let Some(search) = &mut self.search {
            search.wrote(next.token);
        }
    }

    /// Appends the token that a device chose. Does nothing after the end.
    pub fn take(&mut self, outcome: &Outcome, end_of_text: TokenId) {
        let Some(token) = outcome.token.filter(|_| !self.finished) else { return };
        let Outcome { log_probability, probability, .. } = *outcome;
        self.write(outcome.written, Choice { token, log_probability, probability }, end_of_text);
        self.finished = outcome.finished;
    }

    /// The state in which a device begins the same attempt.
    pub fn state(&self) -> State {
        State {
            tokens_max: self.tokens_max,
            forced: self.forced,
            temperature: self.temperature,
            seed: self.seed,
            terms: self.search.is_some(),
        }
    }

    /// The terms of this attempt.
    pub fn bias(&self) -> Option<&Arc<Bias>> {
        self.search.as_ref().map(Search::bias)
    }

    /// Gumbel-max: the arg-max of logits / t plus Gumbel noise is a sample of their softmax. A token's noise depends
    /// on its position alone, so that a term that was taken back changes no draw.
    fn sample(&self, logits: &[f32]) -> TokenId {
        let mut best = (f32::NEG_INFINITY, 0);
        for (token, &logit) in logits.iter().enumerate() {
            if logit > f32::NEG_INFINITY {
                let uniform = uniform(self.seed, self.tokens.len(), token);
                let score = logit / self.temperature - (-uniform.ln()).ln();
                if score > best.0 {
                    best = (score, token as TokenId);
                }
            }
        }
        best.1
    }

    #[cfg(test)]
    pub fn last_log_probability(&self) -> f32 {
        self.log_probabilities.last().copied().unwrap_or_default()
    }

    /// Mean over the tokens and the end of the text.
    pub fn average_log_probability(&self) -> f32 {
        self.log_probabilities.iter().sum::<f32>() / (self.tokens.len() + 1) as f32
    }
}

/// The sequence of each slot, if one was begun.
pub struct Sequences(Vec<Option<Sequence>>);

impl Sequences {
    pub fn new(slots: usize) -> Self {
        Self((0..slots).map(|_| None).collect())
    }

    pub fn get(&self, slot: SlotId) -> Option<&Sequence> {
        self.0[slot.0].as_ref()
    }

    pub fn get_mut(&mut self, slot: SlotId) -> Option<&mut Sequence> {
        self.0[slot.0].as_mut()
    }

    /// The slot's sequence, unless it is finished.
    pub fn running(&self, slot: SlotId) -> Option<&Sequence> {
        self.get(slot).filter(|sequence| !sequence.finished)
    }

    pub fn replace(&mut self, slot: SlotId, sequence: Sequence) {
        self.0[slot.0] = Some(sequence);
    }

    pub fn clear(&mut self, slot: SlotId) {
        self.0[slot.0] = None;
    }
}

/// A number in (0, 1) for one token of one step of one attempt: SplitMix64 (Steele, Lea and Flood, 2014) of all three,
/// as in the kernel `choose`.
fn uniform(seed: u32, written: usize, token: usize) -> f32 {
    let start = u64::from(seed) << 32 | token as u64;
    let mut state = start.wrapping_add(GOLDEN_GAMMA.wrapping_mul(written as u64));
    ((split_mix(&mut state) >> 41) as f32 + 0.5) / (1u64 << 23) as f32
}

/// A sequence cut into segments by its timestamps.
pub struct Cut {
    pub segments: Vec<Segment>,
    /// For each segment, the range of the sequence's tokens it holds, timestamps included.
    pub ranges: Vec<Range<usize>>,
    /// See [`crate::engine::Recognition::consumed_samples`]; at most `samples`.
    pub consumed_samples: usize,
    /// The last segment ends with a single timestamp: only silence follows.
    pub ends_in_silence: bool,
}

/// Cuts `tokens` of a window of `samples` at pairs of timestamps. After openai/whisper
/// `transcribe.py`: text after the last pair is left for the next window.
pub fn cut(tokens: &[TokenId], samples: usize, tokenizer: &Tokenizer) -> Cut {
    let is_timestamp = |index: usize| tokens.get(index).is_some_and(|&token| tokenizer.is_timestamp(token));
    let ends_in_silence =
        tokens.len() >= 2 && is_timestamp(tokens.len() - 1) && !is_timestamp(tokens.len() - 2);
    let mut ends: Vec<usize> =
        (1..tokens.len()).filter(|&index| is_timestamp(index - 1) && is_timestamp(index)).collect();
    let window_seconds = samples as f64 / f64::from(SAMPLE_RATE);
    let mut segments = Vec::new();
    let mut ranges = Vec::new();
    let mut push = |range: Range<usize>, start: f64, end: f64| {
        let text = tokenizer.decode(&tokens[range.clone()]);
        if start < end && !text.trim().is_empty() {
            segments.push(Segment { text, start, end, ..Segment::default() });
            ranges.push(range);
        }
    };
    let mut consumed_samples = samples;
    if ends.is_empty() {
        let last = tokens.iter().rev().find(|&&token| tokenizer.is_timestamp(token));
        let end = last.map(|&token| tokenizer.timestamp_seconds(token)).filter(|&seconds| seconds > 0.0);
        push(0..tokens.len(), 0.0, end.unwrap_or(window_seconds).min(window_seconds));
    } else {
        if ends_in_silence {
            ends.push(tokens.len());
        }
        let mut first = 0;
        for &end in &ends {
            let seconds = |index: usize| tokenizer.timestamp_seconds(tokens[index]).min(window_seconds);
            push(first..end, seconds(first), seconds(end - 1));
            first = end;
        }
        if !ends_in_silence {
            let seconds = tokenizer.timestamp_seconds(tokens[first - 1]);
            consumed_samples = (seconds * f64::from(SAMPLE_RATE)).round() as usize;
        }
    }
    Cut { segments, ranges, consumed_samples: consumed_samples.clamp(1, samples.max(1)), ends_in_silence }
}

/// How much more the whole of a text may compress than one half of it.
const WHOLE_TO_HALF: f32 = 1.4;

/// The compression ratio of `text`, bytes over bytes of the zlib form: that of its better half or, if that is more, the
/// whole text's over [`WHOLE_TO_HALF`]. A sentence that is said twice fills one half each time, and its whole stays
/// below 2.9; a loop fills a half again and again, and a short sentence said over and over gives the whole 4 and more.
pub fn compression_ratio(text: &str) -> f32 {
    let middle = text.floor_char_boundary(text.len() / 2);
    let (first, second) = text.split_at(middle);
    zlib_ratio(first).max(zlib_ratio(second)).max(zlib_ratio(text) / WHOLE_TO_HALF)
}

fn zlib_ratio(text: &str) -> f32 {
    use std::io::Write;
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
    match encoder.write_all(text.as_bytes()).and_then(|()| encoder.finish()) {
        Ok(compressed) => text.len() as f32 / compressed.len().max(1) as f32,
        Err(_) => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const END: TokenId = 100;

    /// The sequence of `tokens` after a prompt of four, written one by one.
    fn written(forced: Option<usize>, tokens: &[TokenId]) -> Sequence {
        let mut sequence = Sequence::new(0.0, 0, forced, None);
        sequence.prompt = 4;
        for (written, &token) in tokens.iter().enumerate() {
            let next = Choice { token, log_probability: -0.5, probability: 0.5 };
            sequence.write(written, next, END);
        }
        sequence
    }

    #[test]
    fn a_token_is_predicted_by_the_query_of_the_one_before_it() {
        // A timestamp, three words, a timestamp, the end.
        let sequence = written(None, &[200, 1, 2, 3, 210, END]);
        let of = |indices: &[usize]| sequence.predicted_at(indices);
        assert_eq!(of(&[1, 2, 3]), Some(Predicted { all: 3..9, text: vec![4, 5, 6, 7] }));
        assert_eq!(of(&[1, 3]), Some(Predicted { all: 3..9, text: vec![4, 6, 7] }));
        assert_eq!(of(&[]), None);
        // The end of the text follows the last word at once.
        let at_once = written(None, &[1, 2, END]).predicted_at(&[0, 1]);
        assert_eq!(at_once, Some(Predicted { all: 3..6, text: vec![3, 4, 5] }));
    }

    #[test]
    fn no_query_followed_the_last_token_of_an_attempt_that_was_cut_off() {
        assert_eq!(written(None, &[200, 1, 2]).predicted_at(&[1, 2]), None);
        let followed = written(None, &[1, 2, 210]).predicted_at(&[0, 1]);
        assert_eq!(followed, Some(Predicted { all: 3..6, text: vec![3, 4, 5] }));
        let forced = written(Some(3), &[200, 1, 2]).predicted_at(&[1, 2]);
        assert_eq!(forced, Some(Predicted { all: 3..6, text: vec![4, 5, 5] }));
    }
}
