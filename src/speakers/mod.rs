//! Diarization: who talks when in a recording.
//!
//! ```text
//! 10 s windows → segmentation: local speakers, overlap → regions of one speaker
//!              → embeddings of the voice → clustering → turns → the speaker of each word
//! ```
//!
//! The networks are pyannote's segmentation 3.0 (PyanNet, powerset) and CAM++, both written by hand on the kernels of
//! [`crate::cpu`]. They are behind the trait `Networks`, so that a device other than the processor can compute them.
#![doc = include_str!("README.md")]

mod batching;
mod chunks;
mod clustering;
mod config;
mod cosine;
mod diarize;
mod diarizer;
mod embedding;
mod error;
mod filter_bank;
mod frames;
mod live;
mod memory;
mod network;
mod processor;
mod regions;
mod rttm;
mod segmentation;
mod tail;
#[cfg(test)]
mod tests;
mod torch;
mod turns;
mod vectors;
mod voice;
mod weights;
mod words;

pub use config::{Config, DeviceChoice, MODEL, Models};
pub use cosine::similarity;
pub use diarize::{Diarization, Options, Turn};
pub use diarizer::Diarizer;
pub use embedding::Embedding;
pub use error::Error;
pub use filter_bank::filter_banks;
pub use live::Stream;
pub use network::{MEL_BINS, WINDOW_SAMPLES};
pub use segmentation::Segmentation;
