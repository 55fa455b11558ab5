//! Blocks of queries in AVX-512, in f32 or in pairs of bf16.

use std::arch::x86_64::*;

use super::super::attention::HEAD;
use super::super::element::{Bf16, Element, exp};
use super::super::rows::lanes_max;
use super::super::threads::Places;
use super::super::{Instructions, Level, Line, Threads};
use super::shape::Shape;

/// Queries of a block: with two columns of sums each, they fill the registers.
const QUERIES: usize = 12;
/// Positions whose scores are held at once: 12 KiB for a block of queries.
const TILE: usize = 256;
const LANES: usize = 16;
/// Positions are padded to two lines of keys.
const STEP: usize = 2 * LANES;

/// One number type: how operands of four bytes are made and multiplied. The functions with intrinsics
/// are inlined into callers that have them.
pub trait Kind: Sync {
    type Number: Element;
    /// The instructions that [`Kind::run`] is compiled for.
    const INSTRUCTIONS: Instructions;
    /// Numbers in a unit of four bytes.
    const IN_UNIT: usize;
    /// A unit of `numbers`, the first [`Kind::IN_UNIT`] of them.
    fn unit(numbers: &[Self::Number]) -> i32;
    /// a · b + `sum`, unit by unit.
    ///
    /// # Safety
    /// The processor has [`Kind::INSTRUCTIONS`]; here and below.
    unsafe fn multiply_add(sum: __m512, a: __m512i, b: __m512i) -> __m512;
    /// e to the power of `difference` / √64, as exactly as it will be stored.
    ///
    /// # Safety
    /// As above.
    unsafe fn weight(difference: __m512) -> __m512;
    /// Sixteen weights to their units, at `units`.
    ///
    /// # Safety
    /// As above, and `units` has room for 16 / [`Kind::IN_UNIT`] of them.
    unsafe fn store_weights(weights: __m512, units: *mut i32);
    /// [`query_block`], compiled for this kind's instructions.
    ///
    /// # Safety
    /// As above, and that of [`query_block`].
    unsafe fn run(job: &Job<Self>, block: usize, scratch: &mut Scratch);
}

pub struct Singles;

impl Kind for Singles {
    type Number = f32;
    const INSTRUCTIONS: Instructions = Instructions::Avx512;
    const IN_UNIT: usize = 1;

    #[inline(always)]
    fn unit(numbers: &[f32]) -> i32 {
        numbers[0].to_bits() as i32
    }

    #[inline(always)]
    unsafe fn multiply_add(sum: __m512, a: __m512i, b: __m512i) -> __m512 {
        // SAFETY: the caller's promise.
        unsafe { _mm512_fmadd_ps(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b), sum) }
    }

    #[inline(always)]
    unsafe fn weight(difference: __m512) -> __m512 {
        // SAFETY: both are 64 bytes of f32.
        let mut lanes = unsafe { std::mem::transmute::<__m512, [f32; LANES]>(difference) };
        lanes.iter_mut().for_each(|lane| *lane = exp::<true>(*lane * 0.125));
        // SAFETY: as above.
        unsafe { std::mem::transmute::<[f32; LANES], __m512>(lanes) }
    }

    #[inline(always)]
    unsafe fn store_weights(weights: __m512, units: *mut i32) {
        // SAFETY: the caller has 16 units there.
        unsafe { _mm512_storeu_ps(units.cast(), weights) }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
    unsafe fn run(job: &Job<Self>, block: usize, scratch: &mut Scratch) {
        // SAFETY: the features are on; the job's lengths were checked.
        unsafe { query_block(job, block, scratch) }
    }
}

pub struct Doubles;

impl Kind for Doubles {
    type Number = Bf16;
    const INSTRUCTIONS: Instructions = Instructions::Avx512Products;
    const IN_UNIT: usize = 2;

    #[inline(always)]
    fn unit(numbers: &[Bf16]) -> i32 {
        (u32::from(numbers[0].to_bits()) | u32::from(numbers[1].to_bits()) << 16) as i32
    }

    #[inline(always)]
    unsafe fn multiply_add(sum: __m512, a: __m512i, b: __m512i) -> __m512 {
        // SAFETY: the caller's promise; both are 64 bytes, read as 32 bf16.
        unsafe {
            let a = std::mem::transmute::<__m512i, __m512bh>(a);
            let b = std::mem::transmute::<__m512i, __m512bh>(b);
            _mm512_dpbf16_ps(sum, a, b)
        }
    }

