//! Voice activity: where in the audio somebody speaks.

mod dense;
mod lstm;
mod network;
mod onnx;
mod silero;
mod simd;
mod spans;
mod spectrum;

use std::path::PathBuf;

pub use silero::{FRAME_SAMPLES, Vad, VadStream};
pub use spans::{VadOptions, smoothed, speech_spans};

/// Why the model can't be had.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("can't read {}", path.display())]
    Unreadable {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("the voice activity model is no whole ONNX file")]
    Malformed,
    #[error("tensor `{tensor}` isn't the one that Silero VAD has at 16 kHz")]
    Unexpected { tensor: String },
}
