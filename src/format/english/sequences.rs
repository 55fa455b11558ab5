//! Digits said one after another: telephone numbers, codes, house numbers, accounts.

use super::numbers;
use super::spoken::{Joint, Match, Spoken};

/// Longer runs are no telephone number, whatever they are.
const ELEMENTS_MAX: usize = 16;
/// How far back a word tells what the digits are.
const REACH: usize = 8;

const TELEPHONE: [&str; 10] =
    ["phone", "telephone", "call", "dial", "cell", "mobile", "fax", "reach", "text", "callback"];
/// Digits that are counted otherwise: no telephone number, though it may have the length of one.
const ACCOUNTS: [&str; 12] = [
    "account",
    "tracking",
    "serial",
    "confirmation",
    "order",
    "reference",
    "member",
    "policy",
    "case",
    "card",
    "routing",
    "invoice",
];
const CODES: [&str; 12] = [
    "tracking",
    "serial",
    "confirmation",
    "order",
    "reference",
    "code",
    "id",
    "booking",
    "license",
    "plate",
    "vin",
    "number",
];
/// After these digits are a name, however they were said: `flight one twenty three`.
const NUMBERED: [&str; 12] = [
    "apartment",
    "channel",
    "exit",
    "extension",
    "flight",
    "gate",
    "highway",
    "interstate",
    "page",
    "room",
    "route",
    "suite",
];
const STREETS: [&str; 20] = [
    "street",
    "st",
    "avenue",
    "ave",
    "road",
    "rd",
    "drive",
    "lane",
    "boulevard",
    "blvd",
    "way",
    "court",
    "place",
    "circle",
    "highway",
    "parkway",
    "terrace",
    "square",
    "trail",
    "crescent",
];
/// How many words may name a street.
const STREET_WORDS: usize = 4;

/// Digits said as one, and the atom after them.
struct Element {
    digits: String,
    end: usize,
}

/// A digit, `double five`, or `oh` once digits have begun.
fn single(spoken: &Spoken<'_>, at: usize, text: &str, begun: bool) -> Option<Element> {
    let value = |text: &str| {
        let literal = || Some(text.to_owned()).filter(|_| matches!(text.as_bytes(), [b'0'..=b'9']));
        numbers::digit(text).map(|digit| digit.to_string()).or_else(literal)
    };
    let times = match text {
        "double" => 2,
        "triple" => 3,
        "oh" | "o" if begun => return Some(Element { digits: "0".into(), end: at + 1 }),
        _ => return value(text).map(|digits| Element { digits, end: at + 1 }),
    };
    let digits = value(spoken.open(at + 1)).or((spoken.open(at + 1) == "oh").then(|| "0".to_owned()))?;
    Some(Element { digits: digits.repeat(times), end: at + 2 })
}

/// [`single`], `twelve`, `eight hundred`.
fn element(spoken: &Spoken<'_>, at: usize, text: &str, begun: bool) -> Option<Element> {
    if let Some((value, end)) = numbers::two_digits(spoken, at, text) {
        return Some(Element { digits: value.to_string(), end });
    }
    let mut element = single(spoken, at, text, begun)?;
    if spoken.open(element.end) == "hundred" && element.digits != "0" {
        element.digits.push_str("00");
        element.end += 1;
    }
    Some(element)
}

