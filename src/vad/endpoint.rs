//! Endpointing: where speech begins and where it pauses, frame by frame.
//!
//! Files, live streams and agents find speech by this one state machine. They differ in their thresholds, and in
//! the pauses after which they take an utterance for ended. Pure.

/// Thresholds of an [`Endpointer`]. Probabilities are 0 to 1, frames are of [`super::FRAME_SAMPLES`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Endpointing {
    /// Outside an utterance, a frame of at least this probability is speech.
    pub begin: f32,
    /// Within an utterance and right after speech, a frame of at least this probability is speech.
    pub stay: f32,
    /// Within an utterance and after silence, a frame of at least this probability is speech.
    pub resume: f32,
    /// Frames of speech that begin an utterance. They need not be adjacent: see [`DOUBT_FRAMES`].
    pub begin_frames: usize,
    /// Frames of silence that make a pause; `None` if the caller measures pauses itself.
    pub pause_frames: Option<usize>,
}

/// A frame of at least this probability is surely speech: enough of them are worth recognising again.
pub const SURE_SPEECH: f32 = 0.5;

/// Silent frames that an utterance's first speech may contain: two are within a word, more make it a click.
pub const DOUBT_FRAMES: usize = 2;

/// The effect of one frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// No utterance has begun.
    Outside,
    /// An utterance began.
    Began,
    /// A frame of speech within the utterance.
    Speech,
    /// A frame of silence within the utterance.
    Silence,
    /// The frame of silence that makes a pause. The utterance goes on until [`Endpointer::end`].
    Pause,
}

/// Finds utterances in probabilities of speech.
#[derive(Debug)]
pub struct Endpointer {
    endpointing: Endpointing,
    in_utterance: bool,
    /// Frames of speech: of the utterance, or those that may become its begin.
    voiced: usize,
    /// Frames of silence since the last speech.
    silent: usize,
    /// Frames of the utterance: the speech that began it, and everything since.
    frames: usize,
}

impl Endpointer {
    /// Starts outside an utterance.
    pub fn new(endpointing: Endpointing) -> Self {
        Self { endpointing, in_utterance: false, voiced: 0, silent: 0, frames: 0 }
    }

    /// Starts within an utterance, right after speech.
    pub fn speaking(endpointing: Endpointing) -> Self {
        Self { in_utterance: true, ..Self::new(endpointing) }
    }

    /// Other thresholds from here on.
    pub fn configure(&mut self, endpointing: Endpointing) {
        self.endpointing = endpointing;
    }

    /// Takes the probability of speech in the next frame.
    pub fn frame(&mut self, probability: f32) -> Step {
        let Endpointing { begin, stay, resume, begin_frames, pause_frames } = self.endpointing;
        let least = match (self.in_utterance, self.silent) {
            (false, _) => begin,
            (true, 0) => stay,
            (true, _) => resume,
        };
        let is_speech = probability >= least;
        self.silent = if is_speech { 0 } else { self.silent + 1 };
        self.voiced += usize::from(is_speech);
        if self.in_utterance {
            self.frames += 1;
            return match is_speech {
                true => Step::Speech,
                false if pause_frames == Some(self.silent) => Step::Pause,
                false => Step::Silence,
            };
        }
        if self.silent > DOUBT_FRAMES {
            self.voiced = 0;
        }
        if self.voiced < begin_frames.max(1) {
            return Step::Outside;
        }
        (self.in_utterance, self.frames) = (true, self.voiced);
        Step::Began
    }

    /// Ends the utterance: the next one needs to begin anew.
    pub fn end(&mut self) {
        *self = Self::new(self.endpointing);
    }

    pub fn in_utterance(&self) -> bool {
        self.in_utterance
    }

    /// Whether an utterance is on, and its last frame was speech.
    pub fn is_speaking(&self) -> bool {
        self.in_utterance && self.silent == 0
    }

    /// Whether an utterance is on, and has paused.
    pub fn is_paused(&self) -> bool {
        self.in_utterance && self.endpointing.pause_frames.is_some_and(|pause| self.silent >= pause)
    }

    /// Frames of speech in the utterance, or in what may become its begin.
    pub fn voiced_frames(&self) -> usize {
        self.voiced
    }

    /// Frames of silence since the last speech.
    pub fn silent_frames(&self) -> usize {
        self.silent
    }

    /// Frames of the utterance so far: the speech that began it, and everything since.
    pub fn frames(&self) -> usize {
        self.frames
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Endpointing =
        Endpointing { begin: 0.5, stay: 0.3, resume: 0.5, begin_frames: 1, pause_frames: Some(2) };

    fn steps(endpointing: Endpointing, probabilities: &[f32]) -> Vec<Step> {
        let mut endpointer = Endpointer::new(endpointing);
        probabilities.iter().map(|&probability| endpointer.frame(probability)).collect()
    }

    #[test]
    fn speech_stays_above_one_threshold_and_resumes_above_another() {
        use Step::{Began, Outside, Pause, Silence, Speech};
        let probabilities = [0.4, 0.5, 0.4, 0.2, 0.4, 0.4, 0.5];
        assert_eq!(steps(PLAIN, &probabilities), [Outside, Began, Speech, Silence, Pause, Silence, Speech]);
        let eager = Endpointing { resume: 0.3, ..PLAIN };
        assert_eq!(steps(eager, &probabilities), [Outside, Began, Speech, Silence, Speech, Speech, Speech]);
    }

    #[test]
    fn an_utterance_begins_with_enough_speech_that_is_close_together() {
        let slow = Endpointing { begin_frames: 3, ..PLAIN };
        let began = |probabilities: &[f32]| steps(slow, probabilities).iter().position(|&s| s == Step::Began);
        assert_eq!(began(&[0.9, 0.9, 0.9]), Some(2));
        assert_eq!(began(&[0.9, 0.0, 0.0, 0.9, 0.9]), Some(4));
        assert_eq!(began(&[0.9, 0.9, 0.0, 0.0, 0.0, 0.9, 0.9, 0.4]), None);
    }

    #[test]
    fn a_pause_ends_an_utterance_only_where_the_caller_says_so() {
        let mut endpointer = Endpointer::new(PLAIN);
        for probability in [0.9, 0.9, 0.0, 0.0, 0.0] {
            endpointer.frame(probability);
        }
        assert!(endpointer.is_paused() && endpointer.in_utterance() && !endpointer.is_speaking());
        assert_eq!((endpointer.voiced_frames(), endpointer.silent_frames(), endpointer.frames()), (2, 3, 5));
        endpointer.end();
        assert!(!endpointer.is_paused() && !endpointer.in_utterance());
        assert_eq!(endpointer.frame(0.4), Step::Outside);
        assert_eq!(Endpointer::speaking(PLAIN).frame(0.4), Step::Speech);
    }
}
