//! Rows of digits: words that may be one number.

use std::ops::Range;

use super::reading::{Counts, Reading, Spoken, bare};
use crate::format::word::Word;

/// Asides and separators within a number, one after another.
const ASIDES_MAX: usize = 5;

/// One word of a row.
#[derive(Debug, Clone, Copy)]
pub struct Item {
    pub word: usize,
    /// The digits that it adds to those before it.
    pub counts: Counts,
    /// Digits one by one.
    pub is_spelled: bool,
    /// It may be no digit at all.
    pub is_soundalike: bool,
    pub before: Joint,
}

/// The joint between an item and the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Joint {
    /// Spelled digits side by side.
    None,
    /// Groups of digits side by side, or a separator.
    Group,
    /// Punctuation, an aside, or the end of a result.
    Stop,
}

/// Digits that may be one number.
#[derive(Debug)]
pub struct Row {
    pub items: Vec<Item>,
    /// The word after its last item.
    pub end: usize,
    /// Only words that may come within a number follow.
    pub is_open: bool,
}

/// The rows of `words`; finals ended before the words `seams`, which may include the one past the last.
pub fn rows(words: &[Word], readings: &[Reading], seams: &[usize]) -> Vec<Row> {
    let mut builder = Builder { words, readings, seams, rows: Vec::new(), row: None, asides: Vec::new() };
    for at in 0..words.len() {
        builder.end_result(at);
        builder.step(at);
    }
    builder.end_result(words.len());
    builder.close(true);
    builder.rows
}

struct Builder<'a> {
    words: &'a [Word],
    readings: &'a [Reading],
    seams: &'a [usize],
    rows: Vec<Row>,
    row: Option<Growing>,
    /// Words since the row's last item.
    asides: Vec<usize>,
}

struct Growing {
    items: Vec<Item>,
    reader: Reader,
}

impl Builder<'_> {
    /// A final that ends with a sentence like `… you know.` ends its number.
    fn end_result(&mut self, at: usize) {
        let last = self.asides.last().filter(|last| **last + 1 == at && self.seams.contains(&at));
        let ends = last.is_some_and(|last| {
            self.readings.get(*last) == Some(&Reading::Remark)
                && self.words.get(*last).is_some_and(Word::is_stop)
        });
        if ends {
            self.close(false);
        }
    }

    fn step(&mut self, at: usize) {
        match &self.readings[at] {
            Reading::Written { digits, is_spelled } => {
                let (digits, is_spelled) = (*digits, *is_spelled);
                self.push(at, is_spelled, |reader| reader.written(digits));
            }
            Reading::Spoken(parts) => {
                let is_spelled = parts.iter().all(|part| matches!(part, Spoken::Unit | Spoken::Times(_)));
                let parts = parts.clone();
                self.push(at, is_spelled, |reader| reader.spoken(&parts));
            }
            Reading::Zero | Reading::Soundalike | Reading::Separator | Reading::Aside | Reading::Remark
                if self.row.is_some() =>
            {
                let spelled =
                    self.row.as_ref().and_then(|row| row.items.last()).is_some_and(|item| item.is_spelled);
                let follows = self.asides.is_empty() && !self.is_stopped(at);
                if spelled && follows && self.readings[at] == Reading::Zero {
                    self.push(at, true, |reader| reader.spoken(&[Spoken::Unit]));
                    return;
                }
                self.asides.push(at);
                if self.asides.iter().filter(|at| !self.is_soundalike(**at)).count() > ASIDES_MAX {
                    self.close(false);
                }
            }
            _ => self.close(false),
        }
    }

    fn is_soundalike(&self, at: usize) -> bool {
        matches!(self.readings.get(at), Some(Reading::Zero | Reading::Soundalike))
    }

    fn push(&mut self, at: usize, is_spelled: bool, read: impl FnOnce(&mut Reader) -> Counts) {
        let asides = std::mem::take(&mut self.asides);
        let mut row = self.row.take().unwrap_or_else(|| Growing { items: Vec::new(), reader: Reader::new() });
        let goes_on =
            asides.iter().all(|aside| self.is_soundalike(*aside) || bare(self.words, *aside) == "and");
        if !goes_on || self.is_stopped(at) {
            row.reader = Reader { times: row.reader.times, ..Reader::new() };
        }
        let spelled = is_spelled || row.items.last().is_some_and(|item| item.is_spelled);
        let begins = row.items.is_empty();
        let soundalikes: Vec<usize> = if begins {
            let before = at.checked_sub(1).filter(|before| self.is_soundalike(*before));
            before.filter(|_| is_spelled && !self.is_stopped(at)).into_iter().collect()
        } else {
            asides.iter().copied().filter(|aside| spelled && self.is_soundalike(*aside)).collect()
        };
        for word in soundalikes {
            let is_zero = self.readings.get(word) == Some(&Reading::Zero) && !self.is_stopped(word + 1);
            let counts = if is_zero { Counts::exactly(1) } else { Counts::either(0, 1) };
            let before = if row.items.is_empty() { Joint::Stop } else { self.parts(word) };
            let is_soundalike = self.readings.get(word) == Some(&Reading::Soundalike);
            row.items.push(Item { word, counts, is_spelled: true, is_soundalike, before });
        }
        let counts = read(&mut row.reader);
        let before = self.joint(row.items.last(), at, is_spelled, &asides);
        row.items.push(Item { word: at, counts, is_spelled, is_soundalike: false, before });
        self.row = Some(row);
    }

    fn joint(&self, last: Option<&Item>, at: usize, is_spelled: bool, asides: &[usize]) -> Joint {
        let Some(last) = last else { return Joint::Stop };
        let grouped = if last.is_spelled && is_spelled { Joint::None } else { Joint::Group };
        let aside = asides.iter().map(|aside| match self.readings.get(*aside) {
            Some(Reading::Separator) => Joint::Group,
            Some(Reading::Aside | Reading::Remark) => Joint::Stop,
            _ => Joint::None,
        });
        let punctuation = (last.word + 1..=at).map(|word| self.parts(word));
        aside.chain(punctuation).fold(grouped, Joint::max)
    }

    /// The joint between a word and the one before it.
    fn parts(&self, at: usize) -> Joint {
        if self.seams.contains(&at) || self.is_stopped(at) { Joint::Stop } else { Joint::None }
    }

    /// Whether punctuation stands before a word.
    fn is_stopped(&self, at: usize) -> bool {
        let before = at.checked_sub(1).and_then(|before| self.words.get(before));
        before.is_some_and(|word| {
            word.parts().2.contains([',', '.', ';', ':', '!', '?', '…', '。', '，', '、'])
        })
    }

    fn close(&mut self, is_open: bool) {
        self.asides.clear();
        if let Some(row) = self.row.take() {
            let end = row.items.last().map_or(0, |item| item.word + 1);
            self.rows.push(Row { items: row.items, end, is_open });
        }
    }
}

