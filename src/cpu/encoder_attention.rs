//! Self-attention of the encoder: every position over every other, no mask.
//!
//! The keys and the values of a head are two weight matrices that all its queries are multiplied with,
//! so they are packed as [`super::matrix`] packs weights. Queries go through them in blocks, over tiles
//! of positions whose scores stay in the first-level cache, with a softmax that is corrected as it goes
//! (Milakov and Gimelshein, arXiv:1805.02867; Dao et al., arXiv:2205.14135).

use super::attention::HEAD;
use super::element::{Bf16, Element, exp, multiply_add};
use super::instructions::multiversion;
use super::rows::lanes_max;
use super::threads::Places;
use super::{Level, Threads};

#[cfg(target_arch = "x86_64")]
mod avx512;
mod shape;

pub use self::shape::Shape;

/// The number types that have this kernel: 4-byte units of one f32 or two bf16.
pub trait Number: Element {
    #[cfg(target_arch = "x86_64")]
    #[doc(hidden)]
    fn avx512(level: Level, threads: &Threads, fused: &[Self], shape: Shape, output: &mut [Self]) -> bool;
}

impl Number for f32 {
    #[cfg(target_arch = "x86_64")]
    fn avx512(level: Level, threads: &Threads, fused: &[Self], shape: Shape, output: &mut [Self]) -> bool {
        avx512::attend::<avx512::Singles>(level, threads, fused, shape, output)
    }
}

impl Number for Bf16 {
    #[cfg(target_arch = "x86_64")]
    fn avx512(level: Level, threads: &Threads, fused: &[Self], shape: Shape, output: &mut [Self]) -> bool {
        avx512::attend::<avx512::Doubles>(level, threads, fused, shape, output)
    }
}

/// Softmax(q · kᵀ / √64) · v. `fused`: (windows, length, 3 · heads · 64), the queries, keys and values of
/// each position; `output`: (windows, length, heads · 64). Sums are f32.
///
/// # Panics
/// If the lengths do not fit.
pub fn attend<E: Number>(level: Level, threads: &Threads, fused: &[E], shape: Shape, output: &mut [E]) {
    let rows = shape.windows * shape.length;
    assert!(fused.len() == rows * 3 * shape.width() && output.len() == rows * shape.width());
    #[cfg(target_arch = "x86_64")]
    if E::avx512(level, threads, fused, shape, output) {
        return;
    }
    let places = Places::new(output);
    threads.split(shape.windows * shape.heads, |pairs| {
        for pair in pairs {
            // SAFETY: `split` hands out each pair once, and the output of a head belongs to its pair alone.
            unsafe { head(level, fused, shape, (pair / shape.heads, pair % shape.heads), &places) };
        }
    });
}

multiversion! {
    /// One head of one window, query by query.
    ///
    /// # Safety
    /// No other thread works on the same pair of window and head.
    unsafe fn head<E: Element>(fused: &[E], shape: Shape, pair: (usize, usize), output: &Places<E>) = head_body
}

