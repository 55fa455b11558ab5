//! Word times from cross-attention: dynamic time warping of tokens against audio positions.
//!
//! After openai/whisper `timing.py`.

use super::decoder::AlignmentWeights;
use super::tokenizer::{TokenId, Tokenizer};
use crate::engine::Token;
use crate::transcript::{Segment, Word};

/// Seconds between audio positions of the encoder's output.
pub const SECONDS_PER_POSITION: f64 = 0.02;

const MEDIAN_WIDTH: usize = 7;
const PREPENDED_PUNCTUATION: &str = "\"'“¿([{-";
const APPENDED_PUNCTUATION: &str = "\"'.。,，!！?？:：”)]}、";
const SENTENCE_ENDS: &str = ".。!！?？";

/// A word with the times of its first and last token.
#[derive(Debug, Clone, PartialEq)]
pub struct AlignedWord {
    pub text: String,
    pub tokens: usize,
    pub start: f64,
    pub end: f64,
    pub probability: f32,
}

impl AlignmentWeights {
    /// One cost matrix (rows, positions) from all heads, for the tokens from `first_token` on.
    /// `positions`: those that hold audio; the rest is padding.
    pub(super) fn costs(&self, first_token: usize, rows: usize, positions: usize) -> Vec<f32> {
        let mut costs = vec![0.0f32; rows * positions];
        let mut normal = vec![0.0f32; self.tokens * positions];
        for head in self.values.chunks_exact(self.tokens * self.positions).take(self.heads) {
            // Softmax over the audio alone: normalise without the padding's share.
            for (row, normal) in head.chunks_exact(self.positions).zip(normal.chunks_exact_mut(positions)) {
                let audio = &row[..positions];
                let sum: f32 = audio.iter().sum::<f32>().max(f32::MIN_POSITIVE);
                for (normal, weight) in normal.iter_mut().zip(audio) {
                    *normal = weight / sum;
                }
            }
            standardize_columns(&mut normal, self.tokens, positions);
            for row in 0..rows {
                let source = &normal[(first_token + row) * positions..][..positions];
                let target = &mut costs[row * positions..][..positions];
                subtract_median_filtered(source, target);
            }
        }
        let heads = self.heads as f32;
        costs.iter_mut().for_each(|cost| *cost /= heads);
        costs
    }
}

/// Scales each column to mean 0 and deviation 1 over the tokens.
fn standardize_columns(matrix: &mut [f32], rows: usize, columns: usize) {
    let mut mean = vec![0.0f32; columns];
    let mut square = vec![0.0f32; columns];
    for row in matrix.chunks_exact(columns) {
        mean.iter_mut().zip(row).for_each(|(mean, value)| *mean += value);
    }
    mean.iter_mut().for_each(|mean| *mean /= rows as f32);
    for row in matrix.chunks_exact(columns) {
        for ((square, mean), value) in square.iter_mut().zip(&mean).zip(row) {
            *square += (value - mean) * (value - mean);
        }
    }
    let inverse: Vec<f32> = square.iter().map(|s| 1.0 / (s / rows as f32).sqrt().max(1e-12)).collect();
    for row in matrix.chunks_exact_mut(columns) {
        for ((value, mean), inverse) in row.iter_mut().zip(&mean).zip(&inverse) {
            *value = (*value - mean) * inverse;
        }
    }
}

/// `target -= median of each neighbourhood of source`, reflected at the ends.
fn subtract_median_filtered(source: &[f32], target: &mut [f32]) {
    let half = MEDIAN_WIDTH / 2;
    if source.len() <= half {
        target.iter_mut().zip(source).for_each(|(target, value)| *target -= value);
        return;
    }
    let last = source.len() - 1;
    for (position, target) in target.iter_mut().enumerate() {
        let mut window = [0.0f32; MEDIAN_WIDTH];
        for (offset, value) in window.iter_mut().enumerate() {
            let index = (position + offset).abs_diff(half);
            *value = source[if index > last { 2 * last - index } else { index }];
        }
        window.sort_unstable_by(f32::total_cmp);
        *target -= window[half];
    }
}

