//! Diarization: which of a recording's speakers talks when.
//!
//! ```text
//! 10 s windows → segmentation: local speakers, overlap → regions of one speaker
//!              → embeddings of the voice → clustering → turns → the speaker of each word
//! ```
//!
//! The networks are pyannote's segmentation 3.0 (PyanNet, powerset) and CAM++, both written by hand on the kernels of
//! [`crate::cpu`]. They are behind [`Networks`], so that a device other than the processor can compute them.
#![doc = include_str!("README.md")]

mod batching;
mod embedding;
mod error;
mod filter_bank;
mod network;
mod segmentation;
mod torch;
mod weights;

pub use batching::Batcher;
pub use embedding::Embedding;
pub use error::Error;
pub use filter_bank::filter_banks;
pub use network::{
    CHANNELS, CLASSES, EMBEDDING, LogProbabilities, MEL_BINS, Networks, WINDOW_FRAMES, WINDOW_SAMPLES,
};
pub use segmentation::Segmentation;
pub use torch::Torch;
