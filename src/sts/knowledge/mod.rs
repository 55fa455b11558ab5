//! What the agent may answer from: instructions, documents and a website, in passages that are ranked
//! for each question.

mod crawl;
mod html;
mod library;
mod rank;
mod reader;
mod robots;
mod sections;
mod table;

pub use library::{Library, unread_website};
pub use rank::{Index, terms};
use sections::Section;

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

/// Words of a passage, about: long enough to hold an answer, short enough to be about one thing.
const PASSAGE_WORDS: usize = 90;
/// Characters of the longest sentence that is kept whole.
const SENTENCE_CHARACTERS_MAX: usize = 600;

/// A piece of text, and where it is from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Passage {
    /// `instructions`, a document's title or a page's address.
    pub source: String,
    pub title: String,
    pub text: String,
}

impl Passage {
    fn bytes(&self) -> usize {
        size_of::<Self>() + self.source.len() + self.title.len() + self.text.len()
    }
}

/// Passages that can be searched.
#[derive(Default)]
pub struct Knowledge {
    passages: Vec<Passage>,
    index: Index,
    rationed: Rationed,
}

/// Sources of which an answer takes only so many passages.
#[derive(Debug, Clone, Default)]
pub struct Rationed {
    pub sources: Vec<String>,
    pub passages_max: usize,
}

/// A passage that has to do with a question.
#[derive(Debug, Clone, Copy)]
pub struct Hit<'a> {
    pub passage: &'a Passage,
    /// Okapi BM25.
    pub score: f32,
    /// How much of the question's words, weighted by how rare they are, is in the passage: 0 to 1.
    pub coverage: f32,
}

impl Knowledge {
    pub fn new(passages: Vec<Passage>, rationed: Rationed) -> Self {
        // A title is about all of its text.
        let index = Index::new(passages.iter().map(|p| format!("{} {}", p.title, p.text)));
        Self { passages, index, rationed }
    }

    pub fn passages(&self) -> &[Passage] {
        &self.passages
    }

    /// The bytes that it takes up.
    pub fn bytes(&self) -> usize {
        self.passages.iter().map(Passage::bytes).sum::<usize>() + self.index.bytes()
    }

    /// The passages that fit best, best first.
    pub fn search(&self, question: &str, count_max: usize) -> Vec<Hit<'_>> {
        let Rationed { sources, passages_max } = &self.rationed;
        let mut left: HashMap<&str, usize> =
            sources.iter().map(|source| (source.as_str(), *passages_max)).collect();
        self.index
            .search(&terms(question))
            .into_iter()
            .filter_map(|found| {
                let passage = self.passages.get(found.index)?;
                if let Some(left) = left.get_mut(passage.source.as_str()) {
                    *left = left.checked_sub(1)?;
                }
                Some(Hit { passage, score: found.score, coverage: found.coverage })
            })
            .take(count_max)
            .collect()
    }

    /// How much a text says of what is asked, 0 to 1, by the weights of all passages.
    pub fn coverage(&self, question: &str, text: &str) -> f32 {
        self.index.coverage(&terms(question), &terms(text))
    }
}

/// Cuts a text into passages at its headings and at the ends of sentences.
pub fn passages(source: &str, title: &str, text: &str) -> Vec<Passage> {
    of_sections(source, title, &sections::of_text(text))
}

/// As [`passages`], of a text whose headings are known. They become a part of the title: what stands under a
/// heading is about it, and the heading itself is no sentence.
fn of_sections(source: &str, title: &str, sections: &[Section]) -> Vec<Passage> {
    let of_section = |section: &Section| {
        let titles = std::iter::once(title).chain(section.headings.iter().map(String::as_str));
        let title = titles.filter(|title| !title.is_empty()).collect::<Vec<_>>().join(" – ");
        cut(source, &title, &section.text)
    };
    sections.iter().flat_map(of_section).collect()
}

fn cut(source: &str, title: &str, text: &str) -> Vec<Passage> {
    let mut passages = Vec::new();
    let mut current = String::new();
    let mut words = 0;
    let mut close = |current: &mut String| {
        let text = std::mem::take(current);
        if !text.trim().is_empty() {
            passages.push(Passage {
                source: source.to_owned(),
                title: title.to_owned(),
                text: text.trim().to_owned(),
            });
        }
    };
    for line in text.lines() {
        for sentence in sentences(line) {
            let count = sentence.split_whitespace().count();
            if words > 0 && words + count > PASSAGE_WORDS {
                close(&mut current);
                words = 0;
            }
            current.push_str(&sentence);
            current.push(' ');
            words += count;
        }
        // Lines stay apart: not each of them ends as a sentence does.
        current.truncate(current.trim_end().len());
        current.push('\n');
    }
    close(&mut current);
    passages
}

/// The sentences of a text. A line is at least one; what has no end is cut at a space.
pub fn sentences(text: &str) -> Vec<String> {
    let mut sentences = Vec::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let mut current = String::new();
        let mut words = line.split_whitespace().peekable();
        while let Some(word) = words.next() {
            if !current.is_empty() {
                current.push(' ');
            }
            current.push_str(word);
            let begins_next = words.peek().is_none_or(|next| !next.starts_with(char::is_lowercase));
            if (ends_sentence(word) && begins_next) || current.len() > SENTENCE_CHARACTERS_MAX {
                sentences.push(std::mem::take(&mut current));
            }
        }
        if !current.is_empty() {
            sentences.push(current);
        }
    }
    sentences
}

fn ends_sentence(word: &str) -> bool {
    const ABBREVIATIONS: [&str; 9] = ["mr.", "mrs.", "ms.", "dr.", "st.", "no.", "e.g.", "i.e.", "vs."];
    let bare = word.trim_end_matches(['"', ')', '\'', '”', '’']);
    let ends = bare.ends_with(['.', '!', '?', '…']);
    // An initial, as in `J. Smith`.
    let is_initial = bare.chars().count() == 2 && bare.starts_with(char::is_uppercase);
    ends && !is_initial && !ABBREVIATIONS.contains(&bare.to_ascii_lowercase().as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_end_where_they_end() {
        assert_eq!(
            sentences("Dr. Smith is in. Ask J. Doe at 3.30 p.m. today!\nOpening hours\n\nMonday: 9 to 5"),
            ["Dr. Smith is in.", "Ask J. Doe at 3.30 p.m. today!", "Opening hours", "Monday: 9 to 5"]
        );
    }

    #[test]
    fn passages_hold_whole_sentences_and_lose_nothing() {
        let text: String = (0..60).map(|n| format!("Sentence number {n} has seven words. ")).collect();
        let found = passages("s", "t", &text);
        assert!(found.len() > 2);
        let joined: Vec<&str> = found.iter().map(|p| p.text.as_str()).collect();
        assert_eq!(joined.join(" "), text.trim());
        assert!(found.iter().all(|p| p.text.ends_with('.') && p.text.split(' ').count() <= PASSAGE_WORDS));
    }

    #[test]
    fn lines_of_a_passage_stay_apart() {
        let found = passages("s", "t", "Prices\n\nCleaning: $90 \n Filling: $150. Ask us.");
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].text, "Prices\nCleaning: $90\nFilling: $150. Ask us.");
    }

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
        assert!(knowledge.search("Do you sell bicycles?", 3).iter().all(|hit| hit.coverage < 0.5));
    }
}
