//! The encoder on a CPU, by the kernels of [`crate::cpu`].
//!
//! A thread takes a panel of positions from one attention to the next: output projection, feed-forward,
//! and the next layer's queries, keys and values, while the panel stays in its second-level cache.
//! Threads meet only around attention.

use std::ops::Range;

use super::super::host::{Norm, pack, plain};
use crate::cpu::attention::HEAD;
use crate::cpu::encoder_attention::{self, Number, Shape};
use crate::cpu::matrix::{Epilogue, Matrix, Precision};
use crate::cpu::{Bf16, Element, Instructions, Level, Places, Threads, rows};
use crate::models::{Error, weights};

/// The most positions of a panel: their feed-forward activations are 0.8 MB in `base`.
const PANEL: usize = 96;
/// Taps of both convolutions.
const TAPS: usize = 3;

pub struct Encoder {
    level: Level,
    threads: Threads,
    precision: Precision,
    width: usize,
    heads: usize,
    conv1: Matrix,
    conv2: Matrix,
    /// (positions, d)
    positions: Vec<f32>,
    layers: Vec<Layer>,
    norm: Norm,
}

struct Layer {
    attention_norm: Norm,
    query_key_value: Matrix,
    output: Matrix,
    feed_forward_norm: Norm,
    expand: Matrix,
    contract: Matrix,
}

/// Whether the CPU has the instructions that make these kernels faster than libtorch's.
pub fn is_fit_for(weights: &weights::Weights, precision: Precision) -> bool {
    let needed =
        if precision == Precision::F32 { Instructions::Avx512 } else { Instructions::Avx512Products };
    let width = weights.conv2.weight.size().first().copied().unwrap_or(0);
    Level::detect().has(needed) && width == (weights.encoder_heads * HEAD) as i64
}

/// A convolution over time as a matrix, its inputs tap by tap.
fn convolution(linear: &weights::Linear, precision: Precision) -> Result<Matrix, Error> {
    let weight = plain(&linear.weight.f_permute([0, 2, 1])?)?;
    let (_, channels, _) = linear.weight.size3()?;
    let bias = linear.bias.as_ref().map(plain).transpose()?;
    // Few products with much influence on the result: int8 would save only a millisecond.
    let precision = if precision == Precision::Int8 { Precision::Bf16 } else { precision };
    Ok(Matrix::new(&weight, bias.as_deref(), TAPS * channels as usize, precision))
}

impl Encoder {
    pub fn new(weights: &weights::Weights, precision: Precision, threads: Threads) -> Result<Self, Error> {
        let layers = weights.encoder_layers.iter().map(|layer| {
            Ok(Layer {
                attention_norm: Norm::new(&layer.attention.norm)?,
                query_key_value: pack(&layer.attention.query_key_value, precision)?,
                output: pack(&layer.attention.output, precision)?,
                feed_forward_norm: Norm::new(&layer.feed_forward.norm)?,
                expand: pack(&layer.feed_forward.expand, precision)?,
                contract: pack(&layer.feed_forward.contract, precision)?,
            })
        });
        Ok(Self {
            level: Level::detect(),
            threads,
            precision,
            width: weights.encoder_heads * HEAD,
            heads: weights.encoder_heads,
            conv1: convolution(&weights.conv1, precision)?,
            conv2: convolution(&weights.conv2, precision)?,
            positions: plain(&weights.encoder_positions)?,
            layers: layers.collect::<Result<_, Error>>()?,
            norm: Norm::new(&weights.encoder_norm)?,
        })
    }

    /// Features of one window, (frames, bands), to (frames / 2, d).
    ///
    /// # Panics
    /// On more frames than twice the positions.
    pub fn forward(&self, features: &[f32]) -> Vec<f32> {
        let x = self.embed(features);
        match self.precision {
            Precision::F32 => self.transform::<f32>(x),
            Precision::Bf16 | Precision::Int8 => self.transform::<Bf16>(x),
        }
    }

