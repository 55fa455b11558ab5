//! Mono PCM, the audio that everything past this module works on.

use std::sync::Arc;

/// Samples a second everywhere past this module.
pub const SAMPLE_RATE: u32 = 16_000;

/// Mono PCM at [`SAMPLE_RATE`], nominally -1 to 1. Cloning and slicing share the samples.
#[derive(Clone)]
pub struct Pcm {
    samples: Arc<Vec<f32>>,
    start: usize,
    end: usize,
}

impl PartialEq for Pcm {
    fn eq(&self, other: &Self) -> bool {
        self.samples() == other.samples()
    }
}

impl Pcm {
    pub fn new(samples: impl Into<Vec<f32>>) -> Self {
        let samples = samples.into();
        let end = samples.len();
        Self { samples: Arc::new(samples), start: 0, end }
    }

    pub fn samples(&self) -> &[f32] {
        &self.samples[self.start..self.end]
    }

    /// The samples of `range`, counted from this value's start and cut to its length; no copy.
    pub fn slice(&self, range: std::ops::Range<usize>) -> Self {
        let start = (self.start + range.start).min(self.end);
        let end = (self.start + range.end).clamp(start, self.end);
        Self { samples: self.samples.clone(), start, end }
    }

    pub fn len(&self) -> usize {
        self.end - self.start
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn duration_seconds(&self) -> f64 {
        self.len() as f64 / f64::from(SAMPLE_RATE)
    }
}

impl std::fmt::Debug for Pcm {
    /// Length only: audio never reaches a log.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pcm({:.3} s)", self.duration_seconds())
    }
}
