//! Plain text, SRT and WebVTT.
//!
//! Captions follow the practice of subtitling (BBC Subtitle Guidelines, Netflix Timed Text Style
//! Guide): at most two lines of 42 characters, at most seven seconds.

use std::fmt::Write;

use crate::transcript::{Segment, Transcript};

const LINE_CHARACTERS: usize = 42;
const LINES: usize = 2;
const MAX_SECONDS: f64 = 7.0;

/// One caption. Never empty; captions do not overlap.
struct Caption {
    start: f64,
    end: f64,
    lines: Vec<String>,
}

/// One line for each segment.
pub fn text(transcript: &Transcript) -> String {
    transcript.segments.iter().map(|segment| format!("{}\n", segment.text.trim())).collect()
}

/// SubRip.
pub fn srt(transcript: &Transcript) -> String {
    let mut output = String::new();
    for (index, caption) in captions(transcript).iter().enumerate() {
        let (start, end) = (timestamp(caption.start, ','), timestamp(caption.end, ','));
        // A `-->` in the text would be read as times.
        let lines = caption.lines.join("\n").replace("-->", "->");
        // Writing to a String cannot fail.
        let _ = write!(output, "{}\n{start} --> {end}\n{lines}\n\n", index + 1);
    }
    output
}

/// WebVTT (W3C), with text escaped as its §4.2.2 asks.
pub fn vtt(transcript: &Transcript) -> String {
    let mut output = String::from("WEBVTT\n\n");
    for caption in captions(transcript) {
        let (start, end) = (timestamp(caption.start, '.'), timestamp(caption.end, '.'));
        let lines = caption.lines.join("\n").replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        let _ = write!(output, "{start} --> {end}\n{lines}\n\n");
    }
    output
}

/// Hours, minutes, seconds and milliseconds.
fn timestamp(seconds: f64, separator: char) -> String {
    let milliseconds = (seconds.max(0.0) * 1000.0).round() as u64;
    let (whole, milliseconds) = (milliseconds / 1000, milliseconds % 1000);
    let (hours, minutes, seconds) = (whole / 3600, whole / 60 % 60, whole % 60);
    format!("{hours:02}:{minutes:02}:{seconds:02}{separator}{milliseconds:03}")
}

fn captions(transcript: &Transcript) -> Vec<Caption> {
    let mut captions: Vec<Caption> = Vec::new();
    for segment in &transcript.segments {
        for (mut start, mut end, lines) in split(segment) {
            if let Some(last) = captions.last_mut() {
                start = start.max(last.end);
            }
            end = end.max(start);
            captions.push(Caption { start, end, lines });
        }
    }
    captions
}

/// A segment's words in captions that are short enough, with their times.
fn split(segment: &Segment) -> Vec<(f64, f64, Vec<String>)> {
    let mut captions: Vec<(f64, f64, Vec<String>)> = Vec::new();
    for (text, start, end) in timed_words(segment) {
        let spaced = text.starts_with(char::is_whitespace);
        let word = text.trim();
        if word.is_empty() {
            continue;
        }
        if let Some((first, last, lines)) = captions.last_mut()
            && end - *first <= MAX_SECONDS
        {
            let line = lines.last().map_or(0, |line| line.chars().count());
            let fits = line + usize::from(spaced) + word.chars().count() <= LINE_CHARACTERS;
            if fits || lines.len() < LINES {
                *last = end;
                match lines.last_mut() {
                    Some(line) if fits => {
                        if spaced {
                            line.push(' ');
                        }
                        line.push_str(word);
                    }
                    _ => lines.push(word.to_owned()),
                }
                continue;
            }
        }
        captions.push((start, end, vec![word.to_owned()]));
    }
    captions
}

/// Words with their times; where words were not aligned, the segment's time is shared out by length.
fn timed_words(segment: &Segment) -> Vec<(String, f64, f64)> {
    let aligned = segment.words.iter().any(|word| word.start != segment.start || word.end != segment.end);
    if aligned {
        return segment.words.iter().map(|word| (word.text.clone(), word.start, word.end)).collect();
    }
    let total = segment.text.chars().count().max(1) as f64;
    let seconds = (segment.end - segment.start).max(0.0) / total;
    let mut at = segment.start;
    let pieces = segment.text.split_inclusive(char::is_whitespace).map(|piece| {
        let start = at;
        at += piece.chars().count() as f64 * seconds;
        (format!(" {piece}"), start, at)
    });
    pieces.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transcript::{DetectedLanguage, Word};
    use proptest::prelude::*;

    fn transcript(words: Vec<Word>) -> Transcript {
        let segment = Segment {
            text: words.iter().map(|word| word.text.as_str()).collect(),
            start: words.first().map_or(0.0, |word| word.start),
            end: words.last().map_or(0.0, |word| word.end),
            words,
            ..Segment::default()
        };
        let language = DetectedLanguage { code: "en".into(), probability: 1.0 };
        Transcript { segments: vec![segment], language, duration: 1.0 }
    }

    #[test]
    fn captions_have_their_forms() {
        let word = |text: &str, start, end| Word { text: text.into(), start, end, probability: 1.0 };
        let transcript = transcript(vec![word(" Fish", 3599.9, 3600.2), word(" & <chips>", 3600.2, 3601.0)]);
        assert_eq!(srt(&transcript), "1\n00:59:59,900 --> 01:00:01,000\nFish & <chips>\n\n");
        assert_eq!(vtt(&transcript), "WEBVTT\n\n00:59:59.900 --> 01:00:01.000\nFish &amp; &lt;chips&gt;\n\n");
        assert_eq!(text(&transcript), "Fish & <chips>\n");
    }

    proptest! {
        #[test]
        fn no_word_is_lost_and_time_only_goes_forward(
            words in prop::collection::vec(("[a-z]{1,12}", 0.0f64..2.0), 1..80)
        ) {
            let mut at = 0.0;
            let words: Vec<Word> = words
                .into_iter()
                .map(|(text, seconds)| {
                    let start = at;
                    at += seconds;
                    Word { text: format!(" {text}"), start, end: at, probability: 1.0 }
                })
                .collect();
            let transcript = transcript(words.clone());
            let captions = captions(&transcript);
            let said: Vec<&str> = captions.iter().flat_map(|c| &c.lines).flat_map(|l| l.split(' ')).collect();
            let expected: Vec<&str> = words.iter().map(|word| word.text.trim()).collect();
            prop_assert_eq!(said, expected);
            for caption in &captions {
                prop_assert!(caption.lines.len() <= LINES && caption.start <= caption.end);
                prop_assert!(caption.lines.iter().all(|line| line.chars().count() <= LINE_CHARACTERS));
            }
            prop_assert!(captions.windows(2).all(|pair| pair[0].end <= pair[1].start));
        }
    }
}
