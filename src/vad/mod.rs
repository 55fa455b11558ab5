//! Voice activity detection: the probability of speech in each frame of 32 ms, and the spans of speech that
//! follow from it.
//!
//! The model is Silero VAD v6, and its network is written by hand on the kernels of [`crate::cpu`]: 30 s of
//! audio take 9 ms on one thread, where ONNX Runtime takes 53 to 137 ms with the same weights (`cargo bench
//! --bench vad`). Every file and every live stream passes through it, so that this time is most of the
//! processor's share of a transcription on a GPU. The results agree with ONNX Runtime's to 2e-5.

mod dense;
mod error;
mod lstm;
mod network;
mod onnx;
mod silero;
mod spans;
mod spectrum;

pub use error::Error;
pub use silero::{FRAME_SAMPLES, Vad, VadStream};
pub use spans::{VadOptions, smoothed, speech_spans};