    /// The convolutions and the positions: (frames / 2, d).
    fn embed(&self, features: &[f32]) -> Vec<f32> {
        let (level, width) = (self.level, self.width);
        let bands = self.conv1.inputs() / TAPS;
        let frames = features.len() / bands;
        let padded = padded(features, bands);
        // One frame of zeros before and one behind, which the second convolution reads.
        let mut hidden = vec![0.0; (frames + 2) * width];
        let inside = Places::new(&mut hidden[width..(frames + 1) * width]);
        self.panels(frames, |panel| {
            // SAFETY: panels do not overlap.
            let output = unsafe { inside.range(panel.start * width..panel.end * width) };
            let rows = self.conv1.rows_with(level, panel.len(), |n, row| {
                row.copy_from_slice(&padded[(panel.start + n) * bands..][..TAPS * bands]);
            });
            self.conv1.multiply_rows(level, &rows, output, Epilogue::Gelu);
        });
        let length = frames / 2;
        let mut x = vec![0.0; length * width];
        let places = Places::new(&mut x);
        self.panels(length, |panel| {
            let range = panel.start * width..panel.end * width;
            // SAFETY: panels do not overlap.
            let output = unsafe { places.range(range.clone()) };
            let rows = self.conv2.rows_with(level, panel.len(), |n, row| {
                row.copy_from_slice(&hidden[(panel.start + n) * 2 * width..][..TAPS * width]);
            });
            self.conv2.multiply_rows(level, &rows, output, Epilogue::Gelu);
            rows::add(level, output, &self.positions[range]);
        });
        x
    }

    /// The layers and the last norm, in place: (positions, d).
    fn transform<E: Number>(&self, mut x: Vec<f32>) -> Vec<f32> {
        let (level, width) = (self.level, self.width);
        let length = x.len() / width;
        let shape = Shape { windows: 1, length, heads: self.heads };
        let mut fused = vec![E::default(); 3 * x.len()];
        let mut attended = vec![E::default(); x.len()];
        for index in 0..=self.layers.len() {
            let before = index.checked_sub(1).map(|before| &self.layers[before]);
            let after = self.layers.get(index);
            let (x_places, fused_places) = (Places::new(&mut x), Places::new(&mut fused));
            self.panels(length, |panel| {
                // SAFETY: panels do not overlap.
                let (x, fused) = unsafe {
                    let x = x_places.range(panel.start * width..panel.end * width);
                    (x, fused_places.range(panel.start * 3 * width..panel.end * 3 * width))
                };
                if let Some(layer) = before {
                    self.finish(layer, &attended[panel.start * width..panel.end * width], x);
                }
                match after {
                    Some(layer) => self.query_key_value(layer, x, fused),
                    None => {
                        let before = x.to_vec();
                        for (before, x) in before.chunks_exact(width).zip(x.chunks_exact_mut(width)) {
                            self.norm.apply(level, before, x);
                        }
                    }
                }
            });
            if after.is_some() {
                encoder_attention::attend(level, &self.threads, &fused, shape, &mut attended);
            }
        }
        x
    }

    fn query_key_value<E: Element>(&self, layer: &Layer, x: &[f32], fused: &mut [E]) {
        let (level, width) = (self.level, self.width);
        let rows = layer.query_key_value.rows_with(level, x.len() / width, |n, row| {
            layer.attention_norm.apply(level, &x[n * width..][..width], row);
        });
        let mut product = vec![0.0; fused.len()];
        layer.query_key_value.multiply_rows(level, &rows, &mut product, Epilogue::Store);
        rows::convert(level, &product, fused);
    }

    /// The rest of a layer after attention: output projection and feed-forward.
    fn finish<E: Element>(&self, layer: &Layer, attended: &[E], x: &mut [f32]) {
        let (level, width) = (self.level, self.width);
        let count = x.len() / width;
        let rows = layer.output.rows_with(level, count, |n, row| {
            rows::widen(level, &attended[n * width..][..width], row);
        });
        layer.output.multiply_rows(level, &rows, x, Epilogue::Add);
        let rows = layer.expand.rows_with(level, count, |n, row| {
            layer.feed_forward_norm.apply(level, &x[n * width..][..width], row);
        });
        let mut hidden = vec![0.0; count * layer.expand.outputs()];
        layer.expand.multiply_rows(level, &rows, &mut hidden, Epilogue::Gelu);
        let rows = layer.contract.rows(level, &hidden);
        layer.contract.multiply_rows(level, &rows, x, Epilogue::Add);
    }

    /// Splits `count` positions into panels of one size, as many for each thread.
    fn panels(&self, count: usize, body: impl Fn(Range<usize>) + Sync) {
        let panels = count.div_ceil(PANEL).next_multiple_of(self.threads.count());
        let size = count.div_ceil(panels.max(1));
        self.threads.split(panels, |range| {
            for panel in range {
                let panel = panel * size..((panel + 1) * size).min(count);
                if !panel.is_empty() {
                    body(panel);
                }
            }
        });
    }
}

/// `features` with a frame of zeros before and behind.
fn padded(features: &[f32], bands: usize) -> Vec<f32> {
    let mut padded = vec![0.0; features.len() + 2 * bands];
    padded[bands..bands + features.len()].copy_from_slice(features);
    padded
}