type Reader = fn(&Spoken<'_>, usize, &str, bool) -> Option<Element>;

/// Elements from `at` on, no more than `joint` between them.
fn run(spoken: &Spoken<'_>, at: usize, joint: Joint, most: usize, read: Reader) -> Vec<Element> {
    let mut elements: Vec<Element> = Vec::new();
    let mut next = at;
    while elements.len() < most {
        let begun = !elements.is_empty();
        let text = if begun { spoken.after(next, joint) } else { spoken.atom(at) };
        let Some(element) = read(spoken, next, text, begun) else { break };
        next = element.end;
        elements.push(element);
    }
    elements
}

fn joined(elements: &[Element]) -> String {
    elements.iter().map(|element| element.digits.as_str()).collect()
}

/// `(444) 814-9913`, `1 (800) 555-1212`, and where telephones are the topic `814-9913`.
pub fn telephone(spoken: &Spoken<'_>, at: usize) -> Option<Match> {
    if spoken.is_about(at, REACH, &ACCOUNTS) {
        return None;
    }
    let all = run(spoken, at, Joint::Comma, ELEMENTS_MAX, element);
    // The run may go on behind a comma with what is another sentence's number.
    (3..=all.len()).rev().find_map(|count| {
        let elements = all.get(..count)?;
        let end = elements.last()?.end;
        let closed = count == all.len() || spoken.joint(end) != Joint::Open;
        if !closed {
            return None;
        }
        let digits = joined(elements);
        let local = || digits.len() == 7 && spoken.is_about(at, REACH, &TELEPHONE);
        match digits.strip_prefix('1').filter(|rest| rest.len() == 10).unwrap_or(&digits) {
            number if is_north_american(number) => long(spoken, at, elements, &digits),
            _ if local() => {
                let (exchange, line) = digits.split_at_checked(3)?;
                spoken.one(format!("{exchange}-{line}"), at, end)
            }
            _ => None,
        }
    })
}

/// Area code and exchange begin with 2 to 9 (North American Numbering Plan).
fn is_north_american(digits: &str) -> bool {
    let places = digits.as_bytes();
    let leads = |place: usize| places.get(place).is_some_and(|digit| (b'2'..=b'9').contains(digit));
    digits.len() == 10 && leads(0) && leads(3)
}

fn long(spoken: &Spoken<'_>, at: usize, elements: &[Element], digits: &str) -> Option<Match> {
    let (country, number) = digits.split_at_checked(digits.len().checked_sub(10)?)?;
    let (area, line) = number.split_at_checked(3)?;
    let (exchange, line) = line.split_at_checked(3)?;
    let (area, line) = (format!("({area})"), format!("{exchange}-{line}"));
    let end = elements.last()?.end;
    let in_parts = || {
        let mut pieces = Vec::new();
        let mut from = at;
        if !country.is_empty() {
            from = atom_after(elements, 1)?;
            pieces.push(spoken.piece(country, at, from)?);
        }
        let after = atom_after(elements, country.len() + 3)?;
        pieces.push(spoken.piece(&*area, from, after)?);
        pieces.push(spoken.piece(&*line, after, end)?);
        Some(Match::of(pieces, end))
    };
    // The model wrote it as one word: `4-4-4-8-1-4-9-9-1-3`.
    in_parts().or_else(|| spoken.one(format!("{country} {area} {line}").trim_start(), at, end))
}

/// The atom after the element that holds the `count`th digit.
fn atom_after(elements: &[Element], count: usize) -> Option<usize> {
    let mut told = 0;
    elements.iter().find_map(|element| {
        told += element.digits.len();
        (told >= count).then_some(element.end)
    })
}

/// Three digits or more as one number; five where the model wrote digits, which it does in lists too.
/// Counting is none: `one two three four`.
pub fn digits(spoken: &Spoken<'_>, at: usize) -> Option<Match> {
    let elements = run(spoken, at, Joint::Open, usize::MAX, single);
    let digits = joined(&elements);
    let end = elements.last()?.end;
    let least = if numbers::is_literal(spoken.atom(at)) { 5 } else { 3 };
    if digits.len() < least || elements.len() < 2 {
        return None;
    }
    let announced = spoken.is_about(at, REACH, &CODES) || spoken.is_about(at, REACH, &ACCOUNTS);
    let security = digits.len() == 9 && spoken.is_about(at, REACH, &["ssn", "social"]);
    if is_counting(&digits) && !announced && !security {
        let pieces: Option<Vec<_>> =
            elements.iter().map(|e| spoken.piece(&*e.digits, e.end.checked_sub(1)?, e.end)).collect();
        return Some(Match::of(pieces?, end));
    }
    let text = match (digits.get(..3), digits.get(3..5), digits.get(5..)) {
        (Some(area), Some(group), Some(serial)) if security => format!("{area}-{group}-{serial}"),
        _ => digits,
    };
    spoken.one(text, at, end)
}

fn is_counting(digits: &str) -> bool {
    let values: Vec<u8> = digits.bytes().collect();
    values.len() > 3 && values.windows(2).all(|pair| matches!(pair, [a, b] if a + 1 == *b))
}

/// `1Z57A2B`: letters and digits, where a code is announced.
pub fn code(spoken: &Spoken<'_>, at: usize) -> Option<Match> {
    if !spoken.is_about(at, REACH, &CODES) {
        return None;
    }
    let letter_or_digit = |spoken: &Spoken<'_>, at: usize, text: &str, begun: bool| {
        let letter = text.len() == 1 && text.starts_with(|c: char| c.is_ascii_alphanumeric());
        let letter = letter.then(|| Element { digits: text.to_uppercase(), end: at + 1 });
        letter.or_else(|| single(spoken, at, text, begun))
    };
    let elements = run(spoken, at, Joint::Open, usize::MAX, letter_or_digit);
    let text = joined(&elements);
    let mixed =
        text.contains(|c: char| c.is_ascii_digit()) && text.contains(|c: char| c.is_ascii_alphabetic());
    (elements.len() >= 4 && mixed).then(|| spoken.one(text, at, elements.last()?.end)).flatten()
}

/// `1234 Main Street`, `flight 123`: digits that are a name, however they were said.
pub fn name(spoken: &Spoken<'_>, at: usize) -> Option<Match> {
    let elements = run(spoken, at, Joint::Open, ELEMENTS_MAX, element);
    let end = elements.last()?.end;
    let named = (end..end + STREET_WORDS + 1)
        .map_while(|place| Some(spoken.open(place)).filter(|word| !word.is_empty()))
        .take_while(|word| !numbers::is_number(word))
        .skip(1)
        .any(|word| STREETS.contains(&word));
    let named = named || NUMBERED.contains(&spoken.before(at));
    let digits = joined(&elements);
    (named && elements.len() >= 2 && digits.len() <= 5).then(|| spoken.one(digits, at, end)).flatten()
}

/// `192.168.1.1`.
pub fn internet_address(spoken: &Spoken<'_>, at: usize) -> Option<Match> {
    let mut groups: Vec<String> = Vec::new();
    let mut next = at;
    loop {
        if !groups.is_empty() && spoken.open(next).is_empty() {
            return None;
        }
        let elements = run(spoken, next, Joint::Open, 3, element);
        groups.push(joined(&elements).parse::<u8>().ok()?.to_string());
        next = elements.last()?.end;
        if groups.len() == 4 || !matches!(spoken.open(next), "dot" | "point") {
            break;
        }
        next += 1;
    }
    (groups.len() == 4).then(|| spoken.one(groups.join("."), at, next)).flatten()
}
