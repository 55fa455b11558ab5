//! The levels of a channel's latest audio, and where it is as loud and uneven as speech. Pure.

use std::ops::Range;

use super::span::to_seconds;
use crate::audio::SAMPLE_RATE;
use crate::engine::WINDOW_SAMPLES;
use crate::vad::{LEAST_SPEECH_LEVEL, LEVEL_SAMPLES, levels_of, speech_like};

const LEVEL: u64 = LEVEL_SAMPLES as u64;
/// Levels before a span that tell how quiet its quiet moments are: 20 s.
const BEFORE_SAMPLES: u64 = 20 * SAMPLE_RATE as u64;
/// The least number of samples whose levels are dropped at once.
const TRIMMED: u64 = SAMPLE_RATE as u64;
/// Audio that is kept before the first loud moment, and what may lie between the end of a sound and now if it goes on.
const AROUND: u64 = SAMPLE_RATE as u64 * 3 / 10;

/// The level of each 10 ms.
#[derive(Default)]
pub struct Levels {
    values: Vec<f32>,
    /// The sample at which they begin.
    start: u64,
    /// Samples after the last level.
    rest: Vec<f32>,
}

impl Levels {
    pub fn push(&mut self, samples: &[f32]) {
        self.rest.extend_from_slice(samples);
        self.values.extend(levels_of(&self.rest));
        let left = self.rest.len() / LEVEL_SAMPLES * LEVEL_SAMPLES;
        self.rest.drain(..left);
    }

    /// From where on the audio after `position` may be needed, because it may be speech.
    pub fn loud_since(&self, position: u64) -> Option<u64> {
        let first = self.index(position);
        let loud = self.values.iter().skip(first).position(|&level| level >= LEAST_SPEECH_LEVEL)?;
        let loud = self.start + (first + loud) as u64 * LEVEL;
        Some(loud.saturating_sub(AROUND).max(position))
    }

    /// The stretches of `span` that may be speech and lie outside of the `accounted` seconds, in samples of the stream.
    pub fn speech_like(
        &self,
        span: Range<u64>,
        accounted: impl Iterator<Item = Range<f64>>,
    ) -> Vec<Range<u64>> {
        let origin = to_seconds(self.start);
        let outside = [0.0..to_seconds(span.start), to_seconds(span.end)..f64::MAX];
        let accounted: Vec<Range<f64>> =
            outside.into_iter().chain(accounted).map(|span| span.start - origin..span.end - origin).collect();
        let levels = &self.values[..self.index(span.end)];
        let found = speech_like(levels, &accounted, WINDOW_SAMPLES).into_iter();
        found.map(|found| self.start + found.start as u64..self.start + found.end as u64).collect()
    }

    /// Whether such a stretch of `span` goes on at its end.
    pub fn goes_on(&self, span: Range<u64>) -> bool {
        let end = span.end;
        let found = self.speech_like(span, std::iter::empty());
        found.last().is_some_and(|last| last.end + AROUND >= end)
    }

    /// Drops what says nothing about a span that begins at `position`.
    pub fn forget(&mut self, position: u64) {
        let surplus = position.saturating_sub(BEFORE_SAMPLES).saturating_sub(self.start);
        if surplus >= TRIMMED {
            let levels = ((surplus / LEVEL) as usize).min(self.values.len());
            self.values.drain(..levels);
            self.start += levels as u64 * LEVEL;
        }
    }

    fn index(&self, position: u64) -> usize {
        ((position.saturating_sub(self.start) / LEVEL) as usize).min(self.values.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = SAMPLE_RATE as u64;

    /// A second of noise at `level`, loud and quiet four times.
    fn syllables(level: f32) -> Vec<f32> {
        let sample = |n: usize| if n % 4000 < 2800 { level } else { level / 10.0 };
        (0..SECOND as usize).map(|n| if n % 2 == 0 { sample(n) } else { -sample(n) }).collect()
    }

    fn levels(loud: Range<u64>, seconds: u64) -> Levels {
        let mut levels = Levels::default();
        for second in 0..seconds {
            let sound = if loud.contains(&second) { syllables(0.1) } else { vec![1e-4; SECOND as usize] };
            // Cut anywhere.
            sound.chunks(777).for_each(|piece| levels.push(piece));
        }
        levels
    }

    #[test]
    fn speech_without_voice_is_found_where_it_is_in_the_stream() {
        let levels = levels(33..37, 40);
        let found = levels.speech_like(30 * SECOND..40 * SECOND, std::iter::empty());
        assert_eq!(found.len(), 1, "{found:?}");
        let [start, end] = [found[0].start, found[0].end].map(to_seconds);
        assert!((32.5..33.1).contains(&start) && (36.8..37.5).contains(&end), "{start} to {end}");
        let accounted = std::iter::once(32.0..38.0);
        assert_eq!(levels.speech_like(30 * SECOND..40 * SECOND, accounted), []);
        assert_eq!(levels.speech_like(38 * SECOND..40 * SECOND, std::iter::empty()), []);
    }

    #[test]
    fn a_sound_that_goes_on_is_waited_for() {
        let levels = levels(33..39, 40);
        assert!(levels.goes_on(30 * SECOND..36 * SECOND));
        assert!(!levels.goes_on(30 * SECOND..40 * SECOND));
        assert!(!levels.goes_on(20 * SECOND..30 * SECOND));
    }

    #[test]
    fn silence_is_not_kept_and_levels_only_as_long_as_they_tell_something() {
        let mut levels = levels(33..37, 40);
        assert_eq!(levels.loud_since(10 * SECOND), Some(33 * SECOND - AROUND));
        assert_eq!(levels.loud_since(34 * SECOND), Some(34 * SECOND));
        assert_eq!(levels.loud_since(38 * SECOND), None);
        let before = levels.speech_like(30 * SECOND..40 * SECOND, std::iter::empty());
        levels.forget(30 * SECOND);
        assert_eq!((levels.start, levels.values.len()), (10 * SECOND, 3000));
        assert_eq!(levels.speech_like(30 * SECOND..40 * SECOND, std::iter::empty()), before);
    }
}
