//! Products of f32 in AVX2: up to four rows against a block of 16 outputs. The sums of each row add up in the order of the
//! portable loop.

use std::arch::x86_64::*;
use std::ops::Range;

use super::super::super::threads::Places;
use super::super::super::{Instructions, Level, Line};
use super::super::packed::{Epilogue, LANES, Matrix, Operand, Rows, Weights};
use super::finish::finish;

/// The most rows of one tile. Their sums take eight of the sixteen registers, weights two and a row's input one; and
/// eight sums are as many as hide the latency of adding to one.
const ROWS: usize = 4;

/// Computes the blocks and returns true, or false for other precisions or if `level` lacks the instructions.
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
) -> bool {
    match (&matrix.weights, &rows.operand) {
        (Weights::F32(weights), Operand::F32(x)) if level.has(Instructions::Avx2) => {
            // SAFETY: the level proves that the processor has the instructions; the caller promises that the blocks are
            // its own.
            unsafe { tiles(matrix, weights, x, blocks, y, epilogue) };
            true
        }
        _ => false,
    }
}

/// # Safety
/// That of [`blocks`], on a processor with the instructions.
#[target_feature(enable = "avx2,fma")]
unsafe fn tiles(
    matrix: &Matrix,
    weights: &[Line<f32, LANES>],
    x: &[f32],
    blocks: Range<usize>,
    y: &Places<f32>,
    epilogue: Epilogue,
) {
    let steps = matrix.inputs;
    for block in blocks {
        let weights = &weights[block * steps..][..steps];
        for (tile, x) in x.chunks(ROWS * steps).enumerate() {
            let mut sums = [[0.0; LANES]; ROWS];
            let count = x.len() / steps;
            match count {
                ROWS => sums = products(weights, x),
                3 => sums[..3].copy_from_slice(&products::<3>(weights, x)),
                2 => sums[..2].copy_from_slice(&products::<2>(weights, x)),
                _ => sums[..1].copy_from_slice(&products::<1>(weights, x)),
            }
            for (row, sums) in sums[..count].iter().enumerate() {
                // SAFETY: the caller's promise.
                unsafe { finish::<true>(matrix, *sums, tile * ROWS + row, block, y, epilogue) };
            }
        }
    }
}

/// The products of `N` rows with one block of weights.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn products<const N: usize>(weights: &[Line<f32, LANES>], x: &[f32]) -> [[f32; LANES]; N] {
    let rows: [&[f32]; N] = std::array::from_fn(|row| &x[row * weights.len()..][..weights.len()]);
    let mut sums = [[_mm256_setzero_ps(); 2]; N];
    for (step, Line(line)) in weights.iter().enumerate() {
        // SAFETY: a line is 16 numbers.
        let (left, right) = unsafe { (_mm256_loadu_ps(line.as_ptr()), _mm256_loadu_ps(line[8..].as_ptr())) };
        for (sums, row) in sums.iter_mut().zip(&rows) {
            let x = _mm256_set1_ps(row[step]);
            sums[0] = _mm256_fmadd_ps(x, left, sums[0]);
            sums[1] = _mm256_fmadd_ps(x, right, sums[1]);
        }
    }
    let mut products = [[0.0; LANES]; N];
    for (products, sums) in products.iter_mut().zip(&sums) {
        // SAFETY: each half is eight numbers.
        unsafe {
            _mm256_storeu_ps(products.as_mut_ptr(), sums[0]);
            _mm256_storeu_ps(products[8..].as_mut_ptr(), sums[1]);
        }
    }
    products
}
