//! The part of a row that each class hides.

use std::ops::Range;

use super::class::Class;
use super::evidence;
use super::reading::Reading;
use super::rows::{Joint, Row};
use crate::format::word::Word;

const SSN_DIGITS: usize = 9;
const CARD_DIGITS: std::ops::RangeInclusive<usize> = 13..=19;
/// The least digits of an announced number that is hidden: people also give only the last four.
const ANNOUNCED_SSN_DIGITS_MIN: usize = 3;

impl Row {
    /// The items that `class` hides if the row is complete.
    pub fn found(&self, class: Class, words: &[Word], readings: &[Reading]) -> Vec<Range<usize>> {
        let all = 0..self.items.len();
        let counts = self.counts(all.clone());
        let whole = |hides: bool| if hides { vec![all.clone()] } else { Vec::new() };
        match class {
            Class::Numbers => whole(counts.least() >= 3),
            Class::AggressiveNumbers => whole(counts.most() > 0),
            Class::Ssn if evidence::announces_ssn(self, words, readings) => {
                whole(counts.most() >= ANNOUNCED_SSN_DIGITS_MIN)
            }
            Class::Ssn => {
                let mut parts = self.parts(all, Joint::Group);
                parts.retain(|part| self.counts(part.clone()).has(SSN_DIGITS..=SSN_DIGITS));
                parts
            }
            Class::Pci if evidence::announces_card(self, words, readings) => whole(true),
            Class::Pci if evidence::are_years(self, words) => Vec::new(),
            Class::Pci => self.cards(),
        }
    }

    fn cards(&self) -> Vec<Range<usize>> {
        let all = 0..self.items.len();
        let mut parts = self.parts(all.clone(), Joint::Stop);
        let sentences: Vec<usize> = self.starts(Joint::Stop).chain([all.end]).collect();
        for sentence in sentences.windows(2) {
            parts.extend(self.parts(sentence[0]..sentence[1], Joint::Group));
        }
        parts.retain(|part| {
            let counts = self.counts(part.clone());
            let inner = self.items.get(part.start + 1..part.end).unwrap_or_default();
            let unbroken = inner.iter().all(|item| item.before == Joint::None);
            counts.has(CARD_DIGITS) || unbroken && counts.least() > *CARD_DIGITS.end()
        });
        parts
    }

    /// The items at its end that, with more digits behind them, `class` may hide.
    pub fn may_grow(&self, class: Class) -> Option<Range<usize>> {
        let most = match class {
            Class::Numbers | Class::AggressiveNumbers => usize::MAX,
            Class::Ssn => SSN_DIGITS,
            Class::Pci => *CARD_DIGITS.end(),
        };
        let end = self.items.len();
        let start = self.starts(Joint::Group).find(|start| self.counts(*start..end).least() <= most);
        start.map(|start| start..end)
    }
}
