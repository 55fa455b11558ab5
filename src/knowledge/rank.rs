//! Ranking of texts for a question: Okapi BM25 (Robertson and Zaragoza, "The Probabilistic Relevance
//! Framework: BM25 and Beyond", 2009) over stemmed words.

use std::collections::HashMap;
use std::ops::Range;

use super::lexicon::terms;

/// Parameters: the paper's recommended defaults.
const K1: f32 = 1.2;
const B: f32 = 0.75;

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

    pub fn knows(&self, term: &str) -> bool {
        !self.postings(term).is_empty()
    }

    /// The inverse document frequency of a term. A term found in no text counts as found in one.
    pub fn weight(&self, term: &str) -> f32 {
        let (count, within) = (self.lengths.len() as f32, self.postings(term).len().max(1) as f32);
        (1.0 + (count - within + 0.5) / (within + 0.5)).ln()
    }

    /// The texts with at least one of the terms, best first. Of each term, the terms that stand for it and how well.
    pub fn search(&self, question: &[Vec<(String, f32)>]) -> Vec<Found> {
        let mut found: HashMap<usize, f32> = HashMap::new();
        for ways in question {
            let mut best: HashMap<usize, f32> = HashMap::new();
            for (term, value) in ways {
                let weight = value * self.weight(term);
                for &(text, count) in self.postings(term) {
                    let index = text as usize;
                    let length = self.lengths.get(index).copied().unwrap_or_default() as f32;
                    let count = count as f32;
                    let norm = K1 * (1.0 - B + B * length / self.mean_length.max(1.0));
                    let score = weight * count * (K1 + 1.0) / (count + norm);
                    let known = best.entry(index).or_default();
                    *known = known.max(score);
                }
            }
            for (index, score) in best {
                *found.entry(index).or_default() += score;
            }
        }
        let mut found: Vec<Found> = found.into_iter().map(|(index, score)| Found { index, score }).collect();
        found.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.index.cmp(&b.index)));
        found
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
    fn a_rare_word_counts_more_than_a_common_one() {
        let texts = ["red apple", "red pear", "red plum", "red fig"].map(str::to_owned);
        let index = Index::new(texts.into_iter());
        let asked = |text: &str| terms(text).into_iter().map(|term| vec![(term, 1.0)]).collect::<Vec<_>>();
        let found = index.search(&asked("red plum"));
        assert_eq!(found[0].index, 2);
        assert!(found[0].score > 3.0 * found[1].score, "{found:?}");
        assert!(index.search(&asked("tractor")).is_empty());
        // A term that only stands for the word counts less.
        let found = index.search(&[vec![("fig".to_owned(), 1.0), ("plum".to_owned(), 0.9)]]);
        assert_eq!(found.iter().map(|found| found.index).collect::<Vec<_>>(), [3, 2]);
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
        assert!(Index::default().search(&[vec![("appl".to_owned(), 1.0)]]).is_empty());
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
