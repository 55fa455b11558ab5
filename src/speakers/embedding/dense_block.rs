//! Densely connected time-delay layers (D-TDNN): each reads all channels before it and adds [`GROWTH`] of its own.

use super::super::error::Error;
use super::super::weights::Weights;
use super::architecture::{BOTTLENECK, GROWTH, KERNEL, SEGMENT};
use super::layers::{Features, Norm, Projection};
use super::masking::Masking;
use crate::cpu::Level;
use crate::cpu::convolution::{Convolution, Epilogue, Job, Layout, Operand, Output};

pub(super) struct DenseBlock<E: Operand> {
    layers: Vec<Layer<E>>,
}

struct Layer<E: Operand> {
    inputs: usize,
    dilation: usize,
    bottleneck: Projection<E>,
    local: Convolution<E>,
    masking: Masking,
}

/// Memory of the layers.
pub(super) struct Scratch<E> {
    /// The operands of a projection.
    pub operands: Vec<E>,
    middle: Vec<E>,
}

impl<E> Scratch<E> {
    pub fn new() -> Self {
        Self { operands: Vec::new(), middle: Vec::new() }
    }
}

impl<E: Operand> DenseBlock<E> {
    pub fn load(
        weights: &Weights,
        name: &str,
        layers: usize,
        channels: usize,
        dilation: usize,
    ) -> Result<Self, Error> {
        let layer = |index| {
            Layer::load(weights, &format!("{name}.tdnnd{}", index + 1), channels + index * GROWTH, dilation)
        };
        Ok(Self { layers: (0..layers).map(layer).collect::<Result<_, Error>>()? })
    }

    /// Fills the channels after the first, layer by layer: a layer's weights stay in the cache for all pieces.
    pub fn apply(&self, level: Level, pieces: &mut [Features], scratch: &mut Scratch<E>) {
        for layer in &self.layers {
            pieces.iter_mut().for_each(|piece| layer.apply(level, piece, scratch));
        }
    }
}

impl<E: Operand> Layer<E> {
    fn load(weights: &Weights, name: &str, inputs: usize, dilation: usize) -> Result<Self, Error> {
        let first = weights.values(&format!("{name}.linear1.weight"), &[BOTTLENECK, inputs, 1])?;
        let norm = |norm: &str, channels| Norm::load(weights, &format!("{name}.{norm}.batchnorm"), channels);
        let (before, after) = (norm("nonlinear1", inputs)?, norm("nonlinear2", BOTTLENECK)?);
        let local = format!("{name}.cam_layer.linear_local.weight");
        let local = weights.values(&local, &[GROWTH, BOTTLENECK, KERNEL])?;
        Ok(Self {
            inputs,
            dilation,
            bottleneck: Projection {
                norm: before,
                product: after.folded(1, inputs, |output, input| first[output * inputs + input]),
            },
            local: Convolution::new(KERNEL, BOTTLENECK, &[0.0; GROWTH], |output, input| {
                local[(output * BOTTLENECK + input % BOTTLENECK) * KERNEL + input / BOTTLENECK]
            }),
            masking: Masking::load(weights, &format!("{name}.cam_layer"))?,
        })
    }

    fn apply(&self, level: Level, piece: &mut Features, scratch: &mut Scratch<E>) {
        let frames = piece.frames();
        let margin = self.dilation * BOTTLENECK;
        let Scratch { operands, middle } = scratch;
        middle.clear();
        middle.resize(frames * BOTTLENECK + 2 * margin, E::default());
        let (y, to) = (Output::Operand(middle), Layout::rows(margin, BOTTLENECK));
        self.bottleneck.apply(level, piece, operands, y, to, Epilogue::Relu);
        let to = Layout::rows(self.inputs, piece.channels);
        self.local.apply(
            level,
            Job {
                rows: frames,
                x: middle,
                from: Layout::rows(0, BOTTLENECK),
                tap: margin,
                y: Output::Wide(&mut piece.values),
                to,
                epilogue: Epilogue::Store,
            },
        );
        let masks = self.masking.masks(level, &middle[margin..middle.len() - margin]);
        for (frames, mask) in
            piece.values.chunks_mut(SEGMENT * piece.channels).zip(masks.chunks_exact(GROWTH))
        {
            for frame in frames.chunks_exact_mut(piece.channels) {
                frame[self.inputs..][..GROWTH].iter_mut().zip(mask).for_each(|(value, mask)| *value *= mask);
            }
        }
    }
}
