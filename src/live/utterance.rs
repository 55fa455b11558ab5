//! The starts of speech and the ends of utterances in one channel: the events beside the words. Pure.

use std::collections::VecDeque;

use super::event::Event;
use super::span::{FRAME, to_seconds};
use crate::audio::SAMPLE_RATE;

/// Frames of voice in a row that make a start of speech.
const STARTED_FRAMES: u64 = 3;
/// After so much silence speech may start again.
const RESTARTED: u64 = SAMPLE_RATE as u64 / 2;

pub struct Utterance {
    channel: usize,
    tells_start: bool,
    /// The gap that ends an utterance, in samples.
    gap: Option<u64>,
    /// Where the current voice began.
    started: Option<u64>,
    start_is_told: bool,
    /// The end of the last word of an open utterance.
    last_word_end: Option<f64>,
}

impl Utterance {
    pub fn new(channel: usize, tells_start: bool, gap: Option<u64>) -> Self {
        Self { channel, tells_start, gap, started: None, start_is_told: false, last_word_end: None }
    }

    pub fn configure(&mut self, tells_start: bool, gap: Option<u64>) {
        (self.tells_start, self.gap) = (tells_start, gap);
    }

    /// Words were sent, the last of which ends at this time.
    pub fn said(&mut self, last_word_end: f64) {
        self.last_word_end = Some(last_word_end);
    }

    /// Takes the frame that begins at `frame`. `voice_end` is the end of the last voice in the open span.
    pub fn step(
        &mut self,
        frame: u64,
        is_speaking: bool,
        voice_end: Option<u64>,
        events: &mut VecDeque<Event>,
    ) {
        let position = frame + FRAME;
        if is_speaking {
            let start = *self.started.get_or_insert(frame);
            if !self.start_is_told && position - start >= STARTED_FRAMES * FRAME {
                self.start_is_told = true;
                if self.tells_start {
                    events.push_back(Event::SpeechStarted { channel: self.channel, at: to_seconds(start) });
                }
            }
        } else {
            self.started = None;
            let silence = voice_end.map_or(RESTARTED, |end| position.saturating_sub(end));
            self.start_is_told &= silence < RESTARTED;
        }
        // Voice that is not recognised yet may hold words of the utterance.
        if let (Some(last_word_end), Some(gap), None) = (self.last_word_end, self.gap, voice_end)
            && to_seconds(position) >= last_word_end + to_seconds(gap)
        {
            self.last_word_end = None;
            events.push_back(Event::UtteranceEnd { channel: self.channel, last_word_end });
        }
    }
}
