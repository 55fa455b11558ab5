//! Atoms: the smallest pieces of text that a caption may end with, with their times.

use unicode_segmentation::UnicodeSegmentation;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::phrases::ends_clause;
use crate::transcript::script::is_unspaced;
use crate::transcript::{Segment, Transcript, Word};

/// Columns of a line; an atom is no wider.
pub const LINE_COLUMNS: usize = 42;

/// The longest time of an atom: this, and so many seconds a column.
const SLOW_WORD_SECONDS: f64 = 0.5;
const SLOW_COLUMN_SECONDS: f64 = 0.15;

/// Text without a place to break: a word with its punctuation or, in a script without spaces, a character.
#[derive(Debug, Clone, PartialEq)]
pub struct Atom {
    pub text: String,
    /// A space stands before it.
    pub is_spaced: bool,
    pub start: f64,
    pub end: f64,
    /// Columns without the space.
    pub columns: usize,
    /// With diarization.
    pub speaker: Option<usize>,
}

impl Atom {
    /// Columns behind others on a line.
    pub fn columns_after(&self) -> usize {
        self.columns + usize::from(self.is_spaced)
    }
}

/// The text in order, each part once. Times never go back.
pub fn atoms(transcript: &Transcript) -> Vec<Atom> {
    let mut atoms: Vec<Atom> = Vec::new();
    for segment in &transcript.segments {
        // A space parts two segments, except in a script without spaces.
        let before = atoms.last().and_then(|atom| atom.text.chars().next_back());
        let first = segment.text.chars().next();
        let mut is_spaced = !(before.is_some_and(is_spaceless) && first.is_some_and(is_spaceless));
        for (text, start, end, speaker) in timed_words(segment) {
            is_spaced |= text.starts_with(char::is_whitespace);
            let text = text.trim_start();
            let letters = text.trim_end().chars().count().max(1) as f64;
            let at = |letter: usize| start + (end - start).max(0.0) * (letter as f64 / letters).min(1.0);
            let mut letter = 0;
            for piece in text.split_inclusive(char::is_whitespace) {
                let from = letter;
                letter += piece.chars().count();
                let word = piece.trim();
                if !word.is_empty() {
                    push_word(&mut atoms, word, (at(from), at(letter)), is_spaced, speaker);
                }
                is_spaced = piece.ends_with(char::is_whitespace) || is_spaced && word.is_empty();
            }
        }
    }
    let mut last = 0.0_f64;
    let mut begins_sentence = true;
    for atom in &mut atoms {
        shorten(atom, begins_sentence);
        begins_sentence = ends_clause(&atom.text);
        atom.start = atom.start.max(last);
        atom.end = atom.end.max(atom.start);
        last = atom.start;
    }
    atoms
}

/// A word whose time spans a silence belongs to the end of it that is nearer to its sentence.
fn shorten(atom: &mut Atom, begins_sentence: bool) {
    let longest = SLOW_WORD_SECONDS + SLOW_COLUMN_SECONDS * atom.columns as f64;
    if atom.end - atom.start > longest {
        if begins_sentence && !ends_clause(&atom.text) {
            atom.start = atom.end - longest;
        } else {
            atom.end = atom.start + longest;
        }
    }
}

/// Splits `word` where a line may break within it.
fn push_word(
    atoms: &mut Vec<Atom>,
    word: &str,
    (start, end): (f64, f64),
    is_spaced: bool,
    speaker: Option<usize>,
) {
    let graphemes: Vec<&str> = word.graphemes(true).collect();
    let at = |grapheme: usize| start + (end - start) * grapheme as f64 / graphemes.len().max(1) as f64;
    for (index, grapheme) in graphemes.iter().enumerate() {
        let is_first = index == 0;
        let joins = match atoms.last() {
            Some(last) => {
                let near = !(is_first && is_spaced);
                near && last.speaker == speaker
                    && !may_break(&last.text, grapheme, is_first)
                    && last.columns + grapheme.width() <= LINE_COLUMNS
            }
            None => false,
        };
        match atoms.last_mut().filter(|_| joins) {
            Some(last) => {
                last.text.push_str(grapheme);
                last.columns = last.text.width();
                last.end = at(index + 1);
            }
            None => atoms.push(Atom {
                text: (*grapheme).to_owned(),
                is_spaced: is_first && is_spaced,
                start: at(index),
                end: at(index + 1),
                columns: grapheme.width(),
                speaker,
            }),
        }
    }
}

