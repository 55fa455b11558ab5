//! The end of a turn by its words: whether a sentence may end with them. English; words of other languages say nothing.
//! Pure.

use super::complement::{is_subordinate, is_wanted};
use crate::digits::{digits, number};

/// The answer that a speaker was asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Expected {
    #[default]
    Anything,
    /// So many digits, of a code.
    Digits(usize),
}

/// How the words so far end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// They are a whole answer: a short affirmation, or all digits that were asked for.
    Complete,
    /// The recogniser has closed them with a period or the like.
    Closed,
    /// They may be the end, but nothing says so.
    Loose,
    /// More has to follow: they end with a conjunction, an article, a filler, or within a number.
    Open,
}

/// One of these is among the words of a short answer.
const CORES: &[&str] = &[
    "yes",
    "yeah",
    "yep",
    "yup",
    "yah",
    "no",
    "nope",
    "nah",
    "ok",
    "okay",
    "sure",
    "right",
    "correct",
    "exactly",
    "alright",
    "absolutely",
    "definitely",
    "certainly",
    "maybe",
    "perhaps",
    "never",
    "none",
    "nothing",
    "thanks",
    "thank",
    "course",
    "fine",
    "good",
    "great",
    "perfect",
    "hello",
    "hi",
    "hey",
    "bye",
    "goodbye",
    "mhm",
];
/// A short answer has no words but those and these.
const BESIDE_CORES: &[&str] = &[
    "all", "please", "you", "very", "much", "sir", "madam", "ma'am", "of", "that's", "it", "is", "sounds",
    "not", "really", "i", "do", "don't", "mm", "hmm", "uh", "huh", "got", "see", "at",
];
/// So many digits are a whole telephone number, however they are grouped.
const WHOLE_NUMBER_DIGITS: usize = 10;
/// Words in a short answer, at most.
const ANSWER_WORDS_MAX: usize = 4;

/// Words that end no sentence.
const OPEN: &[&str] = &[
    "a", "an", "the", "my", "your", "our", "their", "and", "or", "but", "because", "if", "um", "uh", "er",
    "erm", "hmm", "mm", "that's", "it's", "i'm", "i'd", "i'll", "i've", "we're", "we'd", "we'll", "you're",
    "they're", "he's", "she's", "there's", "what's", "where's", "every", "than", "whether", "although",
    "unless", "very", "between", "per", "to",
];
/// Words that end no sentence but a question: "who is it for?".
const OPEN_UNLESS_ASKED: &[&str] = &[
    "for",
    "with",
    "at",
    "from",
    "of",
    "by",
    "about",
    "as",
    "into",
    "are",
    "were",
    "am",
    "will",
    "would",
    "can",
    "could",
    "should",
    "has",
    "i",
    "we",
    "he",
    "she",
    "they",
    "then",
    "when",
    "where",
    "which",
    "who",
    "whose",
    "while",
    "since",
    "until",
    "like",
    "called",
    "named",
    "also",
    "other",
    "against",
    "said",
    "says",
    "need",
    "want",
    "wants",
    "include",
    "includes",
    "including",
];
/// Words that seldom end a sentence: "we moved in".
const LOOSE: &[&str] = &[
    "in", "on", "is", "was", "have", "had", "do", "does", "did", "so", "that", "just", "around", "near",
    "under", "over", "after", "before", "without", "through", "not",
];
/// How `text` ends, where `expected` was asked for.
pub fn ending(text: &str, expected: Expected) -> Ending {
    let text = text.trim().to_lowercase().replace('’', "'");
    let words: Vec<&str> =
        text.split(|c: char| !c.is_alphanumeric() && c != '\'').filter(|word| !word.is_empty()).collect();
    let Some(last) = words.last() else { return Ending::Loose };
    if let Expected::Digits(wanted) = expected {
        let said = digits(&text).len();
        if said >= wanted {
            return Ending::Complete;
        }
        if said > 0 {
            return Ending::Open;
        }
    }
    let is_broken_off = text.ends_with(['-', '–', '—', ',', '…']) || text.ends_with("..");
    if is_broken_off {
        return Ending::Open;
    }
    if is_answer(&words) {
        return Ending::Complete;
    }
    if words.iter().all(|word| is_number(word)) {
        // One number is an answer; several are a longer one that comes in groups.
        let is_one = words.len() == 1 && last.len() != 3;
        return match digits(&text).len() {
            _ if is_one => Ending::Complete,
            WHOLE_NUMBER_DIGITS.. => Ending::Closed,
            _ => Ending::Open,
        };
    }
    let is_asked = text.ends_with(['?', '？', '؟']);
    if OPEN.contains(last) || (!is_asked && OPEN_UNLESS_ASKED.contains(last)) || is_wanted(&words) {
        return Ending::Open;
    }
    let is_closed =
        is_asked || text.trim_end_matches(['"', '\'', '”', ')']).ends_with(['.', '!', '。', '！', '।']);
    let seldom_ends = LOOSE.contains(last) || last.ends_with("n't");
    let is_loose = !is_asked && (seldom_ends || is_subordinate(&words, &text));
    if is_closed && !is_loose { Ending::Closed } else { Ending::Loose }
}

