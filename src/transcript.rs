//! Transcripts, segments and words with their times: plain data that every floor shares.
//!
//! All times are seconds (`f64`) from the start of the audio that the value belongs to: a
//! recognition counts from its window's start, a [`Transcript`] from the start
//! of the file or stream.

mod phrases;
pub mod script;

pub use phrases::{mean_log_probability, phrases};

/// One word, with its leading space and adjoining punctuation as the model wrote them.
#[derive(Debug, Clone, PartialEq)]
pub struct Word {
    /// For example `" Hello,"`: concatenating the words of a segment gives its text.
    pub text: String,
    pub start: f64,
    pub end: f64,
    /// How likely the word is to be right, 0 to 1: calibrated, so that of words at 0.8 about 80 % are.
    pub probability: f32,
    /// With diarization.
    pub speaker: Option<Speaker>,
}

/// The speaker of a word.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Speaker {
    /// By first appearance in the channel, from 0.
    pub index: usize,
    /// 0 to 1.
    pub confidence: f32,
}

/// Makes the times of words go forward: alignment of one word at a time, and of windows apart from each other,
/// lets neighbours overlap by a few hundredths of a second.
pub fn in_order<'a>(words: impl IntoIterator<Item = &'a mut Word>) {
    let mut last = 0.0;
    for word in words {
        word.start = word.start.max(last);
        word.end = word.end.max(word.start);
        last = word.end;
    }
}

/// Words that are closer than this, in seconds, may be one.
const TOUCH: f64 = 0.3;

/// `found` without a first or last word that one of `words` which it touches is already.
pub fn without_neighbours<'a>(
    mut found: Vec<Word>,
    words: impl Iterator<Item = &'a Word> + Clone,
) -> Vec<Word> {
    let is_there = |found: &Word| {
        let touches = |word: &Word| word.start < found.end + TOUCH && found.start < word.end + TOUCH;
        words.clone().any(|word| touches(word) && word.is_like(found))
    };
    if found.first().is_some_and(is_there) {
        found.remove(0);
    }
    if found.last().is_some_and(is_there) {
        found.pop();
    }
    found
}

/// The longest time that a word of no letters takes, and the time that each letter and each digit adds, in seconds. A
/// word that lasts longer was aligned over something else.
const LONGEST_WORD: f64 = 0.5;
const LONGEST_LETTER: f64 = 0.12;
const LONGEST_DIGIT: f64 = 0.5;
/// The tolerance of alignment, in seconds.
const TOLERANCE: f64 = 0.15;

impl Word {
    /// The times that the word can account for: all of it, or its ends if it lasts longer than a word can.
    pub fn plausible_times(&self) -> [std::ops::Range<f64>; 2] {
        let length = |c: char| match c {
            _ if c.is_numeric() => LONGEST_DIGIT,
            _ if c.is_alphabetic() => LONGEST_LETTER,
            _ => 0.0,
        };
        let longest = LONGEST_WORD + self.text.chars().map(length).sum::<f64>();
        let (start, end) = (self.start - TOLERANCE, self.end + TOLERANCE);
        [start..end.min(self.start + longest), start.max(self.end - longest)..end]
    }

    /// Whether it is the same word apart from case and punctuation.
    pub fn is_like(&self, other: &Self) -> bool {
        let letters = |word: &Self| -> String {
            word.text.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
        };
        letters(self) == letters(other)
    }
}

/// A stretch of speech that the model closed with timestamps of its own.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Segment {
    pub text: String,
    pub start: f64,
    pub end: f64,
    /// In order of time. Without word times, each word has the times of the segment.
    pub words: Vec<Word>,
    /// Mean log-probability of the tokens of the window this segment was decoded in.
    pub average_log_probability: f32,
    /// Probability that the window holds no speech, 0 to 1.
    pub no_speech_probability: f32,
    /// How well the window's text compresses, with less weight on what was said twice; above 2.4 it repeats itself.
    pub compression_ratio: f32,
    /// Sampling temperature of the attempt that was kept.
    pub temperature: f32,
    /// The attempt was ended because the model went on to say again and again what it had said last.
    pub looped: bool,
    /// The model's tokens, timestamps included. Empty for a model that has none.
    pub tokens: Vec<Token>,
    /// Seconds from the start of the audio to that of the window it was decoded in.
    pub window_start: f64,
}

/// A token of the model's text, or a timestamp.
#[derive(Debug, Clone, PartialEq)]
pub struct Token {
    pub id: u32,
    /// Its part of the text: not always whole characters. Empty for a timestamp.
    pub bytes: Box<[u8]>,
    /// How likely it was among text tokens, 0 to 1.
    pub probability: f32,
}

impl Token {
    /// Natural logarithm of the probability. A probability that was rounded to 0 counts as the least that an `f32` can be.
    pub fn log_probability(&self) -> f32 {
        self.probability.max(f32::MIN_POSITIVE).ln()
    }
}

impl Segment {
    /// Leaves those of its tokens that its text is made of, after some of its words were removed.
    pub fn retain_tokens_of_text(&mut self) {
        let text = self.text.as_bytes();
        let all: Vec<u8> = self.tokens.iter().flat_map(|token| token.bytes.iter().copied()).collect();
        let found =
            if text.is_empty() { None } else { all.windows(text.len()).position(|part| part == text) };
        let range = found.map_or(0..0, |start| start..start + text.len());
        let mut end = 0;
        self.tokens.retain(|token| {
            let start = end;
            end += token.bytes.len();
            start < range.end && range.start < end
        });
    }
}

/// The fewest and the most words that a loop says again and again.
const LOOPED_WORDS: std::ops::RangeInclusive<usize> = 3..=12;
/// Of more words, the last may join one time to the next: `that is how it has to be and that is how it has to be and`.
const JOINED_WORDS: usize = 6;

