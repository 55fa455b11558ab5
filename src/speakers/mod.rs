//! Diarization: which of a recording's speakers talks when.
//!
//! ```text
//! 10 s windows → segmentation: local speakers, overlap → regions of one speaker
//!              → embeddings of the voice → clustering → turns → the speaker of each word
//! ```
//!
//! The networks are pyannote's segmentation 3.0 (PyanNet, powerset) and CAM++, both written by hand on the kernels of
//! [`crate::cpu`]. They are behind [`Networks`], so that a device other than the processor can compute them.

mod config;
mod diarize;
mod error;
mod live;
mod network;
mod rttm;
mod words;

pub use config::{Config, MODEL, Models};
pub use diarize::{Diarization, Diarizer, Options, Turn};
pub use error::Error;
pub use live::Stream;
pub use network::{
    CHANNELS, CLASSES, EMBEDDING, LogProbabilities, MEL_BINS, Networks, WINDOW_FRAMES, WINDOW_SAMPLES,
};
