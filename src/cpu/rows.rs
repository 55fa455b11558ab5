//! Operations on single rows: layer norm, GELU, sums.

use super::element::{Element, exp, multiply_add};
use super::instructions::multiversion;

/// Elements that are summed side by side, in a fixed order so that all levels and batches agree.
const LANES: usize = 16;

multiversion! {
    /// `output = (input - mean) / deviation · gamma + beta`, all of one length.
    pub fn layer_norm(input: &[f32], gamma: &[f32], beta: &[f32], output: &mut [f32]) = layer_norm_body
}

#[inline(always)]
fn layer_norm_body<const FMA: bool>(input: &[f32], gamma: &[f32], beta: &[f32], output: &mut [f32]) {
    const EPSILON: f32 = 1e-5;
    let mean = lanes_sum(input, |x| x) / input.len() as f32;
    let variance = lanes_sum(input, |x| (x - mean) * (x - mean)) / input.len() as f32;
    let inverse = 1.0 / (variance + EPSILON).sqrt();
    for (((output, &input), &gamma), &beta) in output.iter_mut().zip(input).zip(gamma).zip(beta) {
        *output = multiply_add::<FMA>((input - mean) * inverse, gamma, beta);
    }
}

#[inline(always)]
fn lanes_sum(values: &[f32], map: impl Fn(f32) -> f32) -> f32 {
    let mut lanes = [0.0f32; LANES];
    let chunks = values.chunks_exact(LANES);
    let rest: f32 = chunks.remainder().iter().map(|&value| map(value)).sum();
    for chunk in chunks {
        for (lane, &value) in lanes.iter_mut().zip(chunk) {
            *lane += map(value);
        }
    }
    lanes.iter().sum::<f32>() + rest
}

#[inline(always)]
pub(super) fn lanes_max(values: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let chunks = values.chunks_exact(LANES);
    let rest = chunks.remainder().iter().copied().fold(f32::NEG_INFINITY, f32::max);
    for chunk in chunks {
        for (lane, &value) in lanes.iter_mut().zip(chunk) {
            *lane = if value > *lane { value } else { *lane };
        }
    }
    lanes.iter().copied().fold(rest, f32::max)
}

#[inline(always)]
pub(super) fn lanes_abs_max(values: &[f32]) -> f32 {
    let mut lanes = [0.0f32; LANES];
    let chunks = values.chunks_exact(LANES);
    let rest = chunks.remainder().iter().fold(0.0f32, |max, value| max.max(value.abs()));
    for chunk in chunks {
        for (lane, value) in lanes.iter_mut().zip(chunk) {
            let value = value.abs();
            *lane = if value > *lane { value } else { *lane };
        }
    }
    lanes.iter().copied().fold(rest, f32::max)
}

multiversion! {
    /// Exact GELU, x · Φ(x), in place. Φ by the error function of Abramowitz and Stegun 7.1.26,
    /// |error| ≤ 1.5e-7.
    pub fn gelu(values: &mut [f32]) = gelu_body
}

#[inline(always)]
fn gelu_body<const FMA: bool>(values: &mut [f32]) {
    let (chunks, rest) = values.as_chunks_mut::<LANES>();
    chunks.iter_mut().for_each(gelu_lanes::<FMA>);
    let mut last = [0.0; LANES];
    last[..rest.len()].copy_from_slice(rest);
    gelu_lanes::<FMA>(&mut last);
    rest.copy_from_slice(&last[..rest.len()]);
}

#[inline(always)]
pub(super) fn gelu_lanes<const FMA: bool>(values: &mut [f32; LANES]) {
    for value in values {
        let x = *value;
        let z = x.abs() * std::f32::consts::FRAC_1_SQRT_2;
        let t = 1.0 / multiply_add::<FMA>(0.327_591_1, z, 1.0);
        let mut p = 1.061_405_4;
        for coefficient in [-1.453_152_1, 1.421_413_8, -0.284_496_72, 0.254_829_6] {
            p = multiply_add::<FMA>(p, t, coefficient);
        }
        let tail = p * t * exp::<FMA>(-z * z);
        // Φ(x) = 1 - tail / 2 for x ≥ 0, tail / 2 below.
        let phi = if x >= 0.0 { 1.0 - 0.5 * tail } else { 0.5 * tail };
        *value = x * phi;
    }
}

/// Φ(x) - ½ as an odd polynomial, fitted to its greatest error on |x| ≤ 4: from x¹⁵ down to x.
pub(super) const COARSE_GELU: [f32; 8] = [
    -1.580_696_4e-9,
    1.217_057_8e-7,
    -4.100_740_6e-6,
    8.066_588e-5,
    -1.048_194_7e-3,
    9.664_843e-3,
    -6.617_533_4e-2,
    3.988_475e-1,
];

