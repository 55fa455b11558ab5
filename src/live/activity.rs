//! Voice activity in one channel, frame by frame.

use crate::vad::{FRAME_SAMPLES, Vad, VadStream};

/// Without a model, a frame of at least this root mean square is taken for voice: −46 dB.
const LOUD: f32 = 0.005;

/// One stream's detector.
pub enum Activity {
    Silero(Box<VadStream>),
    /// By loudness alone, with the samples of an incomplete frame.
    Loudness(Vec<f32>),
}

impl Activity {
    pub fn new(vad: Option<&Vad>) -> Self {
        match vad {
            Some(vad) => Self::Silero(Box::new(vad.stream())),
            None => Self::Loudness(Vec::new()),
        }
    }

    /// The probability of speech in each frame that `samples` complete.
    pub fn push(&mut self, samples: &[f32]) -> Vec<f32> {
        match self {
            Self::Silero(stream) => stream.push(samples),
            Self::Loudness(pending) => {
                pending.extend_from_slice(samples);
                let (frames, rest) = pending.as_chunks::<FRAME_SAMPLES>();
                let energy = |frame: &[f32; FRAME_SAMPLES]| frame.iter().map(|s| s * s).sum::<f32>();
                let is_loud = |energy: f32| energy > LOUD * LOUD * FRAME_SAMPLES as f32;
                let probabilities =
                    frames.iter().map(|frame| f32::from(u8::from(is_loud(energy(frame))))).collect();
                *pending = rest.to_vec();
                probabilities
            }
        }
    }
}
