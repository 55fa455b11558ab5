//! The transcript of one item, which only grows. Pure.
//!
//! Clients add deltas up, so a delta cannot be taken back. A word becomes a delta once it has stood unchanged in so
//! many interim results in a row, each over more audio. The final result of the span is recognised anew, and may
//! differ: the words that were sent stay, and those of it after them follow. So all deltas together are the
//! transcript that `completed` has.

use super::request::Delay;
use crate::transcript::Word;
use crate::transcript::script::is_unspaced;

/// Interim results in a row with the same word before it is sent.
fn repeats(delay: Delay) -> Option<usize> {
    match delay {
        Delay::Minimal => Some(1),
        Delay::Low => Some(2),
        Delay::Medium => Some(3),
        Delay::High => Some(5),
        Delay::Xhigh => None,
    }
}

#[derive(Debug, Default)]
pub struct Transcript {
    text: String,
    /// All words that were sent.
    words: Vec<Word>,
    /// How many of them were sent before the open span.
    closed: usize,
    /// The words after them in the last interim result, and in how many results each has stood.
    waiting: Vec<(Word, usize)>,
}

/// An addition to a transcript: its text, and the words that it consists of.
#[derive(Debug, Default, PartialEq)]
pub struct Added {
    pub text: String,
    pub words: Vec<Word>,
}

impl Transcript {
    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn words(&self) -> &[Word] {
        &self.words
    }

    /// The words of the open span so far.
    pub fn interim(&mut self, words: &[Word], delay: Delay) -> Added {
        let sent = self.words.len() - self.closed;
        let mut waiting: Vec<(Word, usize)> = Vec::new();
        let mut stands = true;
        for (place, word) in words.iter().skip(sent).enumerate() {
            let before = self.waiting.get(place).filter(|(before, _)| before.text == word.text);
            stands &= before.is_some();
            let times = if stands { before.map_or(0, |(_, times)| *times) } else { 0 };
            waiting.push((word.clone(), times + 1));
        }
        let stable = match repeats(delay) {
            Some(repeats) => waiting.iter().take_while(|(_, times)| *times > repeats).count(),
            None => 0,
        };
        let added = waiting.drain(..stable).map(|(word, _)| word).collect();
        self.waiting = waiting;
        self.add(added)
    }

    /// All words of the span, which is closed.
    pub fn close(&mut self, words: &[Word]) -> Added {
        let from = after(&self.words[self.closed..], words);
        let added = self.add(words[from..].to_vec());
        self.waiting.clear();
        self.closed = self.words.len();
        added
    }

    fn add(&mut self, words: Vec<Word>) -> Added {
        let mut text: String = words.iter().map(|word| word.text.as_str()).collect();
        if self.text.is_empty() {
            text = text.trim_start().to_owned();
        } else if let (Some(last), Some(first)) = (self.text.chars().last(), text.chars().next())
            && self.words.len() == self.closed
            && first.is_alphanumeric()
            && !last.is_whitespace()
            && !(is_unspaced(last) || is_unspaced(first))
        {
            // Between spans, where the model wrote no space.
            text.insert(0, ' ');
        }
        self.text.push_str(&text);
        self.words.extend(words.iter().cloned());
        Added { text, words }
    }
}

