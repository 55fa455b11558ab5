//! Tiles in AVX-512. Every step of every precision takes 64 bytes of weights and four bytes of each
//! row, broadcast: one input in f32, two in bf16, four in int8.

use std::arch::x86_64::*;
use std::ops::Range;

use super::super::super::rows::{COARSE_GELU, gelu_lanes};
use super::super::super::threads::Places;
use super::super::super::{Bf16, Instructions, Level};
use super::super::packed::{Epilogue, LANES, Matrix, Operand, Rows, Weights};

/// The most rows of one tile.
const ROWS: usize = 8;

/// Computes the blocks and returns true, or false if `level` lacks the instructions.
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
    let job =
        |weights: *const u8, weight_bytes: usize, x: *const u8, x_bytes: usize, inputs_per_step: usize| {
            let steps = matrix.inputs / inputs_per_step;
            assert!(x_bytes >= rows.count * steps * 4 && weight_bytes >= blocks.end * steps * 64);
            Job { matrix, weights, x, steps, rows: rows.count, blocks: blocks.clone(), y, epilogue }
        };
    match (&matrix.weights, &rows.operand) {
        (Weights::F32(weights), Operand::F32(x)) if level.has(Instructions::Avx512) => {
            let job = job(
                weights.as_ptr().cast(),
                size_of_val(&weights[..]),
                x.as_ptr().cast(),
                size_of_val(&x[..]),
                1,
            );
            // SAFETY: the level proves that the processor has the instructions; `job` has checked the lengths; the
            // caller promises that the blocks are its own.
            unsafe { f32(&job) };
        }
        (Weights::Bf16(weights), Operand::Bf16(x)) if level.has(Instructions::Avx512Products) => {
            let x_bytes = size_of::<[Bf16; 2]>() * x.len();
            let job = job(weights.as_ptr().cast(), size_of_val(&weights[..]), x.as_ptr().cast(), x_bytes, 2);
            // SAFETY: as above.
            unsafe { bf16(&job) };
        }
        (Weights::Int8 { quads, scales, sums }, Operand::Int8(x, row_scales))
            if level.has(Instructions::Avx512Products) =>
        {
            let job = job(quads.as_ptr().cast(), size_of_val(&quads[..]), x.as_ptr().cast(), 4 * x.len(), 4);
            // SAFETY: as above.
            unsafe { int8(&job, &Int8 { scales, sums, rows: row_scales }) };
        }
        _ => return false,
    }
    true
}

/// Pointers to whole packed blocks and whole rows; [`blocks`] checks the lengths.
struct Job<'a> {
    matrix: &'a Matrix,
    weights: *const u8,
    x: *const u8,
    /// Lines of weights in a block, and operands in a row.
    steps: usize,
    rows: usize,
    blocks: Range<usize>,
    y: &'a Places<'a, f32>,
    epilogue: Epilogue,
}

/// One precision. The functions are inlined into callers that have the instructions.
trait Kernel {
    type Sum: Copy;
    /// # Safety
    /// The processor has the kernel's instructions; here and below.
    unsafe fn zero() -> Self::Sum;
    unsafe fn step(sum: Self::Sum, x: __m512i, weights: __m512i) -> Self::Sum;
    unsafe fn total(&self, sum: Self::Sum, row: usize, block: usize) -> __m512;
    unsafe fn gelu(x: __m512) -> __m512;
}

struct F32;

impl Kernel for F32 {
    type Sum = __m512;

    #[inline(always)]
    unsafe fn zero() -> __m512 {
        // SAFETY: the caller's promise, here and below.
        unsafe { _mm512_setzero_ps() }
    }

    #[inline(always)]
    unsafe fn step(sum: __m512, x: __m512i, weights: __m512i) -> __m512 {
        // SAFETY: as above.
        unsafe { _mm512_fmadd_ps(_mm512_castsi512_ps(x), _mm512_castsi512_ps(weights), sum) }
    }

    #[inline(always)]
    unsafe fn total(&self, sum: __m512, _row: usize, _block: usize) -> __m512 {
        sum
    }

    #[inline(always)]
    unsafe fn gelu(x: __m512) -> __m512 {
        // SAFETY: the caller's promise; both types are 64 bytes of f32.
        unsafe {
            let mut lanes = std::mem::transmute::<__m512, [f32; LANES]>(x);
            gelu_lanes::<true>(&mut lanes);
            std::mem::transmute::<[f32; LANES], __m512>(lanes)
        }
    }
}

