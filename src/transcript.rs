//! Transcripts, segments and words with their times: plain data that every floor shares.
//!
//! All times are seconds (`f64`) from the start of the audio that the value belongs to: a
//! recognition counts from its window's start, a [`Transcript`] from the start
//! of the file or stream.

pub mod script;

/// One word, with its leading space and adjoining punctuation as the model wrote them.
#[derive(Debug, Clone, PartialEq)]
pub struct Word {
    /// For example `" Hello,"`: concatenating the words of a segment gives its text.
    pub text: String,
    pub start: f64,
    pub end: f64,
    /// Mean probability of the word's tokens, 0 to 1.
    pub probability: f32,
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

impl Word {
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
    /// Bytes over bytes of the zlib form, of the half of the window's text that compresses better; above 2.4 it repeats
    /// itself.
    pub compression_ratio: f32,
    /// Sampling temperature of the attempt that was kept.
    pub temperature: f32,
}

/// The language that was spoken, and how sure the model is of it.
#[derive(Debug, Clone, PartialEq)]
pub struct DetectedLanguage {
    /// ISO 639-1 (or Whisper's own) code, for example `en`, `yue`.
    pub code: String,
    /// 0 to 1; 1 if the caller named the language.
    pub probability: f32,
}

/// Everything said in one channel of one recording.
#[derive(Debug, Clone, PartialEq)]
pub struct Transcript {
    pub segments: Vec<Segment>,
    pub language: DetectedLanguage,
    /// Seconds of audio, speech or not.
    pub duration: f64,
    /// Seconds of voice that was listened to twice and gave no words.
    pub voice_without_words: f64,
}

impl Transcript {
    /// All words, in order of time.
    pub fn words(&self) -> impl Iterator<Item = &Word> {
        self.segments.iter().flat_map(|segment| &segment.words)
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
