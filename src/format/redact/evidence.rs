//! Evidence in the words around a row: what its number is.

use super::class::Class;
use super::reading::{Reading, Spoken, bare};
use super::rows::{Joint, Row};
use crate::format::word::Word;

/// Words back from a number in which it may be announced.
const REACH: usize = 8;
/// As far as words of any kind may stand between: `the CVV on the back is`.
const ANY_WORDS: usize = 5;

/// Words that may stand between a number and its announcement.
fn links(word: &str) -> bool {
    is_month(word)
        || matches!(
            word,
            "number"
                | "numbers"
                | "no"
                | "is"
                | "are"
                | "was"
                | "it"
                | "it's"
                | "its"
                | "that's"
                | "that"
                | "the"
                | "my"
                | "his"
                | "her"
                | "your"
                | "our"
                | "ends"
                | "ending"
                | "in"
                | "with"
                | "on"
                | "at"
                | "of"
                | "date"
                | "code"
                | "digits"
                | "last"
                | "first"
                | "four"
                | "three"
                | "end"
                | "would"
                | "be"
                | "will"
                | "here"
                | "goes"
                | "reads"
                | "starts"
                | "begins"
                | "month"
                | "year"
        )
}

/// The bare words before the row, the nearest first, each with whether only links lie between.
fn before<'a>(
    row: &Row,
    words: &'a [Word],
    readings: &'a [Reading],
) -> impl Iterator<Item = (String, bool)> + 'a {
    let first = row.items.first().map_or(0, |item| item.word);
    let mut linked = true;
    (first.saturating_sub(REACH)..first).rev().map(move |at| {
        let (word, was) = (bare(words, at), linked);
        let is_aside =
            matches!(readings.get(at), Some(Reading::Aside | Reading::Remark | Reading::Separator));
        linked &= is_aside || links(&word);
        (word, was)
    })
}

/// `my social security number is`, `SSN`.
pub fn announces_ssn(row: &Row, words: &[Word], readings: &[Reading]) -> bool {
    let words: Vec<(String, bool)> = before(row, words, readings).collect();
    words.iter().enumerate().any(|(at, (word, linked))| {
        let social = |at: usize| words.get(at).is_some_and(|(word, _)| word == "social");
        let dated = at > 0 && words.get(at - 1).is_some_and(|(word, _)| word == "in");
        *linked
            && !dated
            && match word.as_str() {
                "ssn" | "ssns" | "social" => true,
                "security" => social(at + 1),
                _ => false,
            }
    })
}

/// `CVV`, `card number`, `expires`; but not `expires in 30 days`.
pub fn announces_card(row: &Row, words: &[Word], readings: &[Reading]) -> bool {
    if counts_something(&bare(words, row.end)) {
        return false;
    }
    let before: Vec<(String, bool)> = before(row, words, readings).collect();
    before.iter().enumerate().any(|(at, (word, linked))| match word.as_str() {
        "cvv" | "cvc" | "cvv2" | "cvc2" | "csc" | "cid" | "expiration" | "expiry" | "exp" => {
            *linked || at < ANY_WORDS
        }
        "code" => *linked && before.get(at + 1).is_some_and(|(word, _)| word == "security"),
        "expires" | "expire" | "expiring" => *linked,
        // `the card ends in 4242`, but not `a card in 2015`.
        "card" | "visa" | "mastercard" | "amex" => {
            let between =
                |known: &[&str]| before.iter().take(at).any(|(word, _)| known.contains(&word.as_str()));
            *linked && (!between(&["in", "on", "at", "of"]) || between(&["end", "ends", "ending"]))
        }
        _ => false,
    })
}

fn counts_something(word: &str) -> bool {
    matches!(
        word,
        "second"
            | "seconds"
            | "minute"
            | "minutes"
            | "hour"
            | "hours"
            | "day"
            | "days"
            | "week"
            | "weeks"
            | "month"
            | "months"
            | "year"
            | "years"
            | "people"
            | "persons"
            | "dollar"
            | "dollars"
            | "cents"
            | "euros"
            | "pounds"
            | "percent"
            | "times"
            | "o'clock"
            | "am"
            | "pm"
            | "a.m"
            | "p.m"
            | "miles"
            | "points"
            | "degrees"
            | "cards"
            | "transactions"
            | "payments"
            | "purchases"
    )
}