struct Pairs;

impl Kernel for Pairs {
    type Sum = __m512;

    #[inline(always)]
    unsafe fn zero() -> __m512 {
        // SAFETY: the caller's promise.
        unsafe { _mm512_setzero_ps() }
    }

    #[inline(always)]
    unsafe fn step(sum: __m512, x: __m512i, weights: __m512i) -> __m512 {
        // SAFETY: the caller's promise; both are 64 bytes, read as 32 bf16.
        unsafe {
            let x = std::mem::transmute::<__m512i, __m512bh>(x);
            let weights = std::mem::transmute::<__m512i, __m512bh>(weights);
            _mm512_dpbf16_ps(sum, x, weights)
        }
    }

    #[inline(always)]
    unsafe fn total(&self, sum: __m512, _row: usize, _block: usize) -> __m512 {
        sum
    }

    #[inline(always)]
    unsafe fn gelu(x: __m512) -> __m512 {
        // SAFETY: the caller's promise.
        unsafe { coarse_gelu(x) }
    }
}

struct Int8<'a> {
    scales: &'a [f32],
    sums: &'a [i32],
    rows: &'a [f32],
}

impl Kernel for Int8<'_> {
    type Sum = __m512i;

    #[inline(always)]
    unsafe fn zero() -> __m512i {
        // SAFETY: the caller's promise.
        unsafe { _mm512_setzero_si512() }
    }

    #[inline(always)]
    unsafe fn step(sum: __m512i, x: __m512i, weights: __m512i) -> __m512i {
        // SAFETY: the caller's promise.
        unsafe { _mm512_dpbusd_epi32(sum, x, weights) }
    }

    #[inline(always)]
    unsafe fn total(&self, sum: __m512i, row: usize, block: usize) -> __m512 {
        let first = block * LANES;
        let (scales, sums) = (&self.scales[first..first + LANES], &self.sums[first..first + LANES]);
        // SAFETY: the caller's promise; all are 64 bytes.
        unsafe {
            let scales = _mm512_mul_ps(_mm512_set1_ps(self.rows[row]), _mm512_loadu_ps(scales.as_ptr()));
            // The rows were offset by 128 to be unsigned.
            let offset = _mm512_slli_epi32::<7>(_mm512_loadu_si512(sums.as_ptr().cast()));
            let exact = _mm512_cvtepi32_ps(_mm512_sub_epi32(sum, offset));
            _mm512_mul_ps(exact, scales)
        }
    }

    #[inline(always)]
    unsafe fn gelu(x: __m512) -> __m512 {
        // SAFETY: the caller's promise.
        unsafe { coarse_gelu(x) }
    }
}

