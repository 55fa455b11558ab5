//! The voice in a window that no word accounts for, and the words of a second listening put where they belong. Pure.

use std::ops::Range;

use super::window_plan::Piece;
use crate::audio::SAMPLE_RATE;
use crate::transcript::{Segment, Word, without_neighbours};
use crate::vad::{FRAME_SAMPLES, unaccounted};

/// Seconds of voice in `pieces` that none of `words` accounts for.
pub fn seconds_without_words(pieces: &[Piece], probabilities: &[f32], words: &[Word]) -> f64 {
    let accounted = accounted(words);
    let stretches = pieces.iter().flat_map(|piece| unaccounted(probabilities, frames(piece), &accounted));
    let voiced: usize = stretches.map(|stretch| stretch.voiced).sum();
    (voiced * FRAME_SAMPLES) as f64 / f64::from(SAMPLE_RATE)
}

/// Stretches of voice in `pieces` that none of `words` accounts for, in samples of the file.
pub fn without_words(pieces: &[Piece], probabilities: &[f32], words: &[Word]) -> Vec<Range<usize>> {
    let accounted = accounted(words);
    let stretches = pieces.iter().flat_map(|piece| unaccounted(probabilities, frames(piece), &accounted));
    stretches
        .map(|stretch| stretch.frames.start * FRAME_SAMPLES..stretch.frames.end * FRAME_SAMPLES)
        .collect()
}

fn accounted(words: &[Word]) -> Vec<Range<f64>> {
    words.iter().flat_map(Word::plausible_times).collect()
}

/// Whole frames of `piece`.
fn frames(piece: &Piece) -> Range<usize> {
    piece.file.start.div_ceil(FRAME_SAMPLES)..piece.file.end / FRAME_SAMPLES
}

/// Those words of `segments` that lie in `stretch` (samples of the file), as segments.
pub fn within(segments: Vec<Segment>, stretch: &Range<usize>) -> Vec<Segment> {
    segments
        .into_iter()
        .filter_map(|mut segment| {
            segment.words.retain(|word| lies_in(word, stretch));
            of_words(segment)
        })
        .collect()
}

/// Removes the words of `segments` that lie in `stretch` (samples of the file).
pub fn remove(segments: &mut Vec<Segment>, stretch: &Range<usize>) {
    let without = |mut segment: Segment| {
        let before = segment.words.len();
        segment.words.retain(|word| !lies_in(word, stretch));
        if segment.words.len() == before { Some(segment) } else { of_words(segment) }
    };
    *segments = std::mem::take(segments).into_iter().filter_map(without).collect();
}

fn lies_in(word: &Word, stretch: &Range<usize>) -> bool {
    let seconds = |sample: usize| sample as f64 / f64::from(SAMPLE_RATE);
    (seconds(stretch.start)..seconds(stretch.end)).contains(&word.start.midpoint(word.end))
}

/// Puts `found` between the `segments`, in the order of their words' times, without a first or last word that the neighbour
/// it touches has already.
pub fn put(segments: &mut Vec<Segment>, found: Vec<Segment>) {
    for mut segment in found {
        let words = segments.iter().flat_map(|segment| &segment.words);
        segment.words = without_neighbours(segment.words, words);
        let Some(segment) = of_words(segment) else { continue };
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
                host.retain_tokens_of_text();
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
    segment.retain_tokens_of_text();
    Some(segment)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: usize = SAMPLE_RATE as usize;

    fn word(text: &str, start: f64, end: f64) -> Word {
        Word { text: text.into(), start, end, probability: 0.9, speaker: None }
    }

    fn segment(words: Vec<Word>) -> Segment {
        of_words(Segment { words, ..Segment::default() }).expect("it has words")
    }

    #[test]
    fn a_word_accounts_for_no_more_than_a_word_can_last() {
        let pieces = [Piece { window_start: 0, file: 0..20 * SECOND }];
        let probabilities = vec![0.9; 20 * SECOND / FRAME_SAMPLES];
        let words = [word(" Hello", 0.0, 20.0)];
        let stretches = without_words(&pieces, &probabilities, &words);
        assert_eq!(stretches.len(), 1);
        assert!(stretches[0].start < 3 * SECOND && stretches[0].end > 17 * SECOND, "{stretches:?}");
        let seconds = seconds_without_words(&pieces, &probabilities, &words);
        assert!((15.0..19.0).contains(&seconds), "{seconds}");
        let words: Vec<Word> =
            (0..40).map(|n| word(" word", f64::from(n) / 2.0, f64::from(n + 1) / 2.0)).collect();
        assert!(without_words(&pieces, &probabilities, &words).is_empty());
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
        let heard = within(vec![heard], &(2 * SECOND + 8000..7 * SECOND));
        put(&mut segments, heard);
        put(&mut segments, vec![segment(vec![word(" f", 12.0, 13.0)])]);
        let texts: Vec<&str> = segments.iter().map(|segment| segment.text.as_str()).collect();
        assert_eq!(texts, [" a", " b c", " d", " e", " f"]);
        let starts: Vec<f64> = segments.iter().map(|segment| segment.start).collect();
        assert_eq!(starts, [0.0, 3.0, 8.0, 9.0, 12.0]);
    }
}
