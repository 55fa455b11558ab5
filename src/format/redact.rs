//! Redaction of numbers that a transcript must not show. Pure.
//!
//! | class                | hides                                                                     |
//! |----------------------|---------------------------------------------------------------------------|
//! | `numbers`, `true`    | three digits or more in a row                                             |
//! | `aggressive_numbers` | every digit                                                               |
//! | `ssn`                | nine digits in a row; digits that `social security number is` announces   |
//! | `pci`                | 13 to 19 digits in a row; digits that `card`, `cvv` or `expires` announce |
//!
//! Digits may be written (`123-45`, `1-2-3.`) or spoken in English (`double four`, `oh`, `nineteen
//! eighty`). A row of them continues over punctuation, separators (`dash`) and asides (`um, then`), because
//! the model breaks numbers into sentences. A word that sounds like a digit (`for`, `to`) between spelled
//! digits may be one. If a row may be read as longer or shorter, every reading counts.
//!
//! # Unfinished numbers
//!
//! A row at the end of a result may continue in the next one. A [`Redactor`] therefore remembers how the
//! last finals of its channel ended, and hides a row that could still grow into one that a class hides.
//! In a final, a number that is evidently complete (`in 1984.`, `I have two.`) stays readable; in an
//! interim result it is held back, with the words behind it, until a later result decides.

mod class;
mod evidence;
mod hiding;
mod reading;
mod rows;

use std::ops::Range;

pub use self::class::{CLASSES, Class, Mode};
use self::reading::Reading;
use self::rows::{Joint, Row, rows};
use super::word::{Word, by_speaker};

/// Words of earlier finals that are kept: more than the longest number and its announcement.
const REMEMBERED_WORDS: usize = 64;
/// A number is not taken for finished in an interim result before this many words follow it: the last
/// words of an interim are the ones that later results correct.
const UNSETTLED_WORDS: usize = 2;
/// In a shorter row a word that sounds like a digit is taken for itself: `2 to 3`.
const SOUNDALIKE_DIGITS_MIN: usize = 4;
/// The same in a row that may go on.
const OPEN_SOUNDALIKE_DIGITS_MIN: usize = 3;

/// Hides numbers in the results of one channel, in order.
#[derive(Debug, Clone)]
pub struct Redactor {
    classes: Vec<Class>,
    mode: Mode,
    /// The last words of the finals so far, unredacted.
    past: Vec<Word>,
    /// Where in them finals ended.
    seams: Vec<usize>,
}

impl Redactor {
    pub fn new(classes: &[Class], mode: Mode) -> Self {
        Self { classes: classes.to_vec(), mode, past: Vec::new(), seams: Vec::new() }
    }

    /// Redacts the words of a result. `words` are all of the result.
    pub fn redact(&mut self, words: Vec<Word>, is_final: bool) -> Vec<Word> {
        if self.classes.is_empty() {
            return words;
        }
        let past = self.past.len();
        let mut all = std::mem::take(&mut self.past);
        all.extend(words);
        if is_final {
            self.seams.push(all.len());
        }
        let plan = Plan::new(&all, past, &self.seams, &self.classes, is_final);
        let shown = plan.carry_out(all.get(past..).unwrap_or_default(), past, self.mode);
        all.truncate(if is_final { all.len() } else { past });
        let forgotten = all.len().saturating_sub(REMEMBERED_WORDS);
        all.drain(..forgotten);
        self.seams.retain_mut(|seam| {
            let stays = *seam > forgotten;
            *seam = seam.saturating_sub(forgotten);
            stays
        });
        self.past = all;
        shown
    }
}

/// The decision for each word: whether it is hidden, parted or held back.
struct Plan {
    readings: Vec<Reading>,
    /// For each word, the class that hides it, and its row.
    hidden: Vec<Option<(Class, usize)>>,
    /// For each word, whether punctuation or an aside parts it from the digits before it.
    is_parted: Vec<bool>,
    /// Words from here on are held back.
    end: usize,
}