/// Whether these are years in sequence. No card begins like a year of our time.
pub fn are_years(row: &Row, words: &[Word]) -> bool {
    row.items.iter().all(|item| is_year(&bare(words, item.word)))
}

fn is_year(word: &str) -> bool {
    word.len() == 4 && word.parse::<u16>().is_ok_and(|year| (1800..2100).contains(&year))
}

/// Whether words before the row announce a number.
pub fn is_announced(row: &Row, words: &[Word], readings: &[Reading]) -> bool {
    before(row, words, readings).any(|(word, _)| announces_anything(&word))
}

/// Whether an open row is surely at its end, as far as a result can tell: nothing announces a number that
/// is to be hidden, and its words ask for no more digits.
pub fn is_complete(row: &Row, class: Class, words: &[Word], readings: &[Reading]) -> bool {
    let (Some(first), Some(last)) = (row.items.first(), row.items.last()) else { return false };
    let Some(at) = first.word.checked_sub(1) else { return false };
    let said_before = bare(words, at);
    let text = bare(words, first.word);
    let is_one = row.items.len() == 1;
    if is_one && text == "one" && determines(&said_before) {
        return true;
    }
    // Two digits are few for a class that hides three: what follows `at` may be a telephone number.
    if class == Class::Numbers || is_announced(row, words, readings) {
        return false;
    }
    let stopped = words.get(at).is_some_and(|word| word.parts().2.contains([',', '.', ':', ';', '?', '!']));
    let is_year = is_one && is_year(&text) || is_spoken_year(row, readings);
    let dated = is_month(&said_before) || matches!(readings.get(at), Some(Reading::Apart(_)));
    let year = is_year && (introduces_year(&said_before) && !stopped || dated);
    let of_month = is_month(&said_before) && row.most_digits() <= 6 && is_day_of_year(row, words);
    let clock = is_one && is_clock(&text) && matches!(said_before.as_str(), "at" | "by" | "until" | "around");
    let date = is_one
        && is_date(&text)
        && matches!(said_before.as_str(), "on" | "by" | "since" | "until" | "before" | "after" | "dated");
    let count = is_one && row.most_digits() <= 2 && !stopped && counts(&said_before);
    let pronoun = is_one
        && (text == "one" || row.most_digits() == 0 && matches!(said_before.as_str(), "a" | "the"))
        && !stopped
        && matches!(readings.get(at), Some(Reading::Remark | Reading::Other))
        && !matches!(
            said_before.as_str(),
            "is" | "are" | "was" | "its" | "with" | "be" | "starts" | "begins"
        );
    // A word that ends in a dash breaks off, so the row is none of these.
    let breaks_off = words.get(last.word).is_some_and(|word| word.written.ends_with(['-', '–', '—']));
    !breaks_off && (year || of_month || clock || date || count || pronoun)
}

fn announces_anything(word: &str) -> bool {
    matches!(
        word,
        "social"
            | "ssn"
            | "security"
            | "number"
            | "numbers"
            | "card"
            | "account"
            | "code"
            | "digit"
            | "digits"
            | "cvv"
            | "cvc"
            | "csc"
            | "pin"
            | "expiration"
            | "expiry"
            | "expires"
            | "expire"
            | "exp"
            | "visa"
            | "mastercard"
            | "amex"
            | "routing"
            | "credit"
            | "debit"
            | "iban"
            | "id"
            | "passport"
            | "license"
    )
}

/// `that one`
fn determines(word: &str) -> bool {
    matches!(
        word,
        "this"
            | "that"
            | "which"
            | "other"
            | "another"
            | "each"
            | "any"
            | "every"
            | "no"
            | "some"
            | "either"
            | "neither"
            | "new"
            | "old"
            | "good"
            | "only"
    )
}

