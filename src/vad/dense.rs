//! Fully connected layers over many rows at once, on one thread.
//!
//! Weights are packed once into panels, `[panel][input][output]`, so that the innermost loop reads
//! them in order; a panel stays in the first-level cache while the rows pass by. A tile of sums,
//! some rows by one panel's outputs, stays in registers for the whole length of the inputs. The
//! code is plain loops over arrays of constant size, compiled once for each [`Level`] with tiles of its size.
//!
//! Every sum adds its inputs in the same order whatever tile it is in: a row gives the same bits
//! alone and among others.

use crate::cpu::{Instructions, Level, multiply_add, multiversion};

/// Rows at equal distances in a slice; each has as many values as the layer has inputs.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a> {
    pub values: &'a [f32],
    pub stride: usize,
    pub count: usize,
}

/// The places of rows of outputs.
pub(super) struct RowsMut<'a> {
    pub values: &'a mut [f32],
    pub stride: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Activation {
    None,
    Relu,
}

/// `y = activation(W x + b)`.
pub(super) struct Dense {
    level: Level,
    inputs: usize,
    /// `[panel][input][output of the panel]`; a panel has [`panel_outputs`].
    packed: Vec<f32>,
    /// `[panel][output of the panel]`.
    bias: Vec<f32>,
    activation: Activation,
}

impl Dense {
    /// `weight(output, input)`; `bias` has one value for each output, whose number is a multiple
    /// of the widest panel.
    pub fn new(
        level: Level,
        inputs: usize,
        bias: &[f32],
        activation: Activation,
        weight: impl Fn(usize, usize) -> f32,
    ) -> Self {
        let width = panel_outputs(level);
        let outputs = bias.len();
        assert!(outputs.is_multiple_of(width), "layer sizes are constants of the network");
        let packed = (0..outputs / width)
            .flat_map(|panel| {
                (0..inputs).flat_map(move |input| (0..width).map(move |lane| (panel, input, lane)))
            })
            .map(|(panel, input, lane)| weight(panel * width + lane, input))
            .collect();
        Self { level, inputs, packed, bias: bias.to_vec(), activation }
    }

    /// Applies the layer to every row of `x`.
    pub fn apply(&self, x: Rows, y: RowsMut) {
        tiles(self.level, self, x, y);
    }

    #[inline(always)]
    fn row<'a>(&self, x: Rows<'a>, row: usize) -> &'a [f32] {
        &x.values[row * x.stride..][..self.inputs]
    }

    #[inline(always)]
    fn store<const WIDTH: usize>(&self, sums: &[[f32; WIDTH]], y: &mut [f32], start: usize, stride: usize) {
        for (r, sums) in sums.iter().enumerate() {
            let out = &mut y[start + r * stride..][..WIDTH];
            match self.activation {
                Activation::None => out.copy_from_slice(sums),
                Activation::Relu => out.iter_mut().zip(sums).for_each(|(y, sum)| *y = sum.max(0.0)),
            }
        }
    }
}

/// Outputs in a panel of packed weights: with a tile's rows they fill the registers.
fn panel_outputs(level: Level) -> usize {
    match level {
        level if level.has(Instructions::Avx512) => 32,
        level if level.has(Instructions::Avx2) => 16,
        _ => 8,
    }
}

multiversion! {
    fn tiles(layer: &Dense, x: Rows, y: RowsMut)
        = [tiles_body::<4, 8, false>, tiles_body::<6, 16, true>, tiles_body::<6, 32, true>]
}

