//! How many, and of what: numbers in prose, money, percentages, measures, ordinals.

use super::Rules;
use super::numbers::{self, Number};
use super::spoken::{Joint, Match, Spoken};

/// After these a small number is a name: `page five`.
const NUMBERED: [&str; 16] = [
    "apartment",
    "chapter",
    "channel",
    "exit",
    "extension",
    "flight",
    "gate",
    "highway",
    "interstate",
    "page",
    "platform",
    "room",
    "route",
    "section",
    "suite",
    "version",
];

/// The units that the wire format names, and their signs.
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

/// Where `one` stands for a thing or a person that was spoken of.
const BEFORE_PRONOUN: [&str; 22] = [
    "this", "that", "the", "which", "each", "every", "no", "any", "another", "some", "someone", "last",
    "next", "only", "good", "bad", "big", "small", "new", "old", "other", "right",
];
const AFTER_PRONOUN: [&str; 20] = [
    "of", "another", "who", "whom", "whose", "that", "thing", "day", "by", "can", "could", "should", "would",
    "must", "may", "might", "is", "was", "has", "at",
];

/// `$5`, `€2.50`, `$2 million`, `5 cents`.
pub fn money(spoken: &Spoken<'_>, at: usize) -> Option<Match> {
    let number = numbers::number(spoken, at)?;
    let unit = spoken.open(number.end);
    if matches!(unit, "cent" | "cents") && number.scale.is_none() {
        return spoken.one(number.plain(), at, number.end).filter(|_| number.literal.is_none());
    }
    let after = number.end + 1;
    let (sign, change, end) = match unit {
        // `a million dollar idea` is no sum.
        "dollar" if numbers::is_article(spoken, at) => return None,
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
    let coins = coins(spoken, end, change).filter(|_| number.fraction.is_empty() && number.literal.is_none());
    match coins {
        Some((coins, end)) => spoken.one(format!("{sign}{}.{coins:02}", number.grouped()), at, end),
        None if change == "penny" => None,
        None => {
            let short = if number.fraction.len() == 1 { "0" } else { "" };
            spoken.one(format!("{sign}{}{short}", number.grouped()), at, end)
        }
    }
}

/// `[and] twenty cents` after a sum.
fn coins(spoken: &Spoken<'_>, at: usize, unit: &str) -> Option<(u64, usize)> {
    let start = at + usize::from(spoken.open(at) == "and");
    let (value, next) = numbers::cardinal(spoken, start).filter(|_| spoken.joint(start) == Joint::Open)?;
    let named = match unit {
        "cent" => matches!(spoken.open(next), "cent" | "cents"),
        "penny" => matches!(spoken.open(next), "p" | "pence" | "penny"),
        _ => false,
    };
    (named && value < 100).then_some((value, next + 1))
}

/// `25%`.
pub fn percentage(spoken: &Spoken<'_>, at: usize) -> Option<Match> {
    if spoken.atom(at) == "point"
        && spoken.before(at).is_empty()
        && let Some((fraction, next)) = numbers::fraction(spoken, at + 1)
    {
        return spoken.one(format!("0.{fraction}%"), at, percent(spoken, next)?);
    }
    let number = numbers::number(spoken, at).filter(|number| number.scale.is_none())?;
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
    let number = numbers::number(spoken, at).filter(|number| number.scale.is_none())?;
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
    let fraction = numbers::is_number(before) || spoken.atom(end - 1).ends_with("hundredth");
    let seconds = spoken.atom(end - 1) == "second" && matches!(before, "a" | "an" | "every" | "each" | "per");
    if fraction || seconds {
        return None;
    }
    spoken.one(numbers::with_suffix(value), at, end)
}

/// A number that nothing more is known of.
pub fn plain(spoken: &Spoken<'_>, at: usize, rules: Rules) -> Option<Match> {
    if matches!(spoken.atom(at), "minus" | "negative") && !numbers::is_number(spoken.before(at)) {
        let number = numbers::number(spoken, at + 1).filter(|_| spoken.joint(at + 1) == Joint::Open)?;
        let digits = if rules.smart { number.prose() } else { number.plain() };
        return match percent(spoken, number.end).filter(|_| rules.smart && number.scale.is_none()) {
            Some(end) => spoken.one(format!("-{digits}%"), at, end),
            None => written(spoken, &number, format!("-{digits}"), at),
        };
    }
    let number = numbers::number(spoken, at)?;
    let next = spoken.open(number.end);
    if rules.smart && number.whole == 24 && next == "seven" {
        return spoken.one("24/7", at, number.end + 1);
    }
    if let Some((text, end)) = version(spoken, &number) {
        return spoken.one(text, at, end);
    }
    // `a hundred times`, `eighteen hundreds`.
    let idiom = (numbers::is_article(spoken, at) && number.end == at + 2)
        || next.strip_suffix('s').is_some_and(|next| next == "hundred" || numbers::scale(next).is_some());
    // `six forty five` may be a time, a price or a number: it stays as it was said.
    let doubtful = !rules.numerals
        && number.whole < 100
        && (numbers::is_number(spoken.before(at)) || numbers::is_number(next));
    let in_digits = number.literal.is_none()
        && !idiom
        && ((number.whole >= 10 && !doubtful)
            || !number.fraction.is_empty()
            || number.scale.is_some()
            || (rules.numerals && !is_pronoun(spoken, at))
            || (rules.smart && (NUMBERED.contains(&spoken.before(at)) || begins_range(spoken, number.end))));
    if !in_digits {
        return None;
    }
    let digits = if rules.smart { number.prose() } else { number.plain() };
    written(spoken, &number, digits, at)
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

fn written(spoken: &Spoken<'_>, number: &Number, digits: String, at: usize) -> Option<Match> {
    let mut pieces = vec![spoken.piece(digits, at, number.scale_at)?];
    if let Some(scale) = number.scale {
        pieces.push(spoken.piece(scale, number.scale_at, number.end)?);
    }
    Some(Match::of(pieces, number.end))
}

/// `five to ten percent`: what follows is in digits, so this is too.
fn begins_range(spoken: &Spoken<'_>, end: usize) -> bool {
    let next = end + 1;
    matches!(spoken.open(end), "to" | "or")
        && !spoken.open(next).is_empty()
        && (percentage(spoken, next).is_some() || money(spoken, next).is_some())
}

fn is_pronoun(spoken: &Spoken<'_>, at: usize) -> bool {
    spoken.atom(at) == "one"
        && (BEFORE_PRONOUN.contains(&spoken.before(at)) || AFTER_PRONOUN.contains(&spoken.open(at + 1)))
}
