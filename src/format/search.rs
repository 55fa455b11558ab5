//! Search for spoken terms, even if the model spelled them differently.
//!
//! A hit is the run of whole words whose letters, or whose sounds, are nearest to the term's: an
//! approximate match by edit distance, its start free at every word (Sellers, "The theory and
//! computation of evolutionary distances", J. Algorithms 1980). One pass over the text finds all ends.

use super::word::Word;

/// The least likely hits of a term are left out.
const HITS_MAX: usize = 10;
/// Texts less alike than this are not a hit.
const SIMILARITY_MIN: f64 = 0.6;
/// The least confidence of a hit that is returned.
const CONFIDENCE_MIN: f64 = 0.1;
/// The weight of likeness in sound, where likeness in letters has 1: different words sound alike.
const SOUND_WEIGHT: f64 = 0.95;

/// A place where a term may have been said.
#[derive(Debug, Clone, PartialEq)]
pub struct Hit {
    /// 1: the very words; towards 0: some likeness.
    pub confidence: f64,
    pub start: f64,
    pub end: f64,
    /// The words there.
    pub snippet: String,
}

/// The words of a channel, prepared for any number of searches.
pub struct Searcher<'a> {
    words: &'a [Word],
    letters: Vec<Vec<char>>,
    sounds: Vec<Vec<char>>,
}

/// A run of words and its likeness to the term.
struct Candidate {
    first: usize,
    last: usize,
    similarity: f64,
}

impl<'a> Searcher<'a> {
    pub fn new(words: &'a [Word]) -> Self {
        Self {
            words,
            letters: words.iter().map(|word| letters(&word.bare)).collect(),
            sounds: words.iter().map(|word| sounds(&word.bare)).collect(),
        }
    }

    /// Places for `term`, the likeliest first; they do not overlap. Takes time in proportion to the
    /// lengths of term and text, multiplied.
    pub fn hits(&self, term: &str) -> Vec<Hit> {
        let mut candidates = nearest(&letters(term), &self.letters, 1.0);
        candidates.extend(nearest(&sounds_of_all(term), &self.sounds, SOUND_WEIGHT));
        candidates.sort_by(|a, b| b.similarity.total_cmp(&a.similarity).then(a.first.cmp(&b.first)));
        let mut taken: Vec<Candidate> = Vec::new();
        for candidate in candidates {
            let free = taken.iter().all(|t| candidate.last < t.first || t.last < candidate.first);
            if free {
                taken.push(candidate);
            }
            if taken.len() == HITS_MAX {
                break;
            }
        }
        taken.iter().filter_map(|candidate| self.hit(candidate)).collect()
    }

    fn hit(&self, candidate: &Candidate) -> Option<Hit> {
        let words = self.words.get(candidate.first..=candidate.last)?;
        let snippet: Vec<&str> = words.iter().map(|word| word.bare.as_str()).collect();
        Some(Hit {
            confidence: confidence(candidate.similarity),
            start: words.first()?.start,
            end: words.last()?.end,
            snippet: snippet.join(" "),
        })
    }
}

fn confidence(similarity: f64) -> f64 {
    ((similarity - SIMILARITY_MIN) / (1.0 - SIMILARITY_MIN)).clamp(0.0, 1.0)
}

/// For each word, the run that ends with it and is most like `term`, if it is like it at all.
fn nearest(term: &[char], words: &[Vec<char>], weight: f64) -> Vec<Candidate> {
    if term.is_empty() {
        return Vec::new();
    }
    // costs[n]: the fewest edits from the term's first n letters to a run that ends here, and where
    // the run began.
    let mut costs: Vec<(usize, usize)> = (0..=term.len()).map(|cost| (cost, 0)).collect();
    let mut lengths = Vec::with_capacity(words.len() + 1);
    let mut length = 0;
    let mut candidates = Vec::new();
    for (index, word) in words.iter().enumerate() {
        lengths.push(length);
        length += word.len();
        if word.is_empty() {
            continue;
        }
        begin_at(&mut costs, index);
        for letter in word {
            step(&mut costs, term, *letter);
        }
        let Some(&(cost, first)) = costs.last() else { continue };
        let heard = length - lengths.get(first).copied().unwrap_or_default();
        let similarity = weight * (1.0 - cost as f64 / term.len().max(heard) as f64);
        if confidence(similarity) >= CONFIDENCE_MIN {
            candidates.push(Candidate { first, last: index, similarity });
        }
    }
    candidates
}

