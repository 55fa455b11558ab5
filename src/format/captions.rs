//! Transcripts as plain text, SRT and WebVTT.
//!
//! Captions follow the practice of subtitling: Netflix, *Timed Text Style Guide: General Requirements* and
//! *Subtitle Timing Guidelines* (N), and the BBC's *Subtitle Guidelines* (B).
//!
//! | what           | limit                                                        | from    |
//! |----------------|--------------------------------------------------------------|---------|
//! | lines          | two, of 42 columns; a full-width character takes two columns | N §4    |
//! | duration       | at least 5/6 s, 1 s where there is room; at most 7 s         | N §1    |
//! | gap            | at least 83 ms, two frames of 24 a second; none under 0.5 s  | N       |
//! | reading speed  | 20 columns a second where the audio leaves room for it       | N (en)  |
//! | early and late | up to 0.5 s before the speech, 1.5 s after it                | B       |
//! | breaks         | after sentences, at pauses, after punctuation, even lines    | N, B    |
//!
//! No words are left out, so captions of fast speech may exceed the reading speed.
//!
//! With diarization, each caption has one speaker, named as the hosted API's own caption helpers do
//! (deepgram-python-captions): WebVTT has a voice span in each cue, SubRip a line of its own where the speaker changes.

mod atoms;
mod cues;
mod layout;
mod phrases;

use std::fmt::Write;

use self::cues::{Cue, cues};
use crate::transcript::{Transcript, Word};

/// One line for each segment; with diarization, for each turn: `[00:00:01 speaker 0] Hello.`
pub fn text(transcript: &Transcript) -> String {
    if transcript.words().any(|word| word.speaker.is_some()) {
        return turns(transcript);
    }
    transcript.segments.iter().map(|segment| format!("{}\n", segment.text.trim())).collect()
}

/// A line for the words that one speaker says in a row, with the hours, minutes and seconds of the first.
fn turns(transcript: &Transcript) -> String {
    let speaker = |word: &Word| word.speaker.map(|speaker| speaker.index);
    let words: Vec<&Word> = transcript.words().collect();
    let mut output = String::new();
    for turn in words.chunk_by(|word, next| speaker(word) == speaker(next)) {
        let Some(first) = turn.first() else { continue };
        let text: String = turn.iter().map(|word| word.text.as_str()).collect();
        let seconds = first.start.max(0.0) as u64;
        let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        let speaker = speaker(first).map(|speaker| format!(" speaker {speaker}")).unwrap_or_default();
        // Writing to a String cannot fail.
        let _ = writeln!(output, "[{hours:02}:{minutes:02}:{seconds:02}{speaker}] {}", text.trim());
    }
    output
}

/// SubRip.
pub fn srt(transcript: &Transcript) -> String {
    let mut output = String::new();
    let mut speaking = None;
    for (index, cue) in cues(transcript).iter().enumerate() {
        let Cue { start_ms, end_ms, lines, speaker } = cue;
        let (start, end) = (timestamp(*start_ms, ','), timestamp(*end_ms, ','));
        // A `-->` in the text would be read as times.
        let lines = lines.join("\n").replace("-->", "->");
        let name = match speaker.filter(|_| *speaker != speaking) {
            Some(speaker) => format!("[speaker {speaker}]\n"),
            None => String::new(),
        };
        speaking = *speaker;
        let _ = write!(output, "{}\n{start} --> {end}\n{name}{lines}\n\n", index + 1);
    }
    output
}

/// WebVTT (W3C), with text escaped as its §4.2.2 asks, and speakers as voice spans.
pub fn vtt(transcript: &Transcript) -> String {
    let mut output = String::from("WEBVTT\n\n");
    for cue in cues(transcript) {
        let (start, end) = (timestamp(cue.start_ms, '.'), timestamp(cue.end_ms, '.'));
        let lines = cue.lines.join("\n").replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        let voice = cue.speaker.map(|speaker| format!("<v Speaker {speaker}>")).unwrap_or_default();
        let _ = write!(output, "{start} --> {end}\n{voice}{lines}\n\n");
    }
    output
}

/// Hours, minutes, seconds and milliseconds.
fn timestamp(milliseconds: u64, separator: char) -> String {
    let (whole, milliseconds) = (milliseconds / 1000, milliseconds % 1000);
    let (hours, minutes, seconds) = (whole / 3600, whole / 60 % 60, whole % 60);
    format!("{hours:02}:{minutes:02}:{seconds:02}{separator}{milliseconds:03}")
}

#[cfg(test)]
mod tests;
