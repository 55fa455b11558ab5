//! Convolutions as products of rows with a weight matrix, where the rows are read in place: the inputs under the
//! kernel are not copied side by side first.
//!
//! A buffer holds positions of some channels each, one after another, with zeros around them where the kernel
//! reaches over the edge. A row is what the kernel sees at one position: a few *taps*, each a run of values
//! beside each other. In two dimensions with 3 × 3 positions under the kernel these are three runs of three
//! positions; in one dimension with dilation, three runs of one.
//!
//! | precision | weights | products |
//! |---|---|---|
//! | f32 | f32 | f32, fused |
//! | bf16 | bf16 | values of bf16, pairs summed in f32; fast with AVX-512's products of bf16 |
//!
//! Every row is summed in the same order wherever it lies: its result does not depend on the other rows.

use super::element::{Bf16, Element, multiply_add};
use super::instructions::multiversion;
use super::{Instructions, Level, Line};

#[cfg(target_arch = "x86_64")]
mod avx512;
mod packed;

pub use packed::{Convolution, Epilogue, Job, Layout, Operand, Output};
use packed::{LANES, Lines};

impl Operand for f32 {
    type Lines = Lines<f32, 16>;

    fn is_fast(_: Level) -> bool {
        true
    }

    fn pack(blocks: usize, inputs: usize, weight: impl Fn(usize, usize) -> f32) -> Self::Lines {
        Lines::new(blocks, inputs, |block, input| {
            std::array::from_fn(|lane| weight(block * LANES + lane, input))
        })
    }

    fn multiply(level: Level, convolution: &Convolution<Self>, job: &mut Job<Self>) {
        tiles(level, convolution, job);
    }
}

impl Operand for Bf16 {
    type Lines = Lines<Bf16, 32>;

    fn is_fast(level: Level) -> bool {
        level.has(Instructions::Avx512Products)
    }

    fn pack(blocks: usize, inputs: usize, weight: impl Fn(usize, usize) -> f32) -> Self::Lines {
        Lines::new(blocks, inputs / 2, |block, pair| {
            std::array::from_fn(|place| {
                Element::from_f32(weight(block * LANES + place / 2, pair * 2 + place % 2))
            })
        })
    }

    fn multiply(level: Level, convolution: &Convolution<Self>, job: &mut Job<Self>) {
        #[cfg(target_arch = "x86_64")]
        if level.has(Instructions::Avx512Products) {
            // SAFETY: the level proves that the processor has the instructions, and `apply` has checked the rows.
            return unsafe { avx512::tiles(convolution, job) };
        }
        pairs(level, convolution, job);
    }
}

multiversion! {
    fn tiles(convolution: &Convolution<f32>, job: &mut Job<f32>)
        = [tiles_body::<2, 1, false>, tiles_body::<6, 1, true>, tiles_body::<8, 2, true>]
}

/// Tiles of ROWS rows by BLOCKS blocks, whose sums fill the registers.
#[inline(always)]
fn tiles_body<const ROWS: usize, const BLOCKS: usize, const FMA: bool>(
    convolution: &Convolution<f32>,
    job: &mut Job<f32>,
) {
    let blocks = convolution.outputs / LANES;
    let mut block = 0;
    while block < blocks {
        let wide = block + BLOCKS <= blocks;
        let mut row = 0;
        while row < job.rows {
            let whole = row + ROWS <= job.rows;
            match (wide, whole) {
                (true, true) => tile::<ROWS, BLOCKS, FMA>(convolution, job, row, block),
                (true, false) => tile::<1, BLOCKS, FMA>(convolution, job, row, block),
                (false, true) => tile::<ROWS, 1, FMA>(convolution, job, row, block),
                (false, false) => tile::<1, 1, FMA>(convolution, job, row, block),
            }
            row += if whole { ROWS } else { 1 };
        }
        block += if wide { BLOCKS } else { 1 };
    }
}

#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "plain indices keep the sums in registers")]
fn tile<const ROWS: usize, const BLOCKS: usize, const FMA: bool>(
    convolution: &Convolution<f32>,
    job: &mut Job<f32>,
    row: usize,
    block: usize,
) {
    let steps = convolution.taps * convolution.length;
    let starts: [usize; ROWS] = std::array::from_fn(|r| job.from.at(row + r));
    let mut sums = [[[0.0f32; LANES]; BLOCKS]; ROWS];
    for tap in 0..convolution.taps {
        let x: [&[f32]; ROWS] =
            std::array::from_fn(|r| &job.x[starts[r] + tap * job.tap..][..convolution.length]);
        let lines: [&[Line<f32, 16>]; BLOCKS] = std::array::from_fn(|b| {
            &convolution.lines.0[(block + b) * steps + tap * convolution.length..][..convolution.length]
        });
        for step in 0..convolution.length {
            for r in 0..ROWS {
                for b in 0..BLOCKS {
                    for lane in 0..LANES {
                        sums[r][b][lane] =
                            multiply_add::<FMA>(x[r][step], lines[b][step].0[lane], sums[r][b][lane]);
                    }
                }
            }
        }
    }
    for (r, sums) in sums.into_iter().enumerate() {
        for (b, sums) in sums.into_iter().enumerate() {
            convolution.finish(job, sums, row + r, block + b);
        }
    }
}

multiversion! {
    /// Slow: for processors without products of bf16, which compute in f32 instead.
    fn pairs(convolution: &Convolution<Bf16>, job: &mut Job<Bf16>) = pairs_body
}

