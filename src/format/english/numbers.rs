//! English numbers of several words: cardinals, ordinals, decimals. Grammar only: the rules decide whether a number is
//! written in digits.

use super::number_words::{digit, is_literal, ordinal_word, scale, teen, ten, unit_ordinal};
use super::spoken::Spoken;

/// 10 to 99, and the atom after it.
pub fn two_digits(spoken: &Spoken<'_>, at: usize, text: &str) -> Option<(u64, usize)> {
    if let Some(teen) = teen(text) {
        return Some((teen, at + 1));
    }
    let tens = ten(text)?;
    Some(match digit(spoken.open(at + 1)).filter(|unit| *unit > 0) {
        Some(unit) => (tens + unit, at + 2),
        None => (tens, at + 1),
    })
}

pub fn below_hundred(spoken: &Spoken<'_>, at: usize, text: &str) -> Option<(u64, usize)> {
    let unit = || digit(text).filter(|unit| *unit > 0).map(|unit| (unit, at + 1));
    two_digits(spoken, at, text).or_else(unit)
}

/// `a hundred`, `a thousand`: the article counts one.
pub fn is_article(spoken: &Spoken<'_>, at: usize) -> bool {
    let next = spoken.open(at + 1);
    matches!(spoken.atom(at), "a" | "an") && (next == "hundred" || scale(next).is_some())
}

/// 1 to 9999: hundreds are counted up to ninety-nine (`nineteen hundred`).
fn group(spoken: &Spoken<'_>, at: usize, text: &str) -> Option<(u64, usize)> {
    let article = || is_article(spoken, at).then_some((1, at + 1));
    let (value, next) = below_hundred(spoken, at, text).or_else(article)?;
    if spoken.open(next) != "hundred" {
        return Some((value, next));
    }
    let (hundreds, next) = (value * 100, next + 1);
    let and = usize::from(spoken.open(next) == "and");
    match below_hundred(spoken, next + and, spoken.open(next + and)) {
        // `between one hundred and two hundred`, `one hundred two hundred`.
        Some((_, after)) if spoken.open(after) == "hundred" => Some((hundreds, next)),
        // `a hundred and two thousand` is one number, `five hundred and two million` hardly two.
        Some((rest, after)) => Some((hundreds + rest, after)),
        None => Some((hundreds, next)),
    }
}

/// A cardinal of at least 1 and the atom after it. The first atom may stand after any punctuation.
pub fn cardinal(spoken: &Spoken<'_>, at: usize) -> Option<(u64, usize)> {
    let mut text = spoken.atom(at);
    let (mut total, mut next, mut smallest) = (0, at, u64::MAX);
    loop {
        let and = usize::from(next > at && spoken.open(next) == "and");
        if next > at {
            text = spoken.open(next + and);
        }
        let Some((value, after)) = group(spoken, next + and, text) else { break };
        match scale(spoken.open(after)) {
            Some((_, scale)) if scale < smallest && value < 1000 && and == 0 => {
                total += value * scale;
                (smallest, next) = (scale, after + 1);
            }
            // A number with its own scale is another one.
            Some(_) if next > at => break,
            // `a thousand and one`; but `five thousand and two hundred` are two.
            _ if and == 1 && value >= 100 => break,
            _ if value < smallest => return Some((total + value, after)),
            _ => break,
        }
    }
    (total > 0).then_some((total, next))
}

/// A number in the parts that its written form needs.
pub struct Number {
    /// Before the point.
    pub whole: u64,
    /// After the point, or empty.
    pub fraction: String,
    /// A scale that stays a word: `2.5 million`.
    pub scale: Option<&'static str>,
    /// It was in digits already, in this form.
    pub literal: Option<String>,
    /// Atoms: that of the scale, and the one after the number.
    pub scale_at: usize,
    pub end: usize,
}

impl Number {
    /// The digits, with commas by thousands.
    pub fn grouped(&self) -> String {
        match &self.literal {
            Some(literal) => literal.clone(),
            None => format!("{}{}", grouped(self.whole), self.point()),
        }
    }

    /// The digits alone.
    pub fn plain(&self) -> String {
        match &self.literal {
            Some(literal) => literal.clone(),
            None => format!("{}{}", self.whole, self.point()),
        }
    }

