//! Which texts fit a question: Okapi BM25 (Robertson and Zaragoza, "The Probabilistic Relevance
//! Framework: BM25 and Beyond", 2009) over words with their endings taken off.

use std::collections::{HashMap, HashSet};

/// The parameters that the paper recommends to begin with.
const K1: f32 = 1.2;
const B: f32 = 0.75;

/// Words that say nothing of what a question is about.
const STOP_WORDS: &[&str] = &[
    "a", "about", "all", "also", "am", "an", "and", "any", "are", "as", "at", "be", "been", "but", "by",
    "can", "could", "did", "do", "does", "for", "from", "get", "give", "had", "has", "have", "hello", "hey",
    "hi", "how", "i", "if", "in", "is", "it", "its", "know", "let", "like", "me", "my", "need", "of", "ok",
    "okay", "on", "or", "our", "please", "say", "should", "so", "some", "tell", "than", "thank", "thanks",
    "that", "the", "their", "them", "then", "there", "these", "they", "this", "to", "uh", "um", "us", "want",
    "was", "we", "well", "were", "what", "when", "where", "which", "who", "will", "with", "would", "you",
    "your",
];

/// Words that callers use for what texts call otherwise, after endings are taken off.
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

/// The words of a text that count, in order, in the form in which they are compared.
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

/// A word without its ending, roughly as Porter (1980) takes them off in his first step.
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

#[derive(Default)]
pub struct Index {
    /// For each term, the texts it is in and how often.
    postings: HashMap<String, Vec<(usize, u32)>>,
    lengths: Vec<u32>,
    mean_length: f32,
}

/// One text found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Found {
    pub index: usize,
    pub score: f32,
    pub coverage: f32,
}

impl Index {
    pub fn new(texts: impl Iterator<Item = String>) -> Self {
        let mut postings: HashMap<String, Vec<(usize, u32)>> = HashMap::new();
        let mut lengths = Vec::new();
        for (index, text) in texts.enumerate() {
            let mut counts: HashMap<String, u32> = HashMap::new();
            let terms = terms(&text);
            lengths.push(u32::try_from(terms.len()).unwrap_or(u32::MAX));
            for term in terms {
                *counts.entry(term).or_default() += 1;
            }
            for (term, count) in counts {
                postings.entry(term).or_default().push((index, count));
            }
        }
        let total: f32 = lengths.iter().map(|&length| length as f32).sum();
        let mean_length = total / (lengths.len().max(1) as f32);
        Self { postings, lengths, mean_length }
    }

    /// How rare a term is. One that is in no text weighs as if it were in one: callers say more words
    /// than texts have, and those must not drown the ones that fit.
    fn weight(&self, term: &str) -> f32 {
        let (count, within) = (self.lengths.len() as f32, self.postings.get(term).map_or(1, Vec::len) as f32);
        (1.0 + (count - within + 0.5) / (within + 0.5)).ln()
    }

    /// Texts with at least one of the terms, best first.
    pub fn search(&self, question: &[String]) -> Vec<Found> {
        let question: HashSet<&String> = question.iter().collect();
        let whole: f32 = question.iter().map(|term| self.weight(term)).sum();
        let mut found: HashMap<usize, (f32, f32)> = HashMap::new();
        for term in question {
            let weight = self.weight(term);
            for &(index, count) in self.postings.get(term).map(Vec::as_slice).unwrap_or_default() {
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

    /// The weight of those terms of the question that `text` has, of the weight of all: 0 to 1.
    pub fn coverage(&self, question: &[String], text: &[String]) -> f32 {
        let question: HashSet<&String> = question.iter().collect();
        let text: HashSet<&String> = text.iter().collect();
        let whole: f32 = question.iter().map(|term| self.weight(term)).sum();
        let covered: f32 = question.intersection(&text).map(|term| self.weight(term)).sum();
        if whole > 0.0 { covered / whole } else { 0.0 }
    }
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
}
