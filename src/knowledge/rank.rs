//! Ranking of texts for a question: Okapi BM25 (Robertson and Zaragoza, "The Probabilistic Relevance
//! Framework: BM25 and Beyond", 2009) over stemmed words.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

/// Parameters: the paper's recommended defaults.
const K1: f32 = 1.2;
const B: f32 = 0.75;

/// Words that carry no topic.
const STOP_WORDS: &[&str] = &[
    "a", "about", "all", "also", "am", "an", "and", "any", "are", "as", "at", "be", "been", "but", "by",
    "can", "could", "did", "do", "does", "for", "from", "get", "give", "had", "has", "have", "hello", "hey",
    "hi", "how", "i", "if", "in", "is", "it", "its", "know", "let", "like", "me", "my", "need", "of", "ok",
    "okay", "on", "or", "our", "please", "say", "should", "so", "some", "tell", "than", "thank", "thanks",
    "that", "the", "their", "them", "then", "there", "these", "they", "this", "to", "uh", "um", "us", "want",
    "was", "we", "well", "were", "what", "when", "where", "which", "who", "will", "with", "would", "you",
    "your",
];

/// Callers' words and the word that texts use for the same thing, both stemmed.
const SYNONYMS: &[(&str, &str)] = &[
    ("phone", "telephone"),
    ("price", "cost"),
    ("fee", "cost"),
    ("hour", "open"),
    ("close", "open"),
    ("closed", "open"),
    ("doctor", "dr"),
    ("located", "address"),
    ("location", "address"),
];

/// The terms of a text in order: stemmed words without stop words.
pub fn terms(text: &str) -> Vec<String> {
    let words = text.split(|c: char| !c.is_alphanumeric() && c != '\'').map(|word| {
        let word = word.trim_matches('\'').to_lowercase();
        word.strip_suffix("'s").map(str::to_owned).unwrap_or_else(|| word.replace('\'', ""))
    });
    words
        .filter(|word| !word.is_empty() && !STOP_WORDS.contains(&word.as_str()))
        .map(|word| {
            let stem = stem(&word);
            let synonym = SYNONYMS.iter().find(|(word, _)| *word == stem);
            synonym.map_or(stem, |(_, same)| (*same).to_owned())
        })
        .collect()
}

/// Stems a word, roughly like the first step of Porter (1980).
fn stem(word: &str) -> String {
    let word = match word {
        _ if !word.is_ascii() || word.len() <= 3 => return word.to_owned(),
        _ if word.ends_with("sses") => &word[..word.len() - 2],
        _ if word.ends_with("ies") => return format!("{}y", &word[..word.len() - 3]),
        _ if word.ends_with('s') && !word.ends_with("ss") && !word.ends_with("us") => &word[..word.len() - 1],
        word => word,
    };
    let has_vowel = |stem: &str| stem.len() >= 3 && stem.contains(['a', 'e', 'i', 'o', 'u', 'y']);
    for ending in ["ing", "ed"] {
        if let Some(stem) = word.strip_suffix(ending).filter(|stem| has_vowel(stem)) {
            let bytes = stem.as_bytes();
            let doubled = bytes.len() >= 2 && bytes[bytes.len() - 1] == bytes[bytes.len() - 2];
            let keeps = doubled && stem.ends_with(['l', 's', 'z']);
            return stem[..stem.len() - usize::from(doubled && !keeps)].to_owned();
        }
    }
    // `parking` and `parke` are no words; `price` and `prices` are.
    word.strip_suffix('e').filter(|stem| has_vowel(stem)).unwrap_or(word).to_owned()
}

/// An inverted index. It is compact because every session has one: a map of owned words would take up to forty
/// times the bytes of the texts.
#[derive(Default)]
pub struct Index {
    /// The letters of all terms, concatenated.
    letters: String,
    /// Sorted by letters.
    terms: Vec<Term>,
    /// For every term in order: the texts that contain it and how often.
    postings: Vec<(u32, u32)>,
    lengths: Vec<u32>,
    mean_length: f32,
}

/// The ranges of a term's letters and postings.
struct Term {
    letters: u32,
    bytes: u32,
    postings: u32,
    texts: u32,
}

/// One matching text.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Found {
    pub index: usize,
    pub score: f32,
    pub coverage: f32,
}

impl Index {
    pub fn new(texts: impl Iterator<Item = String>) -> Self {
        let mut counted: Vec<(String, u32, u32)> = Vec::new();
        let mut lengths = Vec::new();
        for (index, text) in texts.enumerate() {
            let mut counts: HashMap<String, u32> = HashMap::new();
            let terms = terms(&text);
            lengths.push(narrow(terms.len()));
            for term in terms {
                *counts.entry(term).or_default() += 1;
            }
            counted.extend(counts.into_iter().map(|(term, count)| (term, narrow(index), count)));
        }
        counted.sort_unstable();
        let total: f32 = lengths.iter().map(|&length| length as f32).sum();
        let mean_length = total / (lengths.len().max(1) as f32);
        let mut index = Self { lengths, mean_length, ..Self::default() };
        for same in counted.chunk_by(|(one, ..), (other, ..)| one == other) {
            let Some((term, ..)) = same.first() else { continue };
            index.terms.push(Term {
                letters: narrow(index.letters.len()),
                bytes: narrow(term.len()),
                postings: narrow(index.postings.len()),
                texts: narrow(same.len()),
            });
            index.letters.push_str(term);
            index.postings.extend(same.iter().map(|&(_, text, count)| (text, count)));
        }
        index.letters.shrink_to_fit();
        index.terms.shrink_to_fit();
        index.postings.shrink_to_fit();
        index
    }

