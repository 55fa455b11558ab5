//! The first layer's filters: band passes that the network learnt by their edges alone.
//!
//! Source: M. Ravanelli and Y. Bengio, "Speaker recognition from raw waveform with SincNet" (2018), in the parametrised
//! form of asteroid-filterbanks' `ParamSincFB` (M. Pariente et al., "Filterbank design for end-to-end speech
//! separation", 2020), which has a filter in sine beside each in cosine.

use std::f64::consts::TAU;

use crate::speakers::error::Error;
use crate::speakers::weights::Weights;

/// Filters: one in cosine for each band, then one in sine for each.
pub const FILTERS: usize = 80;
/// Samples that a filter spans.
pub const LENGTH: usize = 251;

const BANDS: usize = FILTERS / 2;
const HALF: usize = LENGTH / 2;
const SAMPLE_RATE: f64 = 16_000.0;
/// The lowest edge of a band, and the least width of one.
const HZ_MIN: f64 = 50.0;

/// The taps of all filters, (filters, length) row by row.
pub fn filters(weights: &Weights) -> Result<Vec<f32>, Error> {
    let edges = |name: &str| weights.values(&format!("sincnet.conv1d.0.filterbank.{name}"), &[BANDS, 1]);
    let bands: Vec<(f64, f64)> =
        edges("low_hz_")?.into_iter().zip(edges("band_hz_")?).map(|(low, width)| band(low, width)).collect();
    let cosines = bands.iter().flat_map(|band| taps(*band, f64::sin, 1.0));
    let sines = bands.iter().flat_map(|band| taps(*band, |angle| -angle.cos(), -1.0));
    Ok(cosines.chain(sines).collect())
}

/// The edges of a band in Hz, of the two numbers that the network learnt for it.
fn band(low: f32, width: f32) -> (f64, f64) {
    let low = HZ_MIN + f64::from(low).abs();
    let high = low + HZ_MIN + f64::from(width).abs();
    (low, high.clamp(HZ_MIN, SAMPLE_RATE / 2.0))
}

/// `(wave(ω_high t) - wave(ω_low t)) / (2 π t) / (high - low)` under a Hamming window for `t < 0`, and mirrored with
/// that sign for `t > 0`.
fn taps((low, high): (f64, f64), wave: fn(f64) -> f64, mirrored: f64) -> [f32; LENGTH] {
    let mut taps = [0.0; LENGTH];
    for n in 0..HALF {
        let window = 0.54 - 0.46 * (TAU * n as f64 / (LENGTH - 1) as f64).cos();
        let t = TAU * (n as f64 - HALF as f64) / SAMPLE_RATE;
        let tap = (wave(high * t) - wave(low * t)) / (t / 2.0) * window / (2.0 * (high - low));
        taps[n] = tap as f32;
        taps[LENGTH - 1 - n] = (mirrored * tap) as f32;
    }
    // The limit for t → 0: 1 for the cosines, 0 for the sines.
    taps[HALF] = if mirrored > 0.0 { 1.0 } else { 0.0 };
    taps
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The amplitude of a filter pair's answer to a tone.
    fn gain(band: (f64, f64), hz: f64) -> f64 {
        let answer = |wave, mirrored| {
            let taps = taps(band, wave, mirrored);
            let of = |shift: f64| -> f64 {
                let tone = |n: usize| (TAU * hz * n as f64 / SAMPLE_RATE + shift).cos();
                taps.iter().enumerate().map(|(n, tap)| f64::from(*tap) * tone(n)).sum()
            };
            of(0.0).hypot(of(-TAU / 4.0))
        };
        let (cosine, sine) = (answer(f64::sin, 1.0), answer(|angle: f64| -angle.cos(), -1.0));
        assert!((cosine - sine).abs() < 0.05 * cosine.max(1.0), "{cosine} and {sine}");
        cosine
    }

    #[test]
    fn a_filter_passes_its_band_and_nothing_else() {
        let band = (1000.0, 2000.0);
        let middle = gain(band, 1500.0);
        for (hz, least, most) in
            [(1200.0, 0.95, 1.05), (1800.0, 0.95, 1.05), (700.0, 0.0, 0.01), (2300.0, 0.0, 0.01)]
        {
            let share = gain(band, hz) / middle;
            assert!((least..=most).contains(&share), "{share} at {hz} Hz");
        }
    }

    #[test]
    fn a_band_stays_below_half_the_sample_rate() {
        assert_eq!(band(-100.0, 30.0), (150.0, 230.0));
        assert_eq!(band(7000.0, 5000.0), (7050.0, 8000.0));
    }
}
