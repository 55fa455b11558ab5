//! The voice in a window that no word accounts for, and the words of a second listening put where they belong. Pure.

use std::ops::Range;

use super::window_plan::Piece;
use crate::audio::SAMPLE_RATE;
use crate::transcript::{Segment, Word};
use crate::vad::{FRAME_SAMPLES, SURE_SPEECH};

/// The least voice without words that is listened to again: 0.6 s, a short word.
const LEAST_VOICED_FRAMES: usize = 19;
/// A longer silence divides two stretches: 1 s. Shorter ones stay, as context.
const DIVIDING_FRAMES: usize = 31;
/// The context kept on each side of a stretch, if there is no voice in it: 0.4 s.
const CONTEXT_FRAMES: usize = 12;
/// Alignment may be off by so much, in seconds: voice this close to a word belongs to it.
const TOLERANCE: f64 = 0.15;
/// The longest time that a word of no letters takes, and what each letter adds to it, in seconds. A word that lasts longer
/// was aligned over something else.
const LONGEST_WORD: (f64, f64) = (0.5, 0.12);

/// Seconds of voice in `pieces` that none of `words` accounts for.
pub fn seconds_without_words<'a>(
    pieces: impl IntoIterator<Item = &'a Piece>,
    probabilities: &[f32],
    words: &[Word],
) -> f64 {
    let frames = stretches(pieces, probabilities, words).iter().map(|stretch| stretch.voiced).sum::<usize>();
    (frames * FRAME_SAMPLES) as f64 / f64::from(SAMPLE_RATE)
}

/// Stretches of voice in `pieces` that none of `words` accounts for, in samples of the file.
pub fn without_words(pieces: &[Piece], probabilities: &[f32], words: &[Word]) -> Vec<Range<usize>> {
    stretches(pieces, probabilities, words).into_iter().map(|stretch| stretch.samples).collect()
}

struct Stretch {
    samples: Range<usize>,
    /// Frames of voice.
    voiced: usize,
}

fn stretches<'a>(
    pieces: impl IntoIterator<Item = &'a Piece>,
    probabilities: &[f32],
    words: &[Word],
) -> Vec<Stretch> {
    let accounted: Vec<Range<f64>> = words.iter().flat_map(plausible).collect();
    let of_piece = |piece: &Piece| voice_in(piece, probabilities, &accounted);
    pieces.into_iter().flat_map(of_piece).collect()
}

/// Stretches of voice in `piece` that lie outside of the `accounted` seconds.
fn voice_in(piece: &Piece, probabilities: &[f32], accounted: &[Range<f64>]) -> Vec<Stretch> {
    let first = piece.file.start.div_ceil(FRAME_SAMPLES);
    let frames = first..(piece.file.end / FRAME_SAMPLES).min(probabilities.len()).max(first);
    let is_voiced = |frame: usize| probabilities[frame] >= SURE_SPEECH;
    let seconds = |frame: usize| (frame * FRAME_SAMPLES) as f64 / f64::from(SAMPLE_RATE);
    let meets = |word: &&Range<f64>, frames: Range<usize>| {
        word.start < seconds(frames.end) && seconds(frames.start) < word.end
    };
    let near: Vec<&Range<f64>> = accounted.iter().filter(|word| meets(word, frames.clone())).collect();
    let is_spoken = |frame: usize| near.iter().any(|word| meets(word, frame..frame + 1));
    // Frames from the first voice to the last, and the number of those with voice.
    let mut found: Vec<(Range<usize>, usize)> = Vec::new();
    let mut is_open = false;
    for frame in frames.clone() {
        if is_spoken(frame) {
            is_open = false;
        } else if is_voiced(frame) {
            match found.last_mut() {
                Some((last, voiced)) if is_open && frame - last.end < DIVIDING_FRAMES => {
                    last.end = frame + 1;
                    *voiced += 1;
                }
                _ => found.push((frame..frame + 1, 1)),
            }
            is_open = true;
        }
    }
    let is_silent = |frame: &usize| !is_voiced(*frame);
    let long = found.into_iter().filter(|(_, voiced)| *voiced >= LEAST_VOICED_FRAMES);
    let with_context = long.map(|(stretch, voiced)| {
        let before = (frames.start..stretch.start).rev().take(CONTEXT_FRAMES).take_while(is_silent).count();
        let after = (stretch.end..frames.end).take(CONTEXT_FRAMES).take_while(is_silent).count();
        let samples = (stretch.start - before) * FRAME_SAMPLES..(stretch.end + after) * FRAME_SAMPLES;
        Stretch { samples, voiced }
    });
    with_context.collect()
}

/// The times that `word` may account for: all of it, or its ends if it lasts too long to be one word.
fn plausible(word: &Word) -> [Range<f64>; 2] {
    let (least, letter) = LONGEST_WORD;
    let longest = least + letter * word.text.chars().filter(|c| c.is_alphanumeric()).count() as f64;
    let (start, end) = (word.start - TOLERANCE, word.end + TOLERANCE);
    [start..end.min(word.start + longest), start.max(word.end - longest)..end]
}

/// Those words of `segments` that lie in `stretch` (samples of the file), as segments.
pub fn within(segments: Vec<Segment>, stretch: &Range<usize>) -> Vec<Segment> {
    let seconds = |sample: usize| sample as f64 / f64::from(SAMPLE_RATE);
    let range = seconds(stretch.start)..seconds(stretch.end);
    let inside = |word: &Word| range.contains(&word.start.midpoint(word.end));
    segments
        .into_iter()
        .filter_map(|mut segment| {
            segment.words.retain(inside);
            of_words(segment)
        })
        .collect()
}

