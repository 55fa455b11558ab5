//! A span: the stretch of a channel between two final results, with the voice in it. Pure.

use std::ops::Range;

use crate::audio::{Pcm, SAMPLE_RATE};
use crate::transcript::{Word, in_order};
use crate::vad::{
    Endpointer, Endpointing, FRAME_SAMPLES, SURE_SPEECH, beside_silence, levels_of, smoothed_at, unaccounted,
    voiced_part,
};

/// Voice begins at the same probability as in whole files, and ends sooner, because a client waits for the end.
/// The channel measures the pauses, which depend on the client's options.
pub const ENDPOINTING: Endpointing =
    Endpointing { begin: 0.2, stay: 0.15, resume: 0.2, begin_frames: 1, pause_frames: None };
/// [`ENDPOINTING`], with another threshold for the begin of voice, the others in proportion to it.
pub fn endpointing(begin: Option<f32>) -> Endpointing {
    let scale = begin.map_or(1.0, |begin| begin / ENDPOINTING.begin);
    let Endpointing { begin, stay, resume, .. } = ENDPOINTING;
    Endpointing { begin: begin * scale, stay: stay * scale, resume: resume * scale, ..ENDPOINTING }
}

/// Voice of fewer frames, none of them [`SURE_SPEECH`], is a click.
const MIN_VOICED_FRAMES: usize = 4;
/// Audio kept around voice: consonants are faint.
pub const PAD_SAMPLES: u64 = SAMPLE_RATE as u64 * 2 / 5;
/// A gap of so many seconds between words counts as much as silence in the detector.
const WIDE_GAP: f64 = 0.5;

/// Samples in a frame.
pub const FRAME: u64 = FRAME_SAMPLES as u64;

/// Positions are samples from the start of the stream.
pub struct Span {
    /// The end of the span before.
    pub start: u64,
    voice: Option<Voiced>,
    /// The probabilities of the frames since the first voiced one.
    frames: Vec<f32>,
}

/// Voice that no word accounts for.
pub struct WithoutWords {
    /// With some silence around them.
    pub stretches: Vec<Range<u64>>,
    /// The voice in them.
    pub voiced_seconds: f64,
}

struct Voiced {
    start: u64,
    end: u64,
    /// Frames of voice.
    frames: usize,
    peak: f32,
}

impl Span {
    pub fn new(start: u64) -> Self {
        Self { start, voice: None, frames: Vec::new() }
    }

    /// Takes the frame that begins at `position`, voiced or not.
    pub fn push(&mut self, position: u64, probability: f32, is_voiced: bool) {
        if is_voiced {
            let begin = position.max(self.start);
            let voice = self.voice.get_or_insert(Voiced { start: begin, end: begin, frames: 0, peak: 0.0 });
            voice.end = position + FRAME;
            voice.frames += 1;
            voice.peak = voice.peak.max(probability);
        }
        if self.voice.is_some() {
            self.frames.push(probability);
        }
    }

    /// The end of the last voice, if there is any.
    pub fn voice_end(&self) -> Option<u64> {
        self.voice.as_ref().map(|voice| voice.end)
    }

    /// Whether there is voice worth recognising.
    pub fn is_voiced(&self) -> bool {
        self.voice
            .as_ref()
            .is_some_and(|voice| voice.peak >= SURE_SPEECH || voice.frames >= MIN_VOICED_FRAMES)
    }

    /// Samples from the first voice to the last.
    pub fn voice_samples(&self) -> u64 {
        self.voice.as_ref().map_or(0, |voice| voice.end - voice.start)
    }

    /// The start of the audio that is to be recognised; `position` while there is no voice.
    pub fn window_start(&self, position: u64) -> u64 {
        let voice = self.voice.as_ref().map_or(position, |voice| voice.start);
        voice.saturating_sub(PAD_SAMPLES).max(self.start)
    }

    /// The end of that audio for a span closed at `end`: silence after the last voice is left out.
    pub fn window_end(&self, end: u64) -> u64 {
        self.voice_end().map_or(end, |voice_end| end.min(voice_end + PAD_SAMPLES))
    }

