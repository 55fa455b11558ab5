//! One speaker's audio to utterances: voice activity, where a turn begins and where it ends.
//!
//! Silence ends a turn. Where somebody else decides whether the speaker is done, it only makes a pause, which
//! ends the turn when [`Ear::end`] says so before speech goes on.

use super::config::Turn;
use crate::audio::{Pcm, SAMPLE_RATE};
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
    /// They pause, perhaps in the middle of a sentence: what they have said so far, and the pause's number.
    Paused(Pcm, u64),
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
    /// So many so far.
    pauses: u64,
}

impl Ear {
    /// `judged`: somebody else says when a pause ends a turn.
    pub fn new(vad: &Vad, turn: &Turn, judged: bool) -> Self {
        let detector = Detector::new(turn, judged);
        Self { vad: vad.stream(), detector, heard: Vec::new(), unseen: 0, pauses: 0 }
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
                Step::Paused => {
                    self.pauses += 1;
                    let end = self.heard.len() - self.unseen.min(self.heard.len());
                    let so_far = self.heard.get(..end).unwrap_or_default();
                    noticed.push(Noticed::Paused(Pcm::new(so_far), self.pauses));
                }
                Step::Ended => noticed.push(Noticed::Ended(self.take())),
            }
        }
        if !self.detector.in_turn() {
            // Only the lead is kept, with what may become the turn's begin.
            let kept = LEAD_SAMPLES + self.detector.voiced * FRAME_SAMPLES + self.unseen;
            self.heard.drain(..self.heard.len().saturating_sub(kept));
        }
        noticed
    }

    /// Ends the turn by its pause number `pause`: the utterance, unless speech has gone on since.
    pub fn end(&mut self, pause: u64) -> Option<Pcm> {
        if pause != self.pauses || !self.detector.end_pause() {
            return None;
        }
        Some(self.take())
    }

    /// What was heard up to the last frame.
    fn take(&mut self) -> Pcm {
        let end = self.heard.len() - self.unseen.min(self.heard.len());
        let rest = self.heard.split_off(end);
        Pcm::new(std::mem::replace(&mut self.heard, rest))
    }
}

/// The turn's state machine, frame by frame. Pure.
struct Detector {
    threshold: f32,
    start_frames: usize,
    insist_frames: usize,
    /// So many frames of silence are a pause, which ends the turn unless it is `judged`.
    pause_frames: usize,
    judged: bool,
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
    Paused,
    Ended,
}

impl Detector {
    fn new(turn: &Turn, judged: bool) -> Self {
        let frames = |ms: u64| usize::try_from(ms / FRAME_MS).unwrap_or(usize::MAX).max(1);
        let start_frames = frames(turn.start_ms);
        Self {
            threshold: turn.threshold,
            start_frames,
            insist_frames: frames(turn.interrupt_ms).max(start_frames + 1),
            pause_frames: frames(if judged { turn.pause_ms } else { turn.silence_ms }),
            judged,
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
        let is_over = !self.judged && self.silent >= self.pause_frames;
        if is_over || self.frames >= self.frames_max {
            self.end();
            return Step::Ended;
        }
        if self.silent == self.pause_frames {
            return Step::Paused;
        }
        if is_speech && self.voiced == self.insist_frames { Step::Insists } else { Step::Nothing }
    }

    /// Whether there was a pause, which has ended the turn.
    fn end_pause(&mut self) -> bool {
        let is_pause = self.in_turn && self.silent >= self.pause_frames;
        if is_pause {
            self.end();
        }
        is_pause
    }

    fn end(&mut self) {
        (self.in_turn, self.voiced, self.silent, self.frames) = (false, 0, 0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What happens, with the frame it happens in.
    fn run(frames: &[f32]) -> Vec<(usize, Step)> {
        let mut detector = Detector::new(&Turn::default(), false);
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
    fn a_judged_turn_ends_when_it_is_said_to_and_nobody_speaks() {
        let mut detector = Detector::new(&Turn::default(), true);
        let mut run = |probability: f32, frames: usize| {
            let steps = (0..frames).map(|at| (at, detector.frame(probability)));
            let steps: Vec<_> = steps.filter(|(_, step)| *step != Step::Nothing).collect();
            (steps, detector.end_pause())
        };
        // 7 frames are 224 ms.
        assert_eq!(run(0.9, 10), (vec![(5, Step::Began)], false));
        assert_eq!(run(0.0, 6), (vec![], false));
        assert_eq!(run(0.9, 4), (vec![(1, Step::Insists)], false));
        assert_eq!(run(0.0, 100), (vec![(6, Step::Paused)], true));
        assert_eq!(run(0.0, 100), (vec![], false));
        assert_eq!(run(0.9, 10), (vec![(5, Step::Began)], false));
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
