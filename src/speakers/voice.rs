//! Speech that segmentation passes over: the voice activity detector still hears voices that are quiet, or that a
//! telephone has made narrow.

use std::ops::Range;

use crate::vad::{FRAME_SAMPLES as VAD_SAMPLES, SURE_SPEECH};

use super::frames::{Tally, middle_of};
use super::regions::runs;

/// Frames of segmentation without a speaker in which voice must be heard on end: 0.25 s.
const UNHEARD_FRAMES: usize = 15;
/// Voice that has begun goes on in frames of this probability.
const STAY: f32 = 0.35;

/// Probabilities of voice, one for each frame of the voice activity detector.
#[derive(Debug, Default)]
pub struct Voice {
    /// The detector's frame that `is_voice` begins with.
    first: usize,
    is_voice: Vec<bool>,
}

impl Voice {
    /// Takes the probabilities of the next frames. Voice begins where it is sure, and goes on where it is likely.
    pub fn extend(&mut self, probabilities: impl IntoIterator<Item = f32>) {
        for probability in probabilities {
            let least = if self.is_voice.last() == Some(&true) { STAY } else { SURE_SPEECH };
            self.is_voice.push(probability >= least);
        }
    }

    /// Frees the memory of what lies before `sample`.
    pub fn forget(&mut self, sample: usize) {
        let count = (sample / VAD_SAMPLES).saturating_sub(self.first).min(self.is_voice.len());
        self.is_voice.drain(..count);
        self.first += count;
    }

    /// The stretches of `frames`, of segmentation, in which `tally` has no speaker and there is voice.
    pub fn unheard(&self, tally: &Tally, frames: Range<usize>) -> Vec<Range<usize>> {
        let is_unheard = |frame: usize| !tally.is_speech(frame) && self.at(middle_of(frame));
        runs(frames, is_unheard).filter(|run| run.len() >= UNHEARD_FRAMES).collect()
    }

    fn at(&self, sample: usize) -> bool {
        let frame = (sample / VAD_SAMPLES).checked_sub(self.first);
        frame.and_then(|frame| self.is_voice.get(frame)).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::super::frames::{FRAME_SAMPLES, Window};
    use super::*;

    /// Segmentation hears one speaker in `frames` of 589.
    fn tally(frames: Range<usize>) -> Tally {
        let mut tally = Tally::default();
        let speakers = (0..589).map(|frame| u8::from(frames.contains(&frame))).collect();
        tally.add(&Window { start: 0, speakers });
        tally
    }

    /// Voice of `probability` in `samples`, and none around them.
    fn voice(samples: Range<usize>, probability: f32) -> Voice {
        let mut voice = Voice::default();
        let is_inside = |frame: &usize| samples.contains(&(frame * VAD_SAMPLES));
        voice.extend((0..313).map(|frame| if is_inside(&frame) { probability } else { 0.1 }));
        voice
    }

    fn sample(frame: usize) -> usize {
        frame * FRAME_SAMPLES
    }

    #[test]
    fn sure_voice_without_a_speaker_is_speech() {
        let mut tally = tally(0..200);
        let unheard = voice(sample(100)..sample(400), 0.6).unheard(&tally, 0..589);
        assert_eq!(unheard.len(), 1);
        assert_eq!(unheard[0].start, 200);
        assert!(unheard[0].end.abs_diff(400) < 4, "{unheard:?}");
        tally.hear(unheard[0].clone());
        assert!(tally.is_speech(300) && !tally.is_overlap(300) && !tally.is_speech(450));
    }

    #[test]
    fn doubtful_or_short_voice_is_none() {
        assert!(voice(sample(100)..sample(400), 0.45).unheard(&tally(0..0), 0..589).is_empty());
        assert!(voice(sample(100)..sample(110), 0.9).unheard(&tally(0..0), 0..589).is_empty());
        // Voice is heard a little before and after segmentation's speaker.
        assert!(voice(sample(195)..sample(305), 0.9).unheard(&tally(200..300), 0..589).is_empty());
    }

    #[test]
    fn voice_that_has_begun_goes_on_where_it_is_likely() {
        let mut voice = Voice::default();
        voice.extend([0.6].into_iter().chain([0.4; 30]).chain([0.3]).chain([0.4; 30]));
        let unheard = voice.unheard(&tally(0..0), 0..110);
        assert_eq!(unheard.len(), 1);
        assert!(unheard[0].end.abs_diff(31 * VAD_SAMPLES / FRAME_SAMPLES) < 4, "{unheard:?}");
    }

    #[test]
    fn what_is_forgotten_is_silence_and_the_rest_stays_in_its_place() {
        let mut voice = voice(sample(100)..sample(400), 0.9);
        voice.forget(sample(300));
        let unheard = voice.unheard(&tally(0..0), 0..589);
        assert_eq!(unheard.len(), 1);
        assert!(unheard[0].start.abs_diff(300) < 4 && unheard[0].end.abs_diff(400) < 4, "{unheard:?}");
    }
}