/// GELU to 1e-4, for results that are rounded to bf16 or int8 next: beyond ±4 Φ is constant.
#[inline(always)]
pub(super) fn coarse_gelu_lanes<const FMA: bool>(values: &mut [f32; LANES]) {
    for value in values {
        let x = value.clamp(-4.0, 4.0);
        let square = x * x;
        let mut p = COARSE_GELU[0];
        for coefficient in &COARSE_GELU[1..] {
            p = multiply_add::<FMA>(p, square, *coefficient);
        }
        *value *= multiply_add::<FMA>(p, x, 0.5);
    }
}

multiversion! {
    /// `target += source`.
    pub fn add(target: &mut [f32], source: &[f32]) = add_body
}

#[inline(always)]
fn add_body<const FMA: bool>(target: &mut [f32], source: &[f32]) {
    target.iter_mut().zip(source).for_each(|(target, source)| *target += source);
}

multiversion! {
    /// Rounds to another type.
    pub fn convert<E: Element>(from: &[f32], to: &mut [E]) = convert_body
}

#[inline(always)]
fn convert_body<const FMA: bool, E: Element>(from: &[f32], to: &mut [E]) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to = E::from_f32(*from));
}

multiversion! {
    /// Converts back to f32.
    pub fn widen<E: Element>(from: &[E], to: &mut [f32]) = widen_body
}

#[inline(always)]
fn widen_body<const FMA: bool, E: Element>(from: &[E], to: &mut [f32]) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to = from.to_f32());
}

multiversion! {
    /// ln Σ eˣ; minus infinity if every x is.
    pub fn log_sum_exp(values: &[f32]) -> f32 = log_sum_exp_body
}

#[inline(always)]
fn log_sum_exp_body<const FMA: bool>(values: &[f32]) -> f32 {
    let max = lanes_max(values);
    if max == f32::NEG_INFINITY {
        return max;
    }
    max + lanes_sum(values, |x| exp::<FMA>(x - max)).ln()
}

multiversion! {
    /// The greatest value and its first index; (minus infinity, 0) for no values.
    pub fn arg_max(values: &[f32]) -> (f32, usize) = arg_max_body
}

#[inline(always)]
fn arg_max_body<const FMA: bool>(values: &[f32]) -> (f32, usize) {
    let max = lanes_max(values);
    (max, values.iter().position(|&value| value == max).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::Level;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn rows_agree_with_plain_formulas(values in prop::collection::vec(-20.0f32..20.0, 1..200)) {
            let n = values.len() as f64;
            let wide: Vec<f64> = values.iter().map(|&value| f64::from(value)).collect();
            let mean = wide.iter().sum::<f64>() / n;
            let variance = wide.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n;
            let total = wide.iter().map(|x| x.exp()).sum::<f64>().ln();
            for level in Level::available() {
                let mut normal = vec![0.0; values.len()];
                layer_norm(level, &values, &vec![2.0; values.len()], &vec![0.5; values.len()], &mut normal);
                for (x, y) in wide.iter().zip(&normal) {
                    let expected = (x - mean) / (variance + 1e-5).sqrt() * 2.0 + 0.5;
                    prop_assert!((expected - f64::from(*y)).abs() < 1e-3, "{expected} {y}");
                }
                prop_assert!((total - f64::from(log_sum_exp(level, &values))).abs() < 1e-5);
                let (max, place) = arg_max(level, &values);
                prop_assert!(values.iter().all(|&value| value <= max));
                prop_assert!(values[place] == max && !values[..place].contains(&max));
            }
        }
    }

    #[test]
    fn gelu_is_exact_to_f32() {
        // Φ to ten places, from tables.
        let table = [(0.0, 0.5), (1.0, 0.841_344_746_1), (-1.0, 0.158_655_253_9), (2.5, 0.993_790_334_7)];
        for level in Level::available() {
            for (x, phi) in table {
                let mut values = [x as f32; 3];
                gelu(level, &mut values);
                assert!((f64::from(values[1]) - x * phi).abs() < 1e-6, "{x}");
            }
        }
    }

    #[test]
    fn coarse_gelu_is_as_close_as_it_says() {
        for n in -1000..=1000 {
            let (mut coarse, mut exact) = ([n as f32 / 100.0; LANES], [n as f32 / 100.0; LANES]);
            coarse_gelu_lanes::<false>(&mut coarse);
            gelu_lanes::<false>(&mut exact);
            // Where Φ stays, the error is Φ(-4) of the value.
            let bound = 1e-4_f32.max(exact[0].abs().max(n as f32 / -100.0) * 6e-5);
            assert!((coarse[0] - exact[0]).abs() < bound, "{} {}", coarse[0], exact[0]);
        }
    }

    #[test]
    fn nothing_possible_is_minus_infinity() {
        assert_eq!(log_sum_exp(Level::detect(), &[f32::NEG_INFINITY; 20]), f32::NEG_INFINITY);
    }
}