    /// A power of two by the exponent's bits, times 2ʳ for |r| ≤ ½ by a polynomial fitted to 8e-5: a
    /// 25th of what the rounding to bf16 takes.
    #[inline(always)]
    unsafe fn weight(difference: __m512) -> __m512 {
        // Adding 1.5 · 2²³ leaves the rounded number in the low bits of the sum.
        const ROUNDER: f32 = 12_582_912.0;
        // SAFETY: the caller's promise.
        unsafe {
            let power = _mm512_mul_ps(difference, _mm512_set1_ps(0.125 * std::f32::consts::LOG2_E));
            let power = _mm512_max_ps(power, _mm512_set1_ps(-120.0));
            let shifted = _mm512_add_ps(power, _mm512_set1_ps(ROUNDER));
            let r = _mm512_sub_ps(power, _mm512_sub_ps(shifted, _mm512_set1_ps(ROUNDER)));
            let p = _mm512_fmadd_ps(_mm512_set1_ps(0.055_169_566), r, _mm512_set1_ps(0.242_607_34));
            let p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.693_261));
            let p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.999_928_3));
            let exponent = _mm512_slli_epi32::<23>(_mm512_castps_si512(shifted));
            _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(p), exponent))
        }
    }

    #[inline(always)]
    unsafe fn store_weights(weights: __m512, units: *mut i32) {
        // SAFETY: the caller's promise, and has 8 units there.
        unsafe { units.cast::<__m256bh>().write_unaligned(_mm512_cvtneps_pbh(weights)) }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")]
    unsafe fn run(job: &Job<Self>, block: usize, scratch: &mut Scratch) {
        // SAFETY: as above.
        unsafe { query_block(job, block, scratch) }
    }
}

/// The inputs of all blocks of queries, and their output.
pub struct Job<'a, K: Kind + ?Sized> {
    fused: &'a [K::Number],
    shape: Shape,
    /// Positions, padded.
    padded: usize,
    /// For each (window, head), for each line of 16 positions, for each unit of a key: 16 units.
    keys: &'a [Line<i32, LANES>],
    /// For each (window, head), for each half of the dimensions, for each unit of positions: 32 units.
    values: &'a [Line<i32, LANES>],
    output: &'a Places<'a, K::Number>,
}

/// The working memory of one thread.
pub struct Scratch {
    queries: Vec<i32>,
    scores: Vec<f32>,
    weights: Vec<i32>,
    /// The output so far, not yet divided: (queries, 64).
    sums: Vec<f32>,
}

/// Computes the attention and returns true, or false if `level` lacks the instructions.
pub fn attend<K: Kind>(
    level: Level,
    threads: &Threads,
    fused: &[K::Number],
    shape: Shape,
    output: &mut [K::Number],
) -> bool {
    if !level.has(K::INSTRUCTIONS) {
        return false;
    }
    let padded = shape.length.next_multiple_of(STEP);
    let pairs = shape.windows * shape.heads;
    let lines = padded / LANES * (HEAD / K::IN_UNIT);
    let mut keys = vec![Line([0; LANES]); pairs * lines];
    let mut values = vec![Line([0; LANES]); pairs * lines];
    let (key_places, value_places) = (Places::new(&mut keys), Places::new(&mut values));
    threads.split(pairs, |range| {
        for pair in range {
            // SAFETY: every pair is one thread's own.
            let (keys, values) = unsafe {
                let range = pair * lines..(pair + 1) * lines;
                (key_places.range(range.clone()), value_places.range(range))
            };
            pack::<K>(fused, shape, (pair / shape.heads, pair % shape.heads), keys, values);
        }
    });
    let output = Places::new(output);
    let job = Job::<K> { fused, shape, padded, keys: &keys, values: &values, output: &output };
    threads.split(pairs * shape.length.div_ceil(QUERIES), |blocks| {
        let mut scratch = Scratch {
            queries: vec![0; QUERIES * HEAD / K::IN_UNIT],
            scores: vec![0.0; QUERIES * TILE],
            weights: vec![0; QUERIES * TILE / K::IN_UNIT],
            sums: vec![0.0; QUERIES * HEAD],
        };
        for block in blocks {
            // SAFETY: the level proves that the processor has the instructions; the packed lengths are those
            // of the shape; `split` hands out each block once.
            unsafe { K::run(&job, block, &mut scratch) };
        }
    });
    true
}

