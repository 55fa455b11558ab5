//! Facts that a question asks for, and whether a sentence states one: a price, a time, a number, a name.

use super::lexicon::{stem, words};
use crate::digits::{ONES, TENS};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fact {
    /// An amount, or that it costs nothing.
    Price,
    /// When something is open.
    Hours,
    /// A time of the day.
    Clock,
    /// Any point in time.
    Time,
    Duration,
    Distance,
    Number,
    /// How many years, or since when.
    Age,
    Name,
    Street,
    Telephone,
    Email,
    /// A name, or how to reach a person.
    Contact,
    /// Something to bring or to have.
    Need,
}

const MORE_NUMBERS: [&str; 6] = ["hundred", "thousand", "once", "twice", "dozen", "half"];
const CURRENCIES: &[&str] = &[
    "dollar", "dollars", "euro", "euros", "pound", "pounds", "pence", "cent", "cents", "francs", "usd",
    "eur", "gbp",
];
const FREE: &[&str] = &["nothing", "free", "included", "include", "includes", "complimentary"];
const LONG: &[&str] = &[
    "minute", "hour", "day", "week", "month", "year", "night", "second", "decade", "lifetime", "ever", "long",
];
const FAR: &[&str] =
    &["minute", "metre", "meter", "kilometre", "kilometer", "km", "mile", "walk", "block", "yard", "m"];
pub const WEEKDAYS: [&str; 7] =
    ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];
