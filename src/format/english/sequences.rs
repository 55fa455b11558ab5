//! Sequences of spoken digits: codes, house numbers, accounts.

use super::number_words;
use super::numbers;
use super::spoken::{Joint, Match, Spoken};

/// Longer runs are not telephone or house numbers.
pub const ELEMENTS_MAX: usize = 16;
/// The distance within which a word before the digits says what they are.
pub const REACH: usize = 8;

/// Names of digits that are not a telephone number, even if they have the length of one.
pub const ACCOUNTS: [&str; 12] = [
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
/// After these, digits are a name in any spoken form: `flight one twenty three`.
pub const NUMBERED: [&str; 18] = [
    "apartment",
    "channel",
    "chapter",
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
    "seat",
    "section",
    "suite",
    "unit",
    "version",
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
/// Words that don't name a street: `six thirty in the square`.
const PASSING: [&str; 32] = [
    "a", "am", "an", "and", "are", "at", "by", "down", "for", "from", "go", "in", "is", "m", "my", "of",
    "off", "on", "or", "our", "p", "pm", "the", "their", "this", "to", "up", "was", "we", "were", "with",
    "your",
];
/// The most words in the name of a street.
const STREET_WORDS: usize = 4;

/// Digits said as one, and the atom after them.
pub struct Element {
    pub digits: String,
    pub end: usize,
}

/// A digit, `double five`, or `oh` once digits have begun.
fn single(spoken: &Spoken<'_>, at: usize, text: &str, begun: bool) -> Option<Element> {
    let value = |text: &str| {
        let literal = || Some(text.to_owned()).filter(|_| matches!(text.as_bytes(), [b'0'..=b'9']));
        number_words::digit(text).map(|digit| digit.to_string()).or_else(literal)
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
pub fn element(spoken: &Spoken<'_>, at: usize, text: &str, begun: bool) -> Option<Element> {
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

pub type Reader = fn(&Spoken<'_>, usize, &str, bool) -> Option<Element>;

/// Elements from `at` on, no more than `joint` between them.
pub fn run(spoken: &Spoken<'_>, at: usize, joint: Joint, most: usize, read: Reader) -> Vec<Element> {
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

pub fn joined(elements: &[Element]) -> String {
    elements.iter().map(|element| element.digits.as_str()).collect()
}

/// Three digits or more as one number; five if the model wrote digits, as it does in lists too.
/// Counting is not a number: `one two three four`.
pub fn digits(spoken: &Spoken<'_>, at: usize) -> Option<Match> {
    let elements = run(spoken, at, Joint::Open, usize::MAX, single);
    let digits = joined(&elements);
    let end = elements.last()?.end;
    let least = if number_words::is_literal(spoken.atom(at)) { 5 } else { 3 };
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

/// `1Z57A2B`: letters and digits after the announcement of a code.
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

/// `1234 Main Street`, `flight 123`: digits that are a name, in any spoken form.
pub fn name(spoken: &Spoken<'_>, at: usize) -> Option<Match> {
    let elements = run(spoken, at, Joint::Open, ELEMENTS_MAX, element);
    let mut end = elements.last()?.end;
    // `West twenty third street`.
    if numbers::ordinal(spoken, at).is_some_and(|(_, after)| after > end || elements.len() == 1) {
        return None;
    }
    let mut digits = joined(&elements);
    let mut long = elements.len() >= 2;
    // `nine hundred ninety eight` is one number, `nine ninety eight` is one as a name alone.
    if let Some((value, after)) = numbers::cardinal(spoken, at)
        && value >= 100
        && after >= end
    {
        (digits, end) = (value.to_string(), after);
        long |= value >= 1000;
    }
    let named = match NUMBERED.contains(&spoken.before(at)) {
        true => long,
        false => is_street(spoken, end, long),
    };
    let fits = digits.len() <= 5 && !number_words::is_literal(spoken.atom(at));
    (named && fits).then(|| spoken.one(digits, at, end)).flatten()
}

/// Whether the words at `at` name a street. After a number that is not evidently a house's, capitals decide:
/// `five Oak Lane`, but `one way street`.
fn is_street(spoken: &Spoken<'_>, at: usize, evident: bool) -> bool {
    (at..at + STREET_WORDS + 1)
        .map_while(|place| Some((place, spoken.open(place))).filter(|(_, word)| !word.is_empty()))
        .take_while(|(place, word)| {
            !number_words::is_number(word)
                && !PASSING.contains(word)
                && (evident || spoken.is_capitalised(*place))
        })
        .skip(1)
        .any(|(_, word)| STREETS.contains(&word))
}

/// The first number of a blood pressure: `one twenty over eighty`.
pub fn pressure(spoken: &Spoken<'_>, at: usize) -> Option<Match> {
    let elements = run(spoken, at, Joint::Open, ELEMENTS_MAX, element);
    let [hundreds, rest] = &*elements else { return None };
    let digits = joined(&elements);
    let over = spoken.open(rest.end) == "over"
        && numbers::two_digits(spoken, rest.end + 1, spoken.open(rest.end + 1)).is_some();
    (over && hundreds.digits.len() == 1 && digits.len() == 3)
        .then(|| spoken.one(digits, at, rest.end))
        .flatten()
}

/// `apartment 5B`, `gate B12`, `221B Baker Street`.
pub fn lettered(spoken: &Spoken<'_>, at: usize) -> Option<Match> {
    let letter = |text: &str| text.len() == 1 && text.starts_with(|c: char| c.is_ascii_alphabetic());
    let named = NUMBERED.contains(&spoken.before(at));
    let first = spoken.atom(at);
    let from = at + usize::from(letter(first));
    if from > at && (!named || spoken.open(from).is_empty()) {
        return None;
    }
    let elements = run(spoken, from, Joint::Open, ELEMENTS_MAX, element);
    let (digits, end) = (joined(&elements), elements.last()?.end);
    if from > at {
        return spoken.one(format!("{first}{digits}").to_uppercase(), at, end);
    }
    let last = spoken.open(end);
    // `room five a week ago`.
    let word = matches!(last, "a" | "i") && !spoken.open(end + 1).is_empty();
    let evident = named || is_street(spoken, end + 1, false);
    (letter(last) && !word && evident)
        .then(|| spoken.one(format!("{digits}{last}").to_uppercase(), at, end + 1))
        .flatten()
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
