//! One speaker's audio to utterances: voice activity, the begin of a turn and its end.
//!
//! Silence ends a turn. If a model judges whether the speaker is done, silence only makes a pause, which ends the
//! turn when [`Ear::end`] is called before speech goes on.

use super::config::Turn;
use crate::audio::{Pcm, SAMPLE_RATE};
use crate::vad::{Endpointer, Endpointing, FRAME_SAMPLES, Step, Utterance, Vad, VadStream};

/// Kept before the first frame that counts as speech: words begin softly.
const LEAD_SAMPLES: usize = SAMPLE_RATE as usize * 3 / 10;
const FRAME_MS: u64 = FRAME_SAMPLES as u64 * 1000 / SAMPLE_RATE as u64;
/// Within a turn, a frame is speech down to this much below `threshold`.
const HYSTERESIS: f32 = 0.15;

/// An event in a speaker's audio.
#[derive(Debug)]
pub enum Noticed {
    /// The speaker began.
    Began,
    /// The speaker has gone on for long enough to stop the agent.
    Insists,
    /// The speaker pauses, perhaps within a sentence: the audio so far, and the pause's number.
    Paused(Pcm, u64),
    /// The speaker is done, or has spoken for the longest turn.
    Ended(Utterance),
}

pub struct Ear {
    vad: VadStream,
    detector: Detector,
    /// Samples from the lead or from the turn's begin on.
    heard: Vec<f32>,
    /// The probabilities of speech in the frames that end within `heard`.
    probabilities: Vec<f32>,
    /// Samples of an incomplete frame, which the detector has not seen.
    unseen: usize,
    /// The number of pauses so far.
    pauses: u64,
}

impl Ear {
    /// `judged`: a model decides whether a pause ends a turn.
    pub fn new(vad: &Vad, turn: &Turn, judged: bool) -> Self {
        let detector = Detector::new(turn, judged);
        let (heard, probabilities) = (Vec::new(), Vec::new());
        Self { vad: vad.stream(), detector, heard, probabilities, unseen: 0, pauses: 0 }
    }

    /// Takes the next samples, at [`SAMPLE_RATE`].
    pub fn listen(&mut self, samples: &[f32]) -> Vec<Noticed> {
        let mut noticed = Vec::new();
        self.heard.extend_from_slice(samples);
        self.unseen += samples.len();
        for probability in self.vad.push(samples) {
            self.unseen = self.unseen.saturating_sub(FRAME_SAMPLES);
            self.probabilities.push(probability);
            match self.detector.frame(probability) {
                Heard::Nothing => {}
                Heard::Began => noticed.push(Noticed::Began),
                Heard::Insists => noticed.push(Noticed::Insists),
                Heard::Paused => {
                    self.pauses += 1;
                    let end = self.heard.len() - self.unseen.min(self.heard.len());
                    let so_far = self.heard.get(..end).unwrap_or_default();
                    noticed.push(Noticed::Paused(Pcm::new(so_far), self.pauses));
                }
                Heard::Ended => noticed.push(Noticed::Ended(self.take())),
            }
        }
        let endpointer = &self.detector.endpointer;
        if !endpointer.in_utterance() {
            // Only the lead is kept, with the speech that may become the turn's begin.
            let seen = LEAD_SAMPLES + endpointer.voiced_frames() * FRAME_SAMPLES;
            self.heard.drain(..self.heard.len().saturating_sub(seen + self.unseen));
            let frames = seen.div_ceil(FRAME_SAMPLES);
            self.probabilities.drain(..self.probabilities.len().saturating_sub(frames));
        }
        noticed
    }

    /// Ends the turn by its pause number `pause` and returns the utterance, unless speech has gone on since.
    pub fn end(&mut self, pause: u64) -> Option<Utterance> {
        if pause != self.pauses || !self.detector.end_pause() {
            return None;
        }
        Some(self.take())
    }

    /// Ends the turn in the middle: what was heard so far is the utterance.
    pub fn finish(mut self) -> Utterance {
        self.take()
    }

    /// Takes the audio up to the last whole frame.
    fn take(&mut self) -> Utterance {
        let end = self.heard.len() - self.unseen.min(self.heard.len());
        let rest = self.heard.split_off(end);
        let pcm = Pcm::new(std::mem::replace(&mut self.heard, rest));
        Utterance::new(pcm, std::mem::take(&mut self.probabilities))
    }
}