pub const MONTHS: [&str; 12] = [
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
const TIMES: &[&str] = &[
    "before",
    "after",
    "until",
    "till",
    "when",
    "while",
    "every",
    "daily",
    "always",
    "during",
    "closed",
    "year",
    "noon",
    "midnight",
    "morning",
    "evening",
    "afternoon",
    "ready",
    "within",
    "today",
    "tomorrow",
];
const OPEN: &[&str] = &["open", "opening", "opens", "opened", "close", "closes", "closed", "closing", "shut"];
const NEEDS: &[&str] = &[
    "bring",
    "need",
    "needs",
    "needed",
    "must",
    "require",
    "requires",
    "required",
    "necessary",
    "have",
    "show",
];
const AGED: &[&str] =
    &["old", "age", "aged", "year", "years", "born", "built", "dates", "dating", "constructed"];
/// After a range of such things, no time of the day was meant.
const COUNTED: &[&str] = &[
    "year", "years", "people", "persons", "days", "weeks", "months", "minutes", "metres", "meters", "hours",
    "times", "visits", "pieces", "items", "degrees", "percent",
];
const STREETS: &[&str] = &[
    "street",
    "road",
    "avenue",
    "lane",
    "square",
    "way",
    "walk",
    "drive",
    "boulevard",
    "court",
    "place",
    "st",
    "rd",
    "ave",
    "row",
    "hill",
    "quay",
    "terrace",
    "highway",
    "close",
    "crescent",
    "parade",
];
/// Words between a thing and its number.
const COUNTING: &[&str] = &["number", "count", "is", "are", "maximum"];
/// How many words before a thing its number is.
const BESIDE: usize = 3;
const TITLES: &[&str] = &["Dr", "Mr", "Mrs", "Ms", "Prof", "Professor", "Coach"];

impl Fact {
    /// Whether `sentence` states such a fact. `title`: the headings above it.
    pub fn is_in(self, sentence: &str, title: &str) -> bool {
        let said: Vec<String> = words(sentence).collect();
        let has = |list: &[&str]| said.iter().any(|word| list.contains(&word.as_str()));
        match self {
            Self::Price => is_priced(sentence) || has(CURRENCIES) || has(FREE) || is_without_charge(&said),
            Self::Hours => {
                let is_titled = words(title).any(|word| word == "hours" || OPEN.contains(&word.as_str()));
                let is_about = has(OPEN) || is_titled;
                let clocks = clocks(sentence);
                (is_about && (clocks > 0 || has(&["closed", "always", "daily", "open", "off"]))) || clocks > 1
            }
            Self::Clock => {
                clocks(sentence) > 0
                    || has(&["noon", "midnight", "closed"])
                    || (has(&["at", "from"]) && is_numeric(&said))
            }
            Self::Time => {
                let lasts = is_numeric(&said) && has_unit(&said, LONG);
                lasts || names_day(&said) || clocks(sentence) > 0 || has(TIMES)
            }
            Self::Duration => is_numeric(&said) && has_unit(&said, LONG),
            Self::Distance => is_numeric(&said) && has_unit(&said, FAR),
            Self::Number => is_numeric(&said),
            Self::Age => is_numeric(&said) && has(AGED),
            Self::Name => is_named(sentence),
            Self::Street => has_street(sentence),
            Self::Telephone => digits(sentence) >= 7,
            Self::Email => sentence.contains('@'),
            Self::Need => has(NEEDS),
            Self::Contact => is_named(sentence) || digits(sentence) >= 7 || sentence.contains('@'),
        }
    }

    /// Whether `sentence` states it beyond doubt: a day or a time of the day.
    pub fn is_exact(self, sentence: &str) -> bool {
        match self {
            Self::Hours => clocks(sentence) > 0,
            Self::Time => clocks(sentence) > 0 || names_day(&words(sentence).collect::<Vec<_>>()),
            _ => false,
        }
    }

    /// Stems that texts have beside such a fact.
    pub fn hints(self) -> Vec<String> {
        let hints: &[&str] = match self {
            Self::Price => &["price", "cost", "free"],
            Self::Hours => &["open", "opening", "hours", "close", "closed"],
            Self::Clock
            | Self::Time
            | Self::Duration
            | Self::Distance
            | Self::Number
            | Self::Age
            | Self::Name
            | Self::Need => &[],
            Self::Street => {
                &["address", "street", "road", "where", "find", "location", "directions", "lane", "square"]
            }
            Self::Telephone => &["telephone", "phone", "call", "contact", "ring"],
            Self::Email => &["email", "contact", "write"],
            Self::Contact => &["contact", "telephone", "phone", "call"],
        };
        hints.iter().map(|word| stem(word)).collect()
    }
}

fn is_numeric(said: &[String]) -> bool {
    said.iter().any(|word| word.contains(|c: char| c.is_ascii_digit()) || word.split('-').any(is_number_word))
}

fn is_number_word(word: &str) -> bool {
    [&ONES[1..], &TENS, &MORE_NUMBERS].iter().any(|words| words.contains(&word))
}

/// Whether a number counts one of the things: `up to six people`, `Books: number 15`.
pub fn counts(sentence: &str, is_counted: impl Fn(&str) -> bool) -> bool {
    let said: Vec<String> = words(sentence).collect();
    let is_number = |word: &String| is_numeric(std::slice::from_ref(word));
    said.iter().enumerate().filter(|(_, word)| is_counted(word)).any(|(at, _)| {
        let before = said.get(at.saturating_sub(BESIDE)..at).unwrap_or_default();
        let mut after = said.iter().skip(at + 1).skip_while(|word| COUNTING.contains(&word.as_str()));
        before.iter().any(is_number) || after.next().is_some_and(is_number)
    })
}

fn names_day(said: &[String]) -> bool {
    said.iter().any(|word| {
        let word = word.as_str();
        let day = word.strip_suffix('s').unwrap_or(word);
        WEEKDAYS.contains(&day) || MONTHS.contains(&word)
    })
}

fn has_unit(said: &[String], units: &[&str]) -> bool {
    said.iter().flat_map(|word| word.split('-')).any(|word| {
        let one = word.strip_suffix('s').unwrap_or(word);
        units.contains(&one) || units.contains(&word)
    })
}

/// An amount with its currency, or a share in percent.
fn is_priced(sentence: &str) -> bool {
    let mut last = ' ';
    for c in sentence.chars().filter(|c| !c.is_whitespace()) {
        let is_amount = c.is_ascii_digit() && matches!(last, '$' | '€' | '£' | '¥');
        if is_amount || (last.is_ascii_digit() && matches!(c, '€' | '%' | '¥')) {
            return true;
        }
        last = c;
    }
    false
}

fn is_without_charge(said: &[String]) -> bool {
    said.windows(2).any(|pair| {
        matches!([pair[0].as_str(), pair[1].as_str()], ["no" | "without", "charge" | "fee" | "cost"])
    })
}

/// How many times of the day the sentence has: `8:30`, `9 am`, `noon`.
fn clocks(sentence: &str) -> usize {
    let said: Vec<&str> = sentence
        .split(|c: char| c.is_whitespace() || matches!(c, '–' | '-' | ',' | ';' | '(' | ')'))
        .map(|word| word.trim_end_matches(['.', '!', '?']))
        .filter(|word| !word.is_empty())
        .collect();
    let is_hour = |word: &str| word.len() <= 2 && word.parse::<u8>().is_ok_and(|hour| hour <= 24);
    let is_half_day =
        |word: &str| matches!(word.to_lowercase().as_str(), "am" | "pm" | "a.m" | "p.m" | "o'clock");
    let is_clock = |at: usize, word: &str| {
        let lower = word.to_lowercase();
        let joined = lower.strip_suffix("am").or_else(|| lower.strip_suffix("pm")).is_some_and(is_hour);
        let exact = lower.split_once([':', '.']).is_some_and(|(hour, minute)| {
            is_hour(hour) && minute.get(..2).is_some_and(|minute| minute.bytes().all(|c| c.is_ascii_digit()))
        });
        let counted = is_hour(word) || is_number_word(&lower);
        let spaced = counted && said.get(at + 1).is_some_and(|next| is_half_day(next));
        // `from 5 to 9 pm`, `from nine to five`
        let is_count =
            [1, 2, 3].iter().any(|step| said.get(at + step).is_some_and(|next| COUNTED.contains(next)));
        let ranged = counted
            && !is_count
            && (said.get(at + 1).is_some_and(|next| matches!(*next, "to" | "until" | "till"))
                || at > 0
                    && said
                        .get(at - 1)
                        .is_some_and(|last| matches!(*last, "to" | "until" | "till" | "from" | "at")));
        joined || exact || spaced || ranged || matches!(lower.as_str(), "noon" | "midnight")
    };
    said.iter().enumerate().filter(|(at, word)| is_clock(*at, word)).count()
}

/// Two names in a row, or one inside the sentence, or one after a title.
fn is_named(sentence: &str) -> bool {
    let said: Vec<&str> = sentence.split_whitespace().collect();
    let is_name = |word: &str| {
        let bare = word.trim_matches(|c: char| !c.is_alphanumeric());
        let lower = bare.to_lowercase();
        bare.len() > 1
            && bare.starts_with(char::is_uppercase)
            && !bare.contains(char::is_numeric)
            && !WEEKDAYS.contains(&lower.strip_suffix('s').unwrap_or(&lower))
            && !MONTHS.contains(&lower.as_str())
            && bare.chars().any(char::is_lowercase)
    };
    said.iter().enumerate().any(|(at, word)| {
        let after_end = at == 0 || said.get(at - 1).is_some_and(|last| last.ends_with([':', '.', '!', '?']));
        let after_title =
            at > 0 && said.get(at - 1).is_some_and(|last| TITLES.contains(&last.trim_end_matches('.')));
        is_name(word) && (!after_end || after_title || said.get(at + 1).is_some_and(|next| is_name(next)))
    })
}

/// A number beside a name, or the name of a street.
fn has_street(sentence: &str) -> bool {
    let said: Vec<&str> = sentence.split_whitespace().collect();
    said.windows(2).any(|pair| {
        let [first, second] =
            [pair[0], pair[1]].map(|word| word.trim_matches(|c: char| !c.is_alphanumeric()));
        let is_name = |word: &str| word.starts_with(char::is_uppercase);
        let is_street =
            STREETS.contains(&second.to_lowercase().as_str()) && is_name(second) && is_name(first);
        let is_house = first.starts_with(|c: char| c.is_ascii_digit()) && first.len() <= 5 && is_name(second);
        is_street || is_house
    })
}

fn digits(sentence: &str) -> usize {
    // Of the longest number, with the spaces and marks that telephone numbers have.
    let is_inside = |c: char| c.is_ascii_digit() || matches!(c, ' ' | '-' | '/' | '(' | ')' | '+');
    let numbers =
        sentence.split(|c| !is_inside(c)).map(|number| number.bytes().filter(u8::is_ascii_digit).count());
    numbers.max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_seen_where_they_stand() {
        for (fact, sentence, expected) in [
            (Fact::Price, "A cleaning costs ninety dollars.", true),
            (Fact::Price, "Check-up: price £48, time 30 minutes", true),
            (Fact::Price, "Check-ups for children cost nothing.", true),
            (Fact::Price, "Gluten-free bread is on the table.", false),
            (Fact::Price, "We stock three brands.", false),
            (Fact::Hours, "Monday to Friday: 8:30 am to 5 pm", true),
            (Fact::Hours, "We are open from nine to five.", true),
            (Fact::Hours, "Every Saturday at 10 am Pete leads a tour.", false),
            (Fact::Clock, "Rooms are ready from 3 pm.", true),
            (Fact::Clock, "Rooms are ready for you.", false),
            (Fact::Duration, "They carry a guarantee of three years.", true),
            (Fact::Duration, "They carry three guarantees.", false),
            (Fact::Name, "Tom Fisher manages the practice.", true),
            (Fact::Name, "Dr. Lind comes.", true),
            (Fact::Name, "We see children on Tuesdays.", false),
            (Fact::Street, "We are at 14 Station Road, Millbrook.", true),
            (Fact::Street, "The toilets are on the ground floor.", false),
            (Fact::Telephone, "Enquiry desk: 020 7946 0321.", true),
            (Fact::Telephone, "Bring 2 bags, 10 at most.", false),
        ] {
            assert_eq!(fact.is_in(sentence, ""), expected, "{fact:?}: {sentence}");
        }
        assert!(Fact::Hours.is_in("Monday: 9 to 5", "Opening hours"));
    }
}