#[inline(always)]
fn tiles_body<const ROWS: usize, const WIDTH: usize, const FMA: bool>(layer: &Dense, x: Rows, y: RowsMut) {
    debug_assert_eq!(WIDTH, panel_outputs(layer.level));
    let (lanes, _) = layer.packed.as_chunks::<WIDTH>();
    let (biases, _) = layer.bias.as_chunks::<WIDTH>();
    for (index, (panel, bias)) in lanes.chunks_exact(layer.inputs).zip(biases).enumerate() {
        let column = index * WIDTH;
        let mut row = 0;
        while row + ROWS <= x.count {
            let inputs = std::array::from_fn(|r| layer.row(x, row + r));
            let sums = tile::<ROWS, WIDTH, FMA>(inputs, panel, bias);
            layer.store(&sums, y.values, row * y.stride + column, y.stride);
            row += ROWS;
        }
        while row < x.count {
            let sums = tile::<1, WIDTH, FMA>([layer.row(x, row)], panel, bias);
            layer.store(&sums, y.values, row * y.stride + column, y.stride);
            row += 1;
        }
    }
}

/// `rows · panel + bias`, the sums in registers.
#[inline(always)]
fn tile<const ROWS: usize, const WIDTH: usize, const FMA: bool>(
    rows: [&[f32]; ROWS],
    panel: &[[f32; WIDTH]],
    bias: &[f32; WIDTH],
) -> [[f32; WIDTH]; ROWS] {
    let rows = rows.map(|row| &row[..panel.len()]);
    let mut sums = [*bias; ROWS];
    for (k, weights) in panel.iter().enumerate() {
        for (sums, row) in sums.iter_mut().zip(rows) {
            for (sum, weight) in sums.iter_mut().zip(weights) {
                *sum = multiply_add::<FMA>(row[k], *weight, *sum);
            }
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    const INPUTS: usize = 37;
    const OUTPUTS: usize = 64;
    const STRIDE: usize = 41;

    fn value(seed: usize) -> f32 {
        (seed * 7919 % 1000) as f32 / 500.0 - 1.0
    }

    fn apply(level: Level, activation: Activation, x: &[f32], count: usize) -> Vec<f32> {
        let bias: Vec<f32> = (0..OUTPUTS).map(|o| value(o + 3)).collect();
        let layer = Dense::new(level, INPUTS, &bias, activation, |o, i| value(o * INPUTS + i));
        let mut y = vec![0.0; count * OUTPUTS];
        let rows = Rows { values: x, stride: STRIDE, count };
        layer.apply(rows, RowsMut { values: &mut y, stride: OUTPUTS });
        y
    }

    #[test]
    fn every_level_computes_the_product_for_any_number_of_rows() {
        for (level, count) in Level::available().flat_map(|level| (0..20).map(move |n| (level, n))) {
            let x: Vec<f32> = (0..count * STRIDE).map(|i| value(i + 11)).collect();
            let y = apply(level, Activation::None, &x, count);
            for (row, got) in x.chunks(STRIDE).zip(y.chunks(OUTPUTS)) {
                for (o, got) in got.iter().enumerate() {
                    let products = (0..INPUTS).map(|i| f64::from(value(o * INPUTS + i)) * f64::from(row[i]));
                    let expected = f64::from(value(o + 3)) + products.sum::<f64>();
                    assert!((f64::from(*got) - expected).abs() < 1e-5, "{level:?}: {got} for {expected}");
                }
            }
        }
    }

    #[test]
    fn relu_clamps_negative_outputs_to_zero() {
        let x: Vec<f32> = (0..STRIDE).map(|i| -value(i)).collect();
        for level in Level::available() {
            let plain = apply(level, Activation::None, &x, 1);
            let cut: Vec<f32> = plain.iter().map(|y| y.max(0.0)).collect();
            assert!(plain.iter().any(|y| *y < 0.0));
            assert_eq!(apply(level, Activation::Relu, &x, 1), cut);
        }
    }

    #[test]
    fn a_row_gives_the_same_bits_alone_and_among_others() {
        let x: Vec<f32> = (0..17 * STRIDE).map(value).collect();
        for level in Level::available() {
            let together = apply(level, Activation::None, &x, 17);
            for (row, y) in x.chunks(STRIDE).zip(together.chunks(OUTPUTS)) {
                assert_eq!(apply(level, Activation::None, row, 1), y);
            }
        }
    }
}