/// A run may begin with word `index`.
fn begin_at(costs: &mut [(usize, usize)], index: usize) {
    let mut best = (0, index);
    for cost in costs {
        if best.0 < cost.0 {
            *cost = best;
        }
        best = (cost.0 + 1, cost.1);
    }
}

fn step(costs: &mut [(usize, usize)], term: &[char], heard: char) {
    let mut diagonal = None;
    let mut before: Option<(usize, usize)> = None;
    for (index, cost) in costs.iter_mut().enumerate() {
        let above = *cost;
        *cost = (above.0 + 1, above.1);
        if let (Some((edits, start)), Some(asked)) =
            (diagonal, index.checked_sub(1).and_then(|i| term.get(i)))
        {
            let replaced = (edits + usize::from(*asked != heard), start);
            if replaced.0 < cost.0 {
                *cost = replaced;
            }
        }
        if let Some((edits, start)) = before
            && edits + 1 < cost.0
        {
            *cost = (edits + 1, start);
        }
        diagonal = Some(above);
        before = Some(*cost);
    }
}

fn letters(text: &str) -> Vec<char> {
    text.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

fn sounds_of_all(term: &str) -> Vec<char> {
    term.split_whitespace().flat_map(sounds).collect()
}

/// How a word sounds in English, roughly: one sign for letters that are heard alike, after the idea of
/// Metaphone (L. Philips, 1990). Vowels are one sound, written once for several in a row; so are doubled consonants.
fn sounds(word: &str) -> Vec<char> {
    let letters = letters(word);
    let mut sounds: Vec<char> = Vec::with_capacity(letters.len());
    let mut rest = letters.as_slice();
    while let Some(&letter) = rest.first() {
        let next = rest.get(1).copied().unwrap_or_default();
        let soft = matches!(next, 'e' | 'i' | 'y');
        let start = rest.len() == letters.len();
        let (heard, length): (&[char], usize) = match (letter, next) {
            ('p', 'h') => (&['f'], 2),
            ('g', 'h') => (if start { &['k'] } else { &[] }, 2),
            ('k' | 'g', 'n') if start => (&['n'], 2),
            ('w', 'r') if start => (&['r'], 2),
            ('c', 'k') => (&['k'], 2),
            ('c' | 's', 'h') => (&['x'], 2),
            ('t', 'h') => (&['0'], 2),
            ('q', 'u') => (&['k', 'w'], 2),
            ('c', _) => (if soft { &['s'] } else { &['k'] }, 1),
            ('g', _) => (if soft { &['j'] } else { &['k'] }, 1),
            ('q', _) => (&['k'], 1),
            ('x', _) => (if start { &['s'] } else { &['k', 's'] }, 1),
            ('z', _) => (&['s'], 1),
            ('v', _) => (&['f'], 1),
            ('d', _) => (&['t'], 1),
            ('b', _) => (&['p'], 1),
            ('h' | 'w', _) if !start => (&[], 1),
            ('a' | 'e' | 'i' | 'o' | 'u' | 'y', _) => (&['a'], 1),
            _ => (std::slice::from_ref(rest.first().unwrap_or(&' ')), 1),
        };
        for &sound in heard {
            if sounds.last() != Some(&sound) {
                sounds.push(sound);
            }
        }
        rest = rest.get(length..).unwrap_or_default();
    }
    sounds
}
