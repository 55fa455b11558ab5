//! The front convolutional module: two-dimensional convolutions over time and frequency, which narrow 80 bins to 10.
//!
//! A plane lies in memory by time, then frequency, then channel, with a margin of zeros around it. Under a kernel of
//! 3 × 3 are three runs of three bins, so nothing is gathered (see [`crate::cpu::convolution`]).

use super::super::error::Error;
use super::super::network::MEL_BINS;
use super::super::weights::Weights;
use super::architecture::{PLANES as CHANNELS, RESIDUAL_BLOCKS};
use super::layers::Norm;
use crate::cpu::Level;
use crate::cpu::convolution::{Convolution, Epilogue, Job, Layout, Operand, Output};

/// Bins of the output.
pub(super) const BINS: usize = MEL_BINS / 8;
/// Values of one frame of the output: bins, and in each the channels.
pub(super) const WIDTH: usize = BINS * CHANNELS;
/// Frames of zeros before and after the output, which the next layer's kernel reaches.
pub(super) const MARGIN: usize = 2;

/// Where a value of the reference's output (channels, and in each the bins) lies in a frame of this one.
pub(super) fn reference_channel(index: usize) -> usize {
    index % CHANNELS * BINS + index / CHANNELS
}

pub(super) struct Head<E: Operand> {
    first: Convolution<E>,
    blocks: Vec<Block<E>>,
    last: Convolution<E>,
}

/// A residual block: two convolutions, of which the first may halve the bins.
struct Block<E: Operand> {
    stride: usize,
    first: Convolution<E>,
    second: Convolution<E>,
    /// The input's way past the convolutions where these halve the bins; elsewhere it is added as it is.
    shortcut: Option<Convolution<E>>,
}

/// Values of a piece by frame, bin and channel, each frame between two bins of zeros, all between frames of zeros.
struct Plane<E> {
    values: Vec<E>,
    frames: usize,
    bins: usize,
}

impl<E: Operand> Plane<E> {
    fn new(frames: usize, bins: usize, scratch: &mut Scratch<E>) -> Self {
        let values = scratch.take((frames + 2) * (bins + 2) * CHANNELS);
        Self { values, frames, bins }
    }

    fn line(&self) -> usize {
        (self.bins + 2) * CHANNELS
    }

    /// Every `stride`th bin.
    fn inside(&self, stride: usize) -> Layout {
        let first = self.line() + CHANNELS;
        Layout { first, line: self.line(), place: stride * CHANNELS, places: self.bins / stride }
    }

    /// The corner of the kernel at every `stride`th bin.
    fn under_kernel(&self, stride: usize) -> Layout {
        Layout { first: 0, ..self.inside(stride) }
    }
}

/// Buffers for the next planes.
pub(super) struct Scratch<E>(Vec<Vec<E>>);

impl<E: Operand> Scratch<E> {
    pub fn new() -> Self {
        Self(Vec::new())
    }

    fn take(&mut self, length: usize) -> Vec<E> {
        let mut values = self.0.pop().unwrap_or_default();
        values.clear();
        values.resize(length, E::default());
        values
    }

    pub fn recycle(&mut self, values: Vec<E>) {
        self.0.push(values);
    }
}

fn convolution<E: Operand>(
    weights: &Weights,
    convolution: &str,
    norm: &str,
    size: usize,
) -> Result<Convolution<E>, Error> {
    let weight = weights.values(&format!("{convolution}.weight"), &[CHANNELS, CHANNELS, size, size])?;
    let norm = Norm::load(weights, norm, CHANNELS)?;
    // The reference's kernel: output, input, frequency, time.
    Ok(norm.folded(size, size * CHANNELS, |output, input| {
        let (time, bin, channel) = (input / CHANNELS / size, input / CHANNELS % size, input % CHANNELS);
        weight[((output * CHANNELS + channel) * size + bin) * size + time]
    }))
}

