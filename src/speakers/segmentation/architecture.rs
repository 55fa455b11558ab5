//! The sizes of PyanNet that are not read from its weights: those of pyannote.audio's `segmentation-3.0`.

/// Samples from one position of the sinc filters to the next.
pub const STEP: usize = 10;
/// Positions under the kernel of the other convolutions.
pub const KERNEL: usize = 5;
/// Positions of which a pool keeps the greatest.
pub const POOL: usize = 3;
/// Features of a frame.
pub const FEATURES: usize = 60;
/// LSTMs, one after the other, each in both directions.
pub const LAYERS: usize = 4;
/// Hidden units of one direction.
pub const UNITS: usize = 128;
/// Outputs of the linear layers before the classes.
pub const HIDDEN: usize = 128;
/// PyTorch's default for instance norms.
pub const NORM_EPSILON: f64 = 1e-5;