fn pack<K: Kind>(
    fused: &[K::Number],
    shape: Shape,
    (window, head): (usize, usize),
    keys: &mut [Line<i32, LANES>],
    values: &mut [Line<i32, LANES>],
) {
    let key_units = HEAD / K::IN_UNIT;
    let padded_units = values.len() / 4;
    for position in 0..shape.length {
        let key = &fused[shape.part(window, position, head, 1)];
        let line = &mut keys[position / LANES * key_units..][..key_units];
        for (line, numbers) in line.iter_mut().zip(key.chunks_exact(K::IN_UNIT)) {
            line.0[position % LANES] = K::unit(numbers);
        }
    }
    for (unit, first) in (0..shape.length).step_by(K::IN_UNIT).enumerate() {
        // The last position of an odd length is paired with a zero.
        let rows: [&[K::Number]; 2] = [0, 1].map(|n| {
            fused
                .get(shape.part(window, first + n, head, 2))
                .filter(|_| first + n < shape.length)
                .unwrap_or(&[])
        });
        for dimension in 0..HEAD {
            let number = |row: &[K::Number]| row.get(dimension).copied().unwrap_or_default();
            let (half, place) = (dimension / 32, dimension % 32);
            let line = &mut values[half * 2 * padded_units + unit * 2 + place / LANES];
            line.0[place % LANES] = K::unit(&[number(rows[0]), number(rows[1])]);
        }
    }
}

/// [`QUERIES`] queries of one head against all its positions.
///
/// # Safety
/// It is inlined into a caller that has the kind's instructions; the keys and values of `job` are packed for its
/// shape; no other thread works on the same block.
#[inline(always)]
unsafe fn query_block<K: Kind>(job: &Job<K>, block: usize, scratch: &mut Scratch) {
    let Shape { length, heads, .. } = job.shape;
    let blocks = length.div_ceil(QUERIES);
    let (pair, first) = (block / blocks, block % blocks * QUERIES);
    let (window, head) = (pair / heads, pair % heads);
    let query_units = HEAD / K::IN_UNIT;
    for (n, units) in scratch.queries.chunks_exact_mut(query_units).enumerate() {
        // The last block repeats its last query to be whole; the repeats are not written.
        let query = &job.fused[job.shape.part(window, (first + n).min(length - 1), head, 0)];
        for (unit, numbers) in units.iter_mut().zip(query.chunks_exact(K::IN_UNIT)) {
            *unit = K::unit(numbers);
        }
    }
    let lines = job.padded / LANES * query_units;
    let keys = &job.keys[pair * lines..(pair + 1) * lines];
    let values = &job.values[pair * lines..(pair + 1) * lines];
    let mut maxima = [f32::NEG_INFINITY; QUERIES];
    let mut totals = [0.0f32; QUERIES];
    scratch.sums.fill(0.0);
    for tile in (0..job.padded).step_by(TILE) {
        let positions = TILE.min(job.padded - tile);
        // SAFETY: `positions` is a multiple of `STEP`, and the lines from `tile` on hold them.
        unsafe {
            let keys = keys.as_ptr().add(tile / LANES * query_units);
            for offset in (0..positions).step_by(STEP) {
                let keys = keys.add(offset / LANES * query_units);
                scores::<K>(keys, &scratch.queries, query_units, &mut scratch.scores, offset);
            }
        }
        let weight_units = TILE / K::IN_UNIT;
        for n in 0..QUERIES {
            let scores = &mut scratch.scores[n * TILE..n * TILE + positions];
            if tile + positions > length {
                scores[length - tile..].fill(f32::NEG_INFINITY);
            }
            // The scale 1 / √64 is taken with the exponential.
            let max = lanes_max(scores).max(maxima[n]);
            // SAFETY: `positions` scores are this query's, and so are the units of as many weights.
            let sum = unsafe {
                let mut sum = _mm512_setzero_ps();
                let units = scratch.weights.as_mut_ptr().add(n * weight_units);
                for offset in (0..positions).step_by(LANES) {
                    // Minus infinity makes a weight that is nothing beside the greatest, 1.
                    let score = _mm512_loadu_ps(scores.as_ptr().add(offset));
                    let weights = K::weight(_mm512_sub_ps(score, _mm512_set1_ps(max)));
                    sum = _mm512_add_ps(sum, weights);
                    K::store_weights(weights, units.add(offset / K::IN_UNIT));
                }
                _mm512_reduce_add_ps(sum)
            };
            let correction = exp::<true>((maxima[n] - max).max(-1e4) * 0.125);
            totals[n] = totals[n] * correction + sum;
            maxima[n] = max;
            if tile > 0 && correction < 1.0 {
                scratch.sums[n * HEAD..(n + 1) * HEAD].iter_mut().for_each(|sum| *sum *= correction);
            }
        }
        let units = positions / K::IN_UNIT;
        let half = lines / 2;
        for side in 0..2 {
            // SAFETY: both halves have a pair of lines for every unit of positions.
            unsafe {
                let values = values.as_ptr().add(side * half + tile / K::IN_UNIT * 2);
                weighted::<K>(values, &scratch.weights, weight_units, units, &mut scratch.sums[side * 32..]);
            }
        }
    }
    for (n, total) in totals.iter().enumerate().take(length - first) {
        let start = (window * length + first + n) * heads * HEAD + head * HEAD;
        // SAFETY: the caller's promise: these rows of the output belong to this block of queries.
        let place = unsafe { job.output.range(start..start + HEAD) };
        let inverse = 1.0 / total;
        let sums = &scratch.sums[n * HEAD..(n + 1) * HEAD];
        place.iter_mut().zip(sums).for_each(|(place, sum)| *place = K::Number::from_f32(sum * inverse));
    }
}

