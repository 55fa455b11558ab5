//! One sound of a whole talk, for those who listen in: the callers and the agent, each at its own pace.

use std::collections::{HashMap, VecDeque};

use crate::audio::{self, RateConverter, SAMPLE_RATE};
use crate::speech::VOICE_RATE;

/// A frame of 20 ms.
pub const FRAME_SAMPLES: usize = SAMPLE_RATE as usize / 50;
/// A caller's sound comes unevenly: it is played this late from the start, and never later than the maximum.
const LAG_SAMPLES: usize = SAMPLE_RATE as usize / 10;
const LAG_SAMPLES_MAX: usize = SAMPLE_RATE as usize;
/// The agent's sound comes ahead of its time, by less than this.
const AHEAD_SAMPLES_MAX: usize = SAMPLE_RATE as usize * 30;

pub struct Mixer {
    agent: VecDeque<f32>,
    converter: RateConverter,
    callers: HashMap<u64, Queue>,
}

#[derive(Default)]
struct Queue {
    samples: VecDeque<f32>,
    has_begun: bool,
}

impl Mixer {
    /// # Errors
    /// None: the rates are usual ones.
    pub fn new() -> Result<Self, audio::Error> {
        let converter = RateConverter::new(VOICE_RATE, SAMPLE_RATE)?;
        Ok(Self { agent: VecDeque::new(), converter, callers: HashMap::new() })
    }

    /// The agent's next samples, at [`VOICE_RATE`].
    pub fn agent(&mut self, samples: &[f32]) {
        self.agent.extend(self.converter.push(samples));
        let over = self.agent.len().saturating_sub(AHEAD_SAMPLES_MAX);
        self.agent.drain(..over);
    }

    /// The agent falls silent.
    pub fn clear(&mut self) {
        self.agent.clear();
    }

    /// The next samples of the caller in `seat`, at [`SAMPLE_RATE`].
    pub fn caller(&mut self, seat: u64, samples: &[f32]) {
        let queue = self.callers.entry(seat).or_default();
        queue.samples.extend(samples);
        let over = queue.samples.len().saturating_sub(LAG_SAMPLES_MAX);
        queue.samples.drain(..over);
    }

    /// The next [`FRAME_SAMPLES`] of the talk.
    pub fn frame(&mut self) -> Vec<f32> {
        let mut frame = vec![0.0; FRAME_SAMPLES];
        let mut add = |samples: &mut VecDeque<f32>| {
            let count = samples.len().min(FRAME_SAMPLES);
            frame.iter_mut().zip(samples.drain(..count)).for_each(|(mixed, sample)| *mixed += sample);
        };
        add(&mut self.agent);
        for queue in self.callers.values_mut() {
            queue.has_begun |= queue.samples.len() >= LAG_SAMPLES;
            if queue.has_begun {
                add(&mut queue.samples);
            }
        }
        self.callers.retain(|_, queue| !(queue.has_begun && queue.samples.is_empty()));
        frame
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loudest(frame: &[f32]) -> f32 {
        frame.iter().fold(0.0, |most, sample| most.max(sample.abs()))
    }

    #[test]
    fn both_sides_are_in_it_and_silence_is_silence() {
        let mut mixer = Mixer::new().expect("usual rates");
        assert_eq!(mixer.frame(), [0.0; FRAME_SAMPLES]);
        mixer.caller(1, &[0.25; 2 * LAG_SAMPLES]);
        assert!((loudest(&mixer.frame()) - 0.25).abs() < 1e-6);
        mixer.caller(2, &[0.5; LAG_SAMPLES]);
        assert!((loudest(&mixer.frame()) - 0.75).abs() < 1e-6);
        mixer.agent(&vec![0.125; VOICE_RATE as usize]);
        let frames: Vec<_> = (0..5).map(|_| mixer.frame()).collect();
        assert!(frames.iter().any(|frame| (loudest(frame) - 0.875).abs() < 0.02), "{frames:?}");
        mixer.clear();
        (0..10).for_each(|_| drop(mixer.frame()));
        assert_eq!(mixer.frame(), [0.0; FRAME_SAMPLES]);
    }

    #[test]
    fn a_caller_begins_when_a_little_has_come_and_never_lags_far_behind() {
        let mut mixer = Mixer::new().expect("usual rates");
        mixer.caller(1, &[0.5; FRAME_SAMPLES]);
        assert_eq!(mixer.frame(), [0.0; FRAME_SAMPLES]);
        mixer.caller(1, &[0.5; 5 * LAG_SAMPLES_MAX]);
        let frames = (0..1000).take_while(|_| loudest(&mixer.frame()) > 0.0).count();
        assert_eq!(frames, LAG_SAMPLES_MAX / FRAME_SAMPLES);
        assert!(mixer.callers.is_empty());
    }
}
