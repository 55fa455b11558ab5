//! The part of a channel's audio that may still be needed.

use std::ops::Range;

use crate::audio::{Pcm, SAMPLE_RATE};

/// The least number of samples that are dropped at once.
const TRIMMED: u64 = SAMPLE_RATE as u64 / 20;
/// Up to this length no memory is reserved in advance: most streams are silent most of the time.
const SMALL: usize = SAMPLE_RATE as usize;

/// Samples, addressed by their position in the stream. They are kept in 16 bits, as in the reference
/// (openai/whisper `load_audio`): half the memory, and noise at -98 dB at most.
#[derive(Default)]
pub struct Recording {
    samples: Vec<i16>,
    start: u64,
}

impl Recording {
    pub fn push(&mut self, samples: &[f32]) {
        if self.samples.len() + samples.len() <= SMALL {
            self.samples.reserve_exact(samples.len());
        }
        // The cast saturates: louder samples become full scale.
        self.samples.extend(samples.iter().map(|sample| (sample * 32_768.0).round() as i16));
    }

    /// Samples so far, including dropped ones.
    pub fn end(&self) -> u64 {
        self.start + self.samples.len() as u64
    }

    /// The positions of the samples that are still there.
    pub fn available(&self) -> Range<u64> {
        self.start..self.end()
    }

    /// The samples of `range` that are still there.
    pub fn pcm(&self, range: Range<u64>) -> Pcm {
        let [start, end] =
            [range.start, range.end].map(|position| position.saturating_sub(self.start) as usize);
        let samples = self.samples.get(start..end.min(self.samples.len())).unwrap_or_default();
        Pcm::new(samples.iter().map(|&sample| f32::from(sample) / 32_768.0).collect::<Vec<_>>())
    }

    /// Drops the samples before `position`.
    pub fn forget(&mut self, position: u64) {
        let surplus = position.min(self.end()).saturating_sub(self.start);
        if surplus >= TRIMMED {
            self.samples.drain(..surplus as usize);
            self.start += surplus;
            let room = self.samples.len();
            self.samples.shrink_to(if room <= SMALL { room } else { room * 2 });
        }
    }
}