/// # Safety
/// Here and below, that of [`tiles`] for the job's precision.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
unsafe fn f32(job: &Job) {
    // SAFETY: the features are on; the caller promises the rest.
    unsafe { tiles(job, &F32) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")]
unsafe fn bf16(job: &Job) {
    // SAFETY: as above.
    unsafe { tiles(job, &Pairs) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma")]
unsafe fn int8(job: &Job, kernel: &Int8) {
    // SAFETY: as above.
    unsafe { tiles(job, kernel) }
}

/// Tiles with enough independent sums to hide the latency of a product, few enough for 32 registers.
///
/// # Safety
/// It is inlined into a caller that has the kernel's instructions; the pointers of `job` lead to all of its rows
/// and blocks, packed for the kernel; no other thread works on the same blocks.
#[inline(always)]
unsafe fn tiles<K: Kernel>(job: &Job, kernel: &K) {
    let mut block = job.blocks.start;
    while block < job.blocks.end {
        let left = job.blocks.end - block;
        let width = match left {
            4.. if job.rows <= 2 => 4,
            2.. => 2,
            _ => 1,
        };
        let mut row = 0;
        while row < job.rows {
            let height = (job.rows - row).min(ROWS);
            // SAFETY: rows and blocks from here on are within the job.
            unsafe {
                match (height, width) {
                    (1, 4) => tile::<K, 1, 4>(job, kernel, row, block),
                    (_, 4) => tile::<K, 2, 4>(job, kernel, row, block),
                    (1, 2) => tile::<K, 1, 2>(job, kernel, row, block),
                    (2, 2) => tile::<K, 2, 2>(job, kernel, row, block),
                    (3, 2) => tile::<K, 3, 2>(job, kernel, row, block),
                    (4, 2) => tile::<K, 4, 2>(job, kernel, row, block),
                    (5, 2) => tile::<K, 5, 2>(job, kernel, row, block),
                    (6, 2) => tile::<K, 6, 2>(job, kernel, row, block),
                    (7, 2) => tile::<K, 7, 2>(job, kernel, row, block),
                    (_, 2) => tile::<K, 8, 2>(job, kernel, row, block),
                    (1, _) => tile::<K, 1, 1>(job, kernel, row, block),
                    (2, _) => tile::<K, 2, 1>(job, kernel, row, block),
                    (3, _) => tile::<K, 3, 1>(job, kernel, row, block),
                    (4, _) => tile::<K, 4, 1>(job, kernel, row, block),
                    (5, _) => tile::<K, 5, 1>(job, kernel, row, block),
                    (6, _) => tile::<K, 6, 1>(job, kernel, row, block),
                    (7, _) => tile::<K, 7, 1>(job, kernel, row, block),
                    (_, _) => tile::<K, 8, 1>(job, kernel, row, block),
                }
            }
            row += height;
        }
        block += width;
    }
}

/// # Safety
/// That of [`tiles`], for R rows from `row` on and B blocks from `block` on, all within the job.
#[inline(always)]
#[allow(clippy::needless_range_loop)]
unsafe fn tile<K: Kernel, const R: usize, const B: usize>(job: &Job, kernel: &K, row: usize, block: usize) {
    let steps = job.steps;
    // SAFETY: the caller promises R rows and B blocks from here on, of `steps` each; weights are
    // aligned to lines, rows to nothing.
    let sums = unsafe {
        let weights = job.weights.add(block * steps * 64);
        let x = job.x.add(row * steps * 4);
        let mut sums = [[K::zero(); B]; R];
        for step in 0..steps {
            // Plain indices: an iterator that the compiler does not see through would keep the sums in memory.
            let mut lines = [_mm512_setzero_si512(); B];
            for b in 0..B {
                lines[b] = _mm512_load_si512(weights.add((b * steps + step) * 64).cast());
            }
            for r in 0..R {
                let x = _mm512_set1_epi32(x.add((r * steps + step) * 4).cast::<i32>().read_unaligned());
                for b in 0..B {
                    sums[r][b] = K::step(sums[r][b], x, lines[b]);
                }
            }
        }
        sums
    };
    for b in 0..B {
        let first = (block + b) * LANES;
        let valid = LANES.min(job.matrix.outputs - first);
        let mask = 0xFFFF >> (LANES - valid);
        for (r, sums) in sums.iter().enumerate() {
            let begin = (row + r) * job.matrix.outputs + first;
            // SAFETY: the caller's promise: the outputs of a block belong to this thread in every row, and the
            // mask leaves out those beyond the last; biases are padded to whole blocks.
            unsafe {
                let place = job.y.range(begin..begin + valid).as_mut_ptr();
                let bias = _mm512_loadu_ps(job.matrix.bias.as_ptr().add(first));
                let sum = _mm512_add_ps(kernel.total(sums[b], row + r, block + b), bias);
                let value = match job.epilogue {
                    Epilogue::Store => sum,
                    Epilogue::Gelu => K::gelu(sum),
                    Epilogue::Add => _mm512_add_ps(sum, _mm512_maskz_loadu_ps(mask, place)),
                };
                _mm512_mask_storeu_ps(place, mask, value);
            }
        }
    }
}

/// See [`super::super::super::rows::coarse_gelu_lanes`].
///
/// # Safety
/// The processor has AVX-512.
#[inline(always)]
unsafe fn coarse_gelu(x: __m512) -> __m512 {
    // SAFETY: the caller's promise.
    unsafe {
        let near = _mm512_min_ps(_mm512_max_ps(x, _mm512_set1_ps(-4.0)), _mm512_set1_ps(4.0));
        let square = _mm512_mul_ps(near, near);
        let mut p = _mm512_set1_ps(COARSE_GELU[0]);
        for coefficient in &COARSE_GELU[1..] {
            p = _mm512_fmadd_ps(p, square, _mm512_set1_ps(*coefficient));
        }
        _mm512_mul_ps(x, _mm512_fmadd_ps(p, near, _mm512_set1_ps(0.5)))
    }
}
