//! Products of rows with a weight matrix: `y = x · Wᵀ + b`.
//!
//! A decode step multiplies a handful of rows with every weight of the decoder, so it is bound by
//! the bytes of the weights. They are packed at load in the order in which they are read, for 16
//! outputs side by side, and each is read once for up to eight rows. The encoder has many rows: there
//! each thread takes panels of rows that stay in its second-level cache.
//!
//! | precision | weights | products |
//! |---|---|---|
//! | f32 | f32 | f32, fused |
//! | bf16 | bf16 | rows rounded to bf16, pairs summed in f32 |
//! | int8 | int8, one scale for each output | rows rounded to int8 with one scale each, exact in i32 |

use std::borrow::Cow;

use super::element::Bf16;
use super::threads::Places;
use super::{Level, Threads};

mod packed;
mod tile;

pub use self::packed::{Epilogue, Matrix, Precision, Rows};
use self::packed::{LANES, Operand, Weights};

impl Matrix {
    /// `x`: (rows, inputs) to `y`: (rows, outputs).
    ///
    /// # Panics
    /// If the lengths do not fit.
    pub fn multiply(&self, level: Level, threads: &Threads, x: &[f32], y: &mut [f32], epilogue: Epilogue) {
        let rows = self.rows(level, x);
        assert!(y.len() == rows.count * self.outputs);
        let y = Places::new(y);
        threads.split(self.bias.len() / LANES, |blocks| {
            // SAFETY: `split` hands out ranges that do not overlap.
            unsafe { tile::blocks(level, self, &rows, blocks, &y, epilogue) };
        });
    }

    /// The whole product on this thread alone, for rows that are split between threads.
    ///
    /// # Panics
    /// If the lengths do not fit.
    pub fn multiply_rows(&self, level: Level, rows: &Rows, y: &mut [f32], epilogue: Epilogue) {
        assert!(rows.inputs == self.inputs && y.len() == rows.count * self.outputs);
        let places = Places::new(y);
        // SAFETY: no other thread has these places.
        unsafe { tile::blocks(level, self, rows, 0..self.bias.len() / LANES, &places, epilogue) };
    }

    /// Rounds `x`, (rows, inputs).
    ///
    /// # Panics
    /// If these are not whole rows.
    pub fn rows<'a>(&self, level: Level, x: &'a [f32]) -> Rows<'a> {
        let count = x.len() / self.inputs;
        assert!(x.len() == count * self.inputs);
        match self.weights {
            Weights::F32(_) => Rows { count, inputs: self.inputs, operand: Operand::F32(Cow::Borrowed(x)) },
            _ => self.rows_with(level, count, |row, place| {
                place.copy_from_slice(&x[row * self.inputs..][..self.inputs]);
            }),
        }
    }

    /// Rounds `count` rows, each as `write` makes it.
    pub fn rows_with(&self, level: Level, count: usize, write: impl Fn(usize, &mut [f32])) -> Rows<'static> {
        let inputs = self.inputs;
        let mut row = vec![0.0; inputs];
        let operand = match self.weights {
            Weights::F32(_) => {
                let mut rows = vec![0.0; count * inputs];
                rows.chunks_exact_mut(inputs).enumerate().for_each(|(n, row)| write(n, row));
                Operand::F32(Cow::Owned(rows))
            }
            Weights::Bf16(_) => {
                let mut rounded = vec![[Bf16::default(); 2]; count * inputs / 2];
                for (n, place) in rounded.chunks_exact_mut(inputs / 2).enumerate() {
                    write(n, &mut row);
                    tile::round_to_bf16(level, &row, place.as_flattened_mut());
                }
                Operand::Bf16(rounded)
            }
            Weights::Int8 { .. } => {
                let mut rounded = vec![[0; 4]; count * inputs / 4];
                let mut scales = Vec::with_capacity(count);
                for (n, place) in rounded.chunks_exact_mut(inputs / 4).enumerate() {
                    write(n, &mut row);
                    scales.push(tile::round_to_int8(level, &row, place.as_flattened_mut()));
                }
                Operand::Int8(rounded, scales)
            }
        };
        Rows { count, inputs, operand }
    }
}