/// Reads spoken numbers: `two hundred five` has three digits, or four (`200 5`).
#[derive(Debug, Clone, Copy)]
struct Reader {
    /// Zeros of the number before, which the next one may fill.
    room: usize,
    /// The number before fills zeros.
    fills: bool,
    /// The number before is `forty` or the like.
    takes_unit: bool,
    /// There is a number that a scale may multiply.
    has_number: bool,
    times: usize,
}

impl Reader {
    fn new() -> Self {
        Self { room: 0, fills: false, takes_unit: false, has_number: false, times: 1 }
    }

    fn written(&mut self, digits: usize) -> Counts {
        let times = std::mem::replace(&mut self.times, 1);
        *self = Self { has_number: true, ..Self::new() };
        // `double 4`; few people say `double 44`.
        if times > 1 && digits == 1 { Counts::exactly(times) } else { Counts::exactly(digits) }
    }

    fn spoken(&mut self, parts: &[Spoken]) -> Counts {
        parts.iter().fold(Counts::NONE, |counts, part| counts.plus(self.part(*part)))
    }

    fn part(&mut self, part: Spoken) -> Counts {
        match part {
            Spoken::Unit => {
                let times = std::mem::replace(&mut self.times, 1);
                match (times, std::mem::take(&mut self.takes_unit)) {
                    (2.., _) => self.repeated(times),
                    // `forty two`: four and zero are said otherwise.
                    (_, true) => Counts::NONE,
                    _ => self.number(1),
                }
            }
            Spoken::Teen => self.number(2),
            Spoken::Tens => {
                let counts = self.number(2);
                self.takes_unit = true;
                counts
            }
            Spoken::Times(times) => {
                *self = Self { times, ..Self::new() };
                // The next digit counts for it.
                Counts::NONE
            }
            Spoken::Plural => Counts::either(1, 9),
            Spoken::Scale(zeros) => self.scale(zeros),
        }
    }

    fn repeated(&mut self, times: usize) -> Counts {
        *self = Self::new();
        Counts::exactly(times)
    }

    /// A number of so many digits.
    fn number(&mut self, digits: usize) -> Counts {
        let fills = self.room >= digits;
        *self = Self { fills, has_number: true, ..Self::new() };
        if fills { Counts::either(0, digits) } else { Counts::exactly(digits) }
    }

    fn scale(&mut self, zeros: usize) -> Counts {
        let (fills, has_number) = (self.fills, self.has_number);
        *self = Self { room: zeros, fills, has_number: true, ..Self::new() };
        match (has_number, fills) {
            (false, _) => Counts::exactly(zeros + 1),
            (true, true) => Counts::either(0, zeros),
            (true, false) => Counts::exactly(zeros),
        }
    }
}

impl Row {
    pub fn counts(&self, items: Range<usize>) -> Counts {
        let items = self.items.get(items).unwrap_or_default();
        items.iter().fold(Counts::NONE, |counts, item| counts.plus(item.counts))
    }

    pub fn least_digits(&self) -> usize {
        self.counts(0..self.items.len()).least()
    }

    pub fn most_digits(&self) -> usize {
        self.counts(0..self.items.len()).most()
    }

    pub fn ends_spelled(&self) -> bool {
        self.items.last().is_some_and(|item| item.is_spelled)
    }

    /// The first word behind an open row that may be one more digit.
    pub fn trailing_soundalike(&self, readings: &[Reading]) -> Option<usize> {
        let behind = self.end..readings.len();
        behind.into_iter().find(|at| matches!(readings.get(*at), Some(Reading::Zero | Reading::Soundalike)))
    }

    /// Where a number may begin within the row: behind more than `joint`.
    pub fn starts(&self, least: Joint) -> impl DoubleEndedIterator<Item = usize> + '_ {
        let begins = move |(at, item): (usize, &Item)| (at == 0 || item.before >= least).then_some(at);
        self.items.iter().enumerate().filter_map(begins)
    }

    /// Parts of `within` that begin and end at joints.
    pub fn parts(&self, within: Range<usize>, least: Joint) -> Vec<Range<usize>> {
        let mut edges: Vec<usize> = self.starts(least).filter(|start| within.contains(start)).collect();
        if edges.first() != Some(&within.start) {
            edges.insert(0, within.start);
        }
        edges.push(within.end);
        let ends = |(index, start): (usize, &usize)| -> Vec<Range<usize>> {
            edges.iter().skip(index + 1).map(|end| *start..*end).collect()
        };
        edges.iter().enumerate().flat_map(ends).filter(|part| !part.is_empty()).collect()
    }
}
