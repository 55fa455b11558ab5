//! Voice that nothing accounts for, and the voiced part of a word. Pure.

use std::ops::Range;

use super::endpoint::SURE_SPEECH;
use super::silero::FRAME_SAMPLES;
use crate::audio::SAMPLE_RATE;

/// The least voice that is worth listening to again, in all frames of a stretch: 0.6 s.
const LEAST_VOICED_FRAMES: usize = 19;
/// A longer silence divides two stretches: 1 s. Shorter ones stay, as context.
const DIVIDING_FRAMES: usize = 31;
/// The context kept on each side of a stretch, if there is no voice in it: 0.4 s.
const CONTEXT_FRAMES: usize = 12;
/// Within a word, a longer silence is a pause, and the word lies on one side of it: 0.3 s.
const PAUSE_FRAMES: usize = 10;
/// A frame of at least this probability may belong to a word.
const FAINT_SPEECH: f32 = 0.2;
/// Sound of a word before and after such frames, in seconds: consonants are faint.
const FAINT: f64 = 0.1;

/// Where fewer than one frame in so many is surely speech, the detector may have found only pieces of it.
const SURE_SHARE: usize = 5;

const FRAME_SECONDS: f64 = FRAME_SAMPLES as f64 / SAMPLE_RATE as f64;

/// A stretch of voice that nothing accounts for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unaccounted {
    /// With some silence around it.
    pub frames: Range<usize>,
    /// Frames of voice.
    pub voiced: usize,
}

/// Whether the detector was nowhere sure of voice in so many samples, or in a small part of them: there may be speech
/// around what it found.
pub fn is_in_pieces(sure_frames: usize, samples: usize) -> bool {
    sure_frames * SURE_SHARE < samples / FRAME_SAMPLES
}

/// The stretches of voice among `frames` that lie outside of the `accounted` seconds. `probabilities`: of speech in
/// each frame from second 0 on.
pub fn unaccounted(
    probabilities: &[f32],
    frames: Range<usize>,
    accounted: &[Range<f64>],
) -> Vec<Unaccounted> {
    let frames = frames.start..frames.end.min(probabilities.len()).max(frames.start);
    let is_voiced = |frame: usize| probabilities[frame] >= SURE_SPEECH;
    let meets = |span: &&Range<f64>, frames: Range<usize>| {
        span.start < frames.end as f64 * FRAME_SECONDS && frames.start as f64 * FRAME_SECONDS < span.end
    };
    let near: Vec<&Range<f64>> = accounted.iter().filter(|span| meets(span, frames.clone())).collect();
    let is_accounted = |frame: usize| near.iter().any(|span| meets(span, frame..frame + 1));
    let mut found: Vec<Unaccounted> = Vec::new();
    let mut is_open = false;
    for frame in frames.clone() {
        if is_accounted(frame) {
            is_open = false;
        } else if is_voiced(frame) {
            match found.last_mut() {
                Some(last) if is_open && frame - last.frames.end < DIVIDING_FRAMES => {
                    last.frames.end = frame + 1;
                    last.voiced += 1;
                }
                _ => found.push(Unaccounted { frames: frame..frame + 1, voiced: 1 }),
            }
            is_open = true;
        }
    }
    found.retain(|stretch| stretch.voiced >= LEAST_VOICED_FRAMES);
    let is_silent = |frame: &usize| !is_voiced(*frame);
    for stretch in &mut found {
        let inner = stretch.frames.clone();
        let before = (frames.start..inner.start).rev().take(CONTEXT_FRAMES).take_while(is_silent).count();
        let after = (inner.end..frames.end).take(CONTEXT_FRAMES).take_while(is_silent).count();
        stretch.frames = inner.start - before..inner.end + after;
    }
    found
}

/// The voiced part of a word's `seconds`: without the silence before and after it and, if it spans a pause, on the side
/// of the pause that holds more voice. Alignment gives the silence between two words to one of them. A word without
/// voice keeps its times.
pub fn voiced_part(probabilities: &[f32], seconds: Range<f64>) -> Range<f64> {
    let first = (seconds.start.max(0.0) / FRAME_SECONDS) as usize;
    let end = ((seconds.end.max(0.0) / FRAME_SECONDS).ceil() as usize).min(probabilities.len());
    // The first and the last voiced frame of each part, and how many there are.
    let mut parts: Vec<(usize, usize, usize)> = Vec::new();
    for frame in (first..end).filter(|&frame| probabilities[frame] >= FAINT_SPEECH) {
        match parts.last_mut() {
            Some((_, last, voiced)) if frame - *last <= PAUSE_FRAMES => {
                *last = frame;
                *voiced += 1;
            }
            _ => parts.push((frame, frame, 1)),
        }
    }
    // The later of two equal ones: alignment stretches the start of a word more often than its end.
    let Some(&(begin, last, _)) = parts.iter().max_by_key(|(_, _, voiced)| *voiced) else { return seconds };
    let start = (begin as f64 * FRAME_SECONDS - FAINT).max(seconds.start);
    start..((last + 1) as f64 * FRAME_SECONDS + FAINT).min(seconds.end).max(start)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Probabilities of speech in 20 s, with voice in the `voiced` seconds.
    fn probabilities(voiced: &[Range<f64>]) -> Vec<f32> {
        let is_voiced = |at: f64| voiced.iter().any(|range| range.contains(&at));
        (0..625).map(|n| if is_voiced((n as f64 + 0.5) * FRAME_SECONDS) { 0.9 } else { 0.1 }).collect()
    }

    fn found(voiced: &[Range<f64>], accounted: &[Range<f64>]) -> Vec<(f64, f64)> {
        let tenths = |frame: usize| (frame as f64 * FRAME_SECONDS * 10.0).round() / 10.0;
        let stretches = unaccounted(&probabilities(voiced), 0..625, accounted);
        stretches.iter().map(|stretch| (tenths(stretch.frames.start), tenths(stretch.frames.end))).collect()
    }

    #[test]
    fn voice_is_accounted_for_or_found_with_the_silence_around_it() {
        let words = [1.0..2.2, 12.0..12.6];
        assert_eq!(found(&[1.0..2.2, 12.0..12.6], &words), []);
        assert_eq!(found(&[1.0..2.2, 5.0..5.4], &words), [], "a click");
        assert_eq!(found(&[1.0..1.6, 5.0..7.0, 7.5..9.0, 12.0..12.6], &words), [(4.6, 9.4)]);
        assert_eq!(found(&[3.0..4.0, 8.0..9.0], &words).len(), 2);
    }

    #[test]
    fn a_word_is_where_its_voice_is() {
        let probabilities = probabilities(&[1.0..2.0, 5.0..5.5]);
        let part = |range: Range<f64>| {
            let part = voiced_part(&probabilities, range);
            [part.start, part.end].map(|at| (at * 10.0).round() / 10.0)
        };
        assert_eq!(part(1.2..1.6), [1.2, 1.6], "all voice");
        assert_eq!(part(3.0..5.4), [4.9, 5.4], "the silence before it");
        assert_eq!(part(1.5..3.0), [1.5, 2.1], "and after it");
        assert_eq!(part(1.9..5.4), [4.9, 5.4], "over a pause");
        assert_eq!(part(7.0..8.0), [7.0, 8.0], "no voice");
        assert_eq!(part(30.0..31.0), [30.0, 31.0], "beyond the end");
    }
}