    /// Frames from `from` on that are surely voice.
    pub fn sure_frames_after(&self, from: u64) -> usize {
        let frames = self.frames.iter().skip(self.index(from));
        frames.filter(|&&probability| probability >= SURE_SPEECH).count()
    }

    /// The place within `range` to cut a span that has become too long: the gap between words where voice is
    /// least probable or, without words, any place where it is.
    pub fn cut(&self, range: Range<u64>, words: &[Word]) -> u64 {
        let gaps = words.windows(2).map(|pair| {
            let (from, to) = (pair[0].end, pair[1].start.max(pair[0].end));
            (to_samples(from.midpoint(to)), (to - from).min(WIDE_GAP))
        });
        let between = gaps
            .filter(|(middle, _)| range.contains(middle))
            .map(|(middle, gap)| (self.smoothed(middle) - gap as f32 / WIDE_GAP as f32, middle))
            .min_by(|a, b| a.0.total_cmp(&b.0));
        let anywhere = || {
            let middles = range.clone().step_by(FRAME_SAMPLES);
            middles.map(|middle| (self.smoothed(middle), middle)).min_by(|a, b| a.0.total_cmp(&b.0))
        };
        between.or_else(anywhere).map_or(range.end, |(_, middle)| middle)
    }

    /// The span after a cut at `at`, with the frames that have come since. The cut is taken to be within speech.
    pub fn after(&self, at: u64, endpointing: Endpointing) -> Self {
        let mut next = Self::new(at);
        let Some(voice) = &self.voice else { return next };
        let first = self.index(at);
        let mut endpointer = Endpointer::speaking(endpointing);
        for (index, &probability) in self.frames.iter().enumerate().skip(first) {
            let position = frame_start(voice.start) + index as u64 * FRAME;
            endpointer.frame(probability);
            next.push(position, probability, endpointer.is_speaking());
        }
        next
    }

    /// The frame of `position` among those since the first voice.
    fn index(&self, position: u64) -> usize {
        let first = self.voice.as_ref().map_or(position, |voice| frame_start(voice.start));
        (position.saturating_sub(first) / FRAME) as usize
    }

    /// Voice before `end` that none of `words` accounts for.
    pub fn without_words(&self, words: &[Word], end: u64) -> WithoutWords {
        let first = self.first_frame();
        let origin = to_seconds(first);
        let accounted: Vec<Range<f64>> = words
            .iter()
            .flat_map(Word::plausible_times)
            .map(|times| times.start - origin..times.end - origin)
            .collect();
        let found = unaccounted(&self.frames, 0..self.index(end), &accounted);
        let position = |frame: usize| first + frame as u64 * FRAME;
        let samples =
            |frames: &Range<usize>| position(frames.start).max(self.start)..position(frames.end).min(end);
        let frames: usize = found.iter().map(|stretch| stretch.voiced).sum();
        WithoutWords {
            stretches: found.iter().map(|stretch| samples(&stretch.frames)).collect(),
            voiced_seconds: to_seconds(frames as u64 * FRAME),
        }
    }

    /// The voiced part of a word's `seconds` in the stream.
    pub fn voiced_part(&self, seconds: Range<f64>) -> Range<f64> {
        let origin = to_seconds(self.first_frame());
        if seconds.start < to_seconds(self.start) || seconds.end <= origin {
            // A word of the span before.
            return seconds;
        }
        let part = voiced_part(&self.frames, seconds.start - origin..seconds.end - origin);
        part.start + origin..part.end + origin
    }

    /// Whether there is voice in these seconds of the stream; true where the span has no probabilities.
    pub fn has_voice(&self, seconds: Range<f64>) -> bool {
        let frames = self.index(to_samples(seconds.start))..=self.index(to_samples(seconds.end));
        seconds.start < to_seconds(self.first_frame())
            || self.frames.get(frames).is_none_or(|frames| frames.iter().any(|&p| p >= ENDPOINTING.begin))
    }