/// The cheapest monotonic path through `costs` (rows, columns): for each row the column at which
/// the path enters it.
fn warp(costs: &[f32], rows: usize, columns: usize) -> Vec<usize> {
    #[derive(Clone, Copy)]
    enum Step {
        Both,
        Row,
        Column,
    }
    let width = columns + 1;
    let mut previous = vec![f32::INFINITY; width];
    let mut current = vec![f32::INFINITY; width];
    previous[0] = 0.0;
    let mut trace = vec![Step::Column; rows * columns];
    for row in 0..rows {
        current[0] = f32::INFINITY;
        for column in 0..columns {
            let (both, up, left) = (previous[column], previous[column + 1], current[column]);
            let (best, step) = if both < up && both < left {
                (both, Step::Both)
            } else if up < both && up < left {
                (up, Step::Row)
            } else {
                (left, Step::Column)
            };
            current[column + 1] = costs[row * columns + column] + best;
            trace[row * columns + column] = step;
        }
        std::mem::swap(&mut previous, &mut current);
    }
    let mut entered = vec![0; rows];
    let (mut row, mut column) = (rows, columns);
    while row > 0 && column > 0 {
        entered[row - 1] = column - 1;
        match trace[(row - 1) * columns + column - 1] {
            Step::Both => (row, column) = (row - 1, column - 1),
            Step::Row => row -= 1,
            Step::Column => column -= 1,
        }
    }
    entered
}

/// Words of `tokens` with their times. `attention` comes from a pass over
/// `prefix` tokens, the no-timestamps token, `tokens` and the end-of-text token.
///
/// `positions`: audio positions that are not padding.
pub fn align(
    tokenizer: &Tokenizer,
    language: &str,
    tokens: &[Token],
    attention: &AlignmentWeights,
    prefix: usize,
    positions: usize,
) -> Vec<AlignedWord> {
    let rows = tokens.len() + 1;
    let positions = positions.clamp(1, attention.positions);
    if tokens.is_empty() || attention.tokens < prefix + rows {
        return Vec::new();
    }
    let entered = warp(&attention.costs(prefix, rows, positions), rows, positions);
    let seconds = |row: usize| entered[row] as f64 * SECONDS_PER_POSITION;
    split(tokenizer, language, tokens, seconds)
}

/// Words of a segment whose tokens were not aligned: each has the segment's times.
pub fn untimed(
    tokenizer: &Tokenizer,
    language: &str,
    tokens: &[Token],
    span: std::ops::Range<f64>,
) -> Vec<Word> {
    let tokens: Vec<Token> = tokens.iter().copied().filter(|token| tokenizer.is_text(token.id)).collect();
    let mut words = split(tokenizer, language, &tokens, |_| 0.0);
    merge_punctuation(&mut words);
    words
        .into_iter()
        .filter(|word| !word.text.is_empty())
        .map(|word| Word { text: word.text, start: span.start, end: span.end, probability: word.probability })
        .collect()
}

/// Words with the time at which each one's first token, and the next one's, begins.
fn split(
    tokenizer: &Tokenizer,
    language: &str,
    tokens: &[Token],
    seconds: impl Fn(usize) -> f64,
) -> Vec<AlignedWord> {
    let mut words = Vec::new();
    let ids: Vec<TokenId> = tokens.iter().map(|token| token.id).collect();
    let mut first = 0;
    for (text, word_tokens) in tokenizer.split_to_words(&ids, language) {
        let next = first + word_tokens.len();
        let sum: f32 = tokens.iter().take(next).skip(first).map(|token| token.probability).sum();
        words.push(AlignedWord {
            text,
            tokens: word_tokens.len(),
            start: seconds(first),
            end: seconds(next),
            probability: sum / word_tokens.len().max(1) as f32,
        });
        first = next;
    }
    words
}

/// Typical and longest plausible word durations, in seconds.
struct Durations {
    median: f64,
    max: f64,
}

impl Durations {
    fn of(words: &[AlignedWord]) -> Option<Self> {
        let mut durations: Vec<f64> = words.iter().map(|w| w.end - w.start).filter(|&d| d != 0.0).collect();
        durations.sort_unstable_by(f64::total_cmp);
        let middle = durations.len() / 2;
        let upper = *durations.get(middle)?;
        let median =
            if durations.len().is_multiple_of(2) { (durations[middle - 1] + upper) / 2.0 } else { upper };
        let median = median.min(0.7);
        Some(Self { median, max: 2.0 * median })
    }
}

/// Assigns `words` to the segments by their token counts and trims implausibly long words at
/// pauses. `tokens_per_segment`: text tokens of each segment.
pub fn assign(mut words: Vec<AlignedWord>, segments: &mut [Segment], tokens_per_segment: &[usize]) {
    let durations = Durations::of(&words);
    if let Some(durations) = &durations {
        trim_at_sentence_ends(&mut words, durations.max);
    }
    let durations = durations.unwrap_or(Durations { median: 0.0, max: 0.0 });
    merge_punctuation(&mut words);
    let mut words = words.into_iter();
    let mut last_speech = 0.0;
    for (segment, &tokens) in segments.iter_mut().zip(tokens_per_segment) {
        let mut taken = 0;
        segment.words.clear();
        while taken < tokens
            && let Some(word) = words.next()
        {
            taken += word.tokens;
            if !word.text.is_empty() {
                let AlignedWord { text, start, end, probability, .. } = word;
                segment.words.push(Word { text, start, end, probability });
            }
        }
        trim_at_segment_edges(segment, &durations, last_speech);
        last_speech = segment.end;
    }
}

