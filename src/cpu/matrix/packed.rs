//! Weights and rows in the form in which the inner loops read them.

use std::borrow::Cow;

use crate::cpu::Line;
use crate::cpu::element::{Bf16, Element};

/// Outputs side by side: the lanes of a 512-bit register of f32.
pub(super) const LANES: usize = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precision {
    F32,
    Bf16,
    Int8,
}

/// The last step of a product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Epilogue {
    /// It is written.
    Store,
    /// It is written after GELU: exact ([`crate::cpu::rows::gelu`]) in f32, to 1e-4 elsewhere.
    Gelu,
    /// It is added to the values there: the residual.
    Add,
}

/// The weights in the order in which they are read.
pub(super) enum Weights {
    /// For each block of 16 outputs, for each input: 16 weights.
    F32(Vec<Line<f32, 16>>),
    /// For each block, for each pair of inputs: 16 pairs.
    Bf16(Vec<Line<Bf16, 32>>),
    /// For each block, for each four inputs: 16 quadruples. `scales` and `sums` by output, padded to
    /// whole blocks: weight = int8 · scale, and the sum of an output's int8 weights.
    Int8 { quads: Vec<Line<i8, 64>>, scales: Vec<f32>, sums: Vec<i32> },
}

/// A weight matrix with its bias, packed.
pub struct Matrix {
    pub(super) outputs: usize,
    pub(super) inputs: usize,
    pub(super) weights: Weights,
    /// Padded to whole blocks; zeros if there is none.
    pub(super) bias: Vec<f32>,
}

/// The rows of one product, rounded to the precision of the weights.
pub struct Rows<'a> {
    pub(super) count: usize,
    pub(super) inputs: usize,
    pub(super) operand: Operand<'a>,
}

pub(super) enum Operand<'a> {
    F32(Cow<'a, [f32]>),
    /// (rows, inputs / 2)
    Bf16(Vec<[Bf16; 2]>),
    /// (rows, inputs / 4), bytes offset by 128, and the scale of each row.
    Int8(Vec<[u8; 4]>, Vec<f32>),
}

impl Matrix {
    /// `weight`: (outputs, inputs) row-major. `inputs` is a multiple of 4.
    ///
    /// # Panics
    /// If the lengths do not fit: shapes are checked when a model is read.
    pub fn new(weight: &[f32], bias: Option<&[f32]>, inputs: usize, precision: Precision) -> Self {
        assert!(inputs > 0 && inputs.is_multiple_of(4) && weight.len().is_multiple_of(inputs));
        let outputs = weight.len() / inputs;
        let blocks = outputs.div_ceil(LANES);
        let at = |output: usize, input: usize| weight.get(output * inputs + input).copied().unwrap_or(0.0);
        let weights = match precision {
            Precision::F32 => Weights::F32(pack(blocks, inputs, |block, input| {
                Line(std::array::from_fn(|lane| at(block * LANES + lane, input)))
            })),
            Precision::Bf16 => Weights::Bf16(pack(blocks, inputs / 2, |block, pair| {
                Line(std::array::from_fn(|place| {
                    Element::from_f32(at(block * LANES + place / 2, pair * 2 + place % 2))
                }))
            })),
            Precision::Int8 => {
                let row = |output: usize| weight.get(output * inputs..(output + 1) * inputs).unwrap_or(&[]);
                let scales: Vec<f32> = (0..blocks * LANES).map(|output| int8_scale(row(output))).collect();
                let quantised =
                    |output: usize, input: usize| i8::from_f32(at(output, input) / scales[output]);
                let sums = (0..blocks * LANES)
                    .map(|output| (0..inputs).map(|input| i32::from(quantised(output, input))).sum())
                    .collect();
                let quads = pack(blocks, inputs / 4, |block, quad| {
                    Line(std::array::from_fn(|place| {
                        quantised(block * LANES + place / 4, quad * 4 + place % 4)
                    }))
                });
                Weights::Int8 { quads, scales, sums }
            }
        };
        let mut padded = bias.unwrap_or(&[]).to_vec();
        padded.resize(blocks * LANES, 0.0);
        Self { outputs, inputs, weights, bias: padded }
    }

    pub fn outputs(&self) -> usize {
        self.outputs
    }

    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// The weights of one output, as they are stored: a row of an embedding.
    ///
    /// # Panics
    /// If there is no such output, or `row` is not as long as it.
    pub fn read_row(&self, output: usize, row: &mut [f32]) {
        assert!(output < self.outputs && row.len() == self.inputs);
        let (block, lane) = (output / LANES, output % LANES);
        for (input, value) in row.iter_mut().enumerate() {
            let step =
                |inputs_per_step: usize| block * self.inputs / inputs_per_step + input / inputs_per_step;
            *value = match &self.weights {
                Weights::F32(lines) => lines[step(1)].0[lane],
                Weights::Bf16(lines) => Element::to_f32(lines[step(2)].0[2 * lane + input % 2]),
                Weights::Int8 { quads, scales, .. } => {
                    f32::from(quads[step(4)].0[4 * lane + input % 4]) * scales[output]
                }
            };
        }
    }
}

/// Lines in the order block, input.
fn pack<T>(blocks: usize, inputs: usize, line: impl Fn(usize, usize) -> T) -> Vec<T> {
    // Not collected: a vector that grows as it is filled keeps up to twice what it holds.
    let mut lines = Vec::with_capacity(blocks * inputs);
    for block in 0..blocks {
        lines.extend((0..inputs).map(|input| line(block, input)));
    }
    lines
}

/// The scale that makes the greatest of `values` 127; 1 if all are zero.
fn int8_scale(values: &[f32]) -> f32 {
    let max = values.iter().fold(0.0f32, |max, value| max.max(value.abs()));
    if max > 0.0 { max / 127.0 } else { 1.0 }
}
