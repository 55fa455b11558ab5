//! Weights in the order in which the inner loops read them, and the products that are asked for.

use crate::cpu::element::Element;
use crate::cpu::{Level, Line};

/// Outputs side by side in the packed weights.
pub(super) const LANES: usize = 16;

/// Where rows lie in a buffer: `places` of them to a line. All are counts of values.
#[derive(Debug, Clone, Copy)]
pub struct Layout {
    /// The first row's first value.
    pub first: usize,
    /// From a line to the next.
    pub line: usize,
    /// From a place in a line to the next.
    pub place: usize,
    /// Places in a line.
    pub places: usize,
}

impl Layout {
    /// Rows at equal distances.
    pub fn rows(first: usize, distance: usize) -> Self {
        Self { first, line: distance, place: 0, places: 1 }
    }

    #[inline(always)]
    pub(super) fn at(&self, row: usize) -> usize {
        self.first + row / self.places * self.line + row % self.places * self.place
    }

    /// One past the greatest value of `count` rows that are `length` long each.
    fn end(&self, count: usize, length: usize) -> usize {
        let Some(last) = count.checked_sub(1) else { return 0 };
        let place = if last >= self.places { self.places - 1 } else { last };
        self.first + last / self.places * self.line + place * self.place + length
    }
}

/// The last step of a product.
#[derive(Clone, Copy)]
pub enum Epilogue<'a, E> {
    Store,
    /// Negative results become zero.
    Relu,
    /// The rows of another buffer are added, then negative results become zero.
    AddRelu(&'a [E], Layout),
}

/// The places of the results.
pub enum Output<'a, E> {
    /// In the precision of the operands: the next convolution's input.
    Operand(&'a mut [E]),
    Wide(&'a mut [f32]),
}

impl<E> Output<'_, E> {
    /// The same places, for one of several jobs.
    pub fn reborrow(&mut self) -> Output<'_, E> {
        match self {
            Output::Operand(y) => Output::Operand(y),
            Output::Wide(y) => Output::Wide(y),
        }
    }
}

/// One product.
pub struct Job<'a, E> {
    pub rows: usize,
    pub x: &'a [E],
    pub from: Layout,
    /// From a tap to the next, in values of `x`.
    pub tap: usize,
    pub y: Output<'a, E>,
    pub to: Layout,
    pub epilogue: Epilogue<'a, E>,
}

/// A type that convolutions read and multiply.
pub trait Operand: Element {
    #[doc(hidden)]
    type Lines: Send + Sync + 'static;
    /// Whether a processor computes fast with it.
    fn is_fast(level: Level) -> bool;
    #[doc(hidden)]
    fn pack(blocks: usize, inputs: usize, weight: impl Fn(usize, usize) -> f32) -> Self::Lines;
    #[doc(hidden)]
    fn multiply(level: Level, convolution: &Convolution<Self>, job: &mut Job<Self>)
    where
        Self: Sized;
}

/// The weights of a convolution with their bias, packed for 16 outputs side by side.
pub struct Convolution<E: Operand> {
    pub(super) outputs: usize,
    pub(super) taps: usize,
    /// Inputs of one tap.
    pub(super) length: usize,
    pub(super) lines: E::Lines,
    bias: Vec<f32>,
}

impl<E: Operand> Convolution<E> {
    /// `weight(output, input)`: the inputs of each tap after those of the tap before. `bias` has a value for each
    /// output, whose number is a multiple of 16.
    ///
    /// # Panics
    /// If the numbers do not fit: shapes are constants of the network.
    pub fn new(taps: usize, length: usize, bias: &[f32], weight: impl Fn(usize, usize) -> f32) -> Self {
        let outputs = bias.len();
        assert!(taps > 0 && length > 0 && length.is_multiple_of(2) && outputs.is_multiple_of(LANES));
        let lines = E::pack(outputs / LANES, taps * length, weight);
        Self { outputs, taps, length, lines, bias: bias.to_vec() }
    }

    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// Computes the job's rows.
    ///
    /// # Panics
    /// If a row lies outside its buffer.
    pub fn apply(&self, level: Level, mut job: Job<E>) {
        let length = match &job.y {
            Output::Operand(y) => y.len(),
            Output::Wide(y) => y.len(),
        };
        assert!(job.to.end(job.rows, self.outputs) <= length);
        assert!(job.from.end(job.rows, (self.taps - 1) * job.tap + self.length) <= job.x.len());
        if let Epilogue::AddRelu(values, layout) = &job.epilogue {
            assert!(layout.end(job.rows, self.outputs) <= values.len());
        }
        E::multiply(level, self, &mut job);
    }

    /// Adds the bias, applies the epilogue and writes the outputs of one block in one row.
    #[inline(always)]
    pub(super) fn finish(&self, job: &mut Job<E>, mut sums: [f32; LANES], row: usize, block: usize) {
        let first = block * LANES;
        sums.iter_mut().zip(&self.bias[first..first + LANES]).for_each(|(sum, bias)| *sum += bias);
        if let Epilogue::AddRelu(values, layout) = &job.epilogue {
            let start = layout.at(row) + first;
            sums.iter_mut()
                .zip(&values[start..start + LANES])
                .for_each(|(sum, value)| *sum += value.to_f32());
        }
        if !matches!(job.epilogue, Epilogue::Store) {
            sums.iter_mut().for_each(|sum| *sum = sum.max(0.0));
        }
        let start = job.to.at(row) + first;
        match &mut job.y {
            Output::Operand(y) => {
                y[start..start + LANES].iter_mut().zip(&sums).for_each(|(y, sum)| *y = E::from_f32(*sum));
            }
            Output::Wide(y) => y[start..start + LANES].copy_from_slice(&sums),
        }
    }
}

/// Packed weights: for each block of outputs, for each step of the inputs, one cache line.
pub struct Lines<T, const N: usize>(pub(super) Vec<Line<T, N>>);

impl<T, const N: usize> Lines<T, N> {
    pub(super) fn new(blocks: usize, steps: usize, line: impl Fn(usize, usize) -> [T; N]) -> Self {
        let mut lines = Vec::with_capacity(blocks * steps);
        for block in 0..blocks {
            lines.extend((0..steps).map(|step| Line(line(block, step))));
        }
        Self(lines)
    }
}
