//! Instance norms: each channel of a window is brought to the mean 0 and the variance 1, then to a weight and a bias
//! that were learnt.

use super::architecture::NORM_EPSILON;
use crate::cpu::{Level, multiply_add, multiversion};
use crate::speakers::error::Error;
use crate::speakers::weights::Weights;

pub(super) struct Norm {
    weight: Vec<f32>,
    bias: Vec<f32>,
}

impl Norm {
    pub fn new(weights: &Weights, name: &str, channels: usize) -> Result<Self, Error> {
        let values = |kind| weights.values(&format!("{name}.{kind}"), &[channels]);
        Ok(Self { weight: values("weight")?, bias: values("bias")? })
    }

    /// In place, (frames, channels), and a leaky ReLU after it.
    pub fn apply(&self, level: Level, x: &mut [f32]) {
        normalise(level, x, &self.weight, &self.bias);
    }

    /// In place, of a single channel, without the ReLU.
    pub fn apply_to_wave(&self, level: Level, x: &mut [f32]) {
        normalise_wave(level, x, self.weight[0], self.bias[0]);
    }
}

multiversion! {
    fn normalise(x: &mut [f32], weight: &[f32], bias: &[f32]) = normalise_body
}

#[inline(always)]
fn normalise_body<const FMA: bool>(x: &mut [f32], weight: &[f32], bias: &[f32]) {
    let channels = weight.len();
    let share = channels as f32 / x.len() as f32;
    let mut means = vec![0.0_f32; channels];
    for x in x.chunks_exact(channels) {
        means.iter_mut().zip(x).for_each(|(mean, x)| *mean += x);
    }
    means.iter_mut().for_each(|mean| *mean *= share);
    let mut factors = vec![0.0_f32; channels];
    for x in x.chunks_exact(channels) {
        for ((sum, x), mean) in factors.iter_mut().zip(x).zip(&means) {
            *sum = multiply_add::<FMA>(x - mean, x - mean, *sum);
        }
    }
    for (factor, weight) in factors.iter_mut().zip(weight) {
        *factor = weight / (*factor * share + NORM_EPSILON as f32).sqrt();
    }
    for x in x.chunks_exact_mut(channels) {
        for (((x, mean), factor), bias) in x.iter_mut().zip(&means).zip(&factors).zip(bias) {
            let y = multiply_add::<FMA>(*x - mean, *factor, *bias);
            *x = y.max(0.01 * y);
        }
    }
}

multiversion! {
    fn normalise_wave(x: &mut [f32], weight: f32, bias: f32) = normalise_wave_body
}

#[inline(always)]
fn normalise_wave_body<const FMA: bool>(x: &mut [f32], weight: f32, bias: f32) {
    let count = x.len() as f32;
    let mean = sum(x, |x| x) / count;
    let variance = sum(x, |x| (x - mean) * (x - mean)) / count;
    let factor = weight / (variance + NORM_EPSILON as f32).sqrt();
    x.iter_mut().for_each(|x| *x = multiply_add::<FMA>(*x - mean, factor, bias));
}

/// In 32 sums side by side: vector code, and less rounding than in one.
#[inline(always)]
fn sum(x: &[f32], of: impl Fn(f32) -> f32) -> f32 {
    let (chunks, rest) = x.as_chunks::<32>();
    let mut sums = [0.0_f32; 32];
    for chunk in chunks {
        sums.iter_mut().zip(chunk).for_each(|(sum, x)| *sum += of(*x));
    }
    sums.iter().sum::<f32>() + rest.iter().map(|x| of(*x)).sum::<f32>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wave(count: usize) -> Vec<f32> {
        (0..count).map(|n| (n * 7919 % 1000) as f32 / 100.0 + 30.0).collect()
    }

    fn moments(x: &[f32]) -> (f32, f32) {
        let mean = x.iter().sum::<f32>() / x.len() as f32;
        (mean, x.iter().map(|x| (x - mean).powi(2)).sum::<f32>() / x.len() as f32)
    }

    #[test]
    fn a_wave_gets_the_mean_and_the_deviation_that_were_learnt() {
        let norm = Norm { weight: vec![3.0], bias: vec![-2.0] };
        for level in Level::available() {
            let mut x = wave(1003);
            norm.apply_to_wave(level, &mut x);
            let (mean, variance) = moments(&x);
            assert!((mean + 2.0).abs() < 1e-4 && (variance - 9.0).abs() < 1e-2, "{mean}, {variance}");
        }
    }

    #[test]
    fn channels_are_normalised_by_themselves_and_lose_most_of_what_is_negative() {
        const CHANNELS: usize = 5;
        let norm = Norm { weight: vec![2.0; CHANNELS], bias: vec![0.0, 0.5, 1.0, 1.5, 2.0] };
        for level in Level::available() {
            let mut x: Vec<f32> =
                wave(400 * CHANNELS).iter().enumerate().map(|(n, x)| x * (1 + n % CHANNELS) as f32).collect();
            norm.apply(level, &mut x);
            for channel in 0..CHANNELS {
                let leak = |y: f32| if y < 0.0 { y / 0.01 } else { y };
                let before: Vec<f32> = x.iter().skip(channel).step_by(CHANNELS).map(|y| leak(*y)).collect();
                let (mean, variance) = moments(&before);
                assert!(
                    (mean - norm.bias[channel]).abs() < 1e-3 && (variance - 4.0).abs() < 1e-2,
                    "{level:?}"
                );
            }
        }
    }

    #[test]
    fn silence_stays_finite() {
        let norm = Norm { weight: vec![1.0], bias: vec![0.25] };
        let mut x = vec![0.0; 100];
        norm.apply_to_wave(Level::detect(), &mut x);
        assert_eq!(x, [0.25; 100]);
    }
}
