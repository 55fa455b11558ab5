//! Where words beside silence begin and end. Pure.
//!
//! Alignment places a boundary between two words well, but beside a pause it gives the silence to one of them, or the
//! last sound of a word to the punctuation after it: on made speech, words then began 100 ms early or ended 100 to 250
//! ms early. The level of the sound tells where the silence is, to 10 ms (`benches/word_boundaries.py`).

use std::ops::Range;

use crate::audio::{SAMPLE_RATE, Sound};

/// Samples of a level: 10 ms.
pub const LEVEL_SAMPLES: usize = SAMPLE_RATE as usize / 100;
const PER_SECOND: f64 = 100.0;

/// A shorter silence belongs to speech: the closure of a stop.
const SILENCE_LEVELS_MIN: usize = 10;
/// Silence is so many decibels below speech, or nearly as quiet as the quietest moments around it, and always well below
/// speech: where music goes on there is none.
const BELOW_SPEECH: f32 = 35.0;
const ABOVE_FLOOR: f32 = 4.0;
const CLEARLY_BELOW_SPEECH: f32 = 12.0;
/// No room is as quiet as this, in decibels below full scale.
const DIGITAL_SILENCE: f32 = -90.0;
/// Levels on each side that tell how loud speech and the quietest moments are: 1 s.
const AROUND_LEVELS: usize = 100;

/// How far an end may move.
const END_EARLIER_SECONDS: f64 = 0.15;
const END_LATER_SECONDS: f64 = 0.4;
/// How much earlier a start may move, and how long after it the silence may begin that moves it later. The start of a
/// word that alignment stretched over a pause lies just before the pause, and moves over all of it.
const START_EARLIER_SECONDS: f64 = 0.25;
const SILENCE_AFTER_START_SECONDS: f64 = 0.3;
/// The shortest a word may become, unless it was shorter before.
const WORD_SECONDS_MIN: f64 = 0.04;

/// The level of each 10 ms of `sound` in decibels below full scale.
pub fn levels(sound: &Sound) -> Vec<f32> {
    sound.pieces(LEVEL_SAMPLES * 1000).flat_map(|piece| levels_of(piece.samples())).collect()
}

/// As [`levels`], of `samples`. What is left over at the end has none.
pub fn levels_of(samples: &[f32]) -> Vec<f32> {
    let level = |samples: &[f32; LEVEL_SAMPLES]| {
        let sum: f32 = samples.iter().map(|sample| sample * sample).sum();
        10.0 * (sum / LEVEL_SAMPLES as f32 + 1e-10).log10()
    };
    samples.as_chunks().0.iter().map(level).collect()
}

/// The `words`' times, in order, with those beside silence at its edges. Others stay. `levels`: from second 0 on.
pub fn beside_silence(levels: &[f32], words: &[Range<f64>]) -> Vec<Range<f64>> {
    let mut placed = words.to_vec();
    for next in 0..=words.len() {
        let before = next.checked_sub(1).and_then(|index| words.get(index));
        let after = words.get(next);
        let (end, start) = edges(levels, before, after);
        if end <= start {
            if before.is_some() {
                placed[next - 1].end = end;
            }
            if after.is_some() {
                placed[next].start = start;
            }
        }
    }
    for (placed, word) in placed.iter_mut().zip(words) {
        if placed.end - placed.start < WORD_SECONDS_MIN.min(word.end - word.start) {
            *placed = word.clone();
        }
    }
    // A word that was given back its times may meet its neighbour's new ones.
    for index in 1..placed.len() {
        let latest = placed[index].start.max(placed[index - 1].start);
        placed[index - 1].end = placed[index - 1].end.min(latest);
    }
    placed
}

/// The end of the word `before` and the start of the word `after`.
fn edges(levels: &[f32], before: Option<&Range<f64>>, after: Option<&Range<f64>>) -> (f64, f64) {
    let end = before.map_or(f64::NEG_INFINITY, |word| word.end);
    let start = after.map_or(f64::INFINITY, |word| word.start);
    // A word keeps some of its sound on each side.
    let first = before
        .map_or(f64::NEG_INFINITY, |word| (end - END_EARLIER_SECONDS).max(word.start + WORD_SECONDS_MIN));
    let last = after.map_or(f64::INFINITY, |word| word.end - WORD_SECONDS_MIN);
    let silence = SILENCE_LEVELS_MIN as f64 / PER_SECOND;
    // Silence that began before `first`, or goes on after `last`, has no edge here.
    let new_end = before.and_then(|_| {
        let latest = (end + END_LATER_SECONDS).min(start + SILENCE_AFTER_START_SECONDS);
        let found = silences(levels, first..(latest + silence).min(last));
        found.into_iter().map(|silence| silence.start).find(|&at| first < at && at <= latest)
    });
    let new_start = after.and_then(|_| {
        let earliest = start - START_EARLIER_SECONDS;
        let found = silences(levels, (earliest - silence).max(first)..last);
        let moves = |silence: &Range<f64>| {
            silence.start <= start + SILENCE_AFTER_START_SECONDS
                && silence.end >= earliest
                && silence.end < last
        };
        found.into_iter().rev().find(moves).map(|silence| silence.end)
    });
    (new_end.unwrap_or(end), new_start.unwrap_or(start))
}

