//! Tiles in AVX-512's products of bf16: every step takes 64 bytes of weights, and a pair of inputs of each row,
//! broadcast.

use std::arch::x86_64::*;

use super::packed::{Convolution, Job, LANES};
use crate::cpu::Bf16;

/// The most rows of one tile: with two blocks enough independent sums to hide the latency of a product.
const ROWS: usize = 8;

/// # Safety
/// The processor has the instructions, and the job's rows lie inside their buffers.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")]
pub unsafe fn tiles(convolution: &Convolution<Bf16>, job: &mut Job<Bf16>) {
    let blocks = convolution.outputs / LANES;
    let mut block = 0;
    while block < blocks {
        let wide = block + 2 <= blocks;
        let mut row = 0;
        while row < job.rows {
            let left = job.rows - row;
            // SAFETY: rows and blocks from here on are within the job.
            row += unsafe {
                match (left, wide) {
                    (ROWS.., true) => tile::<ROWS, 2>(convolution, job, row, block),
                    (4.., true) => tile::<4, 2>(convolution, job, row, block),
                    (_, true) => tile::<1, 2>(convolution, job, row, block),
                    (ROWS.., false) => tile::<ROWS, 1>(convolution, job, row, block),
                    (4.., false) => tile::<4, 1>(convolution, job, row, block),
                    (_, false) => tile::<1, 1>(convolution, job, row, block),
                }
            };
        }
        block += if wide { 2 } else { 1 };
    }
}

/// Computes R rows from `row` on in B blocks from `block` on; returns R.
///
/// # Safety
/// It is inlined into a caller that has the instructions; the rows and blocks are within the job.
#[inline(always)]
#[allow(clippy::needless_range_loop)]
unsafe fn tile<const R: usize, const B: usize>(
    convolution: &Convolution<Bf16>,
    job: &mut Job<Bf16>,
    row: usize,
    block: usize,
) -> usize {
    let half = convolution.length / 2;
    let steps = convolution.taps * half;
    let starts: [usize; R] = std::array::from_fn(|r| job.from.at(row + r));
    // SAFETY: the caller promises R rows and B blocks from here on, whose taps lie within their buffers; weights are
    // aligned to lines, rows to nothing.
    let sums = unsafe {
        let mut sums = [[_mm512_setzero_ps(); B]; R];
        for tap in 0..convolution.taps {
            let x: [*const Bf16; R] = std::array::from_fn(|r| job.x.as_ptr().add(starts[r] + tap * job.tap));
            let weights: [*const __m512i; B] = std::array::from_fn(|b| {
                convolution.lines.0.as_ptr().add((block + b) * steps + tap * half).cast()
            });
            for step in 0..half {
                // Plain indices: an iterator that the compiler does not see through would keep the sums in memory.
                let mut lines = [_mm512_setzero_si512(); B];
                for b in 0..B {
                    lines[b] = _mm512_load_si512(weights[b].add(step));
                }
                for r in 0..R {
                    let x = _mm512_set1_epi32(x[r].cast::<i32>().add(step).read_unaligned());
                    for b in 0..B {
                        let (x, line) = (
                            std::mem::transmute::<__m512i, __m512bh>(x),
                            std::mem::transmute::<__m512i, __m512bh>(lines[b]),
                        );
                        sums[r][b] = _mm512_dpbf16_ps(sums[r][b], x, line);
                    }
                }
            }
        }
        sums
    };
    for r in 0..R {
        for b in 0..B {
            // SAFETY: both types are 64 bytes of f32.
            let sums = unsafe { std::mem::transmute::<__m512, [f32; LANES]>(sums[r][b]) };
            convolution.finish(job, sums, row + r, block + b);
        }
    }
    R
}
