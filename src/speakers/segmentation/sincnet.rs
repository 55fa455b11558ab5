//! SincNet: from the samples of a window to the features of its frames.
//!
//! Three times a convolution, a pool that keeps the greatest of three positions, an instance norm and a leaky ReLU.
//! A convolution is a product: the values under each position are a row.

use super::architecture::{FEATURES, KERNEL, POOL, STEP};
use super::norm::Norm;
use super::sinc;
use crate::cpu::matrix::{Epilogue, Matrix, Precision};
use crate::cpu::{Level, multiversion};
use crate::speakers::error::Error;
use crate::speakers::network::WINDOW_FRAMES;
use crate::speakers::weights::Weights;

/// Pooled positions of the sinc filters, and of the first convolution.
const POOLED: [usize; 2] = [5325, 1773];
/// Positions computed at once: their rows stay in the second-level cache.
const PANEL: usize = 16 * POOL;
/// Samples are clamped to this, far beyond any sound.
const SAMPLE_LIMIT: f32 = 1e4;

pub(super) struct SincNet {
    level: Level,
    wave_norm: Norm,
    filters: Filters,
    filters_norm: Norm,
    convolutions: [Convolution; 2],
}

impl SincNet {
    pub fn new(weights: &Weights, level: Level, precision: Precision) -> Result<Self, Error> {
        Ok(Self {
            level,
            wave_norm: Norm::new(weights, "sincnet.wav_norm1d", 1)?,
            filters: Filters::new(&sinc::filters(weights)?),
            filters_norm: Norm::new(weights, "sincnet.norm1d.0", sinc::FILTERS)?,
            convolutions: [
                Convolution::new(weights, 1, [sinc::FILTERS, POOLED[1]], precision)?,
                Convolution::new(weights, 2, [FEATURES, WINDOW_FRAMES], precision)?,
            ],
        })
    }

    /// The features of a window, (frames, features) row by row.
    pub fn features(&self, window: &[f32]) -> Vec<f32> {
        let mut samples: Vec<f32> = window.iter().map(|sample| clean(*sample)).collect();
        self.wave_norm.apply_to_wave(self.level, &mut samples);
        let mut x = self.filters.apply(self.level, &samples);
        self.filters_norm.apply(self.level, &mut x);
        for convolution in &self.convolutions {
            x = convolution.apply(self.level, &x);
            convolution.norm.apply(self.level, &mut x);
        }
        x
    }
}

/// A NaN becomes silence, or it would spread to the whole window.
fn clean(sample: f32) -> f32 {
    if sample.is_nan() { 0.0 } else { sample.clamp(-SAMPLE_LIMIT, SAMPLE_LIMIT) }
}

/// The sinc filters. The cosines are mirrored around their middle and the sines are with the other sign, so a product with half
/// of the taps does. They stay in f32: rounding them or the samples to bf16 changed the class of 0.4% of frames.
struct Filters {
    cosines: Matrix,
    sines: Matrix,
}

/// The first half of a filter's taps and the one in the middle, filled up with zeros.
const FOLDED: usize = 128;

impl Filters {
    fn new(taps: &[f32]) -> Self {
        let (cosines, sines) = taps.split_at(taps.len() / 2);
        let folded = |filters: &[f32]| {
            let half = |taps: &[f32]| {
                let mut folded = [0.0; FOLDED];
                folded[..=sinc::LENGTH / 2].copy_from_slice(&taps[..=sinc::LENGTH / 2]);
                folded
            };
            let halves: Vec<f32> = filters.chunks_exact(sinc::LENGTH).flat_map(half).collect();
            Matrix::new(&halves, None, FOLDED, Precision::F32)
        };
        Self { cosines: folded(cosines), sines: folded(sines) }
    }

    /// The pooled amplitudes, (positions, filters).
    fn apply(&self, level: Level, samples: &[f32]) -> Vec<f32> {
        let mut pooled = vec![0.0; POOLED[0] * sinc::FILTERS];
        let mut rows = [vec![[0.0; FOLDED]; PANEL], vec![[0.0; FOLDED]; PANEL]];
        let mut amplitudes = vec![0.0; PANEL * sinc::FILTERS / 2];
        for (panel, pooled) in pooled.chunks_mut(PANEL / POOL * sinc::FILTERS).enumerate() {
            let count = pooled.len() / sinc::FILTERS * POOL;
            let [sums, differences] = rows.each_mut().map(|rows| &mut rows[..count]);
            fold(level, &samples[panel * PANEL * STEP..], sums, differences);
            let amplitudes = &mut amplitudes[..count * sinc::FILTERS / 2];
            for (product, rows, first) in
                [(&self.cosines, sums, 0), (&self.sines, differences, sinc::FILTERS / 2)]
            {
                let rows = product.rows(level, rows.as_flattened());
                product.multiply_rows(level, &rows, amplitudes, Epilogue::Store);
                amplitudes.iter_mut().for_each(|amplitude| *amplitude = amplitude.abs());
                pool(level, amplitudes, &mut pooled[first..], [sinc::FILTERS / 2, sinc::FILTERS]);
            }
        }
        pooled
    }
}