    /// Memory in bytes.
    pub fn bytes(&self) -> usize {
        self.letters.len()
            + size_of_val(self.terms.as_slice())
            + size_of_val(self.postings.as_slice())
            + size_of_val(self.lengths.as_slice())
    }

    fn postings(&self, term: &str) -> &[(u32, u32)] {
        let letters = |at: &Term| piece(at.letters, at.bytes).and_then(|piece| self.letters.get(piece));
        let found = self.terms.binary_search_by(|at| letters(at).unwrap_or_default().cmp(term));
        let found = found.ok().and_then(|at| self.terms.get(at));
        let postings = found.and_then(|at| self.postings.get(piece(at.postings, at.texts)?));
        postings.unwrap_or_default()
    }

    /// The inverse document frequency of a term. A term found in no text counts as found in one: callers use
    /// more words than texts do, and those words must not drown the matching ones.
    fn weight(&self, term: &str) -> f32 {
        let (count, within) = (self.lengths.len() as f32, self.postings(term).len().max(1) as f32);
        (1.0 + (count - within + 0.5) / (within + 0.5)).ln()
    }

    /// The texts with at least one of the terms, best first.
    pub fn search(&self, question: &[String]) -> Vec<Found> {
        let question: HashSet<&String> = question.iter().collect();
        let whole: f32 = question.iter().map(|term| self.weight(term)).sum();
        let mut found: HashMap<usize, (f32, f32)> = HashMap::new();
        for term in question {
            let weight = self.weight(term);
            for &(text, count) in self.postings(term) {
                let index = text as usize;
                let length = self.lengths.get(index).copied().unwrap_or_default() as f32;
                let count = count as f32;
                let norm = K1 * (1.0 - B + B * length / self.mean_length.max(1.0));
                let (score, covered) = found.entry(index).or_default();
                *score += weight * count * (K1 + 1.0) / (count + norm);
                *covered += weight;
            }
        }
        let mut found: Vec<Found> = found
            .into_iter()
            .map(|(index, (score, covered))| Found {
                index,
                score,
                coverage: covered / whole.max(f32::MIN_POSITIVE),
            })
            .collect();
        found.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.index.cmp(&b.index)));
        found
    }

    /// The share of the question's total term weight that `text` covers: 0 to 1.
    pub fn coverage(&self, question: &[String], text: &[String]) -> f32 {
        let question: HashSet<&String> = question.iter().collect();
        let text: HashSet<&String> = text.iter().collect();
        let whole: f32 = question.iter().map(|term| self.weight(term)).sum();
        let covered: f32 = question.intersection(&text).map(|term| self.weight(term)).sum();
        if whole > 0.0 { covered / whole } else { 0.0 }
    }
}

/// Four bytes each: no session holds texts of 4 GiB.
fn narrow(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

fn piece(from: u32, length: u32) -> Option<Range<usize>> {
    Some(from as usize..from.checked_add(length)? as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endings_do_not_matter() {
        for (one, other) in [
            ("parking", "park"),
            ("prices", "price"),
            ("insurances", "insurance"),
            ("policies", "policy"),
            ("accepted", "accept"),
            ("stopped", "stop"),
            ("addresses", "address"),
            ("clinic's", "clinic"),
        ] {
            assert_eq!(terms(one), terms(other), "{one}");
        }
        assert_eq!(terms("What is it that you do?"), Vec::<String>::new());
    }

    #[test]
    fn a_rare_word_counts_more_than_a_common_one() {
        let texts = ["red apple", "red pear", "red plum", "red fig"].map(str::to_owned);
        let index = Index::new(texts.into_iter());
        let found = index.search(&terms("red plum"));
        assert_eq!(found[0].index, 2);
        assert!(found[0].coverage > 0.99 && found[1].coverage < 0.4, "{found:?}");
        assert!(index.search(&terms("tractor")).is_empty());
    }

    #[test]
    fn every_term_is_found_in_each_of_its_texts() {
        let texts = ["apple pear apple", "pear quince", "", "zebra apple"].map(str::to_owned);
        let index = Index::new(texts.into_iter());
        for (term, expected) in [
            ("appl", &[(0, 2), (3, 1)][..]),
            ("pear", &[(0, 1), (1, 1)]),
            ("zebra", &[(3, 1)]),
            ("aardvark", &[]),
        ] {
            assert_eq!(index.postings(term), expected, "{term}");
        }
        assert!(Index::default().search(&terms("apple")).is_empty());
    }

    #[test]
    fn words_that_come_once_take_up_no_more_than_some_times_their_letters() {
        // As many words as a text can have: three letters each, none of them twice.
        let letter = |n: usize| char::from(b'a' + (n % 26) as u8);
        let word = |n: usize| String::from_iter([letter(n / 676), letter(n / 26), letter(n), ' ']);
        let text: String = (0..17_576).map(word).collect();
        let bytes = text.len();
        let index = Index::new(std::iter::once(text));
        assert!(index.bytes() < 8 * bytes, "{} bytes for {bytes}", index.bytes());
    }
}
