//! The seam between Whisper's rules and the hardware: one [`Backend`] for each way to run the network.
//!
//! ```text
//! Whisper: languages, prompts, segments, word times
//!    └─ Backend ─┬─ HostBackend   the kernels of crate::cpu;    tokens chosen by Sampler
//!                ├─ TorchBackend  libtorch's operations;        tokens chosen by Sampler
//!                └─ CudaBackend   the kernels of crate::cuda;   tokens chosen on the device
//! ```
//!
//! A backend owns everything that lives on its hardware: weights, encoder, key-value caches and streams. The
//! tokens of each attempt live outside it, in [`Sequences`], which a backend extends.

#[cfg(test)]
mod choice_tests;
mod cuda;
mod host;
mod sampling;
#[cfg(test)]
mod tests;
mod torch;

use std::any::Any;

pub use self::cuda::CudaBackend;
pub use self::host::HostBackend;
pub use self::sampling::Sampler;
pub use self::torch::TorchBackend;
use super::decoder::{AlignmentWeights, Logits, Run};
use super::sequence::{Sequence, Sequences};
use super::tokenizer::TokenId;
use crate::engine::{EncodeRequest, SlotId};
use crate::models::Error;

/// An attempt that begins: its prompt, and the sequence that the tokens go to.
pub struct Start {
    pub slot: SlotId,
    /// Goes to the text cache from position 0.
    pub prompt: Vec<TokenId>,
    /// Index in `prompt` of the token that opens the transcript.
    pub start_of_transcript: usize,
    /// Has no tokens yet.
    pub sequence: Sequence,
}

impl Start {
    pub fn run(&self) -> Run<'_> {
        Run { slot: self.slot, position: 0, tokens: &self.prompt }
    }
}

/// Whisper's network on one kind of hardware, with the caches of all slots. [`Any`] lets tests reach the implementor.
///
/// # Errors
/// Every method returns libtorch's errors or the device's. The slots of a failed call hold nothing usable.
pub trait Backend: Any {
    /// Encodes windows, `frames` mel frames of each, and fills their slots' audio caches. A backend may only enqueue
    /// the work: everything that reads the caches waits for it.
    fn encode(&mut self, requests: &[EncodeRequest], frames: usize) -> Result<(), Error>;

    /// Whether the work that [`Backend::encode`] enqueued for `slots` is done. Does not wait.
    fn is_encoded(&mut self, _slots: &[SlotId]) -> Result<bool, Error> {
        Ok(true)
    }

    /// Runs `runs` and returns the logits after some of their tokens, without choosing any. `wanted`: indices into
    /// the tokens of all runs, in order.
    fn logits(&mut self, runs: &[Run], wanted: &[usize]) -> Result<Logits, Error>;

    /// Runs the prompts, replaces the slots' sequences and chooses each attempt's first token, which the sequences
    /// have at the latest with the next step.
    fn begin(&mut self, starts: Vec<Start>, sequences: &mut Sequences) -> Result<(), Error>;

    /// Extends the unfinished sequences of `slots` by a token each, at the latest with the next call: a backend
    /// may run one step ahead of the host.
    fn step(&mut self, slots: &[SlotId], sequences: &mut Sequences) -> Result<(), Error>;

    /// Runs `runs` as far as the last layer that has alignment heads and returns their attention.
    fn align(&mut self, runs: &[Run]) -> Result<Vec<AlignmentWeights>, Error>;
}
