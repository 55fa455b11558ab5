//! Pairs of numbers: `5 to 10`, `$5 or $10`, `9 out of 10`. Both are written in digits, or neither is.

use super::Rules;
use super::amounts;
use super::calendar::COUNTED;
use super::clock;
use super::number_words;
use super::numbers::{self, Number};
use super::pronouns;
use super::spoken::{Joint, Match, Spoken};

/// A range, a choice or a ratio.
pub fn range(spoken: &Spoken<'_>, at: usize, rules: Rules) -> Option<Match> {
    if number_words::is_number(spoken.before(at))
        || numbers::is_article(spoken, at)
        || pronouns::is_pronoun(spoken, at)
    {
        return None;
    }
    let times = || rules.smart.then(|| times(spoken, at)).flatten();
    times().or_else(|| {
        let first = numbers::number(spoken, at).filter(|number| number.scale.is_none())?;
        let second = joined(spoken, at, first.end)?;
        let pair = Pair { spoken, at, first, second, rules };
        pair.amounts().or_else(|| pair.numbers())
    })
}

/// The atom after the words that join the number at `at` to another: those are from `end` on.
fn joined(spoken: &Spoken<'_>, at: usize, end: usize) -> Option<usize> {
    let second = match (spoken.open(end), spoken.open(end + 1)) {
        ("to" | "or" | "through" | "by" | "plus" | "in" | "foot" | "feet", _) => end + 1,
        ("and", _) if spoken.before(at) == "between" => end + 1,
        ("out", "of") => end + 2,
        _ => return None,
    };
    (spoken.joint(second) == Joint::Open).then_some(second)
}

/// `9 to 5 PM`.
fn times(spoken: &Spoken<'_>, at: usize) -> Option<Match> {
    let (hour, end) = clock::hour(spoken, at)?;
    let second = joined(spoken, at, end)?;
    let later = clock::with_half_of_day(spoken, second)?;
    behind(spoken, hour, at..end, second, later)
}

/// `text` for the first atoms, the joining words, and the match of the rest.
fn behind(
    spoken: &Spoken<'_>,
    text: String,
    first: std::ops::Range<usize>,
    second: usize,
    rest: Match,
) -> Option<Match> {
    let mut pieces = vec![spoken.piece(text, first.start, first.end)?];
    pieces.extend(spoken.unchanged(first.end, second)?);
    pieces.extend(rest.pieces);
    Some(Match { end: rest.end, pieces, drops_stop: rest.drops_stop })
}

/// Two numbers with a word between them.
struct Pair<'a> {
    spoken: &'a Spoken<'a>,
    at: usize,
    first: Number,
    /// The atom where the second begins.
    second: usize,
    rules: Rules,
}

impl Pair<'_> {
    /// `$5 to $10`, `5 to 10%`, `2 to 3 km`.
    fn amounts(&self) -> Option<Match> {
        let Self { spoken, second, first, .. } = self;
        let second = *second;
        if !matches!(spoken.open(first.end), "to" | "or" | "and" | "through") {
            return None;
        }
        let money = || amounts::money(spoken, second);
        let written = || money().or_else(|| amounts::percentage(spoken, second));
        let measured = || amounts::measurement(spoken, second);
        let rest = (self.rules.smart.then(written).flatten())
            .or_else(|| self.rules.measurements.then(measured).flatten())?;
        let sign = rest.pieces.first()?.text.chars().next().filter(|sign| !sign.is_ascii_digit());
        let shared = self.shared_scale().map(|(_, scale, _)| numbers::grouped(first.whole * scale));
        let amount = match shared {
            Some(amount) => amount,
            None if sign.is_some() => amounts::in_coins(first),
            None => first.grouped(),
        };
        let text = sign.into_iter().chain(amount.chars()).collect();
        behind(spoken, text, self.at..first.end, second, rest)
    }

    /// `5 to 10`: in digits if one of them is.
    fn numbers(&self) -> Option<Match> {
        let Self { spoken, second, first, rules, .. } = self;
        if !(rules.smart || rules.numerals) {
            return None;
        }
        let last = numbers::number(spoken, *second)?;
        let goes_on = spoken.open(last.end);
        // `six to twenty first`, `two in nineteen ninety`, and amounts that [`Self::amounts`] did not match.
        if numbers::is_article(spoken, *second)
            || numbers::ordinal(spoken, *second).is_some()
            || number_words::is_number(goes_on)
            || matches!(goes_on, "percent" | "dollars" | "dollar" | "euros" | "hundred")
            || !self.is_joined(&last)
        {
            return None;
        }
        if let Some((value, scale, end)) = self.shared_scale() {
            if scale != 1000 || (first.whole < 10 && value < 10) {
                return spoken.kept(self.at, end);
            }
            let mut pieces = vec![spoken.piece(value.to_string(), *second, end - 1)?];
            pieces.extend(spoken.unchanged(end - 1, end)?);
            return behind(spoken, first.prose(), self.at..first.end, *second, Match::of(pieces, end));
        }
        let in_words = |number: &Number| number.literal.is_none();
        let large =
            |number: &Number| number.whole >= 10 || !number.fraction.is_empty() || number.scale.is_some();
        let decided = rules.numerals || [first, &last].into_iter().any(|each| large(each) || !in_words(each));
        if !decided || !(in_words(first) || in_words(&last)) {
            return None;
        }
        let form = |number: &Number| if rules.smart { number.prose() } else { number.plain() };
        let rest = amounts::written(spoken, &last, form(&last), *second)?;
        behind(spoken, form(first), self.at..first.end, *second, rest)
    }

    /// Whether the word between joins the two: `one in ten people`, but not `one in ten minutes`.
    fn is_joined(&self, last: &Number) -> bool {
        let goes_on = self.spoken.open(last.end);
        let counted = COUNTED.contains(&goes_on);
        match self.spoken.open(self.first.end) {
            // Digits may be anything: `3 in one buffer`.
            "in" => {
                let in_words = self.first.literal.is_none() && last.literal.is_none();
                in_words && self.first.whole < last.whole && (goes_on == "people" || !counted)
            }
            // The inches of a height.
            "foot" | "feet" => last.whole < 12 && (goes_on == "inches" || !counted),
            _ => true,
        }
    }

    /// The second number where it has a scale that may be the first one's as well, that scale, and the atom after
    /// it: `two or three hundred`, `ten to twenty thousand`.
    fn shared_scale(&self) -> Option<(u64, u64, usize)> {
        let (value, next) = numbers::below_hundred(self.spoken, self.second, self.spoken.atom(self.second))?;
        let (scale, end) = match (self.spoken.open(next), self.spoken.open(next + 1)) {
            ("hundred", "thousand") => (100_000, next + 2),
            ("hundred", _) => (100, next + 1),
            ("thousand", _) => (1000, next + 1),
            _ => return None,
        };
        let last = numbers::number(self.spoken, self.second)?;
        let first = &self.first;
        let alike = first.literal.is_none() && first.fraction.is_empty() && first.whole < value;
        (alike && last.end == end).then_some((value, scale, end))
    }
}
