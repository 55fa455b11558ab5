//! Numbers that are nobody's business. Pure.
//!
//! | class                     | what goes                                                          |
//! |---------------------------|--------------------------------------------------------------------|
//! | `numbers`, `true`         | three digits or more in a row                                      |
//! | `aggressive_numbers`      | every digit                                                        |
//! | `ssn`                     | nine digits in a row                                               |
//! | `pci`                     | 13 to 19 digits in a row; the digits after words such as `cvv` and |
//! |                           | `expiration`                                                       |
//!
//! Digits are told as digits or, in English, as words; a row goes on over `dash`, `and` and the like. Of a
//! row that touches an end of what was heard the rest may be in the words before or after: with `numbers`
//! any such row goes, with `ssn` and `pci` one of three digits or more. More goes than must, rather than
//! less.

use std::ops::Range;

use crate::transcript::Word;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    Numbers,
    AggressiveNumbers,
    Ssn,
    Pci,
}

/// The classes, for people.
pub const CLASSES: &str = "numbers, aggressive_numbers, ssn or pci";

impl Class {
    pub fn named(name: &str) -> Option<Self> {
        let classes = [
            ("numbers", Self::Numbers),
            ("true", Self::Numbers),
            ("aggressive_numbers", Self::AggressiveNumbers),
            ("ssn", Self::Ssn),
            ("pci", Self::Pci),
        ];
        classes.into_iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, class)| class)
    }

    fn label(self) -> &'static str {
        match self {
            Self::Numbers | Self::AggressiveNumbers => "NUMBER",
            Self::Ssn => "SSN",
            Self::Pci => "PCI",
        }
    }

    fn hides(self, run: &Run) -> bool {
        let may_go_on = run.touches_an_end && run.digits >= 3;
        match self {
            Self::Numbers => run.digits >= 3 || run.touches_an_end && run.digits > 0,
            Self::AggressiveNumbers => run.digits > 0,
            Self::Ssn => run.digits == 9 || may_go_on,
            Self::Pci => (13..=19).contains(&run.digits) || may_go_on || run.follows_card_word,
        }
    }
}

/// What stands in the place of what goes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Mode {
    /// `*` for each digit; a word of a number becomes as many as it stands for.
    #[default]
    Mask,
    /// `[SSN]` and the like, for each word.
    Label,
}

impl Mode {
    pub fn named(name: &str) -> Option<Self> {
        match name {
            _ if name.eq_ignore_ascii_case("mask") => Some(Self::Mask),
            _ if name.eq_ignore_ascii_case("label") => Some(Self::Label),
            _ => None,
        }
    }
}

/// A row of numbers, and words that only join them.
struct Run {
    words: Range<usize>,
    digits: usize,
    touches_an_end: bool,
    follows_card_word: bool,
}

/// Words up to this many before digits that say what they are.
const CARD_WORD_REACH: usize = 4;

/// Hides what belongs to `classes`. `words` are all of one result; their times stay.
pub fn redact(words: &mut [Word], classes: &[Class], mode: Mode) {
    if classes.is_empty() {
        return;
    }
    for run in runs(words) {
        let Some(class) = classes.iter().find(|class| class.hides(&run)) else { continue };
        for word in words.get_mut(run.words).unwrap_or_default() {
            if digits(&word.text) > 0 {
                word.text = hidden(&word.text, *class, mode);
            }
        }
    }
}

fn runs(words: &[Word]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    let mut at = 0;
    while at < words.len() {
        if digits(&words[at].text) == 0 {
            at += 1;
            continue;
        }
        let (start, mut end, mut count) = (at, at, 0);
        while let Some(word) = words.get(at) {
            match digits(&word.text) {
                0 if joins(&word.text) => {}
                0 => break,
                more => {
                    count += more;
                    end = at + 1;
                }
            }
            at += 1;
        }
        let before = words.get(start.saturating_sub(CARD_WORD_REACH)..start).unwrap_or_default();
        runs.push(Run {
            words: start..end,
            digits: count,
            touches_an_end: start == 0 || end == words.len(),
            follows_card_word: before.iter().any(|word| is_card_word(&word.text)),
        });
    }
    runs
}

