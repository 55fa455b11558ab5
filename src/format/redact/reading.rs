//! The number of digits that a word may stand for.

use crate::format::word::Word;

/// The digits that a word or a row may have: bit n is set if n digits are possible.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts(u64);

impl Counts {
    const MOST: usize = 63;
    pub const NONE: Self = Self(1);

    pub fn exactly(count: usize) -> Self {
        Self(1 << count.min(Self::MOST))
    }

    pub fn either(a: usize, b: usize) -> Self {
        Self(Self::exactly(a).0 | Self::exactly(b).0)
    }

    pub fn plus(self, other: Self) -> Self {
        let (mut sums, mut left) = (0, other.0);
        while left != 0 {
            let count = left.trailing_zeros() as usize;
            left &= left - 1;
            // Larger counts saturate.
            let lost = count > 0 && self.0 >> (Self::MOST + 1 - count) != 0;
            sums |= self.0 << count | u64::from(lost) << Self::MOST;
        }
        Self(sums)
    }

    pub fn least(self) -> usize {
        self.0.trailing_zeros() as usize
    }

    pub fn most(self) -> usize {
        Self::MOST - self.0.leading_zeros() as usize
    }

    pub fn has(self, counts: std::ops::RangeInclusive<usize>) -> bool {
        counts.into_iter().any(|count| self.0 >> count & 1 == 1)
    }
}

/// A spoken number word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spoken {
    /// `four`
    Unit,
    /// `fourteen`
    Teen,
    /// `forty`
    Tens,
    /// `hundred`, `thousand` and so on, with their zeros.
    Scale(usize),
    /// `double`, `triple`: so many times the next digit.
    Times(usize),
    /// `three zeros`: as many as the word before says.
    Plural,
}

/// The role of a word within a number.
#[derive(Debug, Clone, PartialEq)]
pub enum Reading {
    /// So many digits; `is_spelled`: one by one, as in `1-2-3`.
    Written {
        digits: usize,
        is_spelled: bool,
    },
    Spoken(Vec<Spoken>),
    /// `oh`, a zero beside other digits.
    Zero,
    /// `for`, which may be `four` beside spelled digits.
    Soundalike,
    /// Digits that are not part of a longer number: `$20`, `3rd`, `5pm`, `three-year-old`.
    Apart(usize),
    /// Separates the groups of a number: `dash`.
    Separator,
    /// Words that may come within a number: `um`, `then`.
    Aside,
    /// The same for words of ordinary sentences: `let me see`, `the last are`.
    Remark,
    Other,
}

impl Reading {
    pub fn of(word: &Word) -> Self {
        let (_, core, _) = word.parts();
        if word.written.contains(char::is_numeric) {
            return written(&word.written, core);
        }
        let core = core.to_lowercase().replace('’', "'");
        if !core.contains(char::is_alphanumeric) {
            return Self::Separator;
        }
        let parts: Vec<Option<Spoken>> =
            core.split('-').filter(|part| !part.is_empty()).map(spoken).collect();
        match parts.iter().copied().collect::<Option<Vec<Spoken>>>() {
            Some(all) => Self::Spoken(all),
            None if core == "o'clock" => Self::Other,
            None if core.contains("-") && parts.iter().any(Option::is_some) => {
                Self::Apart(parts.iter().flatten().count())
            }
            None => alone(&core),
        }
    }

    pub fn has_digits(&self) -> bool {
        matches!(self, Self::Written { .. } | Self::Spoken(_) | Self::Apart(_))
    }

    /// Asterisks for a word that has no digits of its own to replace.
    pub fn stars(&self) -> usize {
        match self {
            Self::Spoken(parts) => parts.iter().map(|part| part.stars()).sum::<usize>().max(1),
            Self::Written { digits, .. } | Self::Apart(digits) => *digits,
            _ => 1,
        }
    }
}

impl Spoken {
    fn stars(self) -> usize {
        match self {
            Self::Unit | Self::Plural | Self::Times(_) => 1,
            Self::Teen | Self::Tens => 2,
            Self::Scale(zeros) => zeros.min(3),
        }
    }
}

