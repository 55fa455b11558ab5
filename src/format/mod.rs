//! Formatting of transcripts: numbers, punctuation, fillers, redaction and more, as a client asks. Pure: words in,
//! words out.
//!
//! ```text
//! transcript::Word ─ gather ─ Word ─ format ─ Word ┬ text, bare_text
//!  pieces as the      │   fillers, dictation,      ├ paragraphs
//!  model times them   │   numbers and addresses,   └ utterances
//!                     │   replacement, profanity
//!                     └ search
//! ```
//! Everything works on a slice of words, so it serves a whole file as well as one final of a stream.
//!
//! # Merged words
//! As in the service that the wire format comes from, words that are written as one become one word, with the time
//! from the first to the last of the spoken words, and the mean of their confidences. `fifty dollars`
//! becomes the word `$50`; `punctuated_word` adds the punctuation. Where the written form has spaces,
//! each part is a word with the time of its own spoken words: `(444)` and `814-9913`. No word is
//! lost or repeated, times never go back, and two speakers' words stay apart.

pub mod captions;
mod dictation;
mod english;
mod fillers;
mod paragraphs;
mod profanity;
pub mod redact;
mod replace;
mod search;
mod utterances;
mod word;

pub use paragraphs::{Paragraph, Sentence, paragraphs, transcript as paragraphs_text};
pub use replace::Replacement;
pub use search::{Hit, Searcher};
pub use utterances::{SPLIT_SECONDS, utterances};
pub use word::{Gap, Word, bare_text, by_speaker, confidence, gather, text};

/// The client's options. The default leaves the words as they are.
///
/// `smart`, `numerals`, `measurements`, `dictation`, `filler_words` and `profanity_filter` know English;
/// for other languages they do nothing.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Options<'a> {
    /// The model's code of the words' language.
    pub language: &'a str,
    pub filler_words: FillerWords,
    /// Write spoken punctuation as signs.
    pub dictation: bool,
    /// Write numbers, dates, times, money, percentages, telephone numbers, e-mail and web addresses as in print.
    pub smart: bool,
    /// Write every number in digits.
    pub numerals: bool,
    /// Write units after a number as their symbols, and the number in digits.
    pub measurements: bool,
    pub replace: &'a [Replacement],
    pub profanity_filter: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum FillerWords {
    /// As the model wrote them.
    #[default]
    AsHeard,
    /// Without `uh` and `um`.
    Stripped,
    /// Each in the wire format's spelling.
    Spelled,
}

/// Whether the English rules apply to words of `language`.
pub fn is_english(language: &str) -> bool {
    language == "en"
}

/// Formats `words` according to `options`. Each step works on the result of the one before: a replacement finds the
/// text that the client would read without it, and replacements are masked too. The words of each speaker in turn are
/// formatted by themselves, so none is made of two speakers' words.
pub fn format(words: Vec<Word>, options: &Options<'_>) -> Vec<Word> {
    if by_speaker(&words).nth(1).is_none() {
        return format_turn(words, options);
    }
    by_speaker(&words).flat_map(|turn| format_turn(turn.to_vec(), options)).collect()
}

/// As [`format`], for words of one speaker.
fn format_turn(mut words: Vec<Word>, options: &Options<'_>) -> Vec<Word> {
    if is_english(options.language) {
        match options.filler_words {
            FillerWords::AsHeard => {}
            FillerWords::Stripped => words = fillers::strip(words),
            FillerWords::Spelled => fillers::spell(&mut words),
        }
        if options.dictation {
            words = dictation::dictate(words);
        }
        let rules = english::Rules {
            smart: options.smart,
            numerals: options.numerals,
            measurements: options.measurements,
        };
        words = english::rewrite(words, rules);
    }
    if !options.replace.is_empty() {
        words = replace::replace(words, options.replace);
    }
    if options.profanity_filter && is_english(options.language) {
        profanity::mask(&mut words);
    }
    words
}

#[cfg(test)]
mod tests;
