//! Context-aware masking (arXiv 2303.00332, section 2.2): each channel of a layer is scaled by what the layer saw
//! around it, the mean of 2 s of frames and that of the whole piece.

use super::super::error::Error;
use super::super::weights::Weights;
use super::architecture::{BOTTLENECK, GROWTH, MASK_HIDDEN, SEGMENT};
use crate::cpu::convolution::{Convolution, Epilogue, Job, Layout, Output};
use crate::cpu::{Element, Level, fine_exp, multiversion};

pub(super) struct Masking {
    first: Convolution<f32>,
    second: Convolution<f32>,
}

impl Masking {
    pub fn load(weights: &Weights, name: &str) -> Result<Self, Error> {
        let layer = |layer: &str, inputs: usize, outputs: usize| {
            let weight = weights.values(&format!("{name}.{layer}.weight"), &[outputs, inputs, 1])?;
            let bias = weights.values(&format!("{name}.{layer}.bias"), &[outputs])?;
            Ok(Convolution::new(1, inputs, &bias, |output, input| weight[output * inputs + input]))
        };
        Ok(Self {
            first: layer("linear1", BOTTLENECK, MASK_HIDDEN)?,
            second: layer("linear2", MASK_HIDDEN, GROWTH)?,
        })
    }

    /// The mask of each segment of `x`, (frames, [`BOTTLENECK`]): (segments, [`GROWTH`]).
    pub fn masks<E: Element>(&self, level: Level, x: &[E]) -> Vec<f32> {
        let frames = x.len() / BOTTLENECK;
        let mut context = Vec::with_capacity(frames.div_ceil(SEGMENT) * BOTTLENECK);
        let mut whole = [0.0; BOTTLENECK];
        for segment in x.chunks(SEGMENT * BOTTLENECK) {
            let mut sums = [0.0; BOTTLENECK];
            add_rows(level, segment, &mut sums);
            whole.iter_mut().zip(&sums).for_each(|(whole, sum)| *whole += sum);
            let count = (segment.len() / BOTTLENECK) as f32;
            context.extend(sums.map(|sum| sum / count));
        }
        for context in context.chunks_exact_mut(BOTTLENECK) {
            context.iter_mut().zip(&whole).for_each(|(mean, sum)| *mean += sum / frames as f32);
        }
        let hidden = product(level, &self.first, &context, BOTTLENECK, Epilogue::Relu);
        let mut masks = product(level, &self.second, &hidden, MASK_HIDDEN, Epilogue::Store);
        masks.iter_mut().for_each(|value| *value = 1.0 / (1.0 + fine_exp::<false>(-*value)));
        masks
    }
}

fn product(
    level: Level,
    layer: &Convolution<f32>,
    x: &[f32],
    inputs: usize,
    epilogue: Epilogue<f32>,
) -> Vec<f32> {
    let rows = x.len() / inputs;
    let mut y = vec![0.0; rows * layer.outputs()];
    let to = Layout::rows(0, layer.outputs());
    let from = Layout::rows(0, inputs);
    layer.apply(level, Job { rows, x, from, tap: 0, y: Output::Wide(&mut y), to, epilogue });
    y
}

multiversion! {
    /// Adds the rows of `x` to `sums`.
    fn add_rows<E: Element>(x: &[E], sums: &mut [f32; BOTTLENECK]) = add_rows_body
}

#[inline(always)]
fn add_rows_body<const FMA: bool, E: Element>(x: &[E], sums: &mut [f32; BOTTLENECK]) {
    for row in x.chunks_exact(BOTTLENECK) {
        sums.iter_mut().zip(row).for_each(|(sum, x)| *sum += x.to_f32());
    }
}
