//! The written forms of English: numbers, dates, times, money, addresses.
//!
//! At each word the rules are tried in turn, the most specific first; the first that matches writes
//! its words, and reading continues after them. Rules see the spoken elements of the words and the
//! punctuation between them, never characters of the text. Doubtful cases stay in words.

mod addresses;
mod amounts;
mod calendar;
mod clock;
mod number_words;
mod numbers;
mod pronouns;
mod ranges;
mod rules;
mod sequences;
mod spoken;
mod telephones;

pub use self::rules::Rules;
use self::spoken::{Match, Spoken};
use super::word::Word;

/// `words` in the form that the rules give them.
pub fn rewrite(words: Vec<Word>, rules: Rules) -> Vec<Word> {
    if !(rules.smart || rules.numerals || rules.measurements) {
        return words;
    }
    let spoken = Spoken::new(&words);
    let mut output = Vec::with_capacity(words.len());
    let mut at = 0;
    while at < spoken.len() {
        let Some(word) = spoken.word(at) else {
            at += 1;
            continue;
        };
        match find(&spoken, at, rules).filter(|found| found.end > at) {
            Some(found) => {
                output.extend(found.words(&words));
                at = found.end;
            }
            None => {
                output.push(word.clone());
                at += 1;
            }
        }
    }
    output
}

fn find(spoken: &Spoken<'_>, at: usize, rules: Rules) -> Option<Match> {
    let told = || (!rules.numerals).then(|| clock::told(spoken, at));
    let smart = || {
        addresses::mail(spoken, at)
            .or_else(|| addresses::web(spoken, at))
            .or_else(|| calendar::date(spoken, at))
            .or_else(|| told().flatten())
            .or_else(|| sequences::lettered(spoken, at))
            .or_else(|| sequences::name(spoken, at))
            .or_else(|| sequences::pressure(spoken, at))
            .or_else(|| ranges::range(spoken, at, rules))
            .or_else(|| clock::time(spoken, at))
            .or_else(|| telephones::telephone(spoken, at))
            .or_else(|| sequences::code(spoken, at))
            .or_else(|| sequences::internet_address(spoken, at))
            .or_else(|| sequences::digits(spoken, at))
            .or_else(|| amounts::money(spoken, at))
            .or_else(|| amounts::percentage(spoken, at))
    };
    let measured = || amounts::measurement(spoken, at);
    let years = || calendar::decade_or_year(spoken, at);
    let joined = || (!rules.smart).then(|| ranges::range(spoken, at, rules)).flatten();
    let counted = || amounts::ordinal(spoken, at).or_else(|| amounts::plain(spoken, at, rules));
    rules
        .smart
        .then(smart)
        .flatten()
        .or_else(joined)
        .or_else(|| rules.measurements.then(measured).flatten())
        .or_else(|| rules.smart.then(years).flatten())
        .or_else(|| (rules.smart || rules.numerals).then(counted).flatten())
}

#[cfg(test)]
mod tests;
