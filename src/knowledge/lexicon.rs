//! Words: which of them name a topic, and which of them mean the same.

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

use rust_stemmers::{Algorithm, Stemmer};

/// How well a word stands for another of the same meaning; the word itself counts 1.
const SYNONYM: f32 = 0.9;

/// Words without any topic: they never count.
const STOP_WORDS: &[&str] = &[
    "a", "about", "all", "also", "am", "an", "and", "any", "are", "as", "at", "be", "been", "but", "by",
    "can", "could", "did", "do", "does", "for", "from", "get", "give", "had", "has", "have", "he", "hello",
    "her", "hes", "hey", "hi", "his", "how", "i", "if", "in", "into", "is", "it", "its", "know", "let",
    "like", "me", "my", "need", "of", "ok", "okay", "on", "or", "our", "please", "say", "she", "shes",
    "should", "so", "some", "tell", "than", "thank", "thanks", "that", "the", "their", "them", "then",
    "there", "these", "they", "this", "to", "uh", "um", "us", "want", "was", "we", "well", "were", "what",
    "when", "where", "which", "who", "will", "with", "would", "you", "your", "youre",
];

/// Things that a whole text may be about without naming them in each sentence.
const PLACES: &[&str] = &[
    "branch",
    "building",
    "business",
    "center",
    "centre",
    "clinic",
    "company",
    "establishment",
    "facility",
    "firm",
    "hotel",
    "house",
    "library",
    "museum",
    "office",
    "place",
    "practice",
    "premises",
    "pub",
    "restaurant",
    "shop",
    "site",
    "store",
    "venue",
];

/// Stems of words that say little about a topic. Their absence from a text means nothing.
static LIGHT: LazyLock<HashSet<String>> =
    LazyLock::new(|| include_str!("lexicon/light.txt").split_whitespace().map(stem).collect());

/// For the stem of a caller's word, the stems that texts have for the same thing.
///
/// Each line of the file has words of one meaning; in a line with a colon, the words before it may be answered by
/// the words after it, but not the other way round.
static SYNONYMS: LazyLock<HashMap<String, Vec<String>>> = LazyLock::new(|| {
    let mut all: HashMap<String, Vec<String>> = HashMap::new();
    for line in include_str!("lexicon/synonyms.txt").lines() {
        let (asked, said) = line.split_once(':').unwrap_or((line, line));
        let said: Vec<String> = said.split_whitespace().map(|word| stem(&bare(word))).collect();
        for asked in asked.split_whitespace().map(|word| stem(&bare(word))) {
            let known = all.entry(asked.clone()).or_default();
            for said in &said {
                if *said != asked && !known.contains(said) {
                    known.push(said.clone());
                }
            }
        }
    }
    all
});

/// The stem of a word in lower case (Porter, "Snowball: A language for stemming algorithms", 2001).
pub fn stem(word: &str) -> String {
    Stemmer::create(Algorithm::English).stem(word).into_owned()
}

/// Whether the word with this stem says little about a topic.
pub fn is_light(stem: &str) -> bool {
    LIGHT.contains(stem) || stem.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether the word with this stem is one of [`PLACES`].
pub fn is_place(stem: &str) -> bool {
    PLACES.iter().any(|place| self::stem(place) == stem)
}

pub fn is_stop_word(word: &str) -> bool {
    STOP_WORDS.contains(&word)
}

/// The stems that stand for a word with this stem, and how well; itself first.
pub fn ways(stem: &str) -> Vec<(String, f32)> {
    let others = SYNONYMS.get(stem).map(Vec::as_slice).unwrap_or_default();
    std::iter::once((stem.to_owned(), 1.0))
        .chain(others.iter().map(|other| (other.clone(), SYNONYM)))
        .collect()
}

/// Whether texts have other words for the thing with this stem.
pub fn has_synonyms(stem: &str) -> bool {
    SYNONYMS.contains_key(stem)
}

/// The words of a text in order: lower case, without punctuation and without the `'s` of a genitive. `Check-up` is
/// one word.
pub fn words(text: &str) -> impl Iterator<Item = String> {
    let is_inner = |c: char| c.is_alphanumeric() || matches!(c, '\'' | '’' | '-');
    text.split(move |c| !is_inner(c)).filter_map(|word| {
        let word = word.trim_matches(['\'', '’', '-']).to_lowercase().replace('’', "'");
        let word = word.strip_suffix("'s").map_or_else(|| word.replace('\'', ""), str::to_owned);
        (!word.is_empty()).then_some(word)
    })
}

/// The word without hyphens.
pub fn bare(word: &str) -> String {
    word.replace('-', "")
}

/// The terms of a text in order: stems without stop words. A word with hyphens is there whole and in its parts.
pub fn terms(text: &str) -> Vec<String> {
    let mut terms = Vec::new();
    for word in words(text) {
        let parts = word.contains('-').then(|| word.split('-').map(str::to_owned).collect::<Vec<_>>());
        for word in std::iter::once(bare(&word)).chain(parts.into_iter().flatten()) {
            if !word.is_empty() && !is_stop_word(&word) {
                terms.push(stem(&word));
            }
        }
    }
    terms
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
            ("cancelling", "cancel"),
        ] {
            assert_eq!(terms(one), terms(other), "{one}");
        }
        assert_eq!(terms("What is it that you do?"), Vec::<String>::new());
        assert_eq!(terms("a check-up"), ["checkup", "check", "up"]);
    }

    #[test]
    fn a_word_stands_for_another_in_the_directions_of_the_list() {
        let has = |asked: &str, said: &str| ways(&stem(asked)).iter().any(|(way, _)| *way == stem(said));
        assert!(has("phone", "telephone") && has("telephone", "phone") && has("phone", "phone"));
        assert!(has("beer", "alcohol") && has("dog", "animal") && !has("animal", "dog"));
    }
}