/// Whether `one` at this place stands for a noun: `that one is`.
pub fn is_pronoun(words: &[Word], readings: &[Reading], at: usize) -> bool {
    let said_before = at.checked_sub(1).map(|before| bare(words, before)).unwrap_or_default();
    bare(words, at) == "one"
        && (determines(&said_before) || said_before == "the")
        && matches!(readings.get(at + 1), Some(Reading::Aside | Reading::Remark | Reading::Other))
}

/// Whether an `oh` that ends a final may be a zero: more digits would follow.
pub fn may_be_zero(words: &[Word], at: usize) -> bool {
    let is_exclaimed = words.get(at).is_some_and(|word| word.is_capitalised() || !word.parts().2.is_empty());
    let follows_link = at.checked_sub(1).is_some_and(|before| {
        let word = bare(words, before);
        links(&word) || announces_anything(&word)
    });
    !is_exclaimed || follows_link
}

fn is_month(word: &str) -> bool {
    matches!(
        word,
        "january"
            | "february"
            | "march"
            | "april"
            | "may"
            | "june"
            | "july"
            | "august"
            | "september"
            | "october"
            | "november"
            | "december"
    )
}

fn introduces_year(word: &str) -> bool {
    matches!(
        word,
        "in" | "since"
            | "of"
            | "year"
            | "by"
            | "from"
            | "until"
            | "till"
            | "before"
            | "after"
            | "during"
            | "around"
            | "circa"
            | "early"
            | "late"
            | "mid"
    )
}

/// Words after which a number of one or two digits counts something.
fn counts(word: &str) -> bool {
    matches!(
        word,
        "have"
            | "has"
            | "had"
            | "got"
            | "get"
            | "need"
            | "needs"
            | "needed"
            | "want"
            | "wants"
            | "wanted"
            | "take"
            | "takes"
            | "took"
            | "only"
            | "about"
            | "around"
            | "almost"
            | "nearly"
            | "over"
            | "under"
            | "least"
            | "most"
            | "than"
            | "were"
            | "these"
            | "those"
            | "you"
            | "us"
            | "at"
            | "age"
            | "aged"
            | "turned"
            | "page"
            | "chapter"
            | "room"
            | "gate"
            | "floor"
            | "grade"
            | "maybe"
            | "another"
            | "every"
            | "bought"
            | "sold"
            | "ordered"
            | "saw"
            | "found"
            | "made"
    )
}

/// `nineteen eighty four`, `twenty twenty`.
fn is_spoken_year(row: &Row, readings: &[Reading]) -> bool {
    let parts: Vec<Spoken> = row
        .items
        .iter()
        .flat_map(|item| match readings.get(item.word) {
            Some(Reading::Spoken(parts)) => parts.clone(),
            _ => vec![Spoken::Plural],
        })
        .collect();
    let joined = row.items.iter().skip(1).all(|item| item.before < Joint::Stop);
    joined
        && matches!(
            parts.as_slice(),
            [Spoken::Teen | Spoken::Tens, Spoken::Tens | Spoken::Teen]
                | [Spoken::Teen | Spoken::Tens, Spoken::Tens, Spoken::Unit]
        )
}

/// `3` or `3, 2024`.
fn is_day_of_year(row: &Row, words: &[Word]) -> bool {
    let mut texts = row.items.iter().map(|item| bare(words, item.word));
    let is_day = texts.next().is_some_and(|day| day.parse::<u8>().is_ok_and(|day| day <= 31));
    is_day && texts.next().is_none_or(|year| is_year(&year)) && texts.next().is_none()
}

fn is_clock(text: &str) -> bool {
    let part = |text: &str| text.len() <= 2 && text.parse::<u8>().is_ok();
    text.split_once(':').is_some_and(|(hours, minutes)| part(hours) && part(minutes))
}

fn is_date(text: &str) -> bool {
    let parts: Vec<&str> = text.split('/').collect();
    parts.len() == 3 && parts.iter().all(|part| part.len() <= 4 && part.parse::<u16>().is_ok())
}
