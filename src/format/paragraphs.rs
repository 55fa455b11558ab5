//! Sentences and paragraphs.
//!
//! They are divided as in the responses of the service that the wire format comes from: at punctuation alone, five
//! sentences to a paragraph; pauses do not count. A dictated paragraph begins one too, and so does another speaker.

use super::word::{Gap, Word, speaker_index, text};

const SENTENCES_MAX: usize = 5;

/// Words that a full stop shortens; a capital after them begins no sentence.
const ABBREVIATIONS: [&str; 15] =
    ["mr", "mrs", "ms", "dr", "prof", "st", "jr", "sr", "vs", "gen", "sen", "rep", "capt", "lt", "sgt"];

#[derive(Debug, Clone, PartialEq)]
pub struct Sentence {
    pub text: String,
    pub start: f64,
    pub end: f64,
    /// With diarization.
    pub speaker: Option<usize>,
}

/// Never empty.
#[derive(Debug, Clone, PartialEq)]
pub struct Paragraph {
    pub sentences: Vec<Sentence>,
    /// The number of words in its sentences.
    pub words: usize,
    pub start: f64,
    pub end: f64,
    /// With diarization.
    pub speaker: Option<usize>,
}

/// The paragraphs of `words`, in order; every word is in one.
pub fn paragraphs(words: &[Word]) -> Vec<Paragraph> {
    let mut paragraphs: Vec<Paragraph> = Vec::new();
    for sentence in words.chunk_by(|word, next| !ends_between(word, next)) {
        let [first, .., last] = sentence else {
            if let [only] = sentence {
                add(&mut paragraphs, sentence, only, only);
            }
            continue;
        };
        add(&mut paragraphs, sentence, first, last);
    }
    paragraphs
}

fn add(paragraphs: &mut Vec<Paragraph>, words: &[Word], first: &Word, last: &Word) {
    let speaker = speaker_index(first);
    let sentence = Sentence { text: text(words), start: first.start, end: last.end, speaker };
    match paragraphs.last_mut() {
        Some(open) if open.takes(first) => {
            open.sentences.push(sentence);
            open.words += words.len();
            open.end = last.end;
        }
        _ => paragraphs.push(Paragraph {
            sentences: vec![sentence],
            words: words.len(),
            start: first.start,
            end: last.end,
            speaker,
        }),
    }
}

impl Paragraph {
    /// Whether a sentence that begins with `first` may belong to it.
    fn takes(&self, first: &Word) -> bool {
        self.sentences.len() < SENTENCES_MAX
            && first.gap != Gap::Paragraph
            && self.speaker == speaker_index(first)
    }
}

/// The text of `paragraphs` in the wire format's form: a line break, then the paragraphs with an
/// empty line between them, each behind its speaker if that is known. Empty if there are none.
pub fn transcript(paragraphs: &[Paragraph]) -> String {
    let mut transcript = String::new();
    for paragraph in paragraphs {
        transcript.push_str(if transcript.is_empty() { "\n" } else { "\n\n" });
        if let Some(speaker) = paragraph.speaker {
            transcript.push_str(&format!("Speaker {speaker}: "));
        }
        for (index, sentence) in paragraph.sentences.iter().enumerate() {
            if index > 0 {
                transcript.push(' ');
            }
            transcript.push_str(&sentence.text);
        }
    }
    transcript
}

/// Whether a sentence ends after `word` and another begins with `next`.
fn ends_between(word: &Word, next: &Word) -> bool {
    if next.gap == Gap::Paragraph || speaker_index(word) != speaker_index(next) {
        return true;
    }
    if !word.is_stop() {
        return false;
    }
    let (_, core, close) = word.parts();
    let (_, next, _) = next.parts();
    // `e.g. this`, `at 5 p.m. sharp`: nothing begins in lower case.
    if next.starts_with(char::is_lowercase) {
        return false;
    }
    let shortened = ABBREVIATIONS.iter().any(|known| core.eq_ignore_ascii_case(known));
    // `J. K. Rowling`; but `so do I. We`.
    let initial = core.chars().count() == 1 && core.starts_with(char::is_uppercase) && core != "I";
    !(close == "." && (shortened || initial))
}