fn is_answer(words: &[&str]) -> bool {
    let may_be = |word: &&str| CORES.contains(word) || BESIDE_CORES.contains(word);
    let is_short = words.len() <= ANSWER_WORDS_MAX && words.iter().all(may_be);
    let is_open = words
        .last()
        .is_some_and(|last| matches!(*last, "of" | "at" | "i" | "is" | "do" | "not" | "very" | "that's"));
    is_short && words.iter().any(|word| CORES.contains(word)) && (!is_open || is_phrase(words))
}

/// Short answers that end with a word that is otherwise open.
fn is_phrase(words: &[&str]) -> bool {
    words.ends_with(&["i", "do"]) || words.ends_with(&["it", "is"])
}

fn is_number(word: &str) -> bool {
    number(word).is_some() || matches!(word, "double" | "triple" | "hundred")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_answers_and_asked_digits_are_complete() {
        for text in [
            "Yeah.",
            "No.",
            "Yes, please.",
            "No, thanks.",
            "Okay",
            "That's right.",
            "Yes, I do.",
            "Four.",
            "12",
        ] {
            assert_eq!(ending(text, Expected::Anything), Ending::Complete, "{text}");
        }
        for (text, expected) in [
            ("One two three four.", Ending::Complete),
            ("It's 12-34.", Ending::Complete),
            ("One two", Ending::Open),
            ("Yes, it's one", Ending::Open),
            ("Never mind.", Ending::Closed),
        ] {
            assert_eq!(ending(text, Expected::Digits(4)), expected, "{text}");
        }
    }

    #[test]
    fn sentences_that_have_to_go_on_are_open() {
        for text in [
            "I'd like to book a table for",
            "We are open on Monday and",
            "Um",
            "The, um.",
            "I wanted to...",
            "What do I need to bring to?",
            "Well,",
            "555",
            "four two",
            "Yes, I",
            "Is that the?",
            "Can you tell me?",
            "I was supposed.",
            "One two three, four five six.",
        ] {
            assert_eq!(ending(text, Expected::Anything), Ending::Open, "{text}");
        }
    }

    #[test]
    fn sentences_that_may_end_are_closed_or_loose() {
        for text in
            ["Where can I park?", "Who is it for?", "Book a table for four people.", "¿Dónde está?", "你好。"]
        {
            assert_eq!(ending(text, Expected::Anything), Ending::Closed, "{text}");
        }
        for text in
            ["I think so.", "The heating hasn't worked since we moved in.", "We would like a table", ""]
        {
            assert_eq!(ending(text, Expected::Anything), Ending::Loose, "{text}");
        }
    }
}
