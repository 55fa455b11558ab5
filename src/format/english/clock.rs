//! Times of day.

use super::calendar::COUNTED;
use super::number_words;
use super::numbers;
use super::spoken::{Match, Spoken};

/// Minutes that speakers count to or from the hour: `ten to eight`.
const TOLD_MINUTES: [u64; 4] = [5, 10, 20, 25];

/// Words before a time such as `ten to eight`. After others `ten to twelve` may be a range.
const BEFORE_TOLD: [&str; 15] = [
    "about", "after", "almost", "around", "at", "before", "by", "is", "it's", "just", "nearly", "since",
    "till", "until", "was",
];

/// `8:37 PM`, `8 AM`, `8 o'clock`; `8:30` after `at` or before `in the morning`.
pub fn time(spoken: &Spoken<'_>, at: usize) -> Option<Match> {
    with_half_of_day(spoken, at).or_else(|| {
        let clock = clock(spoken, at)?;
        let end = clock.end;
        if clock.certain && spoken.open(end) == "o'clock" {
            return spoken.one(clock.text, at, end);
        }
        let goes_on = spoken.open(end);
        let part_of_day = matches!(
            (goes_on, spoken.open(end + 1), spoken.open(end + 2)),
            ("in", "the", "morning" | "afternoon" | "evening") | ("at", "night", _) | ("tonight", _, _)
        );
        let alone = clock.certain
            && spoken.before(at) == "at"
            && !COUNTED.contains(&goes_on)
            && !number_words::is_number(goes_on)
            && number_words::scale(goes_on).is_none()
            && goes_on != "hundred";
        (clock.minutes && (alone || part_of_day)).then(|| spoken.one(clock.text, at, end)).flatten()
    })
}

/// `8:37 PM`, `8 AM`.
pub fn with_half_of_day(spoken: &Spoken<'_>, at: usize) -> Option<Match> {
    let clock = clock(spoken, at)?;
    let (half, end) = half_of_day(spoken, clock.end)?;
    let in_parts =
        || Some(vec![spoken.piece(&*clock.text, at, clock.end)?, spoken.piece(half, clock.end, end)?]);
    // The model may have written one word: `8:37pm`.
    let whole = || Some(vec![spoken.piece(format!("{} {half}", clock.text), at, end)?]);
    let mut found = Match::of(in_parts().or_else(whole)?, end);
    // `p.m.` brings a full stop of its own: the sentence ends with it only if another begins.
    let sentence_ends = spoken.atom(end).is_empty() || spoken.is_capitalised(end);
    found.drops_stop = spoken.is_abbreviated(end - 1) && !sentence_ends;
    Some(found)
}

/// `ten to eight`, `twenty past seven`: all in words, since one of the two would stay so.
pub fn told(spoken: &Spoken<'_>, at: usize) -> Option<Match> {
    let (minutes, next) = numbers::cardinal(spoken, at).filter(|(value, _)| TOLD_MINUTES.contains(value))?;
    let (hour, end) = numbers::cardinal(spoken, next + 1).filter(|(hour, _)| (1..=12).contains(hour))?;
    let goes_on = spoken.open(end);
    let told = match spoken.open(next) {
        "past" => true,
        "to" | "till" => minutes > hour && BEFORE_TOLD.contains(&spoken.before(at)),
        "after" | "before" => BEFORE_TOLD.contains(&spoken.before(at)),
        _ => false,
    };
    let counts = COUNTED.contains(&goes_on)
        || number_words::is_number(goes_on)
        || number_words::scale(goes_on).is_some();
    (told && !counts && !spoken.open(next + 1).is_empty()).then(|| spoken.kept(at, end)).flatten()
}

/// A time of day that may have minutes, and the atom after it.
pub fn hour(spoken: &Spoken<'_>, at: usize) -> Option<(String, usize)> {
    clock(spoken, at).map(|clock| (clock.text, clock.end))
}

struct Clock {
    text: String,
    minutes: bool,
    /// It was in words. In digits, `8 37` and `8.37` are times only if `AM` or `PM` follows, and `8:37` is already
    /// written well.
    certain: bool,
    end: usize,
}

/// An hour of twelve, and minutes if any.
fn clock(spoken: &Spoken<'_>, at: usize) -> Option<Clock> {
    let text = spoken.atom(at);
    if let Some((hour, minutes)) = text.split_once([':', '.']) {
        let valid =
            literal(hour).is_some_and(is_hour) && literal(minutes).is_some_and(|minutes| minutes < 60);
        return (valid && minutes.len() == 2).then(|| Clock {
            text: format!("{hour}:{minutes}"),
            minutes: true,
            certain: false,
            end: at + 1,
        });
    }
    let hour = match text {
        "ten" => Some(10),
        "eleven" => Some(11),
        "twelve" => Some(12),
        _ => number_words::digit(text),
    };
    let (hour, in_words) = hour.map(|hour| (hour, true)).or_else(|| Some((literal(text)?, false)))?;
    if !is_hour(hour) {
        return None;
    }
    let next = at + 1;
    let minutes = match spoken.open(next) {
        "oh" => number_words::digit(spoken.open(next + 1)).map(|unit| (unit, next + 2, true)),
        text if text.len() == 2 && literal(text).is_some() => Some((literal(text)?, next + 1, false)),
        text => numbers::two_digits(spoken, next, text).map(|(minutes, end)| (minutes, end, true)),
    };
    Some(match minutes.filter(|(minutes, ..)| *minutes < 60) {
        Some((minutes, end, spelled)) => {
            let text = format!("{hour}:{minutes:02}");
            Clock { text, minutes: true, certain: in_words && spelled, end }
        }
        None => Clock { text: hour.to_string(), minutes: false, certain: in_words, end: next },
    })
}

fn is_hour(value: u64) -> bool {
    (1..=12).contains(&value)
}

/// One or two digits.
fn literal(text: &str) -> Option<u64> {
    let digits = text.len() <= 2 && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

fn half_of_day(spoken: &Spoken<'_>, at: usize) -> Option<(&'static str, usize)> {
    match (spoken.open(at), spoken.open(at + 1)) {
        // `at eight am I right`.
        ("am", "i" | "not") => None,
        ("am", _) => Some(("AM", at + 1)),
        ("pm", _) => Some(("PM", at + 1)),
        ("a", "m") => Some(("AM", at + 2)),
        ("p", "m") => Some(("PM", at + 2)),
        _ => None,
    }
}