/// Turns out of utterances, frame by frame. Pure.
struct Detector {
    endpointer: Endpointer,
    insist_frames: usize,
    /// Whether a pause ends the turn only if [`Detector::end_pause`] says so.
    judged: bool,
    frames_max: usize,
}

#[derive(Debug, PartialEq, Eq)]
enum Heard {
    Nothing,
    Began,
    Insists,
    Paused,
    Ended,
}

impl Detector {
    fn new(turn: &Turn, judged: bool) -> Self {
        let frames = |ms: u64| usize::try_from(ms / FRAME_MS).unwrap_or(usize::MAX).max(1);
        let begin_frames = frames(turn.start_ms);
        let stay = (turn.threshold - HYSTERESIS).max(0.01);
        let endpointing = Endpointing {
            begin: turn.threshold,
            stay,
            resume: stay,
            begin_frames,
            pause_frames: Some(frames(if judged { turn.pause_ms } else { turn.silence_ms })),
        };
        Self {
            endpointer: Endpointer::new(endpointing),
            insist_frames: frames(turn.interrupt_ms).max(begin_frames + 1),
            judged,
            frames_max: frames(turn.seconds_max.saturating_mul(1000)),
        }
    }

    fn frame(&mut self, probability: f32) -> Heard {
        let step = self.endpointer.frame(probability);
        match step {
            Step::Outside => return Heard::Nothing,
            Step::Began => return Heard::Began,
            Step::Speech | Step::Silence | Step::Pause => {}
        }
        let is_over = step == Step::Pause && !self.judged;
        if is_over || self.endpointer.frames() >= self.frames_max {
            self.endpointer.end();
            return Heard::Ended;
        }
        match step {
            Step::Pause => Heard::Paused,
            Step::Speech if self.endpointer.voiced_frames() == self.insist_frames => Heard::Insists,
            _ => Heard::Nothing,
        }
    }

    /// Ends the turn if it has paused, and returns whether it had.
    fn end_pause(&mut self) -> bool {
        let is_paused = self.endpointer.is_paused();
        if is_paused {
            self.endpointer.end();
        }
        is_paused
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The events of these frames, each with its frame.
    fn run(frames: &[f32]) -> Vec<(usize, Heard)> {
        let mut detector = Detector::new(&Turn::default(), false);
        let steps = frames.iter().enumerate().map(|(at, &p)| (at, detector.frame(p)));
        steps.filter(|(_, step)| *step != Heard::Nothing).collect()
    }

    #[test]
    fn a_turn_begins_insists_and_ends() {
        let frames = [vec![0.0; 10], vec![0.9; 30], vec![0.0; 40]].concat();
        // 6 frames are 192 ms, 12 are 384 ms and 18 are 576 ms.
        assert_eq!(run(&frames), [(15, Heard::Began), (21, Heard::Insists), (57, Heard::Ended)]);
    }

    #[test]
    fn a_pause_within_a_sentence_does_not_end_it() {
        let frames = [vec![0.9; 20], vec![0.0; 17], vec![0.9; 5], vec![0.0; 18]].concat();
        assert_eq!(run(&frames).last(), Some(&(59, Heard::Ended)));
    }

    #[test]
    fn a_judged_turn_ends_when_the_judge_says_so_during_silence() {
        let mut detector = Detector::new(&Turn::default(), true);
        let mut run = |probability: f32, frames: usize| {
            let steps = (0..frames).map(|at| (at, detector.frame(probability)));
            let steps: Vec<_> = steps.filter(|(_, step)| *step != Heard::Nothing).collect();
            (steps, detector.end_pause())
        };
        // 7 frames are 224 ms.
        assert_eq!(run(0.9, 10), (vec![(5, Heard::Began)], false));
        assert_eq!(run(0.0, 6), (vec![], false));
        assert_eq!(run(0.9, 4), (vec![(1, Heard::Insists)], false));
        assert_eq!(run(0.0, 100), (vec![(6, Heard::Paused)], true));
        assert_eq!(run(0.0, 100), (vec![], false));
        assert_eq!(run(0.9, 10), (vec![(5, Heard::Began)], false));
    }

    #[test]
    fn clicks_are_no_turn() {
        let frames: Vec<f32> = (0..200).map(|n| if n % 8 < 4 { 0.9 } else { 0.0 }).collect();
        assert_eq!(run(&frames), []);
    }

    #[test]
    fn a_turn_without_end_is_cut() {
        let steps = run(&vec![0.9; 2000]);
        let ends = steps.iter().filter(|(_, step)| *step == Heard::Ended).count();
        // 29 s are 906 frames.
        assert_eq!(ends, 2);
    }
}
