//! Words between the model and the reader: bare and punctuated forms, and the text made of them.

use crate::transcript::script::is_unspaced;
use crate::transcript::{self, Speaker};

/// The separator between a word and the one before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gap {
    None,
    Space,
    /// Dictated.
    Line,
    /// Dictated.
    Paragraph,
}

/// One word in the form that is shown.
#[derive(Debug, Clone, PartialEq)]
pub struct Word {
    /// Lower case, without adjoining punctuation: what users compare and search by.
    pub bare: String,
    /// With capitals and punctuation.
    pub written: String,
    pub gap: Gap,
    /// Seconds, on the same clock as the words it was made of.
    pub start: f64,
    pub end: f64,
    /// 0 to 1: the mean of the words it was made of.
    pub confidence: f32,
    /// With diarization.
    pub speaker: Option<Speaker>,
}

impl Word {
    /// The word without adjoining punctuation, with its capitals; all of it if it is punctuation alone.
    pub fn core(&self) -> &str {
        let (_, core, _) = self.parts();
        if core.is_empty() { &self.written } else { core }
    }

    /// Opening punctuation, the word itself, closing punctuation.
    pub(super) fn parts(&self) -> (&str, &str, &str) {
        parts(&self.written)
    }

    pub(super) fn is_capitalised(&self) -> bool {
        self.parts().1.starts_with(char::is_uppercase)
    }

    pub(super) fn write(&mut self, written: String) {
        self.bare = bare(&written);
        self.written = written;
    }

    pub(super) fn capitalise(&mut self) {
        self.change_first(|first| first.to_uppercase().collect());
    }

    pub(super) fn decapitalise(&mut self) {
        self.change_first(|first| first.to_lowercase().collect());
    }

    fn change_first(&mut self, change: impl Fn(char) -> String) {
        let (open, core, close) = self.parts();
        let mut rest = core.chars();
        let first = rest.next().map(change).unwrap_or_default();
        self.written = format!("{open}{first}{}{close}", rest.as_str());
    }

    /// Whether a sentence ends with it, judging by the word alone.
    pub(super) fn is_stop(&self) -> bool {
        self.parts().2.contains(is_stop)
    }
}

/// The words of `spoken`.
///
/// The model returns text without spaces, such as `3` and `.5`, in pieces with their own times; here they become
/// one word. In a script without spaces each piece stays a word.
pub fn gather<'a>(spoken: impl IntoIterator<Item = &'a transcript::Word>) -> Vec<Word> {
    let mut words: Vec<Word> = Vec::new();
    let mut pieces = 0.0;
    let mut space = true;
    for piece in spoken {
        let text = piece.text.trim();
        space |= piece.text.starts_with(char::is_whitespace);
        match words.last_mut() {
            _ if text.is_empty() => continue,
            Some(word) if !space && goes_on(&word.written, text) => {
                word.write(format!("{}{text}", word.written));
                word.end = word.end.max(piece.end);
                word.confidence = (word.confidence * pieces + piece.probability) / (pieces + 1.0);
                pieces += 1.0;
            }
            _ => {
                words.push(Word {
                    bare: bare(text),
                    written: text.to_owned(),
                    gap: if space { Gap::Space } else { Gap::None },
                    start: piece.start,
                    end: piece.end,
                    confidence: piece.probability,
                    speaker: piece.speaker,
                });
                pieces = 1.0;
            }
        }
        space = piece.text.ends_with(char::is_whitespace);
    }
    words
}

/// Whether `text`, without a space before it, belongs to the word it follows.
fn goes_on(word: &str, text: &str) -> bool {
    let before = word.chars().rev().find(|c| c.is_alphanumeric());
    match text.chars().find(|c| c.is_alphanumeric()) {
        Some(first) => !is_unspaced(first) && !before.is_some_and(is_unspaced),
        // Punctuation alone.
        None => true,
    }
}

/// The words as a text, with capitals and punctuation.
pub fn text(words: &[Word]) -> String {
    join(words, |word| &word.written)
}

/// The words as a text of bare words.
pub fn bare_text(words: &[Word]) -> String {
    join(words, |word| &word.bare)
}

fn join(words: &[Word], form: impl Fn(&Word) -> &str) -> String {
    let mut text = String::new();
    for word in words {
        if !text.is_empty() {
            text.push_str(match word.gap {
                Gap::None => "",
                Gap::Space => " ",
                Gap::Line => "\n",
                Gap::Paragraph => "\n\n",
            });
        }
        text.push_str(form(word));
    }
    text
}

