//! The audio of a channel that may still be needed.

use std::ops::Range;

use crate::audio::{Pcm, SAMPLE_RATE};

/// Samples that may be forgotten are, when they are so many.
const TRIMMED: u64 = SAMPLE_RATE as u64 / 10;

/// Samples, each known by its position in the stream.
#[derive(Default)]
pub struct Recording {
    samples: Vec<f32>,
    start: u64,
}

impl Recording {
    pub fn push(&mut self, samples: &[f32]) {
        self.samples.extend_from_slice(samples);
    }

    /// Samples so far, forgotten ones included.
    pub fn end(&self) -> u64 {
        self.start + self.samples.len() as u64
    }

    /// What is left of `range`.
    pub fn pcm(&self, range: Range<u64>) -> Pcm {
        let [start, end] =
            [range.start, range.end].map(|position| position.saturating_sub(self.start) as usize);
        Pcm::new(self.samples.get(start..end.min(self.samples.len())).unwrap_or_default())
    }

    /// Forgets what lies before `position`.
    pub fn forget(&mut self, position: u64) {
        let surplus = position.min(self.end()).saturating_sub(self.start);
        if surplus >= TRIMMED {
            self.samples.drain(..surplus as usize);
            self.start += surplus;
            self.samples.shrink_to(self.samples.len() * 2);
        }
    }
}
