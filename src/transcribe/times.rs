//! The times of words and segments in the file. Pure.

use std::ops::Range;

use super::window_plan::WindowPlan;
use crate::audio::SAMPLE_RATE;
use crate::engine::Recognition;
use crate::transcript::{Segment, in_order};
use crate::vad::{FRAME_SAMPLES, SURE_SPEECH, beside_silence, voiced_part};

/// A segment of a planned window, in the file's time, with its words where their voice is.
pub fn in_file(mut segment: Segment, plan: &WindowPlan, probabilities: &[f32]) -> Segment {
    let voice = |times: Range<f64>| {
        let frame = |seconds: f64| (seconds * f64::from(SAMPLE_RATE)) as usize / FRAME_SAMPLES;
        let frames = probabilities.get(frame(times.start)..frame(times.end)).unwrap_or_default();
        frames.iter().filter(|&&probability| probability >= SURE_SPEECH).count()
    };
    for word in &mut segment.words {
        let times = voiced_part(probabilities, plan.word_to_file(word.start..word.end, voice));
        (word.start, word.end) = (times.start, times.end);
    }
    segment.window_start = plan.to_file_time(0.0);
    segment.start = plan.to_file_time(segment.start);
    segment.end = plan.to_file_end(segment.end).max(segment.start);
    segment
}

/// Puts the words of a channel in order, and those beside silence at its edges. It comes last: which words are heard
/// must not depend on it.
pub fn place_words(segments: &mut [Segment], levels: &[f32]) {
    in_order(segments.iter_mut().flat_map(|segment| &mut segment.words));
    let words = segments.iter().flat_map(|segment| &segment.words);
    let times: Vec<Range<f64>> = words.map(|word| word.start..word.end).collect();
    let placed = beside_silence(levels, &times);
    let words = segments.iter_mut().flat_map(|segment| &mut segment.words);
    for (word, times) in words.zip(placed) {
        (word.start, word.end) = (times.start, times.end);
    }
    in_order(segments.iter_mut().flat_map(|segment| &mut segment.words));
    for segment in segments {
        if let (Some(first), Some(last)) = (segment.words.first(), segment.words.last()) {
            segment.start = segment.start.min(first.start);
            segment.end = segment.end.max(last.end);
        }
    }
}

/// The segments of a window that begins `offset` seconds into the file, in the file's time.
pub fn shifted(recognition: Recognition, offset: f64) -> impl Iterator<Item = Segment> {
    recognition.segments.into_iter().map(move |mut segment| {
        segment.window_start = offset;
        segment.start += offset;
        segment.end += offset;
        for word in &mut segment.words {
            word.start += offset;
            word.end += offset;
        }
        segment
    })
}