impl Plan {
    /// Decides for all of `words`, of which the first `past` were sent in earlier results.
    fn new(words: &[Word], past: usize, seams: &[usize], classes: &[Class], is_final: bool) -> Self {
        let mut readings: Vec<Reading> = words.iter().map(Reading::of).collect();
        for at in 0..readings.len() {
            if evidence::is_pronoun(words, &readings, at) {
                readings[at] = Reading::Apart(1);
            }
        }
        let rows = rows(words, &readings, seams);
        let (hidden, is_parted) = (vec![None; words.len()], vec![false; words.len()]);
        let mut plan = Self { readings, hidden, is_parted, end: words.len() };
        for (index, row) in rows.iter().enumerate() {
            for item in &row.items {
                plan.is_parted[item.word] = item.before == Joint::Stop;
            }
            for &class in classes {
                plan.hide_complete(index, row, class, words, is_final);
                plan.hide_growing(index, row, class, words, is_final, past);
            }
        }
        plan.hide_apart(classes);
        if is_final {
            plan.hide_last_zero(words, classes);
        } else {
            plan.hold_soundalikes();
        }
        plan
    }

    /// Hides the items that `class` covers in a row as it stands.
    fn hide_complete(&mut self, index: usize, row: &Row, class: Class, words: &[Word], is_final: bool) {
        for items in row.found(class, words, &self.readings) {
            self.hide(index, row, items, (class, SOUNDALIKE_DIGITS_MIN), is_final);
        }
    }

    /// Hides or holds back the items that `class` may cover once the speaker says more of the row.
    fn hide_growing(
        &mut self,
        index: usize,
        row: &Row,
        class: Class,
        words: &[Word],
        is_final: bool,
        past: usize,
    ) {
        let Some(items) = row.may_grow(class) else { return };
        let first = row.items.get(items.start).map_or(row.end, |item| item.word);
        let is_complete = row.items.first().is_some_and(|item| item.word >= past)
            && evidence::is_complete(row, class, words, &self.readings);
        let unsettled = words.len() - row.end <= UNSETTLED_WORDS;
        if row.is_open && !is_complete {
            let announced = evidence::is_announced(row, words, &self.readings);
            let least = OPEN_SOUNDALIKE_DIGITS_MIN - usize::from(announced);
            self.hide(index, row, items.clone(), (class, least), is_final);
        }
        let behind = row.trailing_soundalike(&self.readings).filter(|_| row.is_open);
        match (is_final, behind) {
            (true, Some(at)) if at + 1 == words.len() && row.ends_spelled() && !is_complete => {
                self.hidden[at] = Some((class, index))
            }
            (true, _) => {}
            (false, Some(at)) => self.end = self.end.min(at),
            (false, None) => {}
        }
        if !is_final && row.end > past && (row.is_open || unsettled) && !self.is_hidden(row, &items) {
            self.end = self.end.min(first);
        }
    }

    /// Digits that no row has.
    fn hide_apart(&mut self, classes: &[Class]) {
        for &class in classes {
            let least = match class {
                Class::Numbers => 3,
                Class::AggressiveNumbers => 1,
                Class::Ssn | Class::Pci => continue,
            };
            for (hidden, reading) in self.hidden.iter_mut().zip(&self.readings) {
                if matches!(reading, Reading::Apart(digits) if *digits >= least) {
                    hidden.get_or_insert((class, usize::MAX));
                }
            }
        }
    }

    fn is_hidden(&self, row: &Row, items: &Range<usize>) -> bool {
        row.items
            .get(items.clone())
            .unwrap_or_default()
            .iter()
            .all(|item| item.is_soundalike || self.hidden.get(item.word).is_some_and(Option::is_some))
    }

    /// `class` comes with the digits from which a word that sounds like one is hidden as well.
    fn hide(&mut self, index: usize, row: &Row, items: Range<usize>, class: (Class, usize), is_final: bool) {
        let (class, least) = class;
        let takes_soundalikes = !is_final || row.least_digits() >= least;
        for item in row.items.get(items).unwrap_or_default() {
            let hides = !item.is_soundalike || takes_soundalikes;
            if let Some(hidden) = self.hidden.get_mut(item.word).filter(|_| hides) {
                hidden.get_or_insert((class, index));
            }
        }
    }

