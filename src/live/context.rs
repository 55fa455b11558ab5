//! The spans just before the open one. Pure.
//!
//! A model recognises a few words by themselves worse than the same words after others. So the window of a short
//! span begins with the audio of the spans before it, and the words already sent for those are removed again.

use super::span::to_seconds;
use crate::audio::SAMPLE_RATE;
use crate::transcript::Word;

const SECOND: u64 = SAMPLE_RATE as u64;
/// Spans that began longer than this before the end of the last one are dropped.
const REACH: u64 = 10 * SECOND;
/// A window with context is no longer than this; a span that fills it needs none.
const LONGEST_WINDOW: u64 = 20 * SECOND;
/// After so much silence the words before no longer help.
const FADED: u64 = 2 * SECOND;
/// Words compared on this side of the boundary.
const COMPARED_WORDS: usize = 5;
/// A word that was already sent begins at most so many seconds after the boundary; a new one ends at most so
/// many before it.
const SLACK: f64 = 0.4;
/// The cost of a second on the wrong side of the boundary, in words that are found again.
const WORDS_PER_SECOND: f64 = 3.0;

/// The spans before the open one.
#[derive(Default)]
pub struct Context {
    spans: Vec<Told>,
}

struct Told {
    start: u64,
    voice_end: u64,
    words: Vec<Word>,
}

impl Context {
    /// A span was closed; its own window began at `start`.
    pub fn push(&mut self, start: u64, voice_end: u64, words: Vec<Word>) {
        self.spans.push(Told { start, voice_end, words });
        self.spans.retain(|span| span.start + REACH >= voice_end);
    }

    pub fn clear(&mut self) {
        self.spans.clear();
    }

    /// Drops everything if there has been long silence at `position`.
    pub fn fade(&mut self, position: u64) {
        if self.spans.last().is_some_and(|span| position > span.voice_end + FADED) {
            self.clear();
        }
    }

    /// The start of a window up to `end`; without context it would be `start`.
    pub fn window_start(&self, start: u64, end: u64) -> u64 {
        let first = self.spans.first().map(|span| span.start);
        first.filter(|first| end <= first + LONGEST_WINDOW).unwrap_or(start)
    }

    /// The words of those spans.
    pub fn words(&self) -> Vec<Word> {
        self.spans.iter().flat_map(|span| &span.words).cloned().collect()
    }

    /// The first sample that may be needed again.
    pub fn start(&self) -> Option<u64> {
        self.spans.first().map(|span| span.start)
    }

    /// The number of `words`, from a window that began at `start`, that were already sent for the audio before
    /// `boundary`, both in samples: up to where the last words sent are found again, close to the boundary.
    pub fn told(&self, words: &[Word], start: u64, boundary: u64) -> usize {
        let (start, boundary) = (to_seconds(start), to_seconds(boundary));
        let told: Vec<&Word> =
            self.spans.iter().flat_map(|span| &span.words).filter(|word| word.end > start).collect();
        // A word that lies behind the last one sent is new, even if alignment drew its start into the pause.
        let told_end = told.last().map_or(boundary, |word| word.end);
        let score = |count: usize| {
            let before = count.checked_sub(1).and_then(|last| words.get(last));
            let after = words.get(count);
            let late = before
                .map_or(0.0, |word| (word.end - boundary).max(word.start.midpoint(word.end) - told_end));
            let late = late.max(0.0);
            let early = after.map_or(0.0, |word| boundary - word.start).max(0.0);
            let may_be = before.is_none_or(|word| word.start <= boundary + SLACK)
                && after.is_none_or(|word| word.end >= boundary - SLACK);
            let pairs = told.iter().rev().zip(words[..count].iter().rev()).take(COMPARED_WORDS);
            let found = pairs.filter(|(a, b)| a.is_like(b)).count();
            may_be.then_some(found as f64 - WORDS_PER_SECOND * (late + early))
        };
        let best = (0..=words.len()).filter_map(|count| Some((score(count)?, count)));
        let best = best.max_by(|a, b| a.0.total_cmp(&b.0));
        best.map_or_else(
            || words.partition_point(|word| word.start.midpoint(word.end) < boundary),
            |(_, count)| count,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(text: &str, start: f64, end: f64) -> Word {
        Word { text: format!(" {text}"), start, end, probability: 1.0, speaker: None }
    }

    /// «the small dog», already sent, with voice up to 2.0 s and a span up to 2.3 s.
    fn context() -> Context {
        let mut context = Context::default();
        let words = vec![word("the", 1.0, 1.2), word("small", 1.2, 1.5), word("dog.", 1.5, 2.0)];
        context.push(SECOND / 2, 2 * SECOND, words);
        context
    }

    #[test]
    fn what_was_told_is_taken_off_wherever_its_times_have_moved() {
        let (start, boundary) = (SECOND / 2, SECOND * 23 / 10);
        let again = [word("The", 1.0, 1.2), word("small", 1.2, 1.5), word("dog", 1.5, 2.0)];
        // The next word in its place; drawn into the pause; the last one drawn into the pause; said again.
        for (next, last_end) in [((2.7, 2.9), 2.0), ((2.0, 2.9), 2.0), ((2.7, 2.9), 2.7), ((2.4, 2.6), 2.4)] {
            for text in ["ran", "dog"] {
                let mut words = again.to_vec();
                words[2].end = last_end;
                words.push(word(text, next.0, next.1));
                words.push(word("away", 2.9, 3.2));
                assert_eq!(context().told(&words, start, boundary), 3, "{text} at {next:?} after {last_end}");
            }
        }
        assert_eq!(context().told(&again, start, boundary), 3);
        assert_eq!(context().told(&[], start, boundary), 0);
    }

    #[test]
    fn what_is_heard_otherwise_the_second_time_is_taken_off_by_its_time() {
        let words =
            [word("a", 1.0, 1.2), word("smell", 1.2, 1.5), word("dock", 1.5, 2.0), word("ran", 2.7, 2.9)];
        assert_eq!(context().told(&words, SECOND / 2, SECOND * 23 / 10), 3);
        let fewer = [word("smalldog", 1.2, 2.0), word("ran", 2.7, 2.9)];
        assert_eq!(context().told(&fewer, SECOND / 2, SECOND * 23 / 10), 1);
    }

    #[test]
    fn a_short_word_that_begins_in_the_pause_is_new() {
        // Nothing is found again, so the times decide.
        let words =
            [word("a", 1.0, 1.2), word("smell", 1.2, 1.5), word("dock", 1.5, 2.0), word("I", 2.2, 2.5)];
        assert_eq!(context().told(&words, SECOND / 2, SECOND * 24 / 10), 3);
    }

    #[test]
    fn context_fades_and_gives_way() {
        let mut context = context();
        assert_eq!(context.window_start(3 * SECOND, 5 * SECOND), SECOND / 2);
        assert_eq!(context.window_start(3 * SECOND, 25 * SECOND), 3 * SECOND);
        context.fade(4 * SECOND);
        assert_eq!(context.start(), Some(SECOND / 2));
        context.fade(4 * SECOND + 1);
        assert_eq!((context.start(), context.window_start(5 * SECOND, 6 * SECOND)), (None, 5 * SECOND));
    }
}
