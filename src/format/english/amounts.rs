//! Amounts: numbers in prose, money, percentages, measures, ordinals.

use super::number_words;
use super::numbers::{self, Number};
use super::spoken::{Joint, Match, Spoken};
use super::{Rules, pronouns, sequences};

/// The units of the wire format, and their symbols.
const UNITS: [(&str, &str); 16] = [
    ("milligram", "mg"),
    ("centigram", "cg"),
    ("gram", "g"),
    ("kilogram", "kg"),
    ("milliliter", "ml"),
    ("centiliter", "cl"),
    ("liter", "l"),
    ("kiloliter", "kl"),
    ("millimeter", "mm"),
    ("centimeter", "cm"),
    ("meter", "m"),
    ("kilometer", "km"),
    ("millilitre", "ml"),
    ("centilitre", "cl"),
    ("litre", "l"),
    ("kilolitre", "kl"),
];
const METRES: [(&str, &str); 4] =
    [("millimetre", "mm"), ("centimetre", "cm"), ("metre", "m"), ("kilometre", "km")];

/// Currency signs before a sum, and the coins.
const SIGNS: [(char, &str); 3] = [('$', "cent"), ('€', "cent"), ('£', "penny")];
const OWNERS: [&str; 6] = ["her", "his", "my", "our", "their", "your"];

/// Before these `two thousand` is a year.
const YEARS: [&str; 9] = ["after", "before", "by", "from", "in", "of", "since", "until", "year"];
/// Before these words a step or a number has no name of its own.
const BEFORE_NOUNS: [&str; 22] = [
    "a", "an", "another", "big", "each", "every", "final", "first", "her", "his", "last", "my", "next", "no",
    "one", "our", "same", "that", "the", "their", "this", "your",
];

/// Before these a fraction alone is a number: `point five milligrams`.
const FINE_UNITS: [&str; 8] = ["degree", "degrees", "inch", "inches", "mile", "miles", "percent", "per"];
/// After these, `point` is a noun.
const BEFORE_POINT: [&str; 24] = [
    "a", "any", "boiling", "decimal", "every", "freezing", "good", "her", "high", "his", "low", "main", "my",
    "no", "one", "our", "same", "some", "starting", "that", "the", "their", "this", "your",
];

/// A number, with the half that is said after it where a unit follows: `two and a half million`.
fn number(spoken: &Spoken<'_>, at: usize) -> Option<Number> {
    let mut number = point(spoken, at).or_else(|| numbers::number(spoken, at))?;
    let half =
        ["and", "a", "half"].iter().enumerate().all(|(place, word)| spoken.open(number.end + place) == *word);
    let follows = spoken.open(number.end + 3);
    let large = number_words::scale(follows).filter(|(_, value)| *value > 1000);
    let whole = number.literal.as_ref().map_or(Some(number.whole), |literal| literal.parse().ok());
    if half
        && number.fraction.is_empty()
        && number.scale.is_none()
        && let Some(whole) = whole
        && (large.is_some() || is_unit(follows))
    {
        (number.whole, number.literal, number.fraction) = (whole, None, "5".to_owned());
        number.scale = large.map(|(name, _)| name);
        number.scale_at = number.end + 3;
        number.end = number.scale_at + usize::from(large.is_some());
    }
    Some(number)
}

/// Whether a number before `text` is written with its fraction.
fn is_unit(text: &str) -> bool {
    let one = text.strip_suffix('s').unwrap_or(text);
    let measure = UNITS.iter().chain(&METRES).any(|(unit, _)| *unit == one);
    measure || matches!(text, "percent" | "per" | "dollars" | "euros")
}

/// `point five`, if it is a number.
fn point(spoken: &Spoken<'_>, at: usize) -> Option<Number> {
    let before = spoken.before(at);
    if spoken.atom(at) != "point" || number_words::is_number(before) {
        return None;
    }
    let (fraction, end) = numbers::fraction(spoken, at + 1)?;
    // `a point two percent rise`.
    let rise = before == "a" && percent(spoken, end).is_some();
    if BEFORE_POINT.contains(&before) && !rise {
        return None;
    }
    let follows = spoken.open(end);
    (is_unit(follows) || FINE_UNITS.contains(&follows)).then_some(Number {
        whole: 0,
        fraction,
        scale: None,
        literal: None,
        scale_at: end,
        end,
    })
}

