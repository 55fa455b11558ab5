//! Spans of speech in a file, from the probabilities of speech. Pure.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::endpoint::{Endpointer, Endpointing, Step};
use super::silero::FRAME_SAMPLES;
use crate::audio::SAMPLE_RATE;

/// How spans of speech are found in a file, and how much audio around them is kept.
///
/// The names are those of faster-whisper; the defaults are chosen for transcription, where a needless span
/// costs a little time and a missing one costs words.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct VadOptions {
    /// Speech begins in a frame of at least this probability, 0 to 1. Default 0.2: against it 0.5
    /// loses three to nine times as many words in noise, for 1% to 3% less audio to transcribe. Raise
    /// it where distant voices or music must not be transcribed.
    pub threshold: f32,
    /// Speech may end in a frame below this probability. Default: 0.15 under `threshold`, at least
    /// 0.01.
    pub neg_threshold: Option<f32>,
    /// Shorter speech, before padding, is noise. Default 0 ms: a click may be a word.
    pub min_speech_duration_ms: u32,
    /// Longer spans are cut where speech is least probable. Default: infinite.
    pub max_speech_duration_s: f32,
    /// A shorter pause does not end a span. Default 250 ms.
    pub min_silence_duration_ms: u32,
    /// Kept before and after speech, or half of the pause where that is less. Default 400 ms.
    pub speech_pad_ms: u32,
}

impl Default for VadOptions {
    fn default() -> Self {
        Self {
            threshold: 0.2,
            neg_threshold: None,
            min_speech_duration_ms: 0,
            max_speech_duration_s: f32::INFINITY,
            min_silence_duration_ms: 250,
            speech_pad_ms: 400,
        }
    }
}

impl VadOptions {
    fn end_threshold(&self) -> f32 {
        self.neg_threshold.unwrap_or((self.threshold - 0.15).max(0.01))
    }

    fn endpointing(&self) -> Endpointing {
        Endpointing {
            begin: self.threshold,
            stay: self.end_threshold().min(self.threshold),
            resume: self.threshold,
            begin_frames: 1,
            pause_frames: Some(frames(self.min_silence_duration_ms).max(1)),
        }
    }
}

/// The spans of speech: ranges of samples, in order, apart or touching, none empty, all inside
/// `0..samples`. `probabilities` has one value for each frame of [`FRAME_SAMPLES`].
pub fn speech_spans(probabilities: &[f32], samples: usize, options: &VadOptions) -> Vec<Range<usize>> {
    let smoothed = smoothed(probabilities);
    let spans = voiced(probabilities, options)
        .into_iter()
        .filter(|span| span.len() >= frames(options.min_speech_duration_ms))
        .flat_map(|span| divided(&smoothed, span, longest_span(options)))
        .map(|span| span.start * FRAME_SAMPLES..(span.end * FRAME_SAMPLES).min(samples))
        .filter(|span| !span.is_empty())
        .collect();
    padded(spans, samples, options.speech_pad_ms as usize * SAMPLE_RATE as usize / 1000)
}

/// The mean probability of speech in the 288 ms around each frame. It is low only in pauses of that
/// length, and lowest in their middle: the best place to cut speech that is too long.
pub fn smoothed(probabilities: &[f32]) -> Vec<f32> {
    (0..probabilities.len()).map(|frame| smoothed_at(probabilities, frame)).collect()
}

/// [`smoothed`] at one frame; 0 beyond the end.
pub fn smoothed_at(probabilities: &[f32], frame: usize) -> f32 {
    const EACH_SIDE: usize = 4;
    let near = frame.saturating_sub(EACH_SIDE)..(frame + EACH_SIDE + 1).min(probabilities.len());
    let near = probabilities.get(near).unwrap_or_default();
    near.iter().sum::<f32>() / near.len().max(1) as f32
}

/// Ranges of frames from the first speech to the last before a pause.
fn voiced(probabilities: &[f32], options: &VadOptions) -> Vec<Range<usize>> {
    let mut endpointer = Endpointer::new(options.endpointing());
    let mut spans = Vec::new();
    let mut begun = 0;
    for (frame, &probability) in probabilities.iter().enumerate() {
        match endpointer.frame(probability) {
            Step::Began => begun = frame,
            Step::Pause => {
                spans.push(begun..frame + 1 - endpointer.silent_frames());
                endpointer.end();
            }
            Step::Outside | Step::Speech | Step::Silence => {}
        }
    }
    if endpointer.in_utterance() {
        spans.push(begun..probabilities.len() - endpointer.silent_frames());
    }
    spans
}