/// Mean of the words' confidences, 0 without words.
pub fn confidence(words: &[Word]) -> f32 {
    let sum: f32 = words.iter().map(|word| word.confidence).sum();
    if words.is_empty() { 0.0 } else { sum / words.len() as f32 }
}

/// The speaker of words that become one, who is that of the first, and how sure it is on average.
pub(super) fn speaker(words: &[Word]) -> Option<Speaker> {
    let first = words.first()?.speaker?;
    let confidences = words.iter().filter_map(|word| Some(word.speaker?.confidence));
    let (sum, count) = confidences.fold((0.0, 0.0), |(sum, count), next| (sum + next, count + 1.0));
    Some(Speaker { confidence: sum / count, ..first })
}

/// The number of the speaker of `word`.
pub(super) fn speaker_index(word: &Word) -> Option<usize> {
    word.speaker.map(|speaker| speaker.index)
}

/// Runs of `words`, none empty, that one speaker says.
pub fn by_speaker(words: &[Word]) -> impl Iterator<Item = &[Word]> {
    words.chunk_by(|word, next| speaker_index(word) == speaker_index(next))
}

/// Removes the words for which `remove` is true, and mends their sentences: one that they ended still ends, and
/// one that they began still begins with a capital.
pub(super) fn without(words: Vec<Word>, mut remove: impl FnMut(&Word) -> bool) -> Vec<Word> {
    let mut kept: Vec<Word> = Vec::with_capacity(words.len());
    let mut capital = false;
    for mut word in words {
        let begins = kept.last().is_none_or(Word::is_stop);
        if remove(&word) {
            capital |= begins && word.is_capitalised();
            let stop = word.parts().2.trim_start_matches(',').to_owned();
            if let Some(last) = kept.last_mut()
                && stop.contains(is_stop)
                && !last.is_stop()
            {
                let open = last.written.trim_end_matches([',', ';', ':', '-']).len();
                last.written.truncate(open);
                last.written.push_str(&stop);
            }
            continue;
        }
        if std::mem::take(&mut capital) && begins {
            word.capitalise();
        }
        kept.push(word);
    }
    kept
}

/// Lower case, without the punctuation around it. Signs that are spoken stay: `$5`, `50%`, `c++`.
pub(super) fn bare(text: &str) -> String {
    let (_, core, _) = parts(text);
    // A dash that the model took for a word stays; so do the asterisks of a masked word.
    match text.trim_matches(|c| is_punctuation(c) && c != '*') {
        _ if !core.is_empty() => core.to_lowercase(),
        "" => text.to_owned(),
        asterisks => asterisks.to_owned(),
    }
}

pub(super) fn parts(text: &str) -> (&str, &str, &str) {
    let inner = text.trim_start_matches(is_punctuation);
    let open = &text[..text.len() - inner.len()];
    let core = inner.trim_end_matches(is_punctuation);
    (open, core, &inner[core.len()..])
}

/// Marks that end a sentence.
pub(super) fn is_stop(character: char) -> bool {
    matches!(character, '.' | '!' | '?' | '…' | '؟' | '।' | '。' | '！' | '？')
}

fn is_punctuation(character: char) -> bool {
    match character {
        '.' | ',' | '!' | '?' | ':' | ';' | '-' | '_' | '*' | '/' | '\\' | '~' | '`' => true,
        '"' | '\'' | '(' | ')' | '[' | ']' | '{' | '}' | '<' | '>' | '|' => true,
        '¡' | '¿' | '«' | '»' | '·' | '؟' | '،' | '؛' | '।' | '♪' => true,
        // General punctuation (dashes, quotes, ellipsis), that of CJK, and its full-width forms.
        '\u{2010}'..='\u{2027}' | '\u{2039}'..='\u{203a}' | '\u{3001}'..='\u{3003}' => true,
        '\u{3008}'..='\u{3011}' | '\u{3014}'..='\u{301f}' | '\u{30fb}' => true,
        '\u{ff01}'
        | '\u{ff08}'
        | '\u{ff09}'
        | '\u{ff0c}'..='\u{ff0f}'
        | '\u{ff1a}'
        | '\u{ff1b}'
        | '\u{ff1f}' => true,
        '\u{ff3b}' | '\u{ff3d}' | '\u{ff5b}' | '\u{ff5d}' | '\u{ff5e}'..='\u{ff65}' => true,
        _ => false,
    }
}
