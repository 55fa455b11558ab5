//! Telephone numbers, spoken digit by digit or written in groups of digits.

use super::sequences::{self, ACCOUNTS, ELEMENTS_MAX, Element, REACH};
use super::spoken::{Joint, Match, Spoken};

const TELEPHONE: [&str; 10] =
    ["phone", "telephone", "call", "dial", "cell", "mobile", "fax", "reach", "text", "callback"];
const LONG_DIGITS: usize = 10;
const LOCAL_DIGITS: usize = 7;
/// Counts of digits that may follow at the bounds of groups: country code, area code, exchange, line.
const BOUNDARIES: [usize; 5] = [11, 10, 7, 4, 0];

/// `(444) 814-9913`, `1 (800) 555-1212`, `+1 (415) 555-2671`, and where telephones are the topic `814-9913`.
pub fn telephone(spoken: &Spoken<'_>, at: usize) -> Option<Match> {
    if spoken.is_about(at, REACH, &ACCOUNTS) {
        return None;
    }
    let international = spoken.atom(at).starts_with('+') || spoken.atom(at) == "plus";
    let start = at + usize::from(spoken.atom(at) == "plus");
    if start > at && spoken.joint(start) != Joint::Open {
        return None;
    }
    let all = sequences::run(spoken, start, Joint::Comma, ELEMENTS_MAX, element);
    // After a comma the run may go on with the number of another sentence.
    (1..=all.len()).rev().find_map(|count| {
        let elements = all.get(..count)?;
        let end = elements.last()?.end;
        if count < all.len() && spoken.joint(end) == Joint::Open {
            return None;
        }
        let digits = sequences::joined(elements);
        let number = Number { at, start, elements, digits: &digits, international };
        let country = digits.strip_prefix('1').filter(|rest| rest.len() == LONG_DIGITS);
        // A plus stands before a country code.
        let is_long = is_north_american(country.unwrap_or(&digits)) && (country.is_some() || !international);
        match digits.len() {
            _ if is_long && number.is_meant(spoken) => number.long(spoken),
            LOCAL_DIGITS if !international && number.is_meant(spoken) => number.local(spoken),
            _ => None,
        }
    })
}

/// Elements as elsewhere, and digits that the model wrote in groups.
fn element(spoken: &Spoken<'_>, at: usize, text: &str, begun: bool) -> Option<Element> {
    let text = text.strip_prefix('+').filter(|_| !begun).unwrap_or(text);
    let literal = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if literal {
        return Some(Element { digits: text.to_owned(), end: at + 1 });
    }
    sequences::element(spoken, at, text, begun)
}

/// Area code and exchange begin with 2 to 9 (North American Numbering Plan).
fn is_north_american(digits: &str) -> bool {
    let places = digits.as_bytes();
    let leads = |place: usize| places.get(place).is_some_and(|digit| (b'2'..=b'9').contains(digit));
    digits.len() == 10 && leads(0) && leads(3)
}

/// Elements that may be a telephone number.
struct Number<'a> {
    at: usize,
    /// After a `plus` in words.
    start: usize,
    elements: &'a [Element],
    digits: &'a str,
    /// With a plus before the country code.
    international: bool,
}

impl Number<'_> {
    /// Whether digits of this count are a telephone number here.
    fn is_meant(&self, spoken: &Spoken<'_>) -> bool {
        let (mut told, mut from, mut groups) = (0, self.start, 0);
        for element in self.elements {
            let end = told + element.digits.len();
            let boundary = |place: usize| BOUNDARIES.contains(&(self.digits.len() - place));
            if element.digits.len() > 1 && spoken.atom(from).contains(|c: char| c.is_ascii_digit()) {
                groups += 1;
                if !(boundary(told) && boundary(end)) {
                    return false;
                }
            }
            (told, from) = (end, element.end);
        }
        let inner = self.elements.split_last().map_or(&[][..], |(_, inner)| inner);
        let listed = inner.iter().any(|element| spoken.joint(element.end) == Joint::Comma);
        // One group may be any number, and groups may be a list.
        let evident = groups == 0 || (self.elements.len() > 2 && !listed);
        let local = self.digits.len() == LOCAL_DIGITS;
        match spoken.is_about(self.at, REACH, &TELEPHONE) {
            true => !local || self.elements.len() > 1,
            false => !local && (evident || spoken.is_about(self.at, REACH, &["number"])),
        }
    }

    fn long(&self, spoken: &Spoken<'_>) -> Option<Match> {
        let (country, number) = self.digits.split_at_checked(self.digits.len().checked_sub(LONG_DIGITS)?)?;
        let (area, line) = number.split_at_checked(3)?;
        let (exchange, line) = line.split_at_checked(3)?;
        let plus = if self.international { "+" } else { "" };
        let country = format!("{plus}{country}");
        let (area, line) = (format!("({area})"), format!("{exchange}-{line}"));
        let end = self.elements.last()?.end;
        let in_parts = || {
            let mut pieces = Vec::new();
            let mut from = self.at;
            if !country.is_empty() {
                from = self.atom_after(1)?;
                pieces.push(spoken.piece(&*country, self.at, from)?);
            }
            let after = self.atom_after(self.digits.len() - LOCAL_DIGITS)?;
            pieces.push(spoken.piece(&*area, from, after)?);
            pieces.push(spoken.piece(&*line, after, end)?);
            Some(Match::of(pieces, end))
        };
        // The model wrote it as one word: `4-4-4-8-1-4-9-9-1-3`.
        in_parts().or_else(|| spoken.one(format!("{country} {area} {line}").trim_start(), self.at, end))
    }

    fn local(&self, spoken: &Spoken<'_>) -> Option<Match> {
        let (exchange, line) = self.digits.split_at_checked(3)?;
        spoken.one(format!("{exchange}-{line}"), self.at, self.elements.last()?.end)
    }

    /// The atom after the element that holds the `count`th digit.
    fn atom_after(&self, count: usize) -> Option<usize> {
        let mut told = 0;
        self.elements.iter().find_map(|element| {
            told += element.digits.len();
            (told >= count).then_some(element.end)
        })
    }
}
