//! Concealment of the digits by which callers prove who they are: transcripts, events, the disk and prompts to a
//! model never show them.
//!
//! Numbers are found as recognisers write them and as people say them, in one piece or in several. While a proof
//! is owed all of them are hidden; otherwise only those that could be a code.

use serde_json::Value;

use crate::digits::{digits, number};

/// Replaces concealed digits.
pub const MASK: &str = "••••";

/// A shorter row of digits is not a code.
const CODE_DIGITS: usize = 4;
/// At least this many numbers in a row are a number being spelled out.
const SPELT_NUMBERS: usize = 3;
/// Digits that callers have given and that are remembered.
const GIVEN_MAX: usize = 512;

/// Which digits in a caller's words are hidden.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caution {
    /// None: the session has no verification.
    None,
    /// Those that could be a code, but not times of day.
    Codes,
    /// All of them.
    Digits,
}

/// `text` with the digits masked that must not be shown.
pub fn concealed(text: &str, caution: Caution) -> String {
    match caution {
        Caution::None => text.to_owned(),
        Caution::Codes => masked(text, false, |row| row.is_code()),
        Caution::Digits => masked(text, true, |_| true),
    }
}

/// Whether [`concealed`] left nothing but masks.
pub fn is_all_digits(concealed: &str) -> bool {
    concealed.contains(MASK) && !concealed.contains(char::is_alphanumeric)
}

/// Whether `text` contains a digit of any script, or a word for one.
pub fn has_digits(text: &str) -> bool {
    text.contains(char::is_numeric) || !digits(text).is_empty()
}

/// The proofs that callers have given while the process runs. Never written to disk.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Given(Vec<String>);

impl Given {
    /// Remembers a proof. Pieces of a code may come one by one.
    pub fn note(&mut self, text: &str) {
        let said = digits(text);
        let held: usize = self.0.iter().map(String::len).sum();
        if said.is_empty() || held + said.len() > GIVEN_MAX {
            return;
        }
        if let Some(piece) = self.0.last_mut().filter(|last| last.len() < CODE_DIGITS) {
            piece.push_str(&said);
        }
        self.0.push(said);
    }

    fn has(&self, row: &str) -> bool {
        let codes = self.0.iter().filter(|code| code.len() >= CODE_DIGITS);
        row.len() >= CODE_DIGITS
            && codes.into_iter().any(|code| row.contains(code.as_str()) || code.contains(row))
    }

    /// `text` with given proofs masked.
    pub fn concealed(&self, text: &str) -> String {
        if self.0.is_empty() {
            return text.to_owned();
        }
        masked(text, true, |row| self.has(&row.digits))
    }

    /// Like [`Self::concealed`], for every text and number within `value`.
    pub fn concealed_within(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => self.concealed(text).into(),
            Value::Number(number) if self.has(&digits(&number.to_string())) => MASK.into(),
            Value::Array(items) => items.iter().map(|item| self.concealed_within(item)).collect(),
            Value::Object(map) => {
                map.iter().map(|(name, inner)| (self.concealed(name), self.concealed_within(inner))).collect()
            }
            plain => plain.clone(),
        }
    }
}

/// Consecutive numbers.
struct Row<'a> {
    /// All their digits, in order.
    digits: String,
    /// The count of numbers.
    numbers: usize,
    /// The words around it, in lower case.
    before: &'a str,
    after: &'a str,
}

impl Row<'_> {
    fn is_code(&self) -> bool {
        let is_time = self.numbers == 2
            && self.digits.len() <= CODE_DIGITS
            && (self.before == "at" || matches!(self.after, "am" | "pm" | "a" | "p" | "o'clock"));
        !is_time && (self.digits.len() >= CODE_DIGITS || self.numbers >= SPELT_NUMBERS)
    }
}

/// The role of a word in a row of numbers.
enum Part {
    Number(String),
    /// Repeats the next number.
    Repeat,
    /// Belongs to a row if numbers surround it.
    Link,
    Other,
}

/// Words within a number, and fillers while it is being said.
const LINKS: &[&str] = &["oh", "o", "hundred", "thousand", "dash", "hyphen", "uh", "um", "er"];
/// Words that can also join two separate numbers, or that recognisers write for a digit that sounds alike.
const LOOSE_LINKS: &[&str] =
    &["and", "then", "for", "to", "too", "won", "ate", "tree", "free", "sex", "fife", "niner"];

fn part(word: &str, is_loose: bool) -> Part {
    if word.contains(char::is_numeric) {
        return Part::Number(word.chars().filter(|c| c.is_numeric()).collect());
    }
    match word {
        "double" | "triple" => Part::Repeat,
        _ if LINKS.contains(&word) || (is_loose && LOOSE_LINKS.contains(&word)) => Part::Link,
        _ => number(word).map_or(Part::Other, Part::Number),
    }
}

