//! Frames of segmentation: their times, and what overlapping windows together say about each.
//!
//! The powerset of local speakers: Plaquet and Bredin, "Powerset multi-class cross entropy loss for neural speaker
//! diarization", Interspeech 2023. Overlap-add of windows: Bredin and Laurent, "End-to-end speaker segmentation for
//! overlap-aware resegmentation", Interspeech 2021.

use std::ops::Range;

use super::network::WINDOW_FRAMES;

/// Samples between frames.
pub const FRAME_SAMPLES: usize = 270;
/// Seconds between frames.
pub const FRAME_SECONDS: f64 = FRAME_SAMPLES as f64 / 16_000.0;
/// Samples that a frame sees: the network's receptive field.
const FIELD_SAMPLES: usize = 991;
/// The same in seconds.
const FRAME_FIELD: f64 = FIELD_SAMPLES as f64 / 16_000.0;

/// Local speakers of each class, one bit for each of the three.
const POWERSET: [u8; 7] = [0b000, 0b001, 0b010, 0b100, 0b011, 0b101, 0b110];
/// Local speakers of a window.
pub const LOCAL_SPEAKERS: usize = 3;

/// Seconds that a local speaker talks alone in a window in which it counts.
const LOCAL_SECONDS: f64 = 1.5;

/// Frames between the two looks that tell a change of speaker: 0.1 s.
const CHANGE_FRAMES: usize = 6;

/// The second at which `frame` begins, as its predecessor ends: fields overlap, so their middles count.
pub fn start_of(frame: usize) -> f64 {
    frame as f64 * FRAME_SECONDS + (FRAME_FIELD - FRAME_SECONDS) / 2.0
}

/// The sample in the middle of `frame`.
pub fn middle_of(frame: usize) -> usize {
    frame * FRAME_SAMPLES + FIELD_SAMPLES / 2
}

/// The frame whose middle is nearest to `seconds`.
pub fn frame_at(seconds: f64) -> usize {
    // Casting clamps at 0.
    ((seconds - FRAME_FIELD / 2.0) / FRAME_SECONDS).round() as usize
}

/// The local speakers of each frame of a window, as bits, from the log-probabilities of its classes.
pub fn local_speakers(classes: &[[f32; 7]]) -> Vec<u8> {
    classes
        .iter()
        .map(|frame| {
            let best = (1..7).fold(0, |best, class| if frame[class] > frame[best] { class } else { best });
            POWERSET[best]
        })
        .collect()
}

/// The local speakers of one window. Their numbers mean nothing beyond it.
pub struct Window {
    /// The frame of the recording at which the window begins.
    pub start: usize,
    pub speakers: Vec<u8>,
}

impl Window {
    pub fn end(&self) -> usize {
        self.start + self.speakers.len()
    }

    /// How many of its local speakers talk alone for [`LOCAL_SECONDS`].
    pub fn locals(&self) -> usize {
        let seconds = |local| self.solo(local).count() as f64 * FRAME_SECONDS;
        (0..LOCAL_SPEAKERS).filter(|&local| seconds(local) >= LOCAL_SECONDS).count()
    }

    /// The frames in which `speaker`, of [`LOCAL_SPEAKERS`], is the only one, as frames of the recording.
    pub fn solo(&self, speaker: usize) -> impl Iterator<Item = usize> {
        let frames = self.speakers.iter().enumerate();
        frames.filter(move |&(_, &bits)| bits == 1 << speaker).map(|(frame, _)| self.start + frame)
    }
}

/// Speakers and changes in each frame: the mean over the windows that see it, weighted towards their middles.
#[derive(Default)]
pub struct Tally {
    /// The frame that `frames` begins with.
    first: usize,
    frames: Vec<Frame>,
}

#[derive(Default, Clone, Copy)]
struct Frame {
    speakers: f32,
    weight: f32,
    changes: f32,
    change_weight: f32,
    /// Whether voice was heard, which the windows may have passed over.
    is_heard: bool,
}

impl Tally {
    pub fn add(&mut self, window: &Window) {
        if self.end() < window.end() {
            self.frames.resize(window.end() - self.first, Frame::default());
        }
        for (at, &bits) in window.speakers.iter().enumerate() {
            let Some(frame) = self.frame_mut(window.start + at) else { continue };
            frame.speakers += hamming(at) * bits.count_ones() as f32;
            frame.weight += hamming(at);
        }
        for (at, pair) in window.speakers.windows(CHANGE_FRAMES + 1).enumerate() {
            let (before, after) = (pair[0], pair[CHANGE_FRAMES]);
            let middle = at + CHANGE_FRAMES / 2;
            let Some(frame) = self.frame_mut(window.start + middle) else { continue };
            if before != 0 && after != 0 && before & after == 0 {
                frame.changes += hamming(middle);
            }
            frame.change_weight += hamming(middle);
        }
    }

    /// Counts `frames` as speech of one speaker wherever the windows see none.
    pub fn hear(&mut self, frames: Range<usize>) {
        for frame in frames {
            if let Some(frame) = self.frame_mut(frame) {
                frame.is_heard = true;
            }
        }
    }

    /// The frame after the last one that a window has seen.
    pub fn end(&self) -> usize {
        self.first + self.frames.len()
    }

    /// Frees the memory of the frames before `frame`, which count as silence from then on.
    pub fn forget(&mut self, frame: usize) {
        let count = frame.saturating_sub(self.first).min(self.frames.len());
        self.frames.drain(..count);
        self.first += count;
    }

    fn frame(&self, frame: usize) -> Option<&Frame> {
        self.frames.get(frame.checked_sub(self.first)?)
    }

    fn frame_mut(&mut self, frame: usize) -> Option<&mut Frame> {
        self.frames.get_mut(frame.checked_sub(self.first)?)
    }

    /// Speakers in `frame`, on average over the windows.
    fn speakers(&self, frame: usize) -> f32 {
        self.frame(frame).map_or(0.0, |frame| frame.speakers / frame.weight.max(f32::MIN_POSITIVE))
    }

    /// Whether the windows see a speaker in `frame`.
    pub fn is_seen(&self, frame: usize) -> bool {
        self.speakers(frame) >= 0.5
    }

    /// Whether the windows see a speaker in `frame`, or it was given to [`Self::hear`].
    pub fn is_speech(&self, frame: usize) -> bool {
        self.is_seen(frame) || self.frame(frame).is_some_and(|frame| frame.is_heard)
    }

    /// Whether the windows see one speaker in `frame`.
    pub fn is_clean(&self, frame: usize) -> bool {
        self.is_seen(frame) && !self.is_overlap(frame)
    }

    pub fn is_overlap(&self, frame: usize) -> bool {
        self.speakers(frame) >= 1.5
    }

    /// The share of windows in which one local speaker gives way to another at `frame`.
    pub fn change(&self, frame: usize) -> f32 {
        self.frame(frame).map_or(0.0, |frame| frame.changes / frame.change_weight.max(f32::MIN_POSITIVE))
    }
}

fn hamming(frame: usize) -> f32 {
    let phase = std::f32::consts::TAU * (frame + 1) as f32 / (WINDOW_FRAMES + 1) as f32;
    0.54 - 0.46 * phase.cos()
}
