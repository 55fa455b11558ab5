//! The sizes of CAM++ that are not read from its weights: 3D-Speaker's `speakerlab/models/campplus`.

/// Channels of the planes of the front module.
pub const PLANES: usize = 32;
/// The front module's residual blocks: their names, and the step by which each halves the bins or keeps them.
pub const RESIDUAL_BLOCKS: [(&str, usize); 4] =
    [("layer1.0", 2), ("layer1.1", 1), ("layer2.0", 2), ("layer2.1", 1)];
/// Channels of the first layer over time, frames of its kernel, and the frames from one of its positions to the next.
pub const FIRST: usize = 128;
pub const FIRST_KERNEL: usize = 5;
pub const FIRST_STRIDE: usize = 2;
/// Layers and dilation of each dense block.
pub const BLOCKS: [(usize, usize); 3] = [(12, 1), (24, 2), (16, 2)];
/// Channels that a dense layer adds.
pub const GROWTH: usize = 32;
/// Channels between a dense layer's two convolutions.
pub const BOTTLENECK: usize = 128;
/// Frames under the kernel of a dense layer's second convolution.
pub const KERNEL: usize = 3;
/// Frames that share a mask.
pub const SEGMENT: usize = 100;
/// Channels between a mask's two layers.
pub const MASK_HIDDEN: usize = 64;
/// PyTorch's default for batch norms.
pub const NORM_EPSILON: f64 = 1e-5;