/// Masks each row of numbers for which `is_hidden`. `is_loose`: more words may stand between the numbers.
fn masked(text: &str, is_loose: bool, is_hidden: impl Fn(&Row<'_>) -> bool) -> String {
    let plain = |word: &str| word.to_lowercase().replace('’', "'").trim_matches('\'').to_owned();
    let words: Vec<(usize, usize, String)> =
        words(text).map(|(from, to)| (from, to, plain(&text[from..to]))).collect();
    let parts: Vec<Part> = words.iter().map(|(_, _, word)| part(word, is_loose)).collect();
    let word = |at: Option<usize>| at.and_then(|at| words.get(at)).map_or("", |(_, _, word)| word.as_str());
    let (mut out, mut written, mut at) = (String::with_capacity(text.len()), 0, 0);
    while at < parts.len() {
        let Some((end, digits, numbers)) = row(&parts, at) else {
            at += 1;
            continue;
        };
        let row = Row { digits, numbers, before: word(at.checked_sub(1)), after: word(Some(end)) };
        if let (true, Some((from, _, _)), Some((_, to, _))) =
            (is_hidden(&row), words.get(at), words.get(end - 1))
        {
            out.push_str(&text[written..*from]);
            out.push_str(MASK);
            written = *to;
        }
        at = end;
    }
    out.push_str(&text[written..]);
    out
}

/// The row that begins with part `at`: the index after its last part, its digits, and the count of numbers.
fn row(parts: &[Part], at: usize) -> Option<(usize, String, usize)> {
    let (mut digits, mut numbers, mut end, mut times) = (String::new(), 0, at, 1);
    if matches!(parts.get(at), Some(Part::Link)) {
        return None;
    }
    for (index, part) in parts.iter().enumerate().skip(at) {
        match part {
            Part::Number(more) => {
                digits.push_str(&more.repeat(std::mem::replace(&mut times, 1)));
                numbers += 1;
                end = index + 1;
            }
            Part::Repeat => times = 2,
            Part::Link => {}
            Part::Other => break,
        }
    }
    (numbers > 0).then_some((end, digits, numbers))
}

/// Byte ranges of the words of a text.
fn words(text: &str) -> impl Iterator<Item = (usize, usize)> {
    let mut letters = text.char_indices().peekable();
    let is_letter = |c: char| c.is_alphanumeric() || c == '\'' || c == '’';
    std::iter::from_fn(move || {
        let (from, _) = letters.find(|(_, c)| is_letter(*c))?;
        while letters.next_if(|(_, c)| is_letter(*c)).is_some() {}
        Some((from, letters.peek().map_or(text.len(), |(to, _)| *to)))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn all_digits_are_hidden_while_a_proof_is_owed() {
        for (text, expected) in [
            ("4567", "••••"),
            ("4 5 6 7.", "••••."),
            ("It's 45-67, right?", "It's ••••, right?"),
            ("Four, five. Six seven!", "••••!"),
            ("double four three one", "••••"),
            ("forty-five sixty seven", "••••"),
            ("four for uh five six", "••••"),
            ("four thousand five hundred and sixty seven", "••••"),
            ("seven", "••••"),
            ("my 4th is P1001x and ４５６７ and ٤٥", "my •••• is ••••"),
            ("Oh, I forgot", "Oh, I forgot"),
            ("nine oh four four", "••••"),
            ("Where can I park, and for how long?", "Where can I park, and for how long?"),
            ("", ""),
        ] {
            assert_eq!(concealed(text, Caution::Digits), expected, "{text}");
        }
    }

    #[test]
    fn otherwise_only_what_could_be_a_code_is() {
        for (text, expected) in [
            ("My code is 4567, what are my results?", "My code is ••••, what are my results?"),
            ("It is four five six", "It is ••••"),
            ("four five six seven", "••••"),
            ("45 67", "••••"),
            ("123-45-6789", "••••"),
            ("Are you open at nine thirty?", "Are you open at nine thirty?"),
            ("At 10:30 or 11:15 a.m.", "At 10:30 or 11:15 a.m."),
            ("I have two dogs and 14 cats.", "I have two dogs and 14 cats."),
            ("from nine to five, or between 10 and 12", "from nine to five, or between 10 and 12"),
            ("one moment, no one is here", "one moment, no one is here"),
        ] {
            assert_eq!(concealed(text, Caution::Codes), expected, "{text}");
            assert_eq!(concealed(text, Caution::None), text);
        }
    }

    #[test]
    fn what_was_given_is_hidden_wherever_it_comes_back() {
        let mut given = Given::default();
        assert_eq!(given.concealed("4567"), "4567");
        given.note("four five");
        given.note("67");
        given.note("no digits");
        let value = json!({"a": ["4567", 4567, 45, true], "b": {"text": "SSN 123-45-4567", "year": 1984}});
        let expected = json!({"a": ["••••", "••••", 45, true], "b": {"text": "SSN ••••", "year": 1984}});
        assert_eq!(given.concealed_within(&value), expected);
        assert_eq!(given.concealed("You said four five six seven."), "You said ••••.");
    }

    #[test]
    fn what_is_left_is_told_apart() {
        assert!(is_all_digits(&concealed("4567.", Caution::Digits)));
        assert!(!is_all_digits(&concealed("my 4567.", Caution::Digits)));
        assert!(!is_all_digits("…"));
        assert!(has_digits("٤٥") && has_digits("a4") && has_digits("four") && !has_digits("none"));
    }
}
