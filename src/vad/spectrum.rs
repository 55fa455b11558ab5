//! The network's first layer: magnitudes of a short-time Fourier transform.
//!
//! The published weights write the transform as a convolution, 258 × 256 products a column; they
//! are a periodic Hann window times cosines and sines, so that a fast transform gives the same.

use std::sync::Arc;

use realfft::{RealFftPlanner, RealToComplex, num_complex::Complex};

/// Samples under one window.
const WINDOW: usize = 256;
/// Samples from one column to the next.
const HOP: usize = 128;
/// Frequencies in a column.
pub(super) const BINS: usize = WINDOW / 2 + 1;
/// Columns in a frame.
pub(super) const COLUMNS: usize = 4;
/// Samples that the columns of one frame cover.
pub(super) const SPAN: usize = (COLUMNS - 1) * HOP + WINDOW;

/// The transform with its tables.
pub(super) struct Spectrum {
    window: [f32; WINDOW],
    transform: Arc<dyn RealToComplex<f32>>,
}

/// Working memory of a transform.
pub(super) struct SpectrumScratch {
    windowed: [f32; WINDOW],
    bins: [Complex<f32>; BINS],
    inner: Vec<Complex<f32>>,
}

impl Spectrum {
    pub fn new() -> Self {
        Self { window: std::array::from_fn(hann), transform: RealFftPlanner::new().plan_fft_forward(WINDOW) }
    }

    pub fn scratch(&self) -> SpectrumScratch {
        SpectrumScratch {
            windowed: [0.0; WINDOW],
            bins: [Complex::default(); BINS],
            inner: self.transform.make_scratch_vec(),
        }
    }

    /// Magnitudes of one frame, `[column][bin]`.
    pub fn magnitudes(&self, frame: &[f32; SPAN], scratch: &mut SpectrumScratch, out: &mut [f32]) {
        let SpectrumScratch { windowed, bins, inner } = scratch;
        for (samples, column) in frame.windows(WINDOW).step_by(HOP).zip(out.chunks_exact_mut(BINS)) {
            for ((w, sample), window) in windowed.iter_mut().zip(samples).zip(&self.window) {
                *w = sample * window;
            }
            self.transform
                .process_with_scratch(windowed, bins, inner)
                .expect("the buffers have the transform's own sizes; this is a bug");
            for (magnitude, bin) in column.iter_mut().zip(bins.iter()) {
                *magnitude = bin.norm_sqr().sqrt();
            }
        }
    }

    /// Whether `basis`, `[real parts, imaginary parts][sample]`, is this very transform.
    pub fn is_written_as(&self, basis: &[f32]) -> bool {
        let expected = |row: usize, sample: usize| {
            let angle = std::f64::consts::TAU * ((row % BINS) * sample % WINDOW) as f64 / WINDOW as f64;
            let wave = if row < BINS { angle.cos() } else { -angle.sin() };
            wave as f32 * self.window[sample]
        };
        basis.len() == 2 * BINS * WINDOW
            && basis
                .iter()
                .enumerate()
                .all(|(i, value)| (value - expected(i / WINDOW, i % WINDOW)).abs() < 1e-5)
    }
}

/// The periodic Hann window: it sums to a constant at any hop that divides it.
fn hann(sample: usize) -> f32 {
    let angle = std::f64::consts::TAU * sample as f64 / WINDOW as f64;
    (0.5 - 0.5 * angle.cos()) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The transform as the published weights write it.
    fn basis() -> Vec<f32> {
        let row = |row: usize| {
            (0..WINDOW).map(move |sample| {
                let angle = std::f32::consts::TAU * ((row % BINS) * sample % WINDOW) as f32 / WINDOW as f32;
                hann(sample) * if row < BINS { angle.cos() } else { -angle.sin() }
            })
        };
        (0..2 * BINS).flat_map(row).collect()
    }

    #[test]
    fn magnitudes_are_those_of_the_convolution() {
        let spectrum = Spectrum::new();
        let frame: [f32; SPAN] = std::array::from_fn(|i| ((i * 7919) % 1000) as f32 / 500.0 - 1.0);
        let mut got = vec![0.0; COLUMNS * BINS];
        spectrum.magnitudes(&frame, &mut spectrum.scratch(), &mut got);
        let basis = basis();
        for (column, samples) in frame.windows(WINDOW).step_by(HOP).enumerate() {
            let product = |row: usize| -> f32 {
                basis[row * WINDOW..][..WINDOW]
                    .iter()
                    .zip(samples)
                    .map(|(basis, sample)| basis * sample)
                    .sum()
            };
            for bin in 0..BINS {
                let expected = product(bin).hypot(product(BINS + bin));
                assert!((got[column * BINS + bin] - expected).abs() < 1e-4, "column {column}, bin {bin}");
            }
        }
    }

    #[test]
    fn knows_its_own_basis_from_another() {
        let spectrum = Spectrum::new();
        let mut basis = basis();
        assert!(spectrum.is_written_as(&basis));
        assert!(!spectrum.is_written_as(&basis[1..]));
        basis[5000] += 1e-3;
        assert!(!spectrum.is_written_as(&basis));
    }
}
