//! The last samples of a stream, in 16 bits: half the memory of `f32`, and exact for what most clients send.

use std::ops::Range;

/// Steps of 16 bits on either side of silence.
const STEPS: f32 = 32_768.0;

/// Samples of a stream from [`Self::start`] to [`Self::end`], counted from its beginning.
#[derive(Default)]
pub struct Tail {
    start: usize,
    samples: Vec<i16>,
}

impl Tail {
    /// Takes the next samples, -1 to 1.
    pub fn push(&mut self, samples: &[f32]) {
        // Casting clamps.
        self.samples.extend(samples.iter().map(|sample| (sample * STEPS).round() as i16));
    }

    pub fn start(&self) -> usize {
        self.start
    }

    pub fn end(&self) -> usize {
        self.start + self.samples.len()
    }

    /// Frees the samples before `start`, up to the end.
    pub fn forget(&mut self, start: usize) {
        let count = start.saturating_sub(self.start).min(self.samples.len());
        self.samples.drain(..count);
        self.samples.shrink_to(2 * self.samples.len());
        self.start += count;
    }

    /// The samples of `range`, with silence for those that are not there.
    pub fn samples(&self, range: Range<usize>) -> Vec<f32> {
        let at = |sample: usize| sample.saturating_sub(self.start).min(self.samples.len());
        let there = &self.samples[at(range.start)..at(range.end)];
        let before = self.start.saturating_sub(range.start).min(range.len());
        let mut samples = vec![0.0; before];
        samples.extend(there.iter().map(|&sample| f32::from(sample) / STEPS));
        samples.resize(range.len(), 0.0);
        samples
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_where_they_were_and_silence_elsewhere() {
        let mut tail = Tail::default();
        tail.push(&[0.25, -0.5, 2.0]);
        tail.push(&[-1.0, f32::NAN]);
        assert_eq!((tail.start(), tail.end()), (0, 5));
        assert_eq!(tail.samples(0..6), [0.25, -0.5, 32_767.0 / 32_768.0, -1.0, 0.0, 0.0]);
        tail.forget(3);
        assert_eq!((tail.start(), tail.end()), (3, 5));
        assert_eq!(tail.samples(1..5), [0.0, 0.0, -1.0, 0.0]);
        assert_eq!(tail.samples(0..2), [0.0; 2]);
        tail.forget(9);
        assert_eq!((tail.start(), tail.end()), (5, 5));
    }
}