    /// As in prose: with commas, except for a possible year (`nineteen hundred`, `two thousand ten`).
    pub fn prose(&self) -> String {
        let century = (1100..2000).contains(&self.whole) && self.whole.is_multiple_of(100);
        if century || (2000..2100).contains(&self.whole) { self.plain() } else { self.grouped() }
    }

    fn point(&self) -> String {
        if self.fraction.is_empty() { String::new() } else { format!(".{}", self.fraction) }
    }
}

pub fn grouped(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number: words or digits, with a fraction (`three point one four`) and a scale that stays a word
/// (`two million`, `2.5 billion`).
pub fn number(spoken: &Spoken<'_>, at: usize) -> Option<Number> {
    let text = spoken.atom(at);
    let literal = is_literal(text).then(|| text.to_owned());
    let (whole, next) = match (&literal, text) {
        (Some(_), _) => (0, at + 1),
        (None, "zero") => (0, at + 1),
        (None, _) => large(spoken, at).or_else(|| cardinal(spoken, at))?,
    };
    let mut number =
        Number { whole, fraction: String::new(), scale: None, literal, scale_at: next, end: next };
    if number.literal.is_none()
        && spoken.open(next) == "point"
        && let Some((fraction, after)) = fraction(spoken, next + 1)
    {
        (number.fraction, number.scale_at, number.end) = (fraction, after, after);
    }
    let small = number.whole < 1000;
    let decimal = !number.fraction.is_empty() || number.literal.is_some();
    if let Some((name, value)) = scale(spoken.open(number.end))
        && small
        && (value > 1000 || decimal)
    {
        number.scale = Some(name);
        number.end += 1;
    }
    Some(number)
}

/// The number before a million or more without other parts, which is shorter with the word.
fn large(spoken: &Spoken<'_>, at: usize) -> Option<(u64, usize)> {
    let (value, next) = group(spoken, at, spoken.atom(at))?;
    let (_, scale) = scale(spoken.open(next))?;
    let (whole, _) = cardinal(spoken, at)?;
    (scale > 1000 && value < 1000 && whole == value * scale).then_some((value, next))
}

/// Digits after a point: one by one, or as one number of two digits.
pub fn fraction(spoken: &Spoken<'_>, at: usize) -> Option<(String, usize)> {
    if let Some((value, after)) = two_digits(spoken, at, spoken.open(at)) {
        return Some((value.to_string(), after));
    }
    let mut digits = String::new();
    let mut next = at;
    loop {
        let text = spoken.open(next);
        let Some(value) = digit(text).or((text == "oh").then_some(0)) else { break };
        // `one point five million`, not `one point five hundred`.
        digits.push_str(&value.to_string());
        next += 1;
    }
    (!digits.is_empty() && spoken.open(next) != "hundred").then_some((digits, next))
}

/// An ordinal of at least 1 and the atom after it.
pub fn ordinal(spoken: &Spoken<'_>, at: usize) -> Option<(u64, usize)> {
    let text = spoken.atom(at);
    if let Some(value) = ordinal_word(text) {
        return Some((value, at + 1));
    }
    if let Some(tens) = ten(text) {
        let unit = unit_ordinal(spoken.open(at + 1))?;
        return Some((tens + unit, at + 2));
    }
    // `two hundred [and] fifth`, `two hundredth`.
    let (hundreds, next) = below_hundred(spoken, at, text)?;
    if spoken.open(next) == "hundredth" {
        return Some((hundreds * 100, next + 1));
    }
    if spoken.open(next) != "hundred" {
        return None;
    }
    let rest = next + 1 + usize::from(spoken.open(next + 1) == "and");
    let word = spoken.open(rest);
    let (value, after) = match (ordinal_word(word), ten(word)) {
        (Some(value), _) => (value, rest + 1),
        (None, Some(tens)) => (tens + unit_ordinal(spoken.open(rest + 1))?, rest + 2),
        _ => return None,
    };
    Some((hundreds * 100 + value, after))
}

/// `1st`, `22nd`, `113th`.
pub fn with_suffix(value: u64) -> String {
    let suffix = match (value % 10, value % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{value}{suffix}")
}