/// `$5`, `€2.50`, `$2 million`, `5 cents`.
pub fn money(spoken: &Spoken<'_>, at: usize) -> Option<Match> {
    if let Some(found) = sum_and_coins(spoken, at) {
        return Some(found);
    }
    let number = number(spoken, at)?;
    let unit = spoken.open(number.end);
    // `my two cents` is an opinion.
    let opinion = number.whole == 2 && OWNERS.contains(&spoken.before(at));
    if matches!(unit, "cent" | "cents") && number.scale.is_none() && !opinion {
        return spoken.one(number.plain(), at, number.end).filter(|_| number.literal.is_none());
    }
    let after = number.end + 1;
    let (sign, change, end) = match unit {
        // `a million dollar idea` is not a sum, and `half a million dollars` is not a million.
        "dollar" if numbers::is_article(spoken, at) => return None,
        _ if numbers::is_article(spoken, at) && is_part(spoken, at) => return None,
        "dollar" | "dollars" => ("$", "cent", after),
        "euro" | "euros" => ("€", "cent", after),
        "yen" => ("¥", "", after),
        "rupee" | "rupees" => ("₹", "", after),
        // Pounds alone may be a weight.
        "pound" | "pounds" if spoken.open(after) == "sterling" => ("£", "", after + 1),
        "pound" | "pounds" => ("£", "penny", after),
        _ => return None,
    };
    if let Some(scale) = number.scale {
        let amount = spoken.piece(format!("{sign}{}", number.grouped()), at, number.scale_at)?;
        let scale = spoken.piece(scale, number.scale_at, end)?;
        return Some(Match::of(vec![amount, scale], end));
    }
    let round = number.fraction.is_empty() && !number.grouped().contains('.');
    match coins(spoken, end, change).filter(|_| round) {
        Some((coins, end)) => spoken.one(format!("{sign}{}.{coins:02}", number.grouped()), at, end),
        None if change == "penny" => None,
        None => spoken.one(format!("{sign}{}", in_coins(&number)), at, end),
    }
}

/// With two digits after the point, or none.
pub fn in_coins(number: &Number) -> String {
    let short = if number.fraction.len() == 1 { "0" } else { "" };
    format!("{}{short}", number.grouped())
}

/// `$55 and 20 cents`: the model wrote the sum, and left the coins.
fn sum_and_coins(spoken: &Spoken<'_>, at: usize) -> Option<Match> {
    let sum = spoken.atom(at);
    let (change, amount) =
        SIGNS.iter().find_map(|(sign, change)| Some((*change, sum.strip_prefix(*sign)?)))?;
    let round = number_words::is_literal(amount) && !amount.contains('.');
    let (coins, end) = coins(spoken, at + 1, change).filter(|_| round)?;
    spoken.one(format!("{sum}.{coins:02}"), at, end)
}

/// Whether only a part of the number at `at` is meant: `half a million`, `a quarter of a million`.
fn is_part(spoken: &Spoken<'_>, at: usize) -> bool {
    let part = |text: &str| matches!(text.trim_end_matches('s'), "half" | "quarter" | "third" | "fraction");
    let before = spoken.before(at);
    part(before) || (before == "of" && at > 1 && part(spoken.before(at - 1)))
}

/// `[and] twenty cents` after a sum.
fn coins(spoken: &Spoken<'_>, at: usize, unit: &str) -> Option<(u64, usize)> {
    let start = at + usize::from(spoken.open(at) == "and");
    if spoken.joint(start) != Joint::Open {
        return None;
    }
    let text = spoken.atom(start);
    // `50p` is one word.
    if let Some(pence) = text.strip_suffix('p').filter(|_| unit == "penny") {
        return Some((small(pence)?, start + 1));
    }
    let literal = || small(text).map(|value| (value, start + 1));
    let (value, next) = literal().or_else(|| numbers::cardinal(spoken, start))?;
    let named = match unit {
        "cent" => matches!(spoken.open(next), "cent" | "cents"),
        "penny" => matches!(spoken.open(next), "p" | "pence" | "penny"),
        _ => false,
    };
    (named && value < 100).then_some((value, next + 1))
}

