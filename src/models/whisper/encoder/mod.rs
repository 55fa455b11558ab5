//! Whisper's audio encoder: two convolutions, then transformer layers without a mask. By the kernels for the CPU, or by
//! libtorch.

pub mod host;
pub mod norm;
pub mod torch;