    /// The start of the first voiced frame.
    fn first_frame(&self) -> u64 {
        self.voice.as_ref().map_or(self.start, |voice| frame_start(voice.start))
    }

    fn smoothed(&self, position: u64) -> f32 {
        smoothed_at(&self.frames, self.index(position))
    }
}

/// The words of a final result, those beside silence at its edges; `audio` of the span begins at `origin`. The words
/// themselves stay for what is recognised next, which must not depend on it.
pub fn placed_beside_silence(words: &[Word], span: Range<f64>, origin: u64, audio: &Pcm) -> Vec<Word> {
    let mut placed = words.to_vec();
    if words.is_empty() || audio.is_empty() {
        return placed;
    }
    let levels = levels_of(audio.samples());
    let origin = to_seconds(origin);
    let times: Vec<Range<f64>> = words.iter().map(|word| word.start - origin..word.end - origin).collect();
    for (word, times) in placed.iter_mut().zip(beside_silence(&levels, &times)) {
        word.start = (times.start + origin).clamp(span.start, span.end);
        word.end = (times.end + origin).clamp(span.start, span.end);
    }
    in_order(&mut placed);
    placed
}

fn frame_start(position: u64) -> u64 {
    position / FRAME * FRAME
}

pub fn to_seconds(samples: u64) -> f64 {
    samples as f64 / f64::from(SAMPLE_RATE)
}

pub fn to_samples(seconds: f64) -> u64 {
    (seconds * f64::from(SAMPLE_RATE)).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A span from 0 with these probabilities.
    fn span(probabilities: &[f32]) -> Span {
        let mut span = Span::new(0);
        let mut endpointer = Endpointer::new(ENDPOINTING);
        for (index, &probability) in probabilities.iter().enumerate() {
            endpointer.frame(probability);
            span.push(index as u64 * FRAME, probability, endpointer.is_speaking());
        }
        span
    }

    #[test]
    fn voice_begins_at_one_threshold_and_ends_below_the_other() {
        let span = span(&[0.1, 0.18, 0.3, 0.18, 0.9, 0.1, 0.18, 0.1]);
        assert_eq!(span.voice_end(), Some(5 * FRAME));
        assert_eq!(span.voice_samples(), 3 * FRAME);
        assert!(span.is_voiced());
        assert_eq!(span.window_start(100 * FRAME), 0);
        assert_eq!(span.window_end(100 * FRAME), 5 * FRAME + PAD_SAMPLES);
    }

    #[test]
    fn a_click_is_no_voice() {
        assert!(!span(&[0.0, 0.3, 0.3, 0.0]).is_voiced());
        assert!(span(&[0.0, 0.3, 0.3, 0.3, 0.3]).is_voiced());
        assert!(!span(&[0.0; 9]).is_voiced());
    }

    #[test]
    fn a_long_span_is_cut_between_words_where_voice_is_least_probable() {
        let mut probabilities = vec![0.9; 200];
        probabilities[100..110].fill(0.1);
        let span = span(&probabilities);
        let word =
            |start: f64, end: f64| Word { text: " a".into(), start, end, probability: 1.0, speaker: None };
        // The pause lies at 3.2 to 3.5 s; the words say 3.1 to 3.4.
        let words = [word(1.0, 2.0), word(2.0, 3.1), word(3.4, 4.0), word(4.0, 5.0)];
        let cut = to_seconds(span.cut(to_samples(2.5)..to_samples(6.0), &words));
        assert!((cut - 3.25).abs() < 1e-3, "cut at {cut}");
        let without = to_seconds(span.cut(to_samples(2.5)..to_samples(6.0), &[]));
        assert!((3.2..3.53).contains(&without), "cut at {without}");
        let rest = span.after(to_samples(3.25), ENDPOINTING);
        assert_eq!((rest.start, rest.voice_end()), (to_samples(3.25), Some(200 * FRAME)));
        assert_eq!(rest.sure_frames_after(0), 90);
    }
}
