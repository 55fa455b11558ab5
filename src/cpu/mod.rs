//! Kernels of neural networks on a CPU, and the vector instructions that they are compiled for: plain slices
//! in, plain slices out, without tensors and without knowledge of a model.
//!
//! Whisper's kernels are here because libtorch's were the bottleneck. Each reduces in an order that depends on
//! its own row alone, so a result is the same to the last bit whatever else is in the batch and however many
//! threads there are.
//!
//! One body serves all processors: it is compiled for AVX-512, for AVX2 and for the baseline, and
//! chosen at run time ([`Level`]). Only products of bf16 and int8 are written with intrinsics. Voice activity
//! detection (`vad`) and diarization (`speakers`) compile layers of their own the same way, for the same levels; the
//! convolutions here serve the latter.

pub mod alignment;
pub mod attention;
pub mod convolution;
mod element;
pub mod encoder_attention;
mod instructions;
pub mod matrix;
#[cfg(test)]
mod noise;
pub mod rows;
mod threads;

pub use element::{Bf16, Element};
pub(crate) use element::{fine_exp, multiply_add};
pub(crate) use instructions::multiversion;
pub use instructions::{Instructions, Level};
pub use threads::{Places, Threads};

/// One cache line; vectors of lines are aligned to lines.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line<T, const N: usize>([T; N]);