    /// The last word of a final may be the first digit of a number.
    fn hide_last_zero(&mut self, words: &[Word], classes: &[Class]) {
        let Some(last) = words.len().checked_sub(1) else { return };
        if self.readings.get(last) == Some(&Reading::Zero)
            && evidence::may_be_zero(words, last)
            && let (Some(hidden), Some(class)) = (self.hidden.get_mut(last), classes.first())
        {
            hidden.get_or_insert((*class, usize::MAX));
        }
    }

    /// The last word of an interim may be the first digit of a number.
    fn hold_soundalikes(&mut self) {
        while let Some(before) = self.end.checked_sub(1)
            && matches!(self.readings.get(before), Some(Reading::Zero | Reading::Soundalike))
            && self.hidden.get(before).is_some_and(Option::is_none)
        {
            self.end = before;
        }
    }

    /// The redacted form of `words`, which begin at `past`.
    fn carry_out(&self, words: &[Word], past: usize, mode: Mode) -> Vec<Word> {
        let mut shown: Vec<Word> = Vec::with_capacity(words.len());
        let kept = self.end.saturating_sub(past).min(words.len());
        let mut at = 0;
        while let Some(word) = words.get(at).filter(|_| at < kept) {
            let Some((class, row)) = self.hidden.get(past + at).copied().flatten() else {
                shown.push(word.clone());
                at += 1;
                continue;
            };
            let length = match mode {
                Mode::Mask => 1,
                Mode::Label => {
                    // Two speakers' words never become one.
                    let turn =
                        by_speaker(words.get(at..kept).unwrap_or_default()).next().map_or(1, <[Word]>::len);
                    self.length(past + at, past + at + turn, (class, row))
                }
            };
            let number = words.get(at..at + length).unwrap_or_default();
            match mode {
                Mode::Mask => {
                    shown.push(masked(word, self.readings.get(past + at).map_or(1, Reading::stars)))
                }
                Mode::Label => shown.extend(labelled(number, class)),
            }
            at += length.max(1);
        }
        shown
    }

    /// The number of words from `at` on that are one number, with the asides within it.
    fn length(&self, at: usize, end: usize, hidden: (Class, usize)) -> usize {
        let mut length = 1;
        // Amounts side by side are several; a card's groups are one number however they are parted.
        let stays_whole = matches!(hidden.0, Class::Ssn | Class::Pci);
        for next in at + 1..end {
            if !stays_whole && self.is_parted.get(next).is_some_and(|parted| *parted) {
                break;
            }
            match (self.hidden.get(next).copied().flatten(), self.readings.get(next)) {
                (Some(other), _) if other == hidden => length = next + 1 - at,
                (None, Some(reading)) if !reading.has_digits() && hidden.1 != usize::MAX => {}
                _ => break,
            }
        }
        length
    }
}

fn masked(word: &Word, stars: usize) -> Word {
    let (open, core, close) = word.parts();
    let written = if word.written.contains(char::is_numeric) {
        // The letters of a code go with its digits: `AB12`, but not those of `3-year-old`.
        let mask = |part: &str| match part.contains(char::is_numeric) {
            true => part.chars().map(|c| if c.is_alphanumeric() { '*' } else { c }).collect(),
            false => part.to_owned(),
        };
        word.written.split('-').map(mask).collect::<Vec<String>>().join("-")
    } else {
        format!("{open}{}{close}", reading::mask_spoken(core).unwrap_or_else(|| "*".repeat(stars)))
    };
    let mut word = word.clone();
    word.write(written);
    word
}

/// One word for all of `number`.
fn labelled(number: &[Word], class: Class) -> Option<Word> {
    let (first, last) = (number.first()?, number.last()?);
    let close: String = last.parts().2.chars().filter(|c| matches!(c, '.' | ',' | '?' | '!' | ';')).collect();
    Some(Word {
        bare: class.label().to_owned(),
        written: format!("{}{close}", class.label()),
        gap: first.gap,
        start: first.start,
        end: last.end,
        confidence: super::word::confidence(number),
        speaker: super::word::speaker(number),
    })
}

#[cfg(test)]
mod tests;
