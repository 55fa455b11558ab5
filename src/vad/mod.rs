//! Voice activity detection: the probability of speech in each frame of 32 ms ([`Vad`]), where utterances begin
//! and pause ([`Endpointer`]), the spans of speech in a whole file ([`speech_spans`]), and where words beside silence begin and
//! end ([`beside_silence`]).
//!
//! The model is Silero VAD v6, and its network is written by hand on the kernels of [`crate::cpu`]: 30 s of
//! audio take 9 ms on one thread, where ONNX Runtime takes 53 to 137 ms with the same weights (`cargo bench
//! --bench vad`). All audio passes through it, on machines whose processors are few beside their GPUs. The
//! probabilities agree with ONNX Runtime's to 2e-5.

mod constants;
mod coverage;
mod dense;
mod edges;
mod endpoint;
mod error;
mod loudness;
mod lstm;
mod network;
mod silero;
mod spans;
mod spectrum;
#[cfg(test)]
pub mod synthetic;
mod utterance;

pub use coverage::{is_in_pieces, unaccounted, voiced_part};
pub use edges::{LEVEL_SAMPLES, beside_silence, levels, levels_of};
pub use endpoint::{Endpointer, Endpointing, SURE_SPEECH, Step};
pub use error::Error;
pub use loudness::{LEAST_SPEECH_LEVEL, speech_like};
pub use silero::{FRAME_SAMPLES, Vad, VadStream};
pub use spans::{VadOptions, smoothed, smoothed_at, speech_spans};
pub use utterance::Utterance;
