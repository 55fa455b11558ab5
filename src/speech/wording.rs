//! The spoken form of a written sentence: names as the operator wants them said, telephone numbers digit by
//! digit, addresses without their scheme, and no markup.

use std::collections::{BTreeMap, HashMap};

/// How many digits a telephone number has.
const NUMBER_DIGITS: std::ops::RangeInclusive<usize> = 7..=15;

pub struct Wording {
    /// Keyed by the word in lower case.
    say_as: HashMap<String, String>,
}

impl Wording {
    pub fn new(say_as: &BTreeMap<String, String>) -> Self {
        Self { say_as: say_as.iter().map(|(word, said)| (word.to_lowercase(), said.clone())).collect() }
    }

    pub fn of(&self, text: &str) -> String {
        let words: Vec<&str> = text.split_whitespace().collect();
        let mut said = Vec::new();
        let mut rest = words.as_slice();
        while let Some((first, others)) = rest.split_first() {
            if let Some((number, length)) = telephone_number(rest) {
                said.push(number);
                rest = rest.get(length..).unwrap_or_default();
                continue;
            }
            said.push(self.word(first));
            rest = others;
        }
        said.join(" ")
    }

    fn word(&self, word: &str) -> String {
        let is_edge = |c: char| !c.is_alphanumeric();
        let bare = word.trim_matches(is_edge);
        let owned = bare.strip_suffix("'s").unwrap_or(bare);
        if let Some(said) = self.say_as.get(&owned.to_lowercase()).filter(|_| !owned.is_empty()) {
            return word.replacen(owned, said, 1);
        }
        word.trim_start_matches("https://").trim_start_matches("http://").replace(['*', '#', '`', '_'], " ")
    }
}

/// The telephone number at the start of `words`, in groups of digits as written, and how many words it takes.
fn telephone_number(words: &[&str]) -> Option<(String, usize)> {
    let is_part = |word: &&&str| {
        let inner = word.trim_end_matches([',', '.', '?', '!']);
        inner.contains(|c: char| c.is_ascii_digit())
            && inner.chars().all(|c| c.is_ascii_digit() || matches!(c, '+' | '-' | '(' | ')' | '.'))
    };
    let ends_sentence = |word: &str| word.ends_with([',', '.', '?', '!']);
    let mut length = words.iter().take_while(is_part).count();
    // A comma ends the number.
    if let Some(end) = words.iter().take(length).position(|word| ends_sentence(word)) {
        length = end + 1;
    }
    let written = words.get(..length)?.join(" ");
    let groups: Vec<&str> =
        written.split(|c: char| !c.is_ascii_digit()).filter(|group| !group.is_empty()).collect();
    let digits: usize = groups.iter().map(|group| group.len()).sum();
    // Neither is a number with a decimal point, or a row of years.
    let is_number = NUMBER_DIGITS.contains(&digits)
        && (groups.len() > 1
            || digits == written.trim_end_matches([',', '.', '?', '!']).trim_start_matches('+').len())
        && !(groups.len() == 2 && written.trim_end_matches('.').contains('.'));
    if !is_number {
        return None;
    }
    let spelled: Vec<String> =
        groups.iter().map(|group| group.chars().map(String::from).collect::<Vec<_>>().join(" ")).collect();
    let end = written.chars().last().filter(|c| matches!(c, ',' | '.' | '?' | '!'));
    Some((spelled.join(", ") + &end.map(String::from).unwrap_or_default(), length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_spelled_and_markup_is_not_read() {
        let say_as = BTreeMap::from([("Siobhan".to_owned(), "Shivawn".to_owned())]);
        let wording = Wording::new(&say_as);
        for (written, said) in [
            ("Call 415-555-2671.", "Call 4 1 5, 5 5 5, 2 6 7 1."),
            ("Call +1 (415) 555-2671 now", "Call 1, 4 1 5, 5 5 5, 2 6 7 1 now"),
            ("Is it 5552671?", "Is it 5 5 5 2 6 7 1?"),
            ("See https://a.example/x  for **more**.", "See a.example/x for   more  ."),
            ("It costs 49.99, 24/7", "It costs 49.99, 24/7"),
            ("In 2024, 2025 and 1234567.89", "In 2024, 2025 and 1234567.89"),
            ("Ask Siobhan, or SIOBHAN's son.", "Ask Shivawn, or Shivawn's son."),
            ("— ... !", "— ... !"),
            ("", ""),
        ] {
            assert_eq!(wording.of(written), said);
        }
    }
}
