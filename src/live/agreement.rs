//! Agreement between successive hypotheses: which words of a growing span no longer change. Pure.
//!
//! LocalAgreement-2 (Liu et al., «Low-Latency Sequence-to-Sequence Speech Recognition and Translation
//! by Partial Hypothesis Selection», 2020): the words with which two recognitions in a row both begin
//! are committed.

use crate::transcript::{Word, in_order};

/// Committed words that must be found again at the start of a new hypothesis, counted from the last.
const ANCHOR_WORDS: usize = 5;
/// The distance from its old place within which the last committed word is looked for, in words.
const REACH: usize = 4;

/// The words of one span, committed and not.
#[derive(Default)]
pub struct Agreement {
    committed: Vec<Word>,
    /// The words of the last hypothesis after them.
    tail: Vec<Word>,
}

impl Agreement {
    /// Takes a new hypothesis of the whole span so far.
    pub fn update(&mut self, hypothesis: Vec<Word>) {
        let from = after_committed(&self.committed, &hypothesis);
        let mut tail: Vec<Word> = hypothesis.into_iter().skip(from).collect();
        let agreed = tail.iter().zip(&self.tail).take_while(|(a, b)| a.is_like(b)).count();
        self.committed.extend(tail.drain(..agreed));
        self.tail = tail;
    }

    /// The committed words, then those that may still change.
    pub fn words(&self) -> Vec<Word> {
        let mut words: Vec<Word> = self.committed.iter().chain(&self.tail).cloned().collect();
        in_order(&mut words);
        words
    }
}

/// The number of words of `hypothesis` that repeat the committed ones. It is where most of the last committed
/// words are found again, near their old place; if none are, it is where their time ends.
fn after_committed(committed: &[Word], hypothesis: &[Word]) -> usize {
    let count = committed.len();
    let Some(last) = committed.last() else { return 0 };
    let candidates = count.saturating_sub(REACH)..=(count + REACH).min(hypothesis.len());
    let found = |end: usize| {
        let pairs = committed.iter().rev().zip(hypothesis[..end].iter().rev());
        pairs.take(ANCHOR_WORDS).filter(|(a, b)| a.is_like(b)).count()
    };
    let best = candidates.map(|end| (found(end), end)).max_by_key(|&(found, end)| {
        // The last word itself counts most, because the cut comes right after it.
        let ends_alike = end > 0 && hypothesis.get(end - 1).is_some_and(|word| word.is_like(last));
        (ends_alike, found, std::cmp::Reverse(end.abs_diff(count)))
    });
    match best {
        Some((found, end)) if found > 0 => end,
        _ => hypothesis.partition_point(|word| word.start.midpoint(word.end) <= last.end),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn heard(text: &str) -> Vec<Word> {
        let words = text.split_whitespace().enumerate();
        words
            .map(|(index, word)| Word {
                text: format!(" {word}"),
                start: index as f64 * 0.3,
                end: index as f64 * 0.3 + 0.2,
                probability: 0.9,
                speaker: None,
            })
            .collect()
    }

    fn text(words: &[Word]) -> String {
        words.iter().map(|word| word.text.as_str()).collect::<String>().trim().to_owned()
    }

    #[test]
    fn what_two_hypotheses_begin_with_no_longer_changes() {
        let mut agreement = Agreement::default();
        agreement.update(heard("the cat"));
        assert_eq!(text(&agreement.words()), "the cat");
        agreement.update(heard("The cat, sad on"));
        assert_eq!(text(&agreement.committed), "The cat,");
        // Committed words stay as they were, whatever is heard later.
        agreement.update(heard("the cat sat on the mat"));
        assert_eq!(text(&agreement.words()), "The cat, sat on the mat");
        agreement.update(heard("the hat sat on the mat again"));
        assert_eq!(text(&agreement.words()), "The cat, sat on the mat again");
        assert_eq!(text(&agreement.committed), "The cat, sat on the mat");
    }

    #[test]
    fn a_word_that_comes_or_goes_before_the_last_shifts_nothing() {
        let mut agreement = Agreement::default();
        agreement.update(heard("one two three four five"));
        agreement.update(heard("one two three four five"));
        agreement.update(heard("one three four five six seven"));
        assert_eq!(text(&agreement.words()), "one two three four five six seven");
        agreement.update(heard("and one two three four five six eight"));
        assert_eq!(text(&agreement.words()), "one two three four five six eight");
    }

    proptest! {
        #[test]
        fn committed_words_never_change_and_times_never_go_back(
            hypotheses in prop::collection::vec("[ab]( [abc]){0,8}", 1..12)
        ) {
            let mut agreement = Agreement::default();
            let mut before: Vec<Word> = Vec::new();
            for hypothesis in hypotheses {
                agreement.update(heard(&hypothesis));
                prop_assert!(agreement.committed.starts_with(&before));
                before.clone_from(&agreement.committed);
                let times: Vec<f64> = agreement.words().iter().flat_map(|w| [w.start, w.end]).collect();
                prop_assert!(times.is_sorted());
            }
        }

        #[test]
        fn the_same_heard_twice_is_said_once(text_said in "[ab]( [abc]){0,12}") {
            let mut agreement = Agreement::default();
            for _ in 0..3 {
                agreement.update(heard(&text_said));
                prop_assert_eq!(text(&agreement.words()), text_said.clone());
            }
        }
    }
}