#[inline(always)]
fn pairs_body<const FMA: bool>(convolution: &Convolution<Bf16>, job: &mut Job<Bf16>) {
    let half = convolution.length / 2;
    for block in 0..convolution.outputs / LANES {
        for row in 0..job.rows {
            let mut sums = [0.0f32; LANES];
            for tap in 0..convolution.taps {
                let x = &job.x[job.from.at(row) + tap * job.tap..][..convolution.length];
                let lines = &convolution.lines.0[(block * convolution.taps + tap) * half..][..half];
                for (x, line) in x.as_chunks::<2>().0.iter().zip(lines) {
                    for (sum, weights) in sums.iter_mut().zip(line.0.as_chunks::<2>().0) {
                        for (x, weight) in x.iter().zip(weights) {
                            *sum = multiply_add::<FMA>(Element::to_f32(*x), Element::to_f32(*weight), *sum);
                        }
                    }
                }
            }
            convolution.finish(job, sums, row, block);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::noise::noise;
    use super::*;

    const CHANNELS: usize = 6;
    const OUTPUTS: usize = 48;
    const LINES: usize = 5;

    /// 3 × 3 positions under the kernel, every second place, in a plane with a margin of zeros.
    struct Plane {
        places: usize,
        x: Vec<f32>,
        weight: Vec<f32>,
        bias: Vec<f32>,
        past: Vec<f32>,
    }

    impl Plane {
        fn new(places: usize) -> Self {
            let line = (places + 2) * CHANNELS;
            let mut x = vec![0.0; (LINES + 2) * line];
            for (at, lines) in x[line..].chunks_mut(line).take(LINES).enumerate() {
                lines[CHANNELS..line - CHANNELS].copy_from_slice(&noise(at as u32, places * CHANNELS));
            }
            let rows = LINES * places / 2;
            let weight = noise(71, OUTPUTS * 9 * CHANNELS);
            Self { places, x, weight, bias: noise(72, OUTPUTS), past: noise(73, rows * OUTPUTS) }
        }

        fn rows(&self) -> usize {
            LINES * self.places / 2
        }

        fn line(&self) -> usize {
            (self.places + 2) * CHANNELS
        }

        /// By the definition of a convolution, in f64.
        fn expected(&self) -> Vec<f64> {
            let mut sums = Vec::new();
            for (line, place) in
                (0..LINES).flat_map(|line| (0..self.places / 2).map(move |place| (line, place)))
            {
                for output in 0..OUTPUTS {
                    let mut sum = f64::from(self.bias[output]);
                    for (y, x, channel) in
                        (0..9 * CHANNELS).map(|i| (i / CHANNELS / 3, i / CHANNELS % 3, i % CHANNELS))
                    {
                        let value = self.x[(line + y) * self.line() + (2 * place + x) * CHANNELS + channel];
                        let weight = self.weight[((output * 3 + y) * 3 + x) * CHANNELS + channel];
                        sum += f64::from(value) * f64::from(weight);
                    }
                    sums.push(sum);
                }
            }
            sums
        }

        fn computed<E: Operand>(&self, level: Level, rows: usize, with_past: bool) -> Vec<f32> {
            let convolution = Convolution::<E>::new(3, 3 * CHANNELS, &self.bias, |output, input| {
                self.weight[output * 9 * CHANNELS + input]
            });
            let rounded =
                |values: &[f32]| -> Vec<E> { values.iter().map(|value| E::from_f32(*value)).collect() };
            let (x, past) = (rounded(&self.x), rounded(&self.past));
            let from = Layout { first: 0, line: self.line(), place: 2 * CHANNELS, places: self.places / 2 };
            let to = Layout::rows(0, OUTPUTS);
            let epilogue = if with_past { Epilogue::AddRelu(&past, to) } else { Epilogue::Store };
            let mut y = vec![0.0; rows * OUTPUTS];
            let job = Job { rows, x: &x, from, tap: self.line(), y: Output::Wide(&mut y), to, epilogue };
            convolution.apply(level, job);
            y
        }
    }

    fn assert_close<E: Operand>(level: Level, tolerance: f64) {
        for places in [2, 6, 14] {
            let plane = Plane::new(places);
            let expected = plane.expected();
            let got = plane.computed::<E>(level, plane.rows(), false);
            for (got, expected) in got.iter().zip(&expected) {
                assert!((f64::from(*got) - expected).abs() < tolerance, "{level:?}: {got} for {expected}");
            }
            let got = plane.computed::<E>(level, plane.rows(), true);
            for ((got, expected), past) in got.iter().zip(&expected).zip(&plane.past) {
                let expected = (expected + f64::from(*past)).max(0.0);
                assert!((f64::from(*got) - expected).abs() < tolerance, "{level:?}: {got} for {expected}");
            }
        }
    }

    #[test]
    fn every_level_and_precision_computes_the_convolution() {
        for level in Level::available() {
            assert_close::<f32>(level, 1e-5);
            // 54 products of numbers below 1, each off by 2⁻⁸ at most.
            assert_close::<Bf16>(level, 0.06);
        }
    }

    #[test]
    fn a_row_is_the_same_to_the_bit_whatever_is_computed_beside_it() {
        let plane = Plane::new(14);
        for level in Level::available() {
            let whole = (plane.computed::<f32>(level, 35, true), plane.computed::<Bf16>(level, 35, true));
            for rows in 1..35 {
                assert_eq!(plane.computed::<f32>(level, rows, true), whole.0[..rows * OUTPUTS]);
                assert_eq!(plane.computed::<Bf16>(level, rows, true), whole.1[..rows * OUTPUTS]);
            }
        }
    }

    #[test]
    #[should_panic(expected = "job.x.len()")]
    fn rows_beyond_the_buffer_are_refused() {
        Plane::new(4).computed::<Bf16>(Level::detect(), LINES * 2 + 1, false);
    }
}