#[cfg(test)]
mod tests {
    use super::super::noise::noise;
    use super::*;

    fn reference(x: &[f32], weight: &[f32], bias: &[f32], inputs: usize) -> Vec<f64> {
        let dot =
            |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
        x.chunks_exact(inputs)
            .flat_map(|x| weight.chunks_exact(inputs).zip(bias).map(move |(w, b)| dot(x, w) + f64::from(*b)))
            .collect()
    }

    #[test]
    fn every_precision_is_as_close_to_the_reference_as_its_rounding_allows() {
        let (inputs, outputs, rows) = (192, 83, 11);
        let (x, weight, bias) = (noise(1, rows * inputs), noise(2, outputs * inputs), noise(3, outputs));
        let expected = reference(&x, &weight, &bias, inputs);
        // A sum of 192 products of numbers below 1: rounding errors of 2⁻²⁴, 2⁻⁹ and 2⁻⁸ of each
        // operand add up like a random walk, √192 ≈ 14 times one product's.
        for (precision, tolerance) in
            [(Precision::F32, 1e-4), (Precision::Bf16, 0.06), (Precision::Int8, 0.12)]
        {
            let matrix = Matrix::new(&weight, Some(&bias), inputs, precision);
            for level in Level::available() {
                let mut y = vec![0.0; rows * outputs];
                matrix.multiply(level, &Threads::new(2), &x, &mut y, Epilogue::Store);
                for (actual, expected) in y.iter().zip(&expected) {
                    let error = (f64::from(*actual) - expected).abs();
                    assert!(error < tolerance, "{precision:?} {level:?}: {actual} for {expected}");
                }
            }
        }
    }

    #[test]
    fn a_row_is_the_same_to_the_bit_alone_and_in_company_and_on_any_number_of_threads() {
        let (inputs, outputs, rows) = (128, 100, 19);
        let (x, weight) = (noise(4, rows * inputs), noise(5, outputs * inputs));
        for precision in [Precision::F32, Precision::Bf16, Precision::Int8] {
            let matrix = Matrix::new(&weight, None, inputs, precision);
            for level in Level::available() {
                let product = |x: &[f32], threads| {
                    let mut y = vec![0.0; x.len() / inputs * outputs];
                    matrix.multiply(level, &Threads::new(threads), x, &mut y, Epilogue::Store);
                    y
                };
                let together = product(&x, 2);
                assert_eq!(product(&x, 3), together);
                for (row, expected) in x.chunks_exact(inputs).zip(together.chunks_exact(outputs)) {
                    assert_eq!(product(row, 1), expected, "{precision:?} {level:?}");
                }
            }
        }
    }

    #[test]
    fn rows_read_back_as_they_were_packed() {
        let weight = noise(6, 21 * 64);
        for (precision, tolerance) in
            [(Precision::F32, 0.0), (Precision::Bf16, 0.004), (Precision::Int8, 0.004)]
        {
            let matrix = Matrix::new(&weight, None, 64, precision);
            for (output, expected) in weight.chunks_exact(64).enumerate() {
                let mut row = [0.0; 64];
                matrix.read_row(output, &mut row);
                assert!(row.iter().zip(expected).all(|(a, b)| (a - b).abs() <= tolerance), "{precision:?}");
            }
        }
    }

    #[test]
    fn epilogues_add_and_bend() {
        let matrix =
            Matrix::new(&[1.0, 0.0, 0.0, 0.0, 0.0, 2.0, 0.0, 0.0], Some(&[0.5, -9.0]), 4, Precision::F32);
        for level in Level::available() {
            let mut y = vec![10.0, 20.0];
            matrix.multiply(level, &Threads::new(1), &[1.0, 2.0, 3.0, 4.0], &mut y, Epilogue::Add);
            assert_eq!(y, [11.5, 15.0]);
            matrix.multiply(level, &Threads::new(1), &[1.0, 2.0, 3.0, 4.0], &mut y, Epilogue::Gelu);
            // GELU(1.5) and GELU(-5), by tables of Φ.
            assert!((y[0] - 1.399_789_2).abs() < 1e-5 && (y[1] + 1.433e-6).abs() < 1e-6, "{y:?}");
        }
    }
}
