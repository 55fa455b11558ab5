//! The inner loops: up to eight rows against up to four blocks of 16 outputs, all sums in registers.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod finish;

use std::ops::Range;

use super::super::Level;
use super::super::element::{Bf16, Element, multiply_add};
use super::super::instructions::multiversion;
use super::super::rows::lanes_abs_max;
use super::super::threads::Places;
use super::packed::{Epilogue, LANES, Matrix, Operand, Rows, Weights};
use finish::finish;

multiversion! {
    pub fn round_to_bf16(x: &[f32], rounded: &mut [Bf16]) = round_to_bf16_body
}

#[inline(always)]
fn round_to_bf16_body<const FMA: bool>(x: &[f32], rounded: &mut [Bf16]) {
    rounded.iter_mut().zip(x).for_each(|(rounded, &x)| *rounded = Element::from_f32(x));
}

multiversion! {
    /// Rounds to int8, offset by 128 to be unsigned; returns the scale.
    pub fn round_to_int8(x: &[f32], rounded: &mut [u8]) -> f32 = round_to_int8_body
}

#[inline(always)]
fn round_to_int8_body<const FMA: bool>(x: &[f32], rounded: &mut [u8]) -> f32 {
    let max = lanes_abs_max(x);
    let scale = if max > 0.0 { max / 127.0 } else { 1.0 };
    let inverse = 1.0 / scale;
    for (rounded, &x) in rounded.iter_mut().zip(x) {
        // Adding 1.5 · 2²³ leaves the rounded number in the low bits of the sum.
        *rounded = (multiply_add::<FMA>(x, inverse, 12_582_912.0).to_bits() as u8) ^ 0x80;
    }
    scale
}

/// Writes the outputs of `blocks` for all rows.
///
/// # Safety
/// No other thread works on the same blocks of `y`.
pub unsafe fn blocks(
    level: Level,
    matrix: &Matrix,
    rows: &Rows,
    blocks: Range<usize>,
    y: &Places<f32>,
    epilogue: Epilogue,
) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the caller's promise.
    if unsafe {
        avx512::blocks(level, matrix, rows, blocks.clone(), y, epilogue)
            || avx2::blocks(level, matrix, rows, blocks.clone(), y, epilogue)
    } {
        return;
    }
    // SAFETY: as above.
    unsafe { portable(level, matrix, rows, blocks, y, epilogue) };
}

multiversion! {
    /// # Safety
    /// That of [`blocks`].
    unsafe fn portable(
        matrix: &Matrix,
        rows: &Rows,
        blocks: Range<usize>,
        y: &Places<f32>,
        epilogue: Epilogue,
    ) = portable_body
}

/// # Safety
/// That of [`blocks`].
#[inline(always)]
unsafe fn portable_body<const FMA: bool>(
    matrix: &Matrix,
    rows: &Rows,
    blocks: Range<usize>,
    y: &Places<f32>,
    epilogue: Epilogue,
) {
    for block in blocks {
        for row in 0..rows.count {
            let mut sums = [0.0f32; LANES];
            match (&matrix.weights, &rows.operand) {
                (Weights::F32(weights), Operand::F32(x)) => {
                    let steps = matrix.inputs;
                    for (line, &x) in weights[block * steps..][..steps].iter().zip(&x[row * steps..][..steps])
                    {
                        for (sum, &weight) in sums.iter_mut().zip(&line.0) {
                            *sum = multiply_add::<FMA>(x, weight, *sum);
                        }
                    }
                }
                (Weights::Bf16(weights), Operand::Bf16(x)) => {
                    let steps = matrix.inputs / 2;
                    for (line, x) in weights[block * steps..][..steps].iter().zip(&x[row * steps..][..steps])
                    {
                        for (sum, weights) in sums.iter_mut().zip(line.0.as_chunks::<2>().0) {
                            for (x, weight) in x.iter().zip(weights) {
                                *sum =
                                    multiply_add::<FMA>(Element::to_f32(*x), Element::to_f32(*weight), *sum);
                            }
                        }
                    }
                }
                (Weights::Int8 { quads, scales, sums: weight_sums }, Operand::Int8(x, row_scales)) => {
                    let steps = matrix.inputs / 4;
                    let mut whole = [0i32; LANES];
                    for (line, x) in quads[block * steps..][..steps].iter().zip(&x[row * steps..][..steps]) {
                        for (sum, weights) in whole.iter_mut().zip(line.0.as_chunks::<4>().0) {
                            for (&x, &weight) in x.iter().zip(weights) {
                                *sum += i32::from(x) * i32::from(weight);
                            }
                        }
                    }
                    for lane in 0..LANES {
                        let output = block * LANES + lane;
                        let exact = whole[lane] - 128 * weight_sums[output];
                        sums[lane] = exact as f32 * (row_scales[row] * scales[output]);
                    }
                }
                _ => unreachable!("the operand is made for these weights; this is a bug"),
            }
            // SAFETY: the caller's promise.
            unsafe { finish::<FMA>(matrix, sums, row, block, y, epilogue) };
        }
    }
}
