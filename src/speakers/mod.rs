//! Diarization: which of a recording's speakers talks when.

mod config;
mod diarize;
mod error;
mod rttm;
mod words;

pub use config::{Config, Models};
pub use diarize::{Diarization, Diarizer, Options, Turn};
pub use error::Error;

/// The architecture of the models, of which there is one of each: the network that finds local speakers, and the one
/// that knows voices again.
pub const MODEL: &str = "pyannote-segmentation-3.0+campplus";
