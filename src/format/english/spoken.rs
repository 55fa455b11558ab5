//! The input of the rules, spoken elements of words, and their output.

use std::ops::Range;

use super::number_words;
use crate::format::word::{self, Gap, Word};

/// The joint between an atom and the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Joint {
    /// A space, or a hyphen within a word: the phrase goes on.
    Open,
    Comma,
    /// Any other punctuation, or the beginning.
    Stop,
}

/// One spoken element, in lower case: `twenty-five` has two. A word has one at least.
pub struct Atom {
    text: String,
    word: usize,
    /// Whether its word begins, and ends, with it.
    first: bool,
    last: bool,
    joint: Joint,
}

/// Words with their atoms, which are addressed by index; beyond the last there is "".
pub struct Spoken<'a> {
    pub words: &'a [Word],
    atoms: Vec<Atom>,
}

/// The result of one rule for some atoms.
pub struct Match {
    /// The atom after it.
    pub end: usize,
    /// In order; together they cover the match's words, each at least one.
    pub pieces: Vec<Piece>,
    /// The last word's own full stop belongs to an abbreviation that is written without it.
    pub drops_stop: bool,
}

/// One written word for some spoken ones.
pub struct Piece {
    pub text: String,
    pub words: Range<usize>,
}

impl<'a> Spoken<'a> {
    pub fn new(words: &'a [Word]) -> Self {
        let mut atoms: Vec<Atom> = Vec::with_capacity(words.len());
        let mut closing = Joint::Stop;
        for (index, word) in words.iter().enumerate() {
            let (open, core, close) = word.parts();
            let opening = if open.is_empty() && matches!(word.gap, Gap::Space | Gap::None) {
                Joint::Open
            } else {
                Joint::Stop
            };
            let texts = elements(if core.is_empty() { &word.written } else { core });
            let count = texts.len();
            for (place, text) in texts.into_iter().enumerate() {
                let joint = if place == 0 { opening.max(closing) } else { Joint::Open };
                let (first, last) = (place == 0, place + 1 == count);
                atoms.push(Atom { text, word: index, first, last, joint });
            }
            closing = match close {
                "" => Joint::Open,
                "," => Joint::Comma,
                _ => Joint::Stop,
            };
        }
        Self { words, atoms }
    }

    /// How many atoms.
    pub fn len(&self) -> usize {
        self.atoms.len()
    }

    pub fn atom(&self, at: usize) -> &str {
        self.atoms.get(at).map_or("", |atom| &atom.text)
    }

    /// The atom if nothing but a space is before it, else "".
    pub fn open(&self, at: usize) -> &str {
        self.after(at, Joint::Open)
    }

    /// The atom if no more than `joint` is before it, else "".
    pub fn after(&self, at: usize, joint: Joint) -> &str {
        if self.joint(at) <= joint { self.atom(at) } else { "" }
    }

    pub fn joint(&self, at: usize) -> Joint {
        self.atoms.get(at).map_or(Joint::Stop, |atom| atom.joint)
    }

    /// The atom before `at`, if nothing but a space is between, else "".
    pub fn before(&self, at: usize) -> &str {
        match at.checked_sub(1) {
            Some(previous) if self.joint(at) == Joint::Open => self.atom(previous),
            _ => "",
        }
    }

    /// Whether one of `words` is among the `reach` atoms before `at`.
    pub fn is_about(&self, at: usize, reach: usize, words: &[&str]) -> bool {
        (at.saturating_sub(reach)..at).any(|before| words.contains(&self.atom(before)))
    }

    /// The word at whose beginning atom `at` is.
    pub fn word(&self, at: usize) -> Option<&'a Word> {
        let atom = self.atoms.get(at)?;
        self.words.get(atom.word).filter(|_| atom.first)
    }

    /// Whether the word of atom `at` has points within: `p.m.`
    pub fn is_abbreviated(&self, at: usize) -> bool {
        let word = self.atoms.get(at).and_then(|atom| self.words.get(atom.word));
        word.is_some_and(|word| {
            word.parts().1.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.').contains('.')
        })
    }

    pub fn is_capitalised(&self, at: usize) -> bool {
        self.word(at).is_some_and(Word::is_capitalised)
    }

    /// The words of atoms `from..to`, if those are whole words and some.
    pub fn words_of(&self, from: usize, to: usize) -> Option<Range<usize>> {
        let (first, last) = (self.atoms.get(from)?, self.atoms.get(to.checked_sub(1)?)?);
        (from < to && first.first && last.last).then(|| first.word..last.word + 1)
    }

    /// `text` for the words of atoms `from..to`.
    pub fn piece(&self, text: impl Into<String>, from: usize, to: usize) -> Option<Piece> {
        Some(Piece { text: text.into(), words: self.words_of(from, to)? })
    }

    /// A match that leaves the words of atoms `from..to` as they are, so that no other rule takes them.
    pub fn kept(&self, from: usize, to: usize) -> Option<Match> {
        Some(Match::of(self.unchanged(from, to)?, to))
    }

    /// The words of atoms `from..to` as pieces, none of them changed.
    pub fn unchanged(&self, from: usize, to: usize) -> Option<Vec<Piece>> {
        let piece = |index: usize| {
            Some(Piece { text: self.words.get(index)?.parts().1.to_owned(), words: index..index + 1 })
        };
        self.words_of(from, to)?.map(piece).collect()
    }

    /// A match of one piece.
    pub fn one(&self, text: impl Into<String>, from: usize, to: usize) -> Option<Match> {
        Some(Match::of(vec![self.piece(text, from, to)?], to))
    }
}

