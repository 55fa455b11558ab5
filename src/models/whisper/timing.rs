//! Word times from the costs of aligning tokens with audio positions, by dynamic time warping.
//!
//! After openai/whisper `timing.py`.

use std::sync::Arc;

use super::backend::{Attention, Costs};
use super::tokenizer::{TokenId, Tokenizer};
use crate::audio::SAMPLE_RATE;
use crate::engine::{self, Alignment, Hypothesis, Token};
use crate::transcript::{Segment, Word};

/// Seconds between audio positions of the encoder's output.
const SECONDS_PER_POSITION: f64 = 0.02;

const PREPENDED_PUNCTUATION: &str = "\"'“¿([{-";
const APPENDED_PUNCTUATION: &str = "\"'.。,，!！?？:：”)]}、";
const SENTENCE_ENDS: &str = ".。!！?？";

/// The word times of one window, all but its attention: another thread than the model's finishes them.
pub struct WordTimes {
    pub tokenizer: Arc<Tokenizer>,
    pub attention: Box<dyn Attention>,
    /// The hypothesis's text tokens.
    pub text: Vec<Token>,
    /// Text tokens of each segment.
    pub tokens_per_segment: Vec<usize>,
    /// Samples of the window.
    pub samples: usize,
}

impl Alignment for WordTimes {
    fn finish(self: Box<Self>, hypothesis: &mut Hypothesis) -> Result<(), engine::Error> {
        let Self { tokenizer, attention, text, tokens_per_segment, samples } = *self;
        let words = if text.is_empty() {
            Vec::new()
        } else {
            align(&tokenizer, &hypothesis.language.code, &text, &attention.costs()?)
        };
        assign(words, &mut hypothesis.segments, &tokens_per_segment);
        // Speech after the last word belongs to the next window, unless the model marked the rest as silence.
        let last_word_end =
            hypothesis.segments.iter().flat_map(|s| &s.words).next_back().map(|word| word.end);
        if let Some(end) = last_word_end.filter(|&end| end > 0.0 && !hypothesis.ends_in_silence) {
            let consumed = (end * f64::from(SAMPLE_RATE)).round() as usize;
            hypothesis.consumed_samples = consumed.clamp(1, samples.max(1));
        }
        Ok(())
    }
}

/// A word with the times of its first and last token.
#[derive(Debug, Clone, PartialEq)]
struct AlignedWord {
    text: String,
    tokens: usize,
    start: f64,
    end: f64,
    probability: f32,
}

/// The cheapest monotonic path through `costs` (rows, columns): for each row the column at which
/// the path enters it.
fn warp(costs: &[f32], rows: usize, columns: usize) -> Vec<usize> {
    const FROM_BOTH: u8 = 0;
    const FROM_ROW: u8 = 1;
    /// Set beside one of the others, which then means nothing.
    const FROM_COLUMN: u8 = 2;
    // The totals of the row before; the first entry stands for no column at all.
    let mut totals = vec![f32::INFINITY; columns + 1];
    totals[0] = 0.0;
    // The cheaper way in from the row before: it depends on no neighbour, so vectors of it are found at once.
    let mut above = vec![0.0f32; columns];
    let mut trace = vec![FROM_BOTH; rows * columns];
    for (costs, trace) in costs.chunks_exact(columns).zip(trace.chunks_exact_mut(columns)) {
        let neighbours = totals[..columns].iter().zip(&totals[1..]);
        for ((above, from), (&both, &up)) in above.iter_mut().zip(trace.iter_mut()).zip(neighbours) {
            // If both cost the same, neither is taken, as in the reference.
            let cheaper = if up < both { up } else { f32::INFINITY };
            *above = if both < up { both } else { cheaper };
            *from = if both < up { FROM_BOTH } else { FROM_ROW };
        }
        totals[0] = f32::INFINITY;
        let mut left = f32::INFINITY;
        for (((total, from), &above), cost) in totals[1..].iter_mut().zip(trace).zip(&above).zip(costs) {
            let is_above = above < left;
            *from |= if is_above { 0 } else { FROM_COLUMN };
            left = cost + if is_above { above } else { left };
            *total = left;
        }
    }
    let mut entered = vec![0; rows];
    let (mut row, mut column) = (rows, columns);
    while row > 0 && column > 0 {
        entered[row - 1] = column - 1;
        match trace[(row - 1) * columns + column - 1] {
            FROM_BOTH => (row, column) = (row - 1, column - 1),
            FROM_ROW => row -= 1,
            _ => column -= 1,
        }
    }
    entered
}

/// Words of `tokens` with their times. `costs` has a row for each token, and one for what follows the last.
fn align(tokenizer: &Tokenizer, language: &str, tokens: &[Token], costs: &Costs) -> Vec<AlignedWord> {
    let entered = warp(&costs.values, costs.rows, costs.positions);
    let seconds =
        |row: usize| entered.get(row).map_or(0.0, |&position| position as f64 * SECONDS_PER_POSITION);
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
        .map(|word| Word {
            text: word.text,
            start: span.start,
            end: span.end,
            probability: word.probability,
            speaker: None,
        })
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
fn assign(mut words: Vec<AlignedWord>, segments: &mut [Segment], tokens_per_segment: &[usize]) {
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
                segment.words.push(Word { text, start, end, probability, speaker: None });
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
    use proptest::prelude::*;

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

    /// The recurrence as the reference has it.
    fn warp_plainly(costs: &[f32], rows: usize, columns: usize) -> Vec<usize> {
        let mut totals = vec![vec![f32::INFINITY; columns + 1]; rows + 1];
        let mut steps = vec![vec![(0, 0); columns + 1]; rows + 1];
        totals[0][0] = 0.0;
        for row in 1..=rows {
            for column in 1..=columns {
                let (both, up) = (totals[row - 1][column - 1], totals[row - 1][column]);
                let left = totals[row][column - 1];
                let (best, step) = if both < up && both < left {
                    (both, (1, 1))
                } else if up < both && up < left {
                    (up, (1, 0))
                } else {
                    (left, (0, 1))
                };
                totals[row][column] = costs[(row - 1) * columns + column - 1] + best;
                steps[row][column] = step;
            }
        }
        let mut entered = vec![0; rows];
        let (mut row, mut column) = (rows, columns);
        while row > 0 && column > 0 {
            entered[row - 1] = column - 1;
            let (rows, columns) = steps[row][column];
            (row, column) = (row - rows, column - columns);
        }
        entered
    }

    proptest! {
        #[test]
        fn warping_takes_the_path_of_the_reference_also_among_equals(
            (rows, columns, few, many) in (1usize..12, 1usize..40).prop_flat_map(|(rows, columns)| (
                Just(rows),
                Just(columns),
                prop::collection::vec(-2i8..2, rows * columns),
                prop::collection::vec(-3.0f32..3.0, rows * columns),
            ))
        ) {
            let few: Vec<f32> = few.into_iter().map(f32::from).collect();
            for costs in [few, many] {
                prop_assert_eq!(warp(&costs, rows, columns), warp_plainly(&costs, rows, columns));
            }
        }
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