/// `span` in pieces of at most `longest` frames, each cut in the second half of its permitted length.
fn divided(smoothed: &[f32], span: Range<usize>, longest: usize) -> Vec<Range<usize>> {
    let mut pieces = Vec::new();
    let mut rest = span;
    while rest.len() > longest {
        let candidates = rest.start + longest.div_ceil(2)..=rest.start + longest;
        let cut = candidates.min_by(|a, b| smoothed[*a].total_cmp(&smoothed[*b])).unwrap_or(rest.end);
        pieces.push(rest.start..cut);
        rest.start = cut;
    }
    pieces.push(rest);
    pieces
}

/// Adds `padding` on both sides of each span, or half of the gap between two that are closer together.
fn padded(mut spans: Vec<Range<usize>>, samples: usize, padding: usize) -> Vec<Range<usize>> {
    let mut earliest = 0;
    for i in 0..spans.len() {
        let gap_end = spans.get(i + 1).map_or(samples, |next| next.start);
        let room = gap_end - spans[i].end;
        let is_last = i + 1 == spans.len();
        let after = if is_last { room.min(padding) } else { (room / 2).min(padding) };
        spans[i].start = spans[i].start.saturating_sub(padding).max(earliest);
        spans[i].end += after;
        earliest = spans[i].end;
    }
    spans
}

/// The longest span before padding, in frames; at least one.
fn longest_span(options: &VadOptions) -> usize {
    // A cast of a float saturates, so that infinity means no limit.
    let samples = (options.max_speech_duration_s * SAMPLE_RATE as f32) as usize;
    (samples / FRAME_SAMPLES).max(1)
}

