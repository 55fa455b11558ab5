//! The input of one channel: samples, the probability of voice in each frame, and the client's marks.

use std::collections::VecDeque;
use std::ops::Range;

use super::activity::Activity;
use super::levels::Levels;
use super::recording::Recording;
use super::span::FRAME;
use crate::audio::Pcm;

/// A message of the client, with the position of the audio that came before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    Finalize(u64),
    End(u64),
}

impl Mark {
    pub fn position(self) -> u64 {
        match self {
            Self::Finalize(position) | Self::End(position) => position,
        }
    }
}

/// Input that the channel has not worked on yet, and the audio that it may still need.
pub struct Intake {
    voice: Activity,
    audio: Recording,
    levels: Levels,
    /// One for each frame that the channel has not looked at yet.
    probabilities: VecDeque<f32>,
    marks: VecDeque<Mark>,
}

impl Intake {
    pub fn new(voice: Activity) -> Self {
        Self {
            voice,
            audio: Recording::default(),
            levels: Levels::default(),
            probabilities: VecDeque::new(),
            marks: VecDeque::new(),
        }
    }

    pub fn push(&mut self, samples: &[f32]) {
        self.audio.push(samples);
        self.levels.push(samples);
        self.probabilities.extend(self.voice.push(samples));
    }

    pub fn finalize(&mut self) {
        self.marks.push_back(Mark::Finalize(self.audio.end()));
    }

    pub fn end(&mut self) {
        self.marks.push_back(Mark::End(self.audio.end()));
    }

    /// The number of samples so far.
    pub fn position(&self) -> u64 {
        self.audio.end()
    }

    /// The probability of voice in the next frame.
    pub fn next_frame(&mut self) -> Option<f32> {
        self.probabilities.pop_front()
    }

    /// The next mark, if it lies before or within the frame that begins at `position`.
    pub fn due(&mut self, position: u64) -> Option<Mark> {
        self.marks.pop_front_if(|mark| mark.position() < position + FRAME)
    }

    /// The positions of the audio that is still there.
    pub fn available(&self) -> Range<u64> {
        self.audio.available()
    }

    pub fn pcm(&self, range: Range<u64>) -> Pcm {
        self.audio.pcm(range)
    }

    pub fn levels(&self) -> &Levels {
        &self.levels
    }

    /// Drops the audio before `position`, and the levels that say nothing about a span that begins at `span`.
    pub fn forget(&mut self, position: u64, span: u64) {
        self.audio.forget(position);
        self.levels.forget(span);
    }
}