impl Match {
    pub fn of(pieces: Vec<Piece>, end: usize) -> Self {
        Self { end, pieces, drops_stop: false }
    }

    /// The words of the match. The first keeps the opening punctuation of the spoken ones, the last their closing
    /// punctuation; the rule writes the punctuation between them.
    pub fn words(&self, spoken: &[Word]) -> Vec<Word> {
        let count = self.pieces.len();
        let piece = |(index, piece): (usize, &Piece)| {
            let of = spoken.get(piece.words.clone())?;
            let (first, last) = (of.first()?, of.last()?);
            let open = if index == 0 { first.parts().0 } else { "" };
            let mut close = if index + 1 == count { last.parts().2 } else { "" };
            if self.drops_stop {
                close = close.strip_prefix('.').unwrap_or(close);
            }
            Some(Word {
                bare: piece.text.trim_end_matches(',').to_lowercase(),
                written: format!("{open}{}{close}", piece.text),
                gap: first.gap,
                start: first.start,
                end: last.end,
                confidence: word::confidence(of),
                speaker: word::speaker(of),
            })
        };
        self.pieces.iter().enumerate().filter_map(piece).collect()
    }
}

/// So many digits with hyphens between them are one number read out; fewer may be a countdown.
const HYPHENED_DIGITS_MIN: usize = 7;

/// The lengths of the groups of a telephone number with points between them: `415.555.0123`.
const POINTED_GROUPS: [&[usize]; 2] = [&[3, 3, 4], &[1, 3, 3, 4]];

/// `core` in lower case: one element, or several that one word joins. These are a compound that begins with a
/// number, digits that were read out, a telephone number with points, and a time with its half of the day
/// (`8:37pm`).
fn elements(core: &str) -> Vec<String> {
    let text = core.to_lowercase().replace('’', "'");
    let parts: Vec<&str> = text.split('-').collect();
    let compound = parts.len() > 1
        && parts.first().is_some_and(|part| number_words::is_number(part))
        && parts.iter().all(|part| !part.is_empty() && part.chars().all(char::is_alphabetic));
    let read_out = parts.len() >= HYPHENED_DIGITS_MIN
        && parts.iter().all(|part| matches!(part.as_bytes(), [b'0'..=b'9']));
    if compound || read_out {
        return parts.into_iter().map(str::to_owned).collect();
    }
    let groups: Vec<&str> = text.split('.').collect();
    let lengths: Vec<usize> = groups.iter().map(|group| group.len()).collect();
    if POINTED_GROUPS.contains(&&*lengths) && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'.')) {
        return groups.into_iter().map(str::to_owned).collect();
    }
    match half_of_day(&text) {
        Some(("", half)) => vec![half.to_owned()],
        Some((clock, half)) if is_clock(clock) => vec![clock.to_owned(), half.to_owned()],
        _ => vec![text],
    }
}

/// The text before `am`, `pm`, `a.m` or `p.m`, and which of them it is, without the points.
fn half_of_day(text: &str) -> Option<(&str, &'static str)> {
    [("a.m", "am"), ("p.m", "pm"), ("am", "am"), ("pm", "pm")]
        .into_iter()
        .find_map(|(spelling, half)| Some((text.strip_suffix(spelling)?, half)))
}

/// `8`, `8:37`, `8.37`.
fn is_clock(text: &str) -> bool {
    let (hour, minutes) = text.split_once([':', '.']).unwrap_or((text, "00"));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    digits(hour) && digits(minutes) && (1..=2).contains(&hour.len()) && minutes.len() == 2
}
