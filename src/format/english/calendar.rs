//! Dates and years.

use super::number_words;
use super::numbers;
use super::spoken::{Joint, Match, Spoken};

const MONTHS: [&str; 12] = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
];

/// Before these a pair of numbers is an amount: `fifteen twenty minutes`.
pub const COUNTED: [&str; 20] = [
    "minutes",
    "hours",
    "seconds",
    "days",
    "weeks",
    "months",
    "years",
    "people",
    "percent",
    "dollars",
    "euros",
    "cents",
    "times",
    "pounds",
    "miles",
    "feet",
    "inches",
    "kilometers",
    "minute",
    "hour",
];

/// Words that announce a date whose month is also a word, or a year of the first centuries.
const ANNOUNCING: [&str; 14] = [
    "on", "by", "in", "since", "until", "till", "of", "last", "next", "before", "after", "from", "year",
    "circa",
];

/// After a day with its article: `May the fourth be with you`.
const AFTER_DAY: [&str; 12] = ["at", "be", "by", "he", "i", "is", "it", "on", "she", "they", "was", "we"];

/// Before these a pair of numbers is a price.
const PRICED: [&str; 7] = ["cost", "costs", "for", "just", "only", "paid", "pay"];

const SIGHT_REACH: usize = 3;

/// The month at `at`, unless it is the verb.
fn month(spoken: &Spoken<'_>, at: usize) -> bool {
    let name = spoken.atom(at);
    MONTHS.contains(&name)
        && (!matches!(name, "may" | "march")
            || spoken.is_capitalised(at)
            || ANNOUNCING.contains(&spoken.before(at)))
}

/// `November 2 2022`, `November 2022`, `the 2nd of November`. The month is left as it is; a comma after
/// the day stays, and none is added.
pub fn date(spoken: &Spoken<'_>, at: usize) -> Option<Match> {
    if let Some((day, end)) = numbers::ordinal(spoken, at)
        && spoken.open(end) == "of"
        && spoken.joint(end + 1) == Joint::Open
        && month(spoken, end + 1)
        && day <= 31
        // `the first, second and third of May`: all in words.
        && !matches!(spoken.before(at), "and" | "or")
    {
        return spoken.one(numbers::with_suffix(day), at, end);
    }
    if !month(spoken, at) {
        return None;
    }
    let name = spoken.piece(spoken.word(at)?.parts().1, at, at + 1)?;
    if spoken.before(at) != "in"
        && let Some((day, end)) = day_with_article(spoken, at + 1)
    {
        let mut pieces = vec![name, spoken.piece("the", at + 1, at + 2)?, spoken.piece(day, at + 2, end)?];
        let mut last = end;
        if !spoken.open(end).is_empty()
            && let Some((year, after)) = year_after(spoken, end)
        {
            pieces.push(spoken.piece(year.to_string(), end, after)?);
            last = after;
        }
        return Some(Match::of(pieces, last));
    }
    if !spoken.open(at + 1).is_empty()
        && let Some((year, end)) = year_after(spoken, at + 1)
    {
        return Some(Match::of(vec![name, spoken.piece(year.to_string(), at + 1, end)?], end));
    }
    let (day, end) = day(spoken, at + 1)?;
    let year = match spoken.after(end, Joint::Comma) {
        "" => None,
        _ => year_after(spoken, end),
    };
    match year {
        Some((year, last)) => {
            let comma = if spoken.joint(end) == Joint::Comma { "," } else { "" };
            let day = spoken.piece(format!("{day}{comma}"), at + 1, end)?;
            let year = spoken.piece(year.to_string(), end, last)?;
            Some(Match::of(vec![name, day, year], last))
        }
        None => Some(Match::of(vec![name, spoken.piece(day, at + 1, end)?], end)),
    }
}

/// `the second` after a month, but not before a noun: `in June the second quarter`.
fn day_with_article(spoken: &Spoken<'_>, at: usize) -> Option<(String, usize)> {
    let (day, end) = numbers::ordinal(spoken, at + 1).filter(|(day, _)| *day <= 31)?;
    let goes_on = spoken.open(end);
    let closed = goes_on.is_empty() || AFTER_DAY.contains(&goes_on) || year_after(spoken, end).is_some();
    let follows = spoken.open(at) == "the" && spoken.joint(at + 1) == Joint::Open;
    (follows && closed).then(|| (numbers::with_suffix(day), end))
}

/// A spoken day of a month, or one in digits, with the atom after it.
fn day(spoken: &Spoken<'_>, at: usize) -> Option<(String, usize)> {
    let text = spoken.open(at);
    if text.is_empty() {
        return None;
    }
    if text.starts_with(|c: char| c.is_ascii_digit()) {
        let core = spoken.word(at)?.parts().1;
        let digits = core.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        return digits
            .parse()
            .is_ok_and(|day: u64| (1..=31).contains(&day))
            .then(|| (core.to_owned(), at + 1));
    }
    let (day, end) = numbers::ordinal(spoken, at)
        .or_else(|| numbers::cardinal(spoken, at).filter(|(_, end)| !COUNTED.contains(&spoken.open(*end))))?;
    (day <= 31).then(|| (day.to_string(), end))
}

/// A year after a month: a pair, or `two thousand [and] six`.
fn year_after(spoken: &Spoken<'_>, at: usize) -> Option<(u64, usize)> {
    year(spoken, at, true)
        .or_else(|| numbers::cardinal(spoken, at).filter(|(value, _)| (1000..2100).contains(value)))
}

/// A year said as a pair of two-digit numbers: `nineteen ninety nine`, `twenty oh five`.
fn year(spoken: &Spoken<'_>, at: usize, announced: bool) -> Option<(u64, usize)> {
    let (century, next) = numbers::two_digits(spoken, at, spoken.atom(at))?;
    let likely = (13..=20).contains(&century) || (announced && (10..=12).contains(&century));
    let (rest, end) = match spoken.open(next) {
        "oh" => (number_words::digit(spoken.open(next + 1))?, next + 2),
        text => numbers::two_digits(spoken, next, text)?,
    };
    let goes_on = spoken.open(end);
    let other = COUNTED.contains(&goes_on)
        || matches!(goes_on, "hundred" | "point" | "am" | "pm")
        || number_words::scale(goes_on).is_some()
        || number_words::is_number(goes_on);
    let priced = PRICED.contains(&spoken.before(at));
    (likely && next == at + 1 && !other && !priced).then_some((century * 100 + rest, end))
}

/// `1999`, `1990s`, `1800s`.
pub fn decade_or_year(spoken: &Spoken<'_>, at: usize) -> Option<Match> {
    let announced = matches!(spoken.before(at), "in" | "since" | "year" | "circa" | "until");
    if let Some((century, next)) = numbers::two_digits(spoken, at, spoken.atom(at))
        && (11..=20).contains(&century)
        && let Some(tens) = match spoken.open(next) {
            "hundreds" => Some(0),
            name => number_words::decade(name),
        }
    {
        return spoken.one(format!("{}s", century * 100 + tens), at, next + 1);
    }
    let (year, end) = year(spoken, at, announced)?;
    // Sharp eyes, not a year.
    if year == 2020
        && (spoken.open(end) == "vision" || spoken.is_about(at, SIGHT_REACH, &["vision", "hindsight"]))
    {
        return spoken.one("20/20", at, end);
    }
    spoken.one(year.to_string(), at, end)
}