impl<E: Operand> Head<E> {
    pub fn load(weights: &Weights) -> Result<Self, Error> {
        let weight = weights.values("head.conv1.weight", &[CHANNELS, 1, 3, 3])?;
        let norm = Norm::load(weights, "head.bn1", CHANNELS)?;
        // The input has one channel: a run of three values is read as four, the last times zero.
        let first = norm.folded(3, 4, |output, input| {
            let (time, bin) = (input / 4, input % 4);
            if bin < 3 { weight[output * 9 + bin * 3 + time] } else { 0.0 }
        });
        let blocks =
            RESIDUAL_BLOCKS.map(|(name, stride)| Block::load(weights, &format!("head.{name}"), stride));
        Ok(Self {
            first,
            blocks: blocks.into_iter().collect::<Result<_, _>>()?,
            last: convolution(weights, "head.conv2", "head.bn2", 3)?,
        })
    }

    /// Frames of [`MEL_BINS`] to as many of [`WIDTH`], between [`MARGIN`]s of zeros. The result goes back to
    /// `scratch` by [`Scratch::recycle`].
    pub fn apply(&self, level: Level, piece: &[f32], scratch: &mut Scratch<E>) -> Vec<E> {
        let frames = piece.len() / MEL_BINS;
        let mut plane = self.first(level, piece, scratch);
        for block in &self.blocks {
            plane = block.apply(level, plane, scratch);
        }
        let mut y = scratch.take((frames + 2 * MARGIN) * WIDTH);
        self.last.apply(
            level,
            Job {
                rows: frames * BINS,
                x: &plane.values,
                from: plane.under_kernel(2),
                tap: plane.line(),
                y: Output::Operand(&mut y),
                to: Layout::rows(MARGIN * WIDTH, CHANNELS),
                epilogue: Epilogue::Relu,
            },
        );
        scratch.recycle(plane.values);
        y
    }

    fn first(&self, level: Level, piece: &[f32], scratch: &mut Scratch<E>) -> Plane<E> {
        let frames = piece.len() / MEL_BINS;
        let line = MEL_BINS + 2;
        // One more value, which the last run of four reads.
        let mut x = scratch.take((frames + 2) * line + 1);
        for (x, frame) in x[line..].chunks_mut(line).zip(piece.chunks_exact(MEL_BINS)) {
            x[1..=MEL_BINS].iter_mut().zip(frame).for_each(|(x, value)| *x = E::from_f32(*value));
        }
        let mut plane = Plane::new(frames, MEL_BINS, scratch);
        let to = plane.inside(1);
        self.first.apply(
            level,
            Job {
                rows: frames * MEL_BINS,
                x: &x,
                from: Layout { first: 0, line, place: 1, places: MEL_BINS },
                tap: line,
                y: Output::Operand(&mut plane.values),
                to,
                epilogue: Epilogue::Relu,
            },
        );
        scratch.recycle(x);
        plane
    }
}

impl<E: Operand> Block<E> {
    fn load(weights: &Weights, name: &str, stride: usize) -> Result<Self, Error> {
        let load = |a: &str, b: &str, size| {
            convolution(weights, &format!("{name}.{a}"), &format!("{name}.{b}"), size)
        };
        let shortcut = (stride != 1).then(|| load("shortcut.0", "shortcut.1", 1)).transpose()?;
        Ok(Self { stride, first: load("conv1", "bn1", 3)?, second: load("conv2", "bn2", 3)?, shortcut })
    }

    fn apply(&self, level: Level, x: Plane<E>, scratch: &mut Scratch<E>) -> Plane<E> {
        let mut step = |convolution: &Convolution<E>, x: &Plane<E>, from: Layout, epilogue| {
            let mut plane = Plane::new(x.frames, from.places, scratch);
            let (rows, to) = (x.frames * from.places, plane.inside(1));
            let y = Output::Operand(&mut plane.values);
            convolution.apply(level, Job { rows, x: &x.values, from, tap: x.line(), y, to, epilogue });
            plane
        };
        let middle = step(&self.first, &x, x.under_kernel(self.stride), Epilogue::Relu);
        let shortcut = self.shortcut.as_ref();
        let shortcut = shortcut.map(|shortcut| step(shortcut, &x, x.inside(self.stride), Epilogue::Store));
        let past = shortcut.as_ref().unwrap_or(&x);
        let residual = Epilogue::AddRelu(&past.values, past.inside(1));
        let y = step(&self.second, &middle, middle.under_kernel(1), residual);
        [Some(x), Some(middle), shortcut]
            .into_iter()
            .flatten()
            .for_each(|plane| scratch.recycle(plane.values));
        y
    }
}