/// `milliseconds` in frames, rounded up.
fn frames(milliseconds: u32) -> usize {
    (milliseconds as usize * SAMPLE_RATE as usize / 1000).div_ceil(FRAME_SAMPLES)
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "one span is a list of spans too")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// No padding and pauses of one frame: spans are what the thresholds say.
    fn bare() -> VadOptions {
        VadOptions {
            threshold: 0.5,
            neg_threshold: Some(0.3),
            min_silence_duration_ms: 32,
            speech_pad_ms: 0,
            ..VadOptions::default()
        }
    }

    /// Spans over whole frames, in frames.
    fn in_frames(probabilities: &[f32], options: &VadOptions) -> Vec<Range<usize>> {
        let samples = probabilities.len() * FRAME_SAMPLES;
        let frame = |sample: usize| sample / FRAME_SAMPLES;
        let spans = speech_spans(probabilities, samples, options);
        spans.into_iter().map(|span| frame(span.start)..frame(span.end)).collect()
    }

    #[test]
    fn speech_begins_at_one_threshold_and_ends_below_the_other() {
        let spans = in_frames(&[0.4, 0.5, 0.4, 0.3, 0.2, 0.4, 0.1], &bare());
        assert_eq!(spans, [1..4]);
    }

    #[test]
    fn a_pause_counts_from_where_the_probability_fell() {
        let options = VadOptions { min_silence_duration_ms: 96, ..bare() };
        // Between the thresholds a pause goes on but doesn't begin.
        assert_eq!(in_frames(&[0.9, 0.1, 0.4, 0.9, 0.1, 0.4, 0.4, 0.9], &options), [0..4, 7..8]);
        assert_eq!(in_frames(&[0.9, 0.4, 0.4, 0.4, 0.9], &options), [0..5]);
    }

    #[test]
    fn the_end_of_the_file_ends_a_span() {
        assert_eq!(in_frames(&[0.1, 0.9, 0.9], &bare()), [1..3]);
        let options = VadOptions { min_silence_duration_ms: 2000, ..bare() };
        assert_eq!(in_frames(&[0.1, 0.9, 0.9, 0.1], &options), [1..3]);
        // The last frame holds 10 samples.
        assert_eq!(speech_spans(&[0.1, 0.9, 0.9], 1034, &bare()), [512..1034]);
    }

    #[test]
    fn the_second_threshold_follows_the_first() {
        let follows = |threshold| VadOptions { threshold, ..VadOptions::default() }.end_threshold();
        assert!((follows(0.5) - 0.35).abs() < 1e-6);
        assert_eq!(follows(0.1), 0.01);
    }

    #[test]
    fn short_speech_is_noise_if_asked() {
        let options = VadOptions { min_speech_duration_ms: 64, ..bare() };
        assert_eq!(in_frames(&[0.9, 0.1, 0.9, 0.9, 0.1], &options), [2..4]);
    }

    #[test]
    fn padding_is_shared_where_the_pause_is_too_short_for_it() {
        let options = VadOptions { speech_pad_ms: 32, ..bare() };
        let spans = speech_spans(&[0.1, 0.9, 0.1, 0.9, 0.1, 0.1, 0.1, 0.9], 8 * 512, &options);
        assert_eq!(spans, [0..1280, 1280..5 * 512, 6 * 512..8 * 512]);
    }

    #[test]
    fn a_long_span_is_cut_in_its_deepest_pause() {
        let mut probabilities = vec![0.9; 100];
        probabilities[38..45].fill(0.4);
        let options = VadOptions { max_speech_duration_s: 1.6, ..bare() };
        let spans = in_frames(&probabilities, &options);
        assert!((38..45).contains(&spans[0].end), "{spans:?}");
        assert_eq!(spans.last().map(|span| span.end), Some(100));
        assert!(spans.iter().all(|span| span.len() <= 50));
    }

    #[test]
    fn smoothing_looks_both_ways() {
        let mut probabilities = vec![1.0; 30];
        probabilities[10..19].fill(0.0);
        let smoothed = smoothed(&probabilities);
        assert_eq!(smoothed[14], 0.0);
        assert!(smoothed[13] > 0.0 && smoothed[15] > 0.0 && smoothed[0] == 1.0);
    }

    prop_compose! {
        fn any_options()(
            threshold in 0.0_f32..1.0, neg in prop::option::of(0.0_f32..1.0), min_speech_duration_ms in 0_u32..300,
            max_speech_duration_s in prop_oneof![Just(f32::INFINITY), -1.0_f32..5.0],
            min_silence_duration_ms in 0_u32..1000, speech_pad_ms in 0_u32..1000,
        ) -> VadOptions {
            VadOptions {
                threshold, neg_threshold: neg, min_speech_duration_ms, max_speech_duration_s,
                min_silence_duration_ms, speech_pad_ms,
            }
        }
    }

    /// The loop of faster-whisper's `get_speech_timestamps`, before padding and cuts.
    fn reference(probabilities: &[f32], options: &VadOptions) -> Vec<Range<usize>> {
        let min_silence = frames(options.min_silence_duration_ms).max(1);
        let mut spans = Vec::new();
        let (mut start, mut silence_start) = (None, None);
        for (frame, &probability) in probabilities.iter().enumerate() {
            if probability >= options.threshold {
                start.get_or_insert(frame);
                silence_start = None;
            } else if let Some(begun) = start
                && (silence_start.is_some() || probability < options.end_threshold())
            {
                let end = *silence_start.get_or_insert(frame);
                if frame + 1 - end >= min_silence {
                    spans.push(begun..end);
                    (start, silence_start) = (None, None);
                }
            }
        }
        spans.extend(start.map(|begun| begun..silence_start.unwrap_or(probabilities.len())));
        spans
    }

    proptest! {
        #[test]
        fn the_endpointer_finds_the_spans_of_the_reference(
            probabilities in prop::collection::vec(0.0_f32..=1.0, 0..300), options in any_options(),
        ) {
            prop_assert_eq!(voiced(&probabilities, &options), reference(&probabilities, &options));
        }

        #[test]
        fn spans_are_in_order_inside_the_file_and_miss_no_speech(
            probabilities in prop::collection::vec(0.0_f32..=1.0, 0..300), cut in 0_usize..512, options in any_options(),
        ) {
            let samples = (probabilities.len() * FRAME_SAMPLES).saturating_sub(cut);
            let spans = speech_spans(&probabilities, samples, &options);
            let mut end = 0;
            for span in &spans {
                prop_assert!(end <= span.start && span.start < span.end && span.end <= samples, "{:?}", spans);
                end = span.end;
            }
            let loud = (0..probabilities.len()).filter(|frame| probabilities[*frame] >= options.threshold);
            for frame in loud.filter(|_| options.min_speech_duration_ms == 0) {
                let first = frame * FRAME_SAMPLES;
                prop_assert!(first >= samples || spans.iter().any(|span| span.contains(&first)));
            }
        }
    }
}