multiversion! {
    /// The sums and the differences of samples that lie mirrored around the middle of each position.
    fn fold(samples: &[f32], sums: &mut [[f32; FOLDED]], differences: &mut [[f32; FOLDED]]) = fold_body
}

#[inline(always)]
fn fold_body<const FMA: bool>(
    samples: &[f32],
    sums: &mut [[f32; FOLDED]],
    differences: &mut [[f32; FOLDED]],
) {
    const HALF: usize = sinc::LENGTH / 2;
    let positions = samples.windows(sinc::LENGTH).step_by(STEP);
    for ((samples, sums), differences) in positions.zip(sums).zip(differences) {
        let mirrored = samples[HALF + 1..].iter().rev();
        let places = sums[..HALF].iter_mut().zip(&mut differences[..HALF]);
        for (((sum, difference), left), right) in places.zip(&samples[..HALF]).zip(mirrored) {
            *sum = left + right;
            *difference = left - right;
        }
        sums[HALF] = samples[HALF];
    }
}

/// A convolution, and the norm after its pool.
struct Convolution {
    product: Matrix,
    /// Channels in.
    channels: usize,
    /// Pooled positions.
    pooled: usize,
    norm: Norm,
}

impl Convolution {
    fn new(
        weights: &Weights,
        index: usize,
        [channels, pooled]: [usize; 2],
        precision: Precision,
    ) -> Result<Self, Error> {
        let values = |kind, shape: &[usize]| weights.values(&format!("sincnet.conv1d.{index}.{kind}"), shape);
        let (weight, bias) = (values("weight", &[FEATURES, channels, KERNEL])?, values("bias", &[FEATURES])?);
        // In `x` the channels of one position lie side by side, so the taps are the outer ones.
        let of_output = |weight: &[f32]| -> Vec<f32> {
            (0..KERNEL * channels).map(|input| weight[input % channels * KERNEL + input / channels]).collect()
        };
        let taps: Vec<f32> = weight.chunks_exact(KERNEL * channels).flat_map(of_output).collect();
        Ok(Self {
            product: Matrix::new(&taps, Some(&bias), KERNEL * channels, precision),
            channels,
            pooled,
            norm: Norm::new(weights, &format!("sincnet.norm1d.{index}"), FEATURES)?,
        })
    }

    /// `x`, (positions, channels), to (pooled positions, features).
    fn apply(&self, level: Level, x: &[f32]) -> Vec<f32> {
        let mut pooled = vec![0.0; self.pooled * FEATURES];
        let mut sums = vec![0.0; PANEL * FEATURES];
        for (panel, pooled) in pooled.chunks_mut(PANEL / POOL * FEATURES).enumerate() {
            let count = pooled.len() / FEATURES * POOL;
            let x = &x[panel * PANEL * self.channels..];
            let rows = self.product.rows_with(level, count, |row, place| {
                place.copy_from_slice(&x[row * self.channels..][..KERNEL * self.channels]);
            });
            let sums = &mut sums[..count * FEATURES];
            self.product.multiply_rows(level, &rows, sums, Epilogue::Store);
            pool(level, sums, pooled, [FEATURES; 2]);
        }
        pooled
    }
}

multiversion! {
    /// The greatest of each [`POOL`] rows of `x`. The lengths are those of a row of `x` and of `pooled`, which may be longer.
    fn pool(x: &[f32], pooled: &mut [f32], lengths: [usize; 2]) = pool_body
}

#[inline(always)]
fn pool_body<const FMA: bool>(x: &[f32], pooled: &mut [f32], [length, stride]: [usize; 2]) {
    for (x, pooled) in x.chunks_exact(POOL * length).zip(pooled.chunks_mut(stride)) {
        let (first, others) = x.split_at(length);
        let (second, third) = others.split_at(length);
        for (((pooled, a), b), c) in pooled.iter_mut().zip(first).zip(second).zip(third) {
            *pooled = a.max(*b).max(*c);
        }
    }
}
