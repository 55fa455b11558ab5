//! One speaker's audio to utterances: voice activity, where a turn begins and where it ends.

use crate::audio::{Pcm, SAMPLE_RATE};
use crate::sts::config::Turn;
use crate::vad::{FRAME_SAMPLES, Vad, VadStream};

/// Kept before the first frame that counts as speech: words begin softly.
const LEAD_SAMPLES: usize = SAMPLE_RATE as usize * 3 / 10;
const FRAME_MS: u64 = FRAME_SAMPLES as u64 * 1000 / SAMPLE_RATE as u64;
/// What follows speech of less than `threshold` still belongs to it down to this much less.
const HYSTERESIS: f32 = 0.15;

/// What an ear notices.
#[derive(Debug)]
pub enum Noticed {
    /// Somebody began to speak.
    Began,
    /// They mean it: enough to stop the agent.
    Insists,
    /// They are done, or have spoken for as long as is listened to at once.
    Ended(Pcm),
}

pub struct Ear {
    vad: VadStream,
    detector: Detector,
    /// Samples from the lead or from the turn's begin on.
    heard: Vec<f32>,
    /// Samples that the detector has not seen, as they make no frame yet.
    unseen: usize,
}

impl Ear {
    pub fn new(vad: &Vad, turn: &Turn) -> Self {
        Self { vad: vad.stream(), detector: Detector::new(turn), heard: Vec::new(), unseen: 0 }
    }

    /// Takes the next samples, at [`SAMPLE_RATE`].
    pub fn listen(&mut self, samples: &[f32]) -> Vec<Noticed> {
        let mut noticed = Vec::new();
        self.heard.extend_from_slice(samples);
        self.unseen += samples.len();
        for probability in self.vad.push(samples) {
            self.unseen = self.unseen.saturating_sub(FRAME_SAMPLES);
            match self.detector.frame(probability) {
                Step::Nothing => {}
                Step::Began => noticed.push(Noticed::Began),
                Step::Insists => noticed.push(Noticed::Insists),
                Step::Ended => {
                    let end = self.heard.len() - self.unseen.min(self.heard.len());
                    let rest = self.heard.split_off(end);
                    let utterance = std::mem::replace(&mut self.heard, rest);
                    noticed.push(Noticed::Ended(Pcm::new(utterance)));
                }
            }
        }
        if !self.detector.in_turn() {
            // Only the lead is kept, with what may become the turn's begin.
            let kept = LEAD_SAMPLES + self.detector.voiced * FRAME_SAMPLES + self.unseen;
            self.heard.drain(..self.heard.len().saturating_sub(kept));
        }
        noticed
    }
}

/// The turn's state machine, frame by frame. Pure.
struct Detector {
    threshold: f32,
    start_frames: usize,
    insist_frames: usize,
    silence_frames: usize,
    frames_max: usize,
    in_turn: bool,
    /// Frames of speech: of the turn, or before it in a row with short gaps.
    voiced: usize,
    silent: usize,
    frames: usize,
}

#[derive(Debug, PartialEq, Eq)]
enum Step {
    Nothing,
    Began,
    Insists,
    Ended,
}

impl Detector {
    fn new(turn: &Turn) -> Self {
        let frames = |ms: u64| usize::try_from(ms / FRAME_MS).unwrap_or(usize::MAX).max(1);
        let start_frames = frames(turn.start_ms);
        Self {
            threshold: turn.threshold,
            start_frames,
            insist_frames: frames(turn.interrupt_ms).max(start_frames + 1),
            silence_frames: frames(turn.silence_ms),
            frames_max: frames(turn.seconds_max.saturating_mul(1000)),
            in_turn: false,
            voiced: 0,
            silent: 0,
            frames: 0,
        }
    }

    fn in_turn(&self) -> bool {
        self.in_turn
    }

    fn frame(&mut self, probability: f32) -> Step {
        if !self.in_turn {
            self.silent = if probability >= self.threshold { 0 } else { self.silent + 1 };
            self.voiced += usize::from(self.silent == 0);
            // Two frames of doubt are within a word; more, and it was a click.
            if self.silent > 2 {
                self.voiced = 0;
            }
            if self.voiced < self.start_frames {
                return Step::Nothing;
            }
            (self.in_turn, self.frames) = (true, self.voiced);
            return Step::Began;
        }
        self.frames += 1;
        let is_speech = probability >= (self.threshold - HYSTERESIS).max(0.01);
        self.silent = if is_speech { 0 } else { self.silent + 1 };
        self.voiced += usize::from(is_speech);
        if self.silent >= self.silence_frames || self.frames >= self.frames_max {
            (self.in_turn, self.voiced, self.silent, self.frames) = (false, 0, 0, 0);
            return Step::Ended;
        }
        if is_speech && self.voiced == self.insist_frames { Step::Insists } else { Step::Nothing }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What happens, with the frame it happens in.
    fn run(frames: &[f32]) -> Vec<(usize, Step)> {
        let mut detector = Detector::new(&Turn::default());
        let steps = frames.iter().enumerate().map(|(at, &p)| (at, detector.frame(p)));
        steps.filter(|(_, step)| *step != Step::Nothing).collect()
    }

    #[test]
    fn a_turn_begins_insists_and_ends() {
        let frames = [vec![0.0; 10], vec![0.9; 30], vec![0.0; 40]].concat();
        // 6 frames are 192 ms, 12 are 384 ms and 18 are 576 ms.
        assert_eq!(run(&frames), [(15, Step::Began), (21, Step::Insists), (57, Step::Ended)]);
    }

    #[test]
    fn a_pause_within_a_sentence_does_not_end_it() {
        let frames = [vec![0.9; 20], vec![0.0; 17], vec![0.9; 5], vec![0.0; 18]].concat();
        assert_eq!(run(&frames).last(), Some(&(59, Step::Ended)));
    }

    #[test]
    fn clicks_are_no_turn() {
        let frames: Vec<f32> = (0..200).map(|n| if n % 8 < 4 { 0.9 } else { 0.0 }).collect();
        assert_eq!(run(&frames), []);
    }

    #[test]
    fn who_never_stops_is_cut() {
        let steps = run(&vec![0.9; 2000]);
        let ends = steps.iter().filter(|(_, step)| *step == Step::Ended).count();
        // 29 s are 906 frames.
        assert_eq!(ends, 2);
    }
}
