//! Passages: texts cut into pieces that are long enough to hold an answer and short enough to be about one thing.

use serde::{Deserialize, Serialize};

use super::sections::{self, Section};

/// Target length of a passage, in words.
const PASSAGE_WORDS: usize = 90;
/// A longer sentence is cut, in characters.
const SENTENCE_CHARACTERS_MAX: usize = 600;
/// An indexed text takes about this many times its bytes: its passages and their index. A text in which no word
/// repeats takes more; once it has been read, its real size is measured.
const INDEXED_BYTES_FACTOR: u64 = 3;

/// A piece of text and its source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Passage {
    /// `instructions`, a document's title, or a page's address.
    pub source: String,
    pub title: String,
    pub text: String,
}

impl Passage {
    /// Memory in bytes.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.source.len() + self.title.len() + self.text.len()
    }
}

/// Estimated memory of texts with `bytes` in total once they are indexed, in bytes.
pub fn indexed_bytes(bytes: usize) -> u64 {
    INDEXED_BYTES_FACTOR * bytes as u64
}

/// Like [`indexed_bytes`], for passages.
pub fn indexed_bytes_of(passages: &[Passage]) -> u64 {
    indexed_bytes(passages.iter().map(|passage| passage.text.len()).sum())
}

/// Cuts a text into passages at its headings and at the ends of sentences.
pub fn passages(source: &str, title: &str, text: &str) -> Vec<Passage> {
    of_sections(source, title, &sections::of_text(text))
}

/// Like [`passages`], for a text whose headings are known. Headings become part of the title: the text below a
/// heading is about it, and the heading itself is not a sentence.
pub fn of_sections(source: &str, title: &str, sections: &[Section]) -> Vec<Passage> {
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
        // Keep lines apart: not every line ends like a sentence.
        current.truncate(current.trim_end().len());
        current.push('\n');
    }
    close(&mut current);
    passages
}

/// Splits a text into sentences. Every line holds at least one; an overlong sentence is cut at a space.
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
}
