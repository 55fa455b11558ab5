//! An utterance with the probabilities of speech by which it was found.

use super::silero::FRAME_SAMPLES;
use crate::audio::Pcm;

/// The audio of one utterance. A recogniser need not look for speech in it again.
#[derive(Debug, Clone)]
pub struct Utterance {
    pub pcm: Pcm,
    /// One for each frame; the last frame ends where the audio ends, and the first may begin before it.
    probabilities: Vec<f32>,
}

impl Utterance {
    /// `probabilities`: of the frames of [`FRAME_SAMPLES`] up to the end of `pcm`.
    pub fn new(pcm: Pcm, probabilities: Vec<f32>) -> Self {
        Self { pcm, probabilities }
    }

    /// Whole frames from `sample` on that have at least the probability `least`.
    pub fn frames_after(&self, sample: usize, least: f32) -> usize {
        let frames = self.pcm.len().saturating_sub(sample) / FRAME_SAMPLES;
        self.probabilities.iter().rev().take(frames).filter(|&&probability| probability >= least).count()
    }

    /// The sample at which the last frame of at least the probability `least` ends.
    pub fn end(&self, least: f32) -> usize {
        let silent = self.probabilities.iter().rev().take_while(|&&probability| probability < least).count();
        self.pcm.len().saturating_sub(silent * FRAME_SAMPLES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_counted_from_the_end() {
        // The audio begins in the middle of its first frame.
        let pcm = Pcm::new(vec![0.0; 3 * FRAME_SAMPLES + 100]);
        let utterance = Utterance::new(pcm, vec![0.9, 0.9, 0.2, 0.1]);
        assert_eq!(utterance.end(0.5), FRAME_SAMPLES + 100);
        assert_eq!(utterance.end(0.2), 2 * FRAME_SAMPLES + 100);
        assert_eq!(utterance.frames_after(100, 0.5), 1);
        assert_eq!(utterance.frames_after(101, 0.5), 0);
        assert_eq!(utterance.frames_after(0, 0.1), 3);
        assert_eq!(utterance.frames_after(1 << 20, 0.1), 0);
    }
}