// Plain indices below: an iterator that the compiler does not see through would keep the sums in memory.

/// Scores of all queries at [`STEP`] positions, written at `offset` of each query's tile.
///
/// # Safety
/// The processor has the kind's instructions. `keys` points to two times `units` lines; `queries` holds
/// [`QUERIES`] times `units` operands; `scores` has [`STEP`] places at `offset` of each of [`QUERIES`] tiles.
#[inline(always)]
#[allow(clippy::needless_range_loop)]
unsafe fn scores<K: Kind>(
    keys: *const Line<i32, LANES>,
    queries: &[i32],
    units: usize,
    scores: &mut [f32],
    offset: usize,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut sums = [[_mm512_setzero_ps(); 2]; QUERIES];
        for unit in 0..units {
            let near = _mm512_load_si512(keys.add(unit).cast());
            let far = _mm512_load_si512(keys.add(units + unit).cast());
            for n in 0..QUERIES {
                let query = _mm512_set1_epi32(*queries.get_unchecked(n * units + unit));
                sums[n][0] = K::multiply_add(sums[n][0], query, near);
                sums[n][1] = K::multiply_add(sums[n][1], query, far);
            }
        }
        for (n, sums) in sums.iter().enumerate() {
            let place = scores.as_mut_ptr().add(n * TILE + offset);
            _mm512_storeu_ps(place, sums[0]);
            _mm512_storeu_ps(place.add(LANES), sums[1]);
        }
    }
}

/// Adds the weighted values of one half of the dimensions to `sums`: 32 of each query's 64.
///
/// # Safety
/// The processor has the kind's instructions. `values` points to two times `units` lines; `weights` holds `units`
/// of every query, `weight_units` apart; `sums` holds 32 of every query, 64 apart.
#[inline(always)]
#[allow(clippy::needless_range_loop)]
unsafe fn weighted<K: Kind>(
    values: *const Line<i32, LANES>,
    weights: &[i32],
    weight_units: usize,
    units: usize,
    sums: &mut [f32],
) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut lanes = [[_mm512_setzero_ps(); 2]; QUERIES];
        for n in 0..QUERIES {
            let place = sums.as_ptr().add(n * HEAD);
            lanes[n] = [_mm512_loadu_ps(place), _mm512_loadu_ps(place.add(LANES))];
        }
        for unit in 0..units {
            let near = _mm512_load_si512(values.add(2 * unit).cast());
            let far = _mm512_load_si512(values.add(2 * unit + 1).cast());
            for n in 0..QUERIES {
                let weight = _mm512_set1_epi32(*weights.get_unchecked(n * weight_units + unit));
                lanes[n][0] = K::multiply_add(lanes[n][0], weight, near);
                lanes[n][1] = K::multiply_add(lanes[n][1], weight, far);
            }
        }
        for (n, lanes) in lanes.iter().enumerate() {
            let place = sums.as_mut_ptr().add(n * HEAD);
            _mm512_storeu_ps(place, lanes[0]);
            _mm512_storeu_ps(place.add(LANES), lanes[1]);
        }
    }
}
