//! Searchable passages: the ones that fit a question best.

use std::collections::HashMap;

use super::lexicon::{terms, ways};
use super::passage::Passage;
use super::rank::Index;

/// Passages that can be searched.
#[derive(Default)]
pub struct Knowledge {
    passages: Vec<Passage>,
    index: Index,
    rationed: Rationed,
}

/// Sources that may contribute only a limited number of passages to an answer.
#[derive(Debug, Clone, Default)]
pub struct Rationed {
    pub sources: Vec<String>,
    pub passages_max: usize,
}

/// A passage that matches a question.
#[derive(Debug, Clone, Copy)]
pub struct Hit<'a> {
    pub passage: &'a Passage,
    /// Okapi BM25.
    pub score: f32,
}

impl Knowledge {
    pub fn new(passages: Vec<Passage>, rationed: Rationed) -> Self {
        // The title applies to the whole passage.
        let index = Index::new(passages.iter().map(|p| format!("{} {}", p.title, p.text)));
        Self { passages, index, rationed }
    }

    pub fn passages(&self) -> &[Passage] {
        &self.passages
    }

    /// Memory in bytes.
    pub fn bytes(&self) -> usize {
        self.passages.iter().map(Passage::bytes).sum::<usize>() + self.index.bytes()
    }

    /// The best matching passages, best first.
    pub fn search(&self, question: &str, count_max: usize) -> Vec<Hit<'_>> {
        let question: Vec<_> = terms(question).iter().map(|term| ways(term)).collect();
        self.find(&question, count_max)
    }

    /// Like [`Knowledge::search`]: for each term of the question the stems that stand for it, and how well.
    pub(super) fn find(&self, question: &[Vec<(String, f32)>], count_max: usize) -> Vec<Hit<'_>> {
        let Rationed { sources, passages_max } = &self.rationed;
        let mut left: HashMap<&str, usize> =
            sources.iter().map(|source| (source.as_str(), *passages_max)).collect();
        self.index
            .search(question)
            .into_iter()
            .filter_map(|found| {
                let passage = self.passages.get(found.index)?;
                if let Some(left) = left.get_mut(passage.source.as_str()) {
                    *left = left.checked_sub(1)?;
                }
                Some(Hit { passage, score: found.score })
            })
            .take(count_max)
            .collect()
    }

    /// Whether any passage has the term.
    pub(super) fn knows(&self, term: &str) -> bool {
        self.index.knows(term)
    }

    /// How rare the term is: its inverse document frequency.
    pub(super) fn weight(&self, term: &str) -> f32 {
        self.index.weight(term)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_passage_that_answers_comes_first() {
        let knowledge = Knowledge::new(
            [
                ("Opening hours", "We are open Monday to Friday from nine to five."),
                ("Parking", "Parking is free behind the building."),
                ("Insurance", "We accept Acme and Zenith insurance plans."),
            ]
            .map(|(title, text)| Passage { source: "d".into(), title: title.into(), text: text.into() })
            .to_vec(),
            Rationed::default(),
        );
        for (question, title) in [
            ("When are you open?", "Opening hours"),
            ("Where can I park my car?", "Parking"),
            ("Which insurances do you accept?", "Insurance"),
        ] {
            let hits = knowledge.search(question, 3);
            assert_eq!(hits.first().map(|hit| hit.passage.title.as_str()), Some(title), "{question}");
        }
        assert!(knowledge.search("Do you sell bicycles?", 3).is_empty());
    }
}
