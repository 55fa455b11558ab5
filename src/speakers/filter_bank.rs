//! Filter banks as Kaldi computes them (`feature-fbank.cc`, `mel-computations.cc`), which CAM++ was trained on: the
//! twin of kaldi-native-fbank with 80 bins, no dither and all else by default.

use std::sync::{Arc, LazyLock};

use realfft::{RealFftPlanner, RealToComplex};

use super::network::MEL_BINS;

/// Samples of a frame, 25 ms at 16 kHz.
pub(super) const FRAME: usize = 400;
/// Samples between frames, 10 ms.
pub(super) const HOP: usize = 160;
/// A frame is padded with zeros to a power of two.
const PADDED: usize = 512;
/// The highest bin, half the sampling rate, is in no filter.
const BINS: usize = PADDED / 2;
const SAMPLE_RATE: f64 = 16_000.0;
/// The lower edge of the first filter, in Hz; the upper edge of the last is half the sampling rate.
const LOWEST: f64 = 20.0;
const PRE_EMPHASIS: f32 = 0.97;

static TABLES: LazyLock<Tables> = LazyLock::new(Tables::new);

struct Tables {
    fft: Arc<dyn RealToComplex<f32>>,
    window: [f32; FRAME],
    /// For each filter: its first bin and the weights from there on.
    filters: Vec<(usize, Vec<f32>)>,
}

impl Tables {
    fn new() -> Self {
        // Kaldi's own window, "like Hamming but goes to zero at the edges".
        let povey = |n: usize| {
            let angle = std::f64::consts::TAU * n as f64 / (FRAME - 1) as f64;
            (0.5 - 0.5 * angle.cos()).powf(0.85) as f32
        };
        let window = std::array::from_fn(povey);
        Self { fft: RealFftPlanner::new().plan_fft_forward(PADDED), window, filters: mel_filters() }
    }
}

/// Triangles at equal distances on the mel scale, of height 1.
fn mel_filters() -> Vec<(usize, Vec<f32>)> {
    let mel = |hertz: f64| 1127.0 * (1.0 + hertz / 700.0).ln();
    let (low, high) = (mel(LOWEST), mel(SAMPLE_RATE / 2.0));
    let step = (high - low) / (MEL_BINS + 1) as f64;
    let filter = |index: usize| {
        let centre = low + (index + 1) as f64 * step;
        let weight = |bin: usize| {
            let distance = (mel(bin as f64 * SAMPLE_RATE / PADDED as f64) - centre).abs();
            (1.0 - distance / step).max(0.0) as f32
        };
        let first = (0..BINS).find(|&bin| weight(bin) > 0.0).unwrap_or(0);
        (first, (first..BINS).map(weight).take_while(|&weight| weight > 0.0).collect())
    };
    (0..MEL_BINS).map(filter).collect()
}

/// The natural logarithm of each filter's energy in each frame: (frames, [`MEL_BINS`]) row by row.
///
/// `samples` are mono at 16 kHz, -1 to 1. Frames are 25 ms long and 10 ms apart; those that would reach over the end
/// are left out. Nothing is normalised.
pub fn filter_banks(samples: &[f32]) -> Vec<f32> {
    let tables = &*TABLES;
    let frames = samples.windows(FRAME).step_by(HOP);
    let mut banks = Vec::with_capacity(frames.len() * MEL_BINS);
    let mut input = tables.fft.make_input_vec();
    let mut spectrum = tables.fft.make_output_vec();
    let mut scratch = tables.fft.make_scratch_vec();
    let mut power = [0.0f32; BINS];
    for frame in frames {
        let mean = frame.iter().map(|&sample| f64::from(sample)).sum::<f64>() as f32 / FRAME as f32;
        let mut before = frame[0] - mean;
        for ((value, &sample), weight) in input.iter_mut().zip(frame).zip(&tables.window) {
            let sample = sample - mean;
            *value = (sample - PRE_EMPHASIS * before) * weight;
            before = sample;
        }
        input[FRAME..].fill(0.0);
        // The buffers have the plan's lengths, so this does not fail.
        if tables.fft.process_with_scratch(&mut input, &mut spectrum, &mut scratch).is_err() {
            break;
        }
        for (power, bin) in power.iter_mut().zip(&spectrum) {
            *power = bin.norm_sqr();
        }
        banks.extend(tables.filters.iter().map(|(first, weights)| {
            let energy: f32 =
                weights.iter().zip(&power[*first..]).map(|(weight, power)| weight * power).sum();
            energy.max(f32::EPSILON).ln()
        }));
    }
    banks
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// 2.4 s of noise and a tone that rises, in pulses: integers, so that every language makes the same of it.
    pub fn sound() -> Vec<f32> {
        let mut state = 7_u32;
        let mut sample = |i: i64| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let noise = i64::from(state >> 8) - (1 << 23);
            let pulse = (i % 4000 - 2000).abs();
            let tone = i * (100 + i / 8000 * 30) % 16_000 - 8000;
            let value = (noise.div_euclid(4096) * pulse).div_euclid(2000) + (tone * pulse).div_euclid(2000);
            value as f32 / 32_768.0
        };
        (0..37_777).map(&mut sample).collect()
    }

    #[test]
    fn agrees_with_kaldi() {
        /// Computed with kaldi-native-fbank 1.23 for [`sound`]: frames 0, 57 and 233.
        #[derive(serde::Deserialize)]
        struct Reference {
            filter_banks: Vec<f32>,
        }
        let reference = include_str!("embedding/reference.json");
        let Reference { filter_banks: expected } = serde_json::from_str(reference).expect("the field above");
        let banks = filter_banks(&sound());
        assert_eq!(banks.len(), 234 * MEL_BINS);
        let got = [0, 57, 233].map(|frame| &banks[frame * MEL_BINS..][..MEL_BINS]).concat();
        for (got, expected) in got.iter().zip(&expected) {
            assert!((got - expected).abs() < 1e-3, "{got} for {expected}");
        }
    }

    #[test]
    fn only_whole_frames_count_and_silence_is_finite() {
        for (samples, frames) in [(0, 0), (399, 0), (400, 1), (559, 1), (560, 2)] {
            let banks = filter_banks(&vec![0.0; samples]);
            assert_eq!(banks.len(), frames * MEL_BINS);
            assert!(banks.iter().all(|value| value.is_finite()));
        }
    }
}