/// One digit or two.
fn small(text: &str) -> Option<u64> {
    let digits = text.len() <= 2 && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

/// `25%`.
pub fn percentage(spoken: &Spoken<'_>, at: usize) -> Option<Match> {
    let number = number(spoken, at).filter(|number| number.scale.is_none())?;
    let end = percent(spoken, number.end)?;
    spoken.one(format!("{}%", number.grouped()), at, end)
}

fn percent(spoken: &Spoken<'_>, at: usize) -> Option<usize> {
    match (spoken.open(at), spoken.open(at + 1)) {
        ("percent", _) => Some(at + 1),
        ("per", "cent") => Some(at + 2),
        _ => None,
    }
}

/// `33 g`.
pub fn measurement(spoken: &Spoken<'_>, at: usize) -> Option<Match> {
    let number = number(spoken, at).filter(|number| number.scale.is_none())?;
    let name = spoken.open(number.end);
    let one = name.strip_suffix('s').unwrap_or(name);
    let (_, sign) = UNITS.iter().chain(&METRES).find(|(unit, _)| *unit == one)?;
    let amount = spoken.piece(number.grouped(), at, number.end)?;
    let unit = spoken.piece(*sign, number.end, number.end + 1)?;
    Some(Match::of(vec![amount, unit], number.end + 1))
}

/// `21st`. Those below the tenth stay words.
pub fn ordinal(spoken: &Spoken<'_>, at: usize) -> Option<Match> {
    let (value, end) = numbers::ordinal(spoken, at).filter(|(value, _)| *value >= 10)?;
    // `one tenth`, `a hundredth of`, and `a twenty second delay`.
    let before = spoken.before(at);
    let counted = before == "the" && end > at + 1 && spoken.open(end) != "of";
    let hundredth = spoken.atom(end - 1).ends_with("hundredth") && !counted;
    let fraction = number_words::is_number(before) || hundredth;
    let seconds = spoken.atom(end - 1) == "second" && matches!(before, "a" | "an" | "every" | "each" | "per");
    if fraction || seconds {
        return None;
    }
    spoken.one(numbers::with_suffix(value), at, end)
}

/// A plain number.
pub fn plain(spoken: &Spoken<'_>, at: usize, rules: Rules) -> Option<Match> {
    if matches!(spoken.atom(at), "minus" | "negative") && !number_words::is_number(spoken.before(at)) {
        let number = numbers::number(spoken, at + 1).filter(|_| spoken.joint(at + 1) == Joint::Open)?;
        let digits = if rules.smart { number.prose() } else { number.plain() };
        return match percent(spoken, number.end).filter(|_| rules.smart && number.scale.is_none()) {
            Some(end) => spoken.one(format!("-{digits}%"), at, end),
            None => written(spoken, &number, format!("-{digits}"), at),
        };
    }
    let number = number(spoken, at)?;
    let next = spoken.open(number.end);
    if rules.smart && number.whole == 24 && next == "seven" {
        return spoken.one("24/7", at, number.end + 1);
    }
    if let Some((text, end)) = version(spoken, &number) {
        return spoken.one(text, at, end);
    }
    // `a hundred times`, `twenty something`, `eighteen hundreds`.
    let idiom = (numbers::is_article(spoken, at) && number.end == at + 2)
        || next == "something"
        || next
            .strip_suffix('s')
            .is_some_and(|next| next == "hundred" || number_words::scale(next).is_some());
    // `six forty five` may be a time, a price or a number: it stays in words. So does `a dollar fifty`.
    let before = spoken.before(at);
    let doubtful = !rules.numerals
        && number.whole < 100
        && (number_words::is_number(before)
            || matches!(before, "buck" | "dollar")
            || number_words::is_number(next));
    let named = rules.smart && is_name(spoken, at, number.end);
    let in_digits = number.literal.is_none()
        && !idiom
        && ((number.whole >= 10 && !doubtful)
            || !number.fraction.is_empty()
            || number.scale.is_some()
            || (rules.numerals && !is_fraction(next) && !pronouns::is_pronoun(spoken, at))
            || named);
    if !in_digits {
        return None;
    }
    let digits = match rules.smart {
        // A year is announced, a count is not.
        true if number.whole == 2000 && !YEARS.contains(&before) => number.grouped(),
        true => number.prose(),
        false => number.plain(),
    };
    written(spoken, &number, digits, at)
}

/// `two thirds`.
fn is_fraction(text: &str) -> bool {
    matches!(text, "half" | "halves" | "quarter" | "quarters" | "third" | "thirds" | "fourth" | "fourths")
        || matches!(text, "fifth" | "fifths" | "sixth" | "sixths" | "eighth" | "eighths" | "tenth" | "tenths")
}

/// `2.1.3`: more than one point.
fn version(spoken: &Spoken<'_>, number: &Number) -> Option<(String, usize)> {
    let (mut text, mut end) = (number.plain(), number.end);
    while let ("point" | "dot", Some((part, after))) = (spoken.open(end), numbers::fraction(spoken, end + 1))
    {
        text = format!("{text}.{part}");
        end = after;
    }
    let parts = text.matches('.').count();
    (end > number.end && parts > 1 && number.scale.is_none()).then_some((text, end))
}

pub fn written(spoken: &Spoken<'_>, number: &Number, digits: String, at: usize) -> Option<Match> {
    let mut pieces = vec![spoken.piece(digits, at, number.scale_at)?];
    if let Some(scale) = number.scale {
        pieces.push(spoken.piece(scale, number.scale_at, number.end)?);
    }
    Some(Match::of(pieces, number.end))
}

/// `step two`, but not `the next step two people took` or `number one reason`.
fn is_name(spoken: &Spoken<'_>, at: usize, end: usize) -> bool {
    let before = spoken.before(at);
    let noun = at > 0 && BEFORE_NOUNS.contains(&spoken.before(at - 1));
    let goes_on = spoken.open(end);
    let closed = goes_on.is_empty() || pronouns::is_function_word(goes_on);
    sequences::NUMBERED.contains(&before) || (pronouns::is_named(before) && closed && !noun)
}
