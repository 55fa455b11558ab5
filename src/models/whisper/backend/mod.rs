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
mod alignment_tests;
#[cfg(test)]
mod choice_tests;
mod cuda;
mod forced;
mod host;
mod sampling;
#[cfg(test)]
mod tests;
mod torch;

use std::any::Any;
use std::ops::Range;

pub use self::cuda::CudaBackend;
pub use self::host::HostBackend;
pub use self::sampling::Sampler;
pub use self::torch::TorchBackend;
use super::decoder::{Logits, Run};
use super::sequence::{Predicted, Sequence, Sequences};
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

/// A decoded window whose words are to be aligned with its audio.
pub struct AlignmentRequest {
    pub slot: SlotId,
    /// The teacher-forced pass: the opening, the no-timestamps token, the text and the end of text.
    pub tokens: Vec<TokenId>,
    /// The row of `tokens` that predicts the first token of the text.
    pub prefix: usize,
    /// Tokens of the text and one more.
    pub rows: usize,
    /// Where the `rows` were predicted while the window was decoded. `None` if the slot's caches have been overwritten
    /// by another attempt since, or if no query followed the last token.
    pub decoded_at: Option<Predicted>,
    /// Audio positions that are no padding, at least 1.
    pub positions: usize,
}

impl AlignmentRequest {
    /// The teacher-forced pass.
    pub fn run(&self) -> Run<'_> {
        Run { slot: self.slot, position: 0, tokens: &self.tokens }
    }
}

/// A window's cross-attention, on its way to the host.
pub trait Attention: Send {
    /// The costs of aligning tokens with audio. Takes a while: it runs on another thread than the backend.
    ///
    /// # Errors
    /// The device's.
    fn costs(self: Box<Self>) -> Result<Costs, Error>;
}

/// The cost of placing each token at each position of the audio, row-major (rows, positions).
pub struct Costs {
    pub values: Vec<f32>,
    pub rows: usize,
    /// At most as many as were asked for.
    pub positions: usize,
}

/// Whisper's network on one kind of hardware, with the caches of all slots. [`Any`] lets tests reach the implementor.
///
/// # Errors
/// Every method returns libtorch's errors or the device's. The slots of a failed call hold nothing usable.
pub trait Backend: Any {
    /// Encodes windows, `frames` mel frames of each, and fills their slots' audio caches. A backend may only enqueue
    /// the work, also while earlier windows are still being encoded: everything that reads the caches waits for it.
    fn encode(&mut self, requests: &[EncodeRequest], frames: usize) -> Result<(), Error>;

    /// Whether the windows in `slots`, which were given to [`Backend::encode`] together, are encoded. Does not wait.
    fn is_encoded(&mut self, _slots: &[SlotId]) -> Result<bool, Error> {
        Ok(true)
    }

    /// Waits until the windows in `slots`, which were given to [`Backend::encode`] together, are encoded.
    fn wait_encoded(&mut self, _slots: &[SlotId]) -> Result<(), Error> {
        Ok(())
    }

    /// Runs `runs` and returns the logits after some of their tokens, without choosing any. `wanted`: indices into
    /// the tokens of all runs, in order. `tokens`: the part of the vocabulary whose logits are wanted. Waits for slots
    /// that are still being encoded.
    fn logits(&mut self, runs: &[Run], wanted: &[usize], tokens: Range<usize>) -> Result<Logits, Error>;

    /// Runs the prompts and replaces the slots' sequences. Each attempt's first token, and its probability of no
    /// speech, are in its sequence at the latest with the next call of [`Self::step`] for its slot. Waits for slots
    /// that are still being encoded.
    fn begin(&mut self, starts: Vec<Start>, sequences: &mut Sequences) -> Result<(), Error>;

    /// Extends the unfinished sequences of `slots` by a token each, at the latest with the next call: a backend
    /// may run one step ahead of the host.
    fn step(&mut self, slots: &[SlotId], sequences: &mut Sequences) -> Result<(), Error>;

    /// The attention of decoded windows; their slots may be used again once this has returned.
    fn align(&mut self, requests: &[AlignmentRequest]) -> Result<Vec<Box<dyn Attention>>, Error>;
}