/// A compound such as `three-year-old` with its number words masked; none for any other word.
pub fn mask_spoken(core: &str) -> Option<String> {
    let parts: Vec<&str> = core.split('-').collect();
    let number = |part: &&str| spoken(&part.to_lowercase()).is_some();
    if parts.len() < 2 || parts.iter().all(number) {
        return None;
    }
    let mask = |part: &str| {
        spoken(&part.to_lowercase()).map_or_else(|| part.to_owned(), |spoken| "*".repeat(spoken.stars()))
    };
    Some(parts.into_iter().map(mask).collect::<Vec<_>>().join("-"))
}

fn written(whole: &str, core: &str) -> Reading {
    let digits = whole.chars().filter(|c| c.is_numeric()).count();
    let letters = core.chars().filter(|c| c.is_alphabetic()).count();
    let is_amount = whole.contains(['$', '£', '€', '¥', '₹', '%', '°']);
    // `3rd`, `1990s`, `5pm`, `500mg`; a code such as `AB12345` is a number with letters.
    let suffixed = core.trim_end_matches(|c: char| c.is_alphabetic() || c == '\'').len() < core.len();
    let is_word = letters > 0 && (digits < letters || digits < 3 || suffixed && digits < 5);
    if is_amount || is_word {
        return Reading::Apart(digits);
    }
    let groups = core.split(|c: char| !c.is_numeric()).filter(|group| !group.is_empty());
    Reading::Written { digits, is_spelled: groups.into_iter().all(|group| group.chars().count() == 1) }
}

fn spoken(word: &str) -> Option<Spoken> {
    Some(match word {
        "zero" | "nought" | "naught" | "one" | "two" | "three" | "four" | "five" | "six" | "seven"
        | "eight" | "nine" | "niner" => Spoken::Unit,
        "ten" | "eleven" | "twelve" | "thirteen" | "fourteen" | "fifteen" | "sixteen" | "seventeen"
        | "eighteen" | "nineteen" => Spoken::Teen,
        "twenty" | "thirty" | "forty" | "fourty" | "fifty" | "sixty" | "seventy" | "eighty" | "ninety" => {
            Spoken::Tens
        }
        "hundred" => Spoken::Scale(2),
        "thousand" => Spoken::Scale(3),
        "million" => Spoken::Scale(6),
        "billion" => Spoken::Scale(9),
        "double" => Spoken::Times(2),
        "triple" | "treble" => Spoken::Times(3),
        "quadruple" => Spoken::Times(4),
        "zeros" | "zeroes" | "ones" | "twos" | "threes" | "fours" | "fives" | "sixes" | "sevens"
        | "eights" | "nines" => Spoken::Plural,
        _ => return None,
    })
}

fn alone(core: &str) -> Reading {
    match core {
        "oh" | "o" | "nil" | "null" => Reading::Zero,
        "for" | "fore" | "to" | "too" | "won" | "ate" | "tree" | "free" => Reading::Soundalike,
        "dash" | "hyphen" | "minus" | "dot" | "point" | "slash" | "stroke" | "space" | "underscore"
        | "period" | "comma" | "colon" => Reading::Separator,
        "and" | "then" | "next" | "followed" | "by" | "plus" | "again" | "so" | "um" | "uh" | "uhm"
        | "umm" | "uhh" | "er" | "erm" | "hmm" | "hm" | "mm" | "mhm" | "mhmm" | "mm-hmm" | "uh-huh"
        | "ah" | "eh" | "well" | "okay" | "ok" | "yes" | "yeah" | "yep" | "right" | "correct" | "sure"
        | "sorry" | "wait" | "no" | "like" | "alright" | "now" | "please" | "it's" | "that's" | "there's" => {
            Reading::Aside
        }
        "is" | "are" | "was" | "the" | "first" | "last" | "middle" | "final" | "digit" | "digits"
        | "number" | "numbers" | "i" | "think" | "believe" | "guess" | "mean" | "you" | "know" | "let"
        | "me" | "see" | "check" | "hold" | "on" | "it" | "that" | "what" | "got" | "here" | "after" => {
            Reading::Remark
        }
        _ => Reading::Other,
    }
}

/// The word at `at` in lower case, without punctuation; empty past the end.
pub fn bare(words: &[Word], at: usize) -> String {
    words.get(at).map(|word| word.parts().1.to_lowercase().replace('’', "'")).unwrap_or_default()
}
