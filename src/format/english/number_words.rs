//! Single words that name numbers, whatever stands beside them.

use crate::digits::{ONES, TENS};

const SCALES: [(&str, u64); 4] = [
    ("thousand", 1_000),
    ("million", 1_000_000),
    ("billion", 1_000_000_000),
    ("trillion", 1_000_000_000_000),
];
const UNIT_ORDINALS: [&str; 9] =
    ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth"];
const TEEN_ORDINALS: [&str; 10] = [
    "tenth",
    "eleventh",
    "twelfth",
    "thirteenth",
    "fourteenth",
    "fifteenth",
    "sixteenth",
    "seventeenth",
    "eighteenth",
    "nineteenth",
];
const TEN_ORDINALS: [&str; 8] =
    ["twentieth", "thirtieth", "fortieth", "fiftieth", "sixtieth", "seventieth", "eightieth", "ninetieth"];

fn place(list: &[&str], text: &str) -> Option<u64> {
    list.iter().position(|known| *known == text).map(|place| place as u64)
}

/// 0 to 9.
pub fn digit(text: &str) -> Option<u64> {
    place(&ONES[..10], text)
}

pub fn teen(text: &str) -> Option<u64> {
    place(&ONES[10..], text).map(|place| place + 10)
}

pub fn ten(text: &str) -> Option<u64> {
    place(&TENS, text).map(|place| (place + 2) * 10)
}

pub fn scale(text: &str) -> Option<(&'static str, u64)> {
    SCALES.iter().copied().find(|(name, _)| *name == text)
}

/// Whether a cardinal can begin with `text`.
pub fn is_number(text: &str) -> bool {
    digit(text).or_else(|| teen(text)).or_else(|| ten(text)).is_some()
}

/// 1 to 9, from `first` to `ninth`.
pub fn unit_ordinal(text: &str) -> Option<u64> {
    place(&UNIT_ORDINALS, text).map(|place| place + 1)
}

/// An ordinal of one word, below a hundred.
pub fn ordinal_word(text: &str) -> Option<u64> {
    unit_ordinal(text)
        .or_else(|| place(&TEEN_ORDINALS, text).map(|place| place + 10))
        .or_else(|| place(&TEN_ORDINALS, text).map(|place| (place + 2) * 10))
}

/// The tens of a decade: `nineties` is 90.
pub fn decade(text: &str) -> Option<u64> {
    let stem = text.strip_suffix("ies")?;
    TENS.iter().position(|tens| tens.strip_suffix('y') == Some(stem)).map(|place| (place as u64 + 2) * 10)
}

/// `5`, `1,000`, `3.14`.
pub fn is_literal(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit())
        && text.ends_with(|c: char| c.is_ascii_digit())
        && text.chars().all(|c| c.is_ascii_digit() || matches!(c, '.' | ','))
        && text.matches('.').count() <= 1
}