/// Puts `found` between the `segments`, in the order of their words' times.
pub fn put(segments: &mut Vec<Segment>, found: Vec<Segment>) {
    for segment in found {
        let Some(start) = segment.words.first().map(|word| word.start) else { continue };
        let mut at = segments.partition_point(|other| ends_before(other, start));
        if let Some(host) = segments.get_mut(at) {
            let split = host.words.partition_point(|word| word.start.midpoint(word.end) <= start);
            if split > 0 {
                let mut rest = Segment { words: host.words.split_off(split), ..host.clone() };
                rest.start = rest.words.first().map_or(rest.start, |word| word.start);
                let rest = of_words(rest);
                host.end = host.words.last().map_or(host.end, |word| word.end);
                host.text = host.words.iter().map(|word| word.text.as_str()).collect();
                segments.splice(at + 1..at + 1, rest);
                at += 1;
            }
        }
        segments.insert(at, segment);
    }
}

fn ends_before(segment: &Segment, seconds: f64) -> bool {
    segment.words.last().map_or(segment.end, |word| word.start.midpoint(word.end)) <= seconds
}

/// `segment` with the text and the times of its words; `None` without words.
fn of_words(mut segment: Segment) -> Option<Segment> {
    let (first, last) = (segment.words.first()?, segment.words.last()?);
    (segment.start, segment.end) = (first.start, last.end);
    segment.text = segment.words.iter().map(|word| word.text.as_str()).collect();
    Some(segment)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(text: &str, start: f64, end: f64) -> Word {
        Word { text: text.into(), start, end, probability: 0.9 }
    }

    fn segment(words: Vec<Word>) -> Segment {
        of_words(Segment { words, ..Segment::default() }).expect("it has words")
    }

    /// Probabilities of speech in frames, with voice in `voiced` seconds.
    fn probabilities(seconds: f64, voiced: &[Range<f64>]) -> Vec<f32> {
        let frame = FRAME_SAMPLES as f64 / f64::from(SAMPLE_RATE);
        let is_voiced = |at: f64| voiced.iter().any(|range| range.contains(&at));
        (0..(seconds / frame) as usize)
            .map(|index| if is_voiced((index as f64 + 0.5) * frame) { 0.9 } else { 0.1 })
            .collect()
    }

    fn found(voiced: &[Range<f64>], words: &[Word]) -> Vec<(f64, f64)> {
        let pieces = [Piece { window_start: 0, file: 0..20 * SAMPLE_RATE as usize }];
        let seconds = |sample: usize| (sample as f64 / f64::from(SAMPLE_RATE) * 10.0).round() / 10.0;
        without_words(&pieces, &probabilities(20.0, voiced), words)
            .into_iter()
            .map(|stretch| (seconds(stretch.start), seconds(stretch.end)))
            .collect()
    }

    #[test]
    fn voice_with_words_is_accounted_for() {
        let words = [word(" Hello", 1.0, 1.6), word(" there.", 1.6, 2.2)];
        assert_eq!(found(&[1.0..2.3], &words), []);
        assert_eq!(found(&[1.0..2.3, 5.0..5.4], &words), [], "a click");
    }

    #[test]
    fn voice_without_words_is_found_with_the_silence_around_it() {
        let words = [word(" Hello", 1.0, 1.6), word(" there.", 12.0, 12.6)];
        assert_eq!(found(&[1.0..1.6, 5.0..7.0, 7.5..9.0, 12.0..12.6], &words), [(4.6, 9.4)]);
        assert_eq!(found(&[1.0..1.6, 3.0..4.0, 8.0..9.0, 12.0..12.6], &words).len(), 2);
    }

    #[test]
    fn a_word_accounts_for_no_more_than_a_word_can_last() {
        let words = [word(" Hello", 1.0, 11.0)];
        let stretches = found(&[1.0..11.0], &words);
        assert_eq!(stretches.len(), 1);
        assert!(stretches[0].0 < 3.0 && stretches[0].1 > 9.0, "{stretches:?}");
    }

    #[test]
    fn what_a_second_listening_found_goes_between_the_words_around_it() {
        let mut segments = vec![
            segment(vec![word(" a", 0.0, 1.0), word(" d", 8.0, 9.0)]),
            segment(vec![word(" e", 9.0, 10.0)]),
        ];
        let heard = segment(vec![
            word(" x", 1.9, 2.1),
            word(" b", 3.0, 4.0),
            word(" c", 5.0, 6.0),
            word(" y", 7.9, 8.3),
        ]);
        let second = 16_000;
        let heard = within(vec![heard], &(2 * second + 8000..7 * second));
        put(&mut segments, heard);
        put(&mut segments, vec![segment(vec![word(" f", 12.0, 13.0)])]);
        let texts: Vec<&str> = segments.iter().map(|segment| segment.text.as_str()).collect();
        assert_eq!(texts, [" a", " b c", " d", " e", " f"]);
        let starts: Vec<f64> = segments.iter().map(|segment| segment.start).collect();
        assert_eq!(starts, [0.0, 3.0, 8.0, 9.0, 12.0]);
    }
}
