//! Word error rate.
//!
//! Both texts are lowercased. Letters, digits and apostrophes inside words are kept; everything else separates words or,
//! at a word's edge, is dropped. Nothing is spelled out: `Mr.` and `mister`, `5` and `five` differ. In languages written
//! without spaces every letter counts as a word, which makes this a character error rate. Other tools normalise more, so
//! compare figures of one tool only.

use crate::transcript::script;

/// Wrong words, and words that should have been heard.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Errors {
    pub wrong: usize,
    pub words: usize,
}

impl Errors {
    /// Substitutions, insertions and deletions between `reference` and `heard` (Levenshtein, over words).
    pub fn between(reference: &str, heard: &str, language: Option<&str>) -> Self {
        let by_letter = language.is_some_and(|language| {
            let code = language.split('-').next().unwrap_or(language);
            !script::is_spaced(code)
        });
        let (reference, heard) = (words(reference, by_letter), words(heard, by_letter));
        let mut row: Vec<usize> = (0..=heard.len()).collect();
        for (index, word) in reference.iter().enumerate() {
            let mut left = index + 1;
            let mut diagonal = std::mem::replace(&mut row[0], left);
            for (above, other) in row[1..].iter_mut().zip(&heard) {
                let substituted = diagonal + usize::from(word != other);
                left = substituted.min(left + 1).min(*above + 1);
                diagonal = std::mem::replace(above, left);
            }
        }
        Self { wrong: row[heard.len()], words: reference.len() }
    }

    pub fn add(&mut self, other: Self) {
        self.wrong += other.wrong;
        self.words += other.words;
    }

    /// 0 or more; above 1 if more words are heard than were said; `None` without words.
    pub fn rate(self) -> Option<f64> {
        (self.words > 0).then(|| self.wrong as f64 / self.words as f64)
    }
}

fn words(text: &str, by_letter: bool) -> Vec<String> {
    let text = text.to_lowercase().replace('\u{2019}', "'");
    if by_letter {
        return text.chars().filter(|c| c.is_alphanumeric()).map(String::from).collect();
    }
    let parts = text.split(|c: char| !c.is_alphanumeric() && c != '\'');
    let bare = parts.map(|part| part.trim_matches('\''));
    bare.filter(|part| !part.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_counted_in_words() {
        for (reference, heard, language, wrong, words) in [
            ("Ask not, what YOUR country's?", "ask not what your country\u{2019}s", Some("en"), 0, 5),
            ("a b c d", "a x c d", None, 1, 4),
            ("a b c d", "a c d e f", None, 3, 4),
            ("a b", "", None, 2, 2),
            ("", "you you", None, 2, 0),
            ("well-known 'quote'", "well known quote", None, 0, 3),
            ("東京に行く。", "東京へ行く", Some("ja"), 1, 5),
            ("东京", "东 京", Some("zh-TW"), 0, 2),
        ] {
            let errors = Errors::between(reference, heard, language);
            assert_eq!(errors, Errors { wrong, words }, "{reference} / {heard}");
        }
        assert_eq!(Errors::default().rate(), None);
        assert_eq!(Errors { wrong: 3, words: 2 }.rate(), Some(1.5));
    }
}
