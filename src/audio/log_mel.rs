//! Log-mel spectrogram in plain Rust, the twin of the reference's `log_mel_spectrogram`
//! (openai/whisper `audio.py`).

use std::ops::Range;
use std::sync::Arc;

use realfft::{RealFftPlanner, RealToComplex};

use super::pcm::SAMPLE_RATE;

/// Samples of one analysis window, 25 ms.
pub const FFT_SAMPLES: usize = 400;
/// Samples between frames, 10 ms.
pub const HOP_SAMPLES: usize = 160;
const BINS: usize = FFT_SAMPLES / 2 + 1;

/// Computes log-mel features; holds the plan, the window and the filters.
pub struct LogMel {
    fft: Arc<dyn RealToComplex<f32>>,
    pub(crate) hann: Vec<f32>,
    /// For each mel band: its first bin and the weights from there on; the rest are zero.
    pub(crate) filters: Vec<(usize, Vec<f32>)>,
}

impl LogMel {
    /// `bands`: 80, or 128 for large-v3 and its kin.
    pub fn new(bands: usize) -> Self {
        // Periodic Hann, as torch.hann_window makes it.
        let hann = (0..FFT_SAMPLES)
            .map(|n| (0.5 - 0.5 * (2.0 * std::f64::consts::PI * n as f64 / FFT_SAMPLES as f64).cos()) as f32)
            .collect();
        Self { fft: RealFftPlanner::new().plan_fft_forward(FFT_SAMPLES), hann, filters: mel_filters(bands) }
    }

    pub fn bands(&self) -> usize {
        self.filters.len()
    }

    /// Whole frames of `samples`: one per [`HOP_SAMPLES`].
    pub fn frames(samples: usize) -> usize {
        samples / HOP_SAMPLES
    }

    /// log₁₀ of the energy of each band in each of `frames`, not below -10: (frames, bands) into `output`.
    /// Before the first sample, `samples` (mono, 16 kHz) are reflected; after the last, silence follows.
    pub fn log_energies(&self, samples: &[f32], frames: Range<usize>, output: &mut [f32]) {
        let mut input = self.fft.make_input_vec();
        let mut spectrum = self.fft.make_output_vec();
        let mut scratch = self.fft.make_scratch_vec();
        let mut power = [0.0f32; BINS];
        for (frame, output) in frames.zip(output.chunks_exact_mut(self.bands())) {
            // Frames are centred: the first begins half a window before the audio, where the
            // reference reflects it.
            let start = (frame * HOP_SAMPLES) as isize - (FFT_SAMPLES / 2) as isize;
            for (n, (value, weight)) in input.iter_mut().zip(&self.hann).enumerate() {
                let index = (start + n as isize).unsigned_abs();
                *value = samples.get(index).copied().unwrap_or(0.0) * weight;
            }
            // The buffers have the plan's lengths, so this cannot fail.
            if self.fft.process_with_scratch(&mut input, &mut spectrum, &mut scratch).is_err() {
                return;
            }
            for (power, bin) in power.iter_mut().zip(&spectrum) {
                *power = bin.norm_sqr();
            }
            for (output, (first, weights)) in output.iter_mut().zip(&self.filters) {
                let energy: f32 = weights.iter().zip(&power[*first..]).map(|(w, p)| w * p).sum();
                *output = energy.max(1e-10).log10();
            }
        }
    }
}

/// Clamps to at most 8 below the maximum and scales to about -1 to 1, as the models expect.
pub fn clamp_log_mel(log_energies: &mut [f32]) {
    let floor = log_energies.iter().copied().fold(f32::NEG_INFINITY, f32::max) - 8.0;
    log_energies.iter_mut().for_each(|value| *value = (value.max(floor) + 4.0) / 4.0);
}

/// Triangular filters on Slaney's mel scale with area normalisation, as
/// `librosa.filters.mel(sr=16000, n_fft=400, n_mels=bands)`.
fn mel_filters(bands: usize) -> Vec<(usize, Vec<f32>)> {
    let nyquist = f64::from(SAMPLE_RATE) / 2.0;
    let top = hertz_to_mel(nyquist);
    let edges: Vec<f64> =
        (0..bands + 2).map(|index| mel_to_hertz(top * index as f64 / (bands + 1) as f64)).collect();
    edges
        .windows(3)
        .map(|edge| {
            let (low, centre, high) = (edge[0], edge[1], edge[2]);
            let weight = |bin: usize| {
                let hertz = bin as f64 * nyquist / (BINS - 1) as f64;
                let slope = ((hertz - low) / (centre - low)).min((high - hertz) / (high - centre));
                (slope.max(0.0) * 2.0 / (high - low)) as f32
            };
            let first = (0..BINS).find(|&bin| weight(bin) > 0.0).unwrap_or(0);
            let weights = (first..BINS).map(weight).take_while(|&w| w > 0.0).collect();
            (first, weights)
        })
        .collect()
}

/// Linear to 1 kHz, logarithmic above (Slaney, Auditory Toolbox, 1998).
const MELS_PER_HERTZ: f64 = 3.0 / 200.0;
const KNEE_HERTZ: f64 = 1000.0;
const KNEE_MEL: f64 = KNEE_HERTZ * MELS_PER_HERTZ;

/// Natural logarithm of the frequency ratio of one mel above the knee: ln(6.4) / 27.
fn log_step() -> f64 {
    6.4f64.ln() / 27.0
}

fn hertz_to_mel(hertz: f64) -> f64 {
    if hertz < KNEE_HERTZ {
        hertz * MELS_PER_HERTZ
    } else {
        KNEE_MEL + (hertz / KNEE_HERTZ).ln() / log_step()
    }
}

fn mel_to_hertz(mel: f64) -> f64 {
    if mel < KNEE_MEL { mel / MELS_PER_HERTZ } else { KNEE_HERTZ * ((mel - KNEE_MEL) * log_step()).exp() }
}
