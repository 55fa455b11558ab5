//! The last step of a block of outputs, one row at a time.

use super::super::super::rows::{coarse_gelu_lanes, gelu_lanes};
use super::super::super::threads::Places;
use super::super::packed::{Epilogue, LANES, Matrix, Weights};

/// Adds the bias, applies the epilogue and writes the outputs of one block in one row.
///
/// # Safety
/// No other thread works on the same block of `y`.
#[inline(always)]
pub unsafe fn finish<const FMA: bool>(
    matrix: &Matrix,
    mut sums: [f32; LANES],
    row: usize,
    block: usize,
    y: &Places<f32>,
    epilogue: Epilogue,
) {
    let first = block * LANES;
    let bias = &matrix.bias[first..first + LANES];
    sums.iter_mut().zip(bias).for_each(|(sum, bias)| *sum += bias);
    match (epilogue, &matrix.weights) {
        (Epilogue::Gelu, Weights::F32(_)) => gelu_lanes::<FMA>(&mut sums),
        (Epilogue::Gelu, _) => coarse_gelu_lanes::<FMA>(&mut sums),
        _ => {}
    }
    let valid = LANES.min(matrix.outputs - first);
    let begin = row * matrix.outputs + first;
    // SAFETY: the caller's promise: the outputs of this block belong to this thread in every row.
    let place = unsafe { y.range(begin..begin + valid) };
    match (<&mut [f32; LANES]>::try_from(&mut *place).ok(), epilogue) {
        (Some(place), Epilogue::Add) => place.iter_mut().zip(&sums).for_each(|(place, sum)| *place += sum),
        (Some(place), _) => *place = sums,
        (None, Epilogue::Add) => place.iter_mut().zip(&sums).for_each(|(place, sum)| *place += sum),
        (None, _) => place.copy_from_slice(&sums[..valid]),
    }
}