/// Trims a long word beside the end of a sentence, which includes the pause.
fn trim_at_sentence_ends(words: &mut [AlignedWord], max: f64) {
    for index in 1..words.len() {
        let (before, rest) = words.split_at_mut(index);
        let (previous, word) = (&before[index - 1], &mut rest[0]);
        if word.end - word.start > max {
            if SENTENCE_ENDS.contains(&word.text) {
                word.end = word.start + max;
            } else if SENTENCE_ENDS.contains(&previous.text) {
                word.start = word.end - max;
            }
        }
    }
}

fn trim_at_segment_edges(segment: &mut Segment, durations: &Durations, last_speech: f64) {
    let Durations { median, max } = *durations;
    let words = &mut segment.words;
    let Some(first) = words.first().cloned() else { return };
    // The first words after a pause.
    let second = words.get(1).cloned();
    let too_long = first.end - first.start > max
        || second.as_ref().is_some_and(|second| second.end - first.start > 2.0 * max);
    if first.end - last_speech > 4.0 * median && too_long {
        if let Some(second) = second
            && second.end - second.start > max
        {
            let boundary = (second.end / 2.0).max(second.end - max);
            words[0].end = boundary;
            words[1].start = boundary;
        }
        words[0].start = (words[0].end - max).max(0.0);
    }
    // The segment's timestamps are more reliable than a first or last word that is too long.
    let first = &mut words[0];
    if segment.start < first.end && segment.start - 0.5 > first.start {
        first.start = (first.end - median).min(segment.start).max(0.0);
    } else {
        segment.start = first.start;
    }
    if let Some(last) = words.last_mut() {
        if segment.end > last.start && segment.end + 0.5 < last.end {
            last.end = (last.start + median).max(segment.end);
        } else {
            segment.end = last.end;
        }
    }
}

/// Joins opening punctuation to the word after it and closing punctuation to the word before it;
/// the emptied entries keep their place with no text.
fn merge_punctuation(words: &mut [AlignedWord]) {
    let mut following = words.len().saturating_sub(1);
    for index in (0..following).rev() {
        let word = &words[index];
        if word.text.starts_with(' ') && PREPENDED_PUNCTUATION.contains(word.text.trim()) {
            let (text, tokens) =
                (std::mem::take(&mut words[index].text), std::mem::take(&mut words[index].tokens));
            words[following].text.insert_str(0, &text);
            words[following].tokens += tokens;
        } else {
            following = index;
        }
    }
    let mut previous = 0;
    for index in 1..words.len() {
        let mergeable =
            !words[previous].text.ends_with(' ') && APPENDED_PUNCTUATION.contains(words[index].text.as_str());
        if mergeable {
            let (text, tokens) =
                (std::mem::take(&mut words[index].text), std::mem::take(&mut words[index].tokens));
            words[previous].text.push_str(&text);
            words[previous].tokens += tokens;
        } else {
            previous = index;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warping_finds_the_path_that_was_drawn() {
        // A cheap staircase through expensive surroundings.
        let (rows, columns) = (5, 40);
        let begins = [0, 4, 11, 20, 33];
        let mut costs = vec![1.0; rows * columns];
        for (row, &begin) in begins.iter().enumerate() {
            let end = begins.get(row + 1).copied().unwrap_or(columns);
            costs[row * columns + begin..row * columns + end].fill(-1.0);
        }
        assert_eq!(warp(&costs, rows, columns), begins);
    }

    #[test]
    fn the_median_filter_removes_spikes_and_keeps_steps() {
        let source = [9.0, 0.0, 0.0, 0.0, 0.0, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0];
        let mut target = [0.0; 12];
        subtract_median_filtered(&source, &mut target);
        assert_eq!(target, [0.0, 0.0, 0.0, 0.0, 0.0, -5.0, -5.0, -5.0, -5.0, -5.0, -5.0, -5.0]);
    }

    fn word(text: &str, start: f64, end: f64) -> AlignedWord {
        AlignedWord { text: text.into(), tokens: 1, start, end, probability: 1.0 }
    }

    #[test]
    fn punctuation_joins_its_word_and_keeps_the_token_count() {
        let mut words =
            vec![word(" \"", 0.0, 0.1), word("Yes", 0.1, 0.4), word(",", 0.4, 0.5), word(" sir", 0.5, 0.9)];
        merge_punctuation(&mut words);
        let texts: Vec<&str> = words.iter().map(|w| w.text.as_str()).collect();
        assert_eq!(texts, ["", " \"Yes,", "", " sir"]);
        assert_eq!(words.iter().map(|w| w.tokens).sum::<usize>(), 4);
    }
}