/// How many digits a word stands for; 0 where it is no number.
fn digits(text: &str) -> usize {
    let written = text.chars().filter(|c| c.is_numeric()).count();
    if written > 0 {
        return written;
    }
    let parts = text.split('-').map(letters).filter(|part| !part.is_empty()).map(|part| spoken_digits(&part));
    // `twenty-one` has two digits, `one-two` as well; `check-in` is none.
    let join = |sum: usize, part: usize| match (sum, part) {
        (0, _) | (_, 0) => 0,
        (2.., _) => sum.max(part),
        _ => sum + part,
    };
    parts.reduce(join).unwrap_or(0)
}

fn spoken_digits(word: &str) -> usize {
    match word {
        "zero" | "oh" | "one" | "two" | "three" | "four" | "five" | "six" | "seven" | "eight" | "nine" => 1,
        "ten" | "eleven" | "twelve" | "thirteen" | "fourteen" | "fifteen" | "sixteen" | "seventeen" => 2,
        "eighteen" | "nineteen" | "twenty" | "thirty" | "forty" | "fifty" | "sixty" | "seventy" => 2,
        "eighty" | "ninety" => 2,
        "hundred" | "double" | "triple" => 2,
        "thousand" | "million" => 3,
        _ => 0,
    }
}

fn joins(text: &str) -> bool {
    let word = letters(text);
    word.is_empty()
        || matches!(word.as_str(), "and" | "dash" | "hyphen" | "minus" | "point" | "slash" | "space")
}

fn is_card_word(text: &str) -> bool {
    matches!(
        letters(text).as_str(),
        "cvv"
            | "cvc"
            | "cvv2"
            | "csc"
            | "security"
            | "expiration"
            | "expiry"
            | "expires"
            | "exp"
            | "expire"
            | "card"
    )
}

fn letters(text: &str) -> String {
    text.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

fn hidden(text: &str, class: Class, mode: Mode) -> String {
    let body = text.trim_start();
    let space = &text[..text.len() - body.len()];
    match mode {
        Mode::Label => format!("{space}[{}]", class.label()),
        Mode::Mask if body.contains(char::is_numeric) => {
            let masked = body.chars().map(|c| if c.is_alphanumeric() { '*' } else { c });
            format!("{space}{}", masked.collect::<String>())
        }
        Mode::Mask => format!("{space}{}", "*".repeat(digits(text))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redacted(text: &str, classes: &[Class], mode: Mode) -> String {
        let mut words: Vec<Word> = text
            .split_whitespace()
            .map(|word| Word { text: format!(" {word}"), start: 0.0, end: 0.0, probability: 1.0 })
            .collect();
        redact(&mut words, classes, mode);
        words.iter().map(|word| word.text.as_str()).collect::<String>().trim().to_owned()
    }

    #[test]
    fn numbers_go_by_their_class() {
        use Class::{AggressiveNumbers, Numbers, Pci, Ssn};
        for (class, text, expected) in [
            (Numbers, "call 555 0199 at once", "call *** **** at once"),
            (Numbers, "I have 2 dogs here", "I have 2 dogs here"),
            (Numbers, "it is four five six seven, yes", "it is * * * * yes"),
            (Numbers, "the code is 12", "the code is **"),
            (Numbers, "in twenty-one days or one day", "in twenty-one days or one day"),
            (AggressiveNumbers, "I have two dogs and 3 cats here", "I have * dogs and * cats here"),
            (Ssn, "mine is 123-45-6789 I think", "mine is ***-**-**** I think"),
            (Ssn, "mine is 123 45 dash 6789 I think", "mine is *** ** dash **** I think"),
            (Ssn, "it was in 1984 I think", "it was in 1984 I think"),
            // Half of it may be in the next result.
            (Ssn, "mine is 123 45", "mine is *** **"),
            (Ssn, "6789 is the rest", "**** is the rest"),
            (Pci, "take 4111 1111 1111 1111 please now", "take **** **** **** **** please now"),
            (Pci, "the cvv is 123 and more", "the cvv is *** and more"),
            (Pci, "it expires in 12/27 or so", "it expires in **/** or so"),
            (Pci, "we were 250 people there", "we were 250 people there"),
        ] {
            assert_eq!(redacted(text, &[class], Mode::Mask), expected, "{class:?}");
        }
    }

    #[test]
    fn labels_say_what_was_there() {
        let text = "it is 123-45-6789 or 4111 1111 1111 1111 you see";
        let expected = "it is [SSN] or [PCI] [PCI] [PCI] [PCI] you see";
        assert_eq!(redacted(text, &[Class::Ssn, Class::Pci], Mode::Label), expected);
        assert_eq!(redacted(text, &[], Mode::Label), text);
    }
}
