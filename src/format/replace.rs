//! Replacement of terms at the caller's request.
//!
//! A term in lower case is found in any case, one with capitals only as it is given; the latter go
//! first, then longer terms before shorter. A replacement takes the time of its term, shared out evenly.

use super::word::{Gap, Word, parts, without};

/// A term and its replacement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replacement {
    pub find: String,
    /// `None` removes what was found.
    pub replace: Option<String>,
}

struct Rule<'a> {
    find: Vec<&'a str>,
    exact: bool,
    replace: Option<&'a str>,
}

impl<'a> Rule<'a> {
    fn of(replacement: &'a Replacement) -> Self {
        let core = |text: &'a str| Some(parts(text).1).filter(|core| !core.is_empty()).unwrap_or(text);
        Self {
            find: replacement.find.split_whitespace().map(core).collect(),
            exact: replacement.find.contains(char::is_uppercase),
            replace: replacement.replace.as_deref(),
        }
    }

    /// Whether `words` begin with the term.
    fn begins(&self, words: &[Word]) -> bool {
        let equal = |(find, word): (&&str, &Word)| {
            if self.exact { word.parts().1 == *find } else { word.bare.to_lowercase() == *find }
        };
        !self.find.is_empty() && words.len() >= self.find.len() && self.find.iter().zip(words).all(equal)
    }
}

/// `words` with every term replaced. Replacements are not searched again.
pub fn replace(words: Vec<Word>, replacements: &[Replacement]) -> Vec<Word> {
    let mut rules: Vec<Rule<'_>> = replacements.iter().map(Rule::of).collect();
    rules.sort_by_key(|rule| (!rule.exact, std::cmp::Reverse(rule.find.len())));
    let mut removed = false;
    let mut output: Vec<Word> = Vec::with_capacity(words.len());
    let mut rest = words.as_slice();
    while let Some((first, tail)) = rest.split_first() {
        let Some(rule) = rules.iter().find(|rule| rule.begins(rest)) else {
            output.push(first.clone());
            rest = tail;
            continue;
        };
        let (found, after) = rest.split_at(rule.find.len());
        match rule.replace {
            Some(text) => output.extend(written(found, text)),
            None => {
                removed = true;
                output.extend(found.iter().cloned().map(|word| Word { bare: String::new(), ..word }));
            }
        }
        rest = after;
    }
    if removed { without(output, |word| word.bare.is_empty()) } else { output }
}

/// `text` in the place and time of `found`, which is not empty.
fn written(found: &[Word], text: &str) -> Vec<Word> {
    let (Some(first), Some(last)) = (found.first(), found.last()) else { return Vec::new() };
    let pieces: Vec<&str> = text.split_whitespace().collect();
    let seconds = (last.end - first.start).max(0.0) / pieces.len().max(1) as f64;
    let at = |index: usize| (first.start + seconds * index as f64).min(last.end.max(first.start));
    let mut words: Vec<Word> = pieces
        .iter()
        .enumerate()
        .map(|(index, piece)| Word {
            bare: (*piece).to_owned(),
            written: (*piece).to_owned(),
            gap: if index == 0 { first.gap } else { Gap::Space },
            start: at(index),
            end: at(index + 1),
            confidence: super::word::confidence(found),
            speaker: super::word::speaker(found),
        })
        .collect();
    if let Some(opening) = words.first_mut() {
        opening.written.insert_str(0, first.parts().0);
    }
    if let Some(closing) = words.last_mut() {
        closing.end = last.end.max(closing.start);
        closing.written.push_str(last.parts().2);
    }
    words
}
