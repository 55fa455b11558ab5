//! Whisper's text decoder over an arena of slots: by our own kernels, on a CPU and on CUDA in bf16; elsewhere
//! by libtorch.
//!
//! Every call takes runs of tokens. A decode step is a run of one token for each slot; a prompt is a
//! run of several; both are the same computation.

mod audio_cache;
pub mod device;
#[cfg(test)]
mod exactness;
mod host;
mod torch;

use tch::Kind;

use super::encoder::AudioStates;
use super::host::plain;
use super::rules::Table;
use super::tokenizer::TokenId;
use crate::cpu::Threads;
use crate::cuda;
use crate::engine::SlotId;
use crate::models::{Error, weights};

pub use host::Numbers;

/// Consecutive tokens of one slot, to be appended at `position`.
pub struct Run<'a> {
    pub slot: SlotId,
    pub position: usize,
    pub tokens: &'a [TokenId],
}

/// Row-major (rows, vocabulary).
pub struct Logits {
    pub values: Vec<f32>,
    pub vocabulary: usize,
}

impl Logits {
    pub fn rows_mut(&mut self) -> std::slice::ChunksExactMut<'_, f32> {
        self.values.chunks_exact_mut(self.vocabulary)
    }
}

/// What the alignment heads looked at in one run: (heads, tokens, positions), softmax done.
pub struct AlignmentWeights {
    pub values: Vec<f32>,
    pub heads: usize,
    pub tokens: usize,
    pub positions: usize,
}

pub enum Decoder {
    Host(host::Decoder),
    Torch(torch::Decoder),
    /// Chooses tokens itself: by [`device::Decoder::begin`] and [`device::Decoder::step`].
    Device(Box<device::Decoder>),
}

/// A device that our kernels run on, and what they know of the rules.
pub type OnDevice = (Box<dyn cuda::Device>, Table);

/// How large, and where.
#[derive(Clone)]
pub struct Placement {
    pub slots: usize,
    pub place: tch::Device,
    /// Of the encoder's output, and of libtorch's weights.
    pub kind: Kind,
    /// Of libtorch's keys and values of the audio: the same, or e4m3.
    pub audio_kind: Kind,
    /// For the CPU's kernels.
    pub numbers: Numbers,
    pub threads: Threads,
    /// (layer, head), by layer.
    pub alignment_heads: Vec<(usize, usize)>,
}

impl Decoder {
    /// Takes the weights, to be rid of each layer's when it is packed.
    pub fn new(
        weights: weights::Weights,
        placement: Placement,
        device: Option<OnDevice>,
    ) -> Result<Self, Error> {
        Ok(match (device, placement.place) {
            (Some((device, table)), _) => {
                Self::Device(Box::new(device::Decoder::new(&weights, placement, device, table)?))
            }
            (None, tch::Device::Cpu) => Self::Host(host::Decoder::new(weights, placement)?),
            (None, _) => Self::Torch(torch::Decoder::new(&weights, placement)?),
        })
    }

    /// Fills the audio caches of `slots` from what the encoder made of as many windows.
    pub fn set_audio(&mut self, slots: &[SlotId], audio: &[AudioStates]) -> Result<(), Error> {
        match (self, audio) {
            (Self::Host(decoder), [AudioStates::Torch(audio)]) => {
                let values = plain(audio)?;
                let windows = values.chunks_exact(values.len() / slots.len().max(1));
                slots.iter().zip(windows).for_each(|(&slot, audio)| decoder.set_audio(slot, audio));
            }
            (Self::Host(decoder), windows) => {
                for (&slot, window) in slots.iter().zip(windows) {
                    if let AudioStates::Host(audio) = window {
                        decoder.set_audio(slot, audio);
                    }
                }
            }
            (Self::Torch(decoder), windows) => {
                for window in windows {
                    if let AudioStates::Torch(audio) = window {
                        decoder.set_audio(slots, audio)?;
                    }
                }
            }
            (Self::Device(decoder), windows) => {
                for window in windows {
                    if let AudioStates::Torch(audio) = window {
                        decoder.set_audio(slots, audio)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Runs `runs` and returns logits. `wanted`: indices into the tokens of all runs, in order.
    pub fn forward(&mut self, runs: &[Run], wanted: &[usize]) -> Result<Logits, Error> {
        match self {
            Self::Host(decoder) => Ok(decoder.forward(runs, wanted)),
            Self::Torch(decoder) => decoder.forward(runs, wanted),
            Self::Device(decoder) => decoder.forward(runs, wanted),
        }
    }

    /// Runs `runs` as far as the last layer that has alignment heads and returns their attention.
    pub fn alignment(&mut self, runs: &[Run]) -> Result<Vec<AlignmentWeights>, Error> {
        match self {
            Self::Host(decoder) => Ok(decoder.alignment(runs)),
            Self::Torch(decoder) => decoder.alignment(runs),
            Self::Device(decoder) => decoder.alignment(runs),
        }
    }
}
