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

mod atoms;
mod cues;
mod layout;
mod phrases;

use std::fmt::Write;

use self::cues::{Cue, cues};
use crate::transcript::Transcript;

/// One line for each segment.
pub fn text(transcript: &Transcript) -> String {
    transcript.segments.iter().map(|segment| format!("{}\n", segment.text.trim())).collect()
}

/// SubRip.
pub fn srt(transcript: &Transcript) -> String {
    let mut output = String::new();
    for (index, cue) in cues(transcript).iter().enumerate() {
        let Cue { start_ms, end_ms, lines } = cue;
        let (start, end) = (timestamp(*start_ms, ','), timestamp(*end_ms, ','));
        // A `-->` in the text would be read as times.
        let lines = lines.join("\n").replace("-->", "->");
        // Writing to a String cannot fail.
        let _ = write!(output, "{}\n{start} --> {end}\n{lines}\n\n", index + 1);
    }
    output
}

/// WebVTT (W3C), with text escaped as its §4.2.2 asks.
pub fn vtt(transcript: &Transcript) -> String {
    let mut output = String::from("WEBVTT\n\n");
    for cue in cues(transcript) {
        let (start, end) = (timestamp(cue.start_ms, '.'), timestamp(cue.end_ms, '.'));
        let lines = cue.lines.join("\n").replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        let _ = write!(output, "{start} --> {end}\n{lines}\n\n");
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