/// # Safety
/// That of [`head`].
#[inline(always)]
unsafe fn head_body<const FMA: bool, E: Element>(
    fused: &[E],
    shape: Shape,
    (window, head): (usize, usize),
    output: &Places<E>,
) {
    let length = shape.length;
    let row = |position: usize, part: usize| &fused[shape.part(window, position, head, part)];
    // (dimensions, positions), so that scores are summed side by side.
    let mut keys = vec![0.0f32; HEAD * length];
    for position in 0..length {
        for (dimension, key) in row(position, 1).iter().enumerate() {
            keys[dimension * length + position] = key.to_f32();
        }
    }
    let mut scores = vec![0.0f32; length];
    for position in 0..length {
        scores.fill(0.0);
        for (query, keys) in row(position, 0).iter().zip(keys.chunks_exact(length)) {
            let query = query.to_f32() * 0.125; // 1 / √64
            for (score, key) in scores.iter_mut().zip(keys) {
                *score = multiply_add::<FMA>(query, *key, *score);
            }
        }
        let max = lanes_max(&scores);
        let mut total = 0.0;
        for score in &mut scores {
            *score = exp::<FMA>(*score - max);
            total += *score;
        }
        let mut sums = [0.0f32; HEAD];
        for (other, weight) in scores.iter().enumerate() {
            for (sum, value) in sums.iter_mut().zip(row(other, 2)) {
                *sum = multiply_add::<FMA>(*weight, value.to_f32(), *sum);
            }
        }
        let start = (window * length + position) * shape.width() + head * HEAD;
        // SAFETY: the caller's promise: this part of the output belongs to this head of this window.
        let place = unsafe { output.range(start..start + HEAD) };
        place.iter_mut().zip(sums).for_each(|(place, sum)| *place = E::from_f32(sum / total));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(seed: u32, length: usize) -> Vec<f32> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1u32 << 23) as f32 - 1.0
        };
        (0..length).map(|_| 3.0 * next()).collect()
    }

    fn reference(fused: &[f32], shape: Shape) -> Vec<f64> {
        let mut output = Vec::new();
        for window in 0..shape.windows {
            for position in 0..shape.length {
                for head in 0..shape.heads {
                    let row = |position, part| &fused[shape.part(window, position, head, part)];
                    let dot = |key: &[f32]| {
                        let query = row(position, 0);
                        query.iter().zip(key).map(|(q, k)| f64::from(*q) * f64::from(*k)).sum::<f64>() / 8.0
                    };
                    let weights: Vec<f64> = (0..shape.length).map(|other| dot(row(other, 1)).exp()).collect();
                    let total: f64 = weights.iter().sum();
                    for dimension in 0..HEAD {
                        let values = (0..shape.length).map(|other| f64::from(row(other, 2)[dimension]));
                        output.push(values.zip(&weights).map(|(v, w)| v * w).sum::<f64>() / total);
                    }
                }
            }
        }
        output
    }

    const SHAPES: [Shape; 5] = [
        Shape { windows: 1, length: 1, heads: 1 },
        Shape { windows: 2, length: 17, heads: 3 },
        Shape { windows: 1, length: 64, heads: 1 },
        Shape { windows: 1, length: 511, heads: 2 },
        Shape { windows: 1, length: 1500, heads: 1 },
    ];

    #[test]
    fn attention_agrees_with_the_plain_formula() {
        for shape in SHAPES {
            let fused = noise(1, shape.windows * shape.length * 3 * shape.width());
            let rounded: Vec<Bf16> = fused.iter().map(|&x| Element::from_f32(x)).collect();
            let exact: Vec<f32> = rounded.iter().map(|&x| Element::to_f32(x)).collect();
            let (expected, expected_of_rounded) = (reference(&fused, shape), reference(&exact, shape));
            for level in Level::available() {
                let threads = Threads::new(2);
                let mut output = vec![0.0f32; expected.len()];
                attend(level, &threads, &fused, shape, &mut output);
                for (actual, expected) in output.iter().zip(&expected) {
                    assert!((f64::from(*actual) - expected).abs() < 1e-4, "{level:?} {shape:?}");
                }
                let mut output = vec![Bf16::ZERO; expected.len()];
                attend(level, &threads, &rounded, shape, &mut output);
                for (actual, expected) in output.iter().zip(&expected_of_rounded) {
                    // Weights and result rounded to 2⁻⁹ of values up to 3.
                    let error = (f64::from(Element::to_f32(*actual)) - expected).abs();
                    assert!(error < 0.02, "{level:?} {shape:?}: {error}");
                }
            }
        }
    }

    #[test]
    fn the_result_is_the_same_to_the_bit_on_any_number_of_threads_and_beside_any_window() {
        let shape = Shape { windows: 2, length: 37, heads: 3 };
        let fused = noise(2, 2 * 37 * 3 * shape.width());
        let rounded: Vec<Bf16> = fused.iter().map(|&x| Element::from_f32(x)).collect();
        for level in Level::available() {
            let run = |threads: usize, fused: &[Bf16], windows: usize| {
                let shape = Shape { windows, ..shape };
                let mut output = vec![Bf16::ZERO; windows * 37 * shape.width()];
                attend(level, &Threads::new(threads), fused, shape, &mut output);
                output
            };
            let together = run(1, &rounded, 2);
            assert_eq!(run(3, &rounded, 2), together, "{level:?}");
            let (half, out) = (rounded.len() / 2, together.len() / 2);
            assert_eq!(run(2, &rounded[half..], 1), together[out..], "{level:?}");
        }
    }
}