/// The silences in `seconds`, cut to them.
fn silences(levels: &[f32], seconds: Range<f64>) -> Vec<Range<f64>> {
    let start = (seconds.start * PER_SECOND).max(0.0) as usize;
    let end = ((seconds.end * PER_SECOND).ceil().max(0.0) as usize).min(levels.len());
    let mut around = levels
        .get(start.saturating_sub(AROUND_LEVELS)..(end + AROUND_LEVELS).min(levels.len()))
        .unwrap_or_default()
        .to_vec();
    // Audio that is joined or muted digitally has no floor there.
    around.retain(|&level| level > DIGITAL_SILENCE);
    if around.is_empty() || start >= end {
        return Vec::new();
    }
    let mut rank = |twentieths: usize| {
        let index = around.len() * twentieths / 20;
        *around.select_nth_unstable_by(index, f32::total_cmp).1
    };
    let (floor, speech) = (rank(2), rank(19));
    let limit = (speech - BELOW_SPEECH).max(floor + ABOVE_FLOOR).min(speech - CLEARLY_BELOW_SPEECH);
    let mut found = Vec::new();
    let mut at = start;
    for run in levels[start..end].chunk_by(|a, b| (*a < limit) == (*b < limit)) {
        if run.len() >= SILENCE_LEVELS_MIN && run[0] < limit {
            found.push(at as f64 / PER_SECOND..(at + run.len()) as f64 / PER_SECOND);
        }
        at += run.len();
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Levels of 4 s at `floor`, with speech in the `voiced` seconds.
    fn levels(floor: f32, voiced: &[Range<f64>]) -> Vec<f32> {
        let is_voiced = |at: f64| voiced.iter().any(|range| range.contains(&at));
        (0..400).map(|n| if is_voiced((f64::from(n) + 0.5) / PER_SECOND) { -20.0 } else { floor }).collect()
    }

    fn placed(levels: &[f32], words: &[Range<f64>]) -> Vec<(f64, f64)> {
        let hundredths = |at: f64| (at * 100.0).round() / 100.0;
        let placed = beside_silence(levels, words);
        placed.iter().map(|word| (hundredths(word.start), hundredths(word.end))).collect()
    }

    #[test]
    fn words_beside_silence_reach_to_its_edges_and_others_stay() {
        let voiced = [0.5..1.2, 1.7..2.4];
        // Early at the start, end early; the third is stretched over the pause.
        let words = [0.4..0.8, 0.8..1.0, 1.0..2.0, 2.0..2.2];
        let expected = [(0.5, 0.8), (0.8, 1.2), (1.7, 2.0), (2.0, 2.4)];
        for floor in [-100.0, -60.0, -33.0] {
            assert_eq!(placed(&levels(floor, &voiced), &words), expected, "{floor}");
        }
        let stay = [(0.4, 0.8), (0.8, 1.0), (1.0, 2.0), (2.0, 2.2)];
        assert_eq!(placed(&levels(-30.0, &voiced), &words), stay, "music");
        assert_eq!(placed(&[], &words), stay);
    }

    #[test]
    fn the_closure_of_a_stop_is_no_silence() {
        let voiced = levels(-100.0, &[0.5..1.1, 1.18..2.0]);
        let words = [0.5..1.05, 1.05..2.0];
        assert_eq!(placed(&voiced, &words), [(0.5, 1.05), (1.05, 2.0)]);
    }

    #[test]
    fn a_word_far_from_its_voice_stays() {
        let voiced = levels(-100.0, &[0.5..1.0, 3.0..3.5]);
        assert_eq!(placed(&voiced, &[1.8..2.0])[0], (1.8, 2.0));
    }

    #[test]
    fn levels_are_those_of_ten_milliseconds() {
        let mut samples = vec![0.1; 320];
        samples.extend([0.0; 170]);
        let levels = levels_of(&samples);
        assert_eq!(levels.len(), 3);
        assert!((levels[0] + 20.0).abs() < 0.01 && levels[2] < -99.0, "{levels:?}");
        assert_eq!(super::levels(&Sound::from(&samples[..])).len(), 3);
    }

    proptest! {
        #[test]
        fn words_in_order_keep_their_order_and_length(
            levels in prop::collection::vec(prop_oneof![Just(-20.0f32), Just(-80.0), -60.0f32..-10.0], 0..500),
            mut times in prop::collection::vec(0.0f64..6.0, 2..20),
        ) {
            times.sort_by(f64::total_cmp);
            let words: Vec<Range<f64>> = times.chunks_exact(2).map(|pair| pair[0]..pair[1]).collect();
            let placed = beside_silence(&levels, &words);
            prop_assert_eq!(placed.len(), words.len());
            for (placed, word) in placed.iter().zip(&words) {
                prop_assert!(placed.start <= placed.end, "{placed:?}");
                prop_assert!(placed.start <= word.end && word.start <= placed.end, "{placed:?} {word:?}");
            }
            prop_assert!(placed.windows(2).all(|pair| pair[0].end <= pair[1].start), "{placed:?}");
        }
    }
}
