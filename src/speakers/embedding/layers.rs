//! Batch norms, most of them folded into the convolution before, and the products after the others.

use super::super::error::Error;
use super::super::weights::Weights;
use super::architecture::NORM_EPSILON;
use crate::cpu::convolution::{Convolution, Epilogue, Job, Layout, Operand, Output};
use crate::cpu::{Element, Level, multiply_add, multiversion};

/// Batch norm after training: `x · scale + shift` for each channel.
pub(super) struct Norm {
    pub scale: Vec<f32>,
    pub shift: Vec<f32>,
}

impl Norm {
    pub fn load(weights: &Weights, name: &str, channels: usize) -> Result<Self, Error> {
        let values = |part: &str| weights.values(&format!("{name}.{part}"), &[channels]);
        Ok(Self::new(&values("weight")?, &values("bias")?, Self::statistics(weights, name, channels)?))
    }

    /// A batch norm that learnt neither scale nor shift.
    pub fn load_plain(weights: &Weights, name: &str, channels: usize) -> Result<Self, Error> {
        let statistics = Self::statistics(weights, name, channels)?;
        Ok(Self::new(&vec![1.0; channels], &vec![0.0; channels], statistics))
    }

    fn statistics(weights: &Weights, name: &str, channels: usize) -> Result<[Vec<f32>; 2], Error> {
        let values = |part: &str| weights.values(&format!("{name}.{part}"), &[channels]);
        Ok([values("running_mean")?, values("running_var")?])
    }

    fn new(weight: &[f32], bias: &[f32], [mean, variance]: [Vec<f32>; 2]) -> Self {
        let scale: Vec<f32> =
            weight.iter().zip(variance).map(|(w, v)| w / (v + NORM_EPSILON as f32).sqrt()).collect();
        let shift = bias.iter().zip(mean).zip(&scale).map(|((b, m), s)| b - m * s).collect();
        Self { scale, shift }
    }

    /// The convolution that this norm follows, with the norm folded in.
    pub fn folded<E: Operand>(
        &self,
        taps: usize,
        length: usize,
        weight: impl Fn(usize, usize) -> f32,
    ) -> Convolution<E> {
        let folded = |output: usize, input: usize| weight(output, input) * self.scale[output];
        Convolution::new(taps, length, &self.shift, folded)
    }
}

/// The features of one piece: frames of as many channels as the block has at its end.
pub(super) struct Features {
    pub values: Vec<f32>,
    pub channels: usize,
}

impl Features {
    pub fn new(frames: usize, channels: usize) -> Self {
        Self { values: vec![0.0; frames * channels], channels }
    }

    pub fn frames(&self) -> usize {
        self.values.len() / self.channels
    }
}

/// A batch norm, then a product of each frame with a matrix.
pub(super) struct Projection<E: Operand> {
    pub norm: Norm,
    pub product: Convolution<E>,
}

impl<E: Operand> Projection<E> {
    /// Frames that go through together: their operands stay in the second-level cache beside the weights.
    const ROWS: usize = 64;

    /// Reads the first channels of `x`, as many as the norm has, after negative ones became zero.
    pub fn apply(
        &self,
        level: Level,
        x: &Features,
        operands: &mut Vec<E>,
        mut y: Output<E>,
        mut to: Layout,
        epilogue: Epilogue<E>,
    ) {
        let Norm { scale, shift } = &self.norm;
        let inputs = scale.len();
        operands.resize(operands.len().max(Self::ROWS * inputs), E::default());
        for frames in x.values.chunks(Self::ROWS * x.channels) {
            let rows = frames.len() / x.channels;
            for (frame, operands) in frames.chunks_exact(x.channels).zip(operands.chunks_exact_mut(inputs)) {
                scaled_relu(level, &frame[..inputs], scale, shift, operands);
            }
            let (from, y) = (Layout::rows(0, inputs), y.reborrow());
            self.product.apply(level, Job { rows, x: operands, from, tap: 0, y, to, epilogue });
            to.first += rows * to.line;
        }
    }
}

multiversion! {
    /// `y = max(x · scale + shift, 0)`.
    fn scaled_relu<E: Element>(x: &[f32], scale: &[f32], shift: &[f32], y: &mut [E]) = scaled_relu_body
}

#[inline(always)]
fn scaled_relu_body<const FMA: bool, E: Element>(x: &[f32], scale: &[f32], shift: &[f32], y: &mut [E]) {
    for (((y, x), scale), shift) in y.iter_mut().zip(x).zip(scale).zip(shift) {
        *y = E::from_f32(multiply_add::<FMA>(*x, *scale, *shift).max(0.0));
    }
}