/// The number of `heard` words that say again what was `sent`: the start of `heard` with the least edit distance.
fn after(sent: &[Word], heard: &[Word]) -> usize {
    let mut row: Vec<usize> = (0..=heard.len()).collect();
    for (number, word) in sent.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = number + 1;
        for (place, other) in heard.iter().enumerate() {
            let changed = diagonal + usize::from(!word.is_like(other));
            diagonal = row[place + 1];
            row[place + 1] = changed.min(row[place] + 1).min(row[place + 1] + 1);
        }
    }
    // Ties go to the place that ends with the last sent word, then to the one closest in length.
    let ends_alike = |place: usize| match (sent.last(), place.checked_sub(1).and_then(|last| heard.get(last)))
    {
        (Some(sent), Some(heard)) => sent.is_like(heard),
        _ => false,
    };
    let distance = |place: &usize| (row[*place], !ends_alike(*place), place.abs_diff(sent.len()));
    (0..=heard.len()).min_by_key(distance).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn heard(text: &str) -> Vec<Word> {
        let word = |(place, text): (usize, &str)| Word {
            text: format!(" {text}"),
            start: place as f64,
            end: place as f64 + 0.5,
            probability: 0.9,
            speaker: None,
        };
        text.split_whitespace().enumerate().map(word).collect()
    }

    #[test]
    fn a_word_is_sent_once_it_has_stood_long_enough() {
        let mut transcript = Transcript::default();
        let mut interim = |text| transcript.interim(&heard(text), Delay::Minimal).text;
        assert_eq!(interim("the cat"), "");
        assert_eq!(interim("the cat sat on"), "the cat");
        assert_eq!(interim("the cat sad on the"), "");
        assert_eq!(interim("the cat sad on the mat"), " sad on the");
        assert_eq!(transcript.close(&heard("The cat sat on the mat.")).text, " mat.");
        assert_eq!(transcript.text(), "the cat sad on the mat.");
        assert_eq!(transcript.interim(&heard("Then it"), Delay::Minimal).text, "");
        assert_eq!(transcript.interim(&heard("Then it slept"), Delay::Minimal).text, " Then it");
        assert_eq!(transcript.close(&heard("Then it slept.")).text, " slept.");
        assert_eq!(transcript.text(), "the cat sad on the mat. Then it slept.");
    }

    #[test]
    fn a_final_result_goes_on_after_what_was_sent() {
        for (sent, last, expected) in [
            ("one two", "one two three", "one two three"),
            ("one two", "one, two, three", "one two three"),
            ("one two", "one and two three", "one two three"),
            ("one two three", "one three four", "one two three four"),
            ("one two", "", "one two"),
            ("", "one two", "one two"),
            ("won too", "one two three", "won too three"),
        ] {
            let mut transcript = Transcript::default();
            transcript.interim(&heard(sent), Delay::Minimal);
            transcript.interim(&heard(sent), Delay::Minimal);
            assert_eq!(transcript.text(), sent);
            transcript.close(&heard(last));
            assert_eq!(transcript.text(), expected, "{sent} and {last}");
        }
    }

    #[test]
    fn spans_are_set_apart_where_their_script_has_spaces() {
        let bare = |text: &str| vec![Word { text: text.into(), ..heard("x").remove(0) }];
        for (first, second, expected) in [("a", "b", "a b"), ("a", " b", "a b"), ("东京", "大", "东京大")]
        {
            let mut transcript = Transcript::default();
            transcript.close(&bare(first));
            transcript.close(&bare(second));
            assert_eq!(transcript.text(), expected);
        }
    }

    proptest! {
        #[test]
        fn deltas_are_the_transcript(
            spans in prop::collection::vec((prop::collection::vec("[ab]( [abc]){0,8}", 0..6), "[ab]( [abc]){0,8}"), 1..4),
            delay in prop::sample::select(vec![Delay::Minimal, Delay::Low, Delay::High, Delay::Xhigh]),
        ) {
            let mut transcript = Transcript::default();
            let mut deltas = String::new();
            for (interims, last) in spans {
                for interim in interims {
                    deltas.push_str(&transcript.interim(&heard(&interim), delay).text);
                    prop_assert_eq!(&deltas, transcript.text());
                }
                deltas.push_str(&transcript.close(&heard(&last)).text);
                prop_assert_eq!(&deltas, transcript.text());
            }
            let words: String = transcript.words().iter().map(|word| word.text.as_str()).collect();
            prop_assert_eq!(words.trim(), transcript.text());
        }
    }
}