impl Segment {
    /// Whether the attempt was ended in a loop, or the same words come three times in a row with no sentence ending among
    /// them, as when a model is caught in one:
    /// `the thing we ought to take the thing we ought to take the thing we ought to take`. Of a long phrase the last time
    /// may lack one word. Figures, as of a telephone number that is read out, may come again and again. So may what stands between two spaces where words have none
    /// between them: it is a phrase or a sentence.
    pub fn loops(&self) -> bool {
        loop_in(std::slice::from_ref(self))
    }
}

/// Whether the `segments` of one window loop, each by itself or one into the next: see [`Segment::loops`].
pub fn loop_in(segments: &[Segment]) -> bool {
    let text: String = segments.iter().map(|segment| segment.text.as_str()).collect();
    segments.iter().any(|segment| segment.looped) || repeats_words(&text)
}

/// See [`Segment::loops`].
fn repeats_words(text: &str) -> bool {
    let words: Vec<String> = text.split_whitespace().map(str::to_lowercase).collect();
    let bare = |word: &String| -> String { word.chars().filter(|c| c.is_alphanumeric()).collect() };
    let bare: Vec<String> = words.iter().map(bare).collect();
    let ends = |word: &String| word.ends_with(script::ends_sentence) || word.contains(script::is_unspaced);
    let is_figure = |word: &String| !word.contains(char::is_alphabetic);
    LOOPED_WORDS.into_iter().any(|length| {
        // The last time may lack the word that joined the ones before.
        let joined = usize::from(length > JOINED_WORDS);
        let run = 3 * length - joined;
        (0..(words.len() + 1).saturating_sub(run)).any(|start| {
            let again = &bare[start + length..start + run];
            again.iter().zip(&bare[start..]).all(|(again, first)| again == first)
                && !words[start..start + length].iter().any(ends)
                && !words[start..start + length].iter().all(is_figure)
        })
    })
}

/// The language that was spoken, and how sure the model is of it.
#[derive(Debug, Clone, PartialEq)]
pub struct DetectedLanguage {
    /// ISO 639-1 (or Whisper's own) code, for example `en`, `yue`.
    pub code: String,
    /// 0 to 1; 1 if the caller named the language.
    pub probability: f32,
}

/// A language, and the second from which on it is spoken.
#[derive(Debug, Clone, PartialEq)]
pub struct LanguageChange {
    pub start: f64,
    /// As in [`DetectedLanguage`].
    pub code: String,
}

/// Everything said in one channel of one recording.
#[derive(Debug, Clone, PartialEq)]
pub struct Transcript {
    pub segments: Vec<Segment>,
    /// The language of most of it.
    pub language: DetectedLanguage,
    /// The languages in the order in which they begin. The first holds from the start; where there is none, `language`
    /// is the only one.
    pub languages: Vec<LanguageChange>,
    /// Seconds of audio, speech or not.
    pub duration: f64,
    /// Seconds of voice that gave no words, not even by itself; 0 where windows are sequential.
    pub voice_without_words: f64,
}

impl Transcript {
    /// All words, in order of time.
    pub fn words(&self) -> impl Iterator<Item = &Word> {
        self.segments.iter().flat_map(|segment| &segment.words)
    }

    /// The code of the language that is spoken at `seconds`.
    pub fn language_at(&self, seconds: f64) -> &str {
        let begun = self.languages.partition_point(|change| change.start <= seconds);
        self.languages.get(begun.saturating_sub(1)).map_or(&self.language.code, |change| &change.code)
    }

    /// The whole text, trimmed.
    pub fn text(&self) -> String {
        let text: String = self.segments.iter().map(|s| s.text.as_str()).collect();
        text.trim().to_owned()
    }

    /// Mean of the words' probabilities, 0 without words.
    pub fn confidence(&self) -> f32 {
        let (sum, count) =
            self.words().fold((0.0, 0u32), |(sum, count), word| (sum + word.probability, count + 1));
        if count == 0 { 0.0 } else { sum / count as f32 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_is_told_from_what_was_said_again() {
        let loops = |text: &str| Segment { text: text.into(), ..Segment::default() }.loops();
        assert!(loops(
            " the thing we ought to take the thing we ought to take the thing we ought to take the other"
        ));
        assert!(loops(" I am hurt I am hurt I am hurt I am hurt"));
        let schedule = " what's your country's schedule for you";
        assert!(loops(&format!(" has knocked{schedule} and{schedule} and{schedule}.")));
        assert!(!loops(&format!(" has knocked{schedule} and{schedule} and then")));
        let segment = |text: &str| Segment { text: text.into(), ..Segment::default() };
        let parts = [" And we're going to space,"; 4].map(segment);
        assert!(loop_in(&parts) && !loop_in(&parts[..2]), "over several segments");
        let ended = Segment { text: " ha".into(), looped: true, ..Segment::default() };
        assert!(ended.loops(), "the rest of the loop was not written");
        for said in [
            " No, no, no, no, no, no.",
            " It was very very very very good.",
            " Come here, please. Come here, please. Come here, please.",
            " What joy there is in living. What joy there is in living.",
            " Row, row, row your boat",
            " 5 5 5 5 5 5 5 5 5 5 5",
            " 1 2 3 1 2 3 1 2 3",
            " ขอบคุณ มาก ครับ ขอบคุณ มาก ครับ ขอบคุณ มาก ครับ",
            " मैं यहाँ हूँ। मैं यहाँ हूँ। मैं यहाँ हूँ।",
            "",
        ] {
            assert!(!loops(said), "{said}");
        }
    }
}