/// Whether a line may break between two pieces without a space; `is_word`: the model ended a word here.
fn may_break(before: &str, after: &str, is_word: bool) -> bool {
    let (Some(last), Some(first)) = (before.chars().next_back(), after.chars().next()) else { return false };
    if !is_spaceless(last) && !is_spaceless(first) {
        return false;
    }
    // Thai, Lao, Burmese and Khmer have words, which only the model tells apart; vowels stay with their letters.
    if is_southeast_asian(last) && is_southeast_asian(first) && !is_word || clings(first) || leads(last) {
        return false;
    }
    !closes(first) && !opens(last)
}

fn is_spaceless(letter: char) -> bool {
    is_unspaced(letter) || letter.width() == Some(2)
}

fn is_southeast_asian(letter: char) -> bool {
    matches!(letter, '\u{0e00}'..='\u{0eff}' | '\u{1000}'..='\u{109f}' | '\u{1780}'..='\u{17ff}')
}

/// Thai and Lao signs that belong to the letter before them.
fn clings(letter: char) -> bool {
    matches!(letter, '\u{0e30}'..='\u{0e3a}' | '\u{0e45}'..='\u{0e4e}' | '\u{0eb0}'..='\u{0ebd}' | '\u{0ec6}'..='\u{0ece}')
}

/// Thai and Lao vowels that are written before their letter.
fn leads(letter: char) -> bool {
    matches!(letter, '\u{0e40}'..='\u{0e44}' | '\u{0ec0}'..='\u{0ec4}')
}

/// No line begins with it (JIS X 4051 and GB/T 15834: closing marks, small kana, marks of length).
fn closes(letter: char) -> bool {
    !letter.is_alphanumeric() && !opens(letter) && !matches!(letter, '$' | '£' | '€' | '#' | '@' | '&')
        || matches!(
            letter,
            'ー' | '々'
                | 'ゝ'
                | 'ゞ'
                | 'ヽ'
                | 'ヾ'
                | 'ぁ'
                | 'ぃ'
                | 'ぅ'
                | 'ぇ'
                | 'ぉ'
                | 'っ'
                | 'ゃ'
                | 'ゅ'
                | 'ょ'
                | 'ゎ'
                | 'ァ'
                | 'ィ'
                | 'ゥ'
                | 'ェ'
                | 'ォ'
                | 'ッ'
                | 'ャ'
                | 'ュ'
                | 'ョ'
                | 'ヮ'
                | 'ヵ'
                | 'ヶ'
        )
}

/// No line ends with it.
fn opens(letter: char) -> bool {
    matches!(
        letter,
        '(' | '['
            | '{'
            | '«'
            | '‹'
            | '“'
            | '‘'
            | '「'
            | '『'
            | '（'
            | '［'
            | '｛'
            | '〈'
            | '《'
            | '【'
            | '〔'
            | '¿'
            | '¡'
            | '$'
            | '£'
            | '€'
            | '#'
            | '@'
    )
}

/// Words with their times; without alignment, the segment's time is shared out by length.
fn timed_words(segment: &Segment) -> Vec<(String, f64, f64, Option<usize>)> {
    let speaker = |word: &Word| word.speaker.map(|speaker| speaker.index);
    let is_aligned = segment.words.iter().any(|word| word.start != segment.start || word.end != segment.end);
    if is_aligned {
        let timed = |word: &Word| (word.text.clone(), word.start, word.end, speaker(word));
        return segment.words.iter().map(timed).collect();
    }
    vec![(segment.text.clone(), segment.start, segment.end, segment.words.first().and_then(speaker))]
}
