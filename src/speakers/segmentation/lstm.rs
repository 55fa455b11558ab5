//! The LSTMs, in both directions, of several windows side by side.
//!
//! Equations and the order of the gates are those of PyTorch's `LSTM`. The input's part of the gate sums is one
//! product for some frames at a time, which stays in the second-level cache until the recurrence has passed them.

use super::architecture::UNITS;
use crate::cpu::matrix::{Epilogue, Matrix, Precision};
use crate::cpu::{Level, fine_exp, multiply_add, multiversion};
use crate::speakers::error::Error;
use crate::speakers::weights::Weights;

/// Rows of the weights: input, forget, cell and output gate of every unit.
const GATES: usize = 4 * UNITS;
/// Outputs of a layer: the units of both directions.
pub(super) const OUTPUTS: usize = 2 * UNITS;
/// Rows of gate sums that are computed at once.
const PANEL: usize = 96;

/// One layer.
pub(super) struct Bidirectional {
    forward: Direction,
    backward: Direction,
}

struct Direction {
    input: Matrix,
    recurrent: Matrix,
}

/// Working memory for some windows side by side.
pub(super) struct Working {
    /// `[frame][window]`, of a panel's frames.
    gates: Vec<[f32; GATES]>,
    /// `[window]`
    hidden: Vec<[f32; UNITS]>,
    cells: Vec<[f32; UNITS]>,
}

impl Working {
    pub fn new(windows: usize) -> Self {
        Self {
            gates: vec![[0.0; GATES]; frames_at_once(windows) * windows],
            hidden: vec![[0.0; UNITS]; windows],
            cells: vec![[0.0; UNITS]; windows],
        }
    }
}

fn frames_at_once(windows: usize) -> usize {
    (PANEL / windows).max(1)
}

impl Bidirectional {
    pub fn new(weights: &Weights, layer: usize, inputs: usize, precision: Precision) -> Result<Self, Error> {
        let direction = |suffix: &str| {
            let values =
                |kind: &str, shape: &[usize]| weights.values(&format!("lstm.{kind}_l{layer}{suffix}"), shape);
            let (input, hidden) = (values("bias_ih", &[GATES])?, values("bias_hh", &[GATES])?);
            let bias: Vec<f32> = input.iter().zip(&hidden).map(|(input, hidden)| input + hidden).collect();
            Ok(Direction {
                input: Matrix::new(&values("weight_ih", &[GATES, inputs])?, Some(&bias), inputs, precision),
                recurrent: Matrix::new(&values("weight_hh", &[GATES, UNITS])?, None, UNITS, precision),
            })
        };
        Ok(Self { forward: direction("")?, backward: direction("_reverse")? })
    }

    /// `x`, (frames, windows, inputs), to `y`, (frames, windows, [`OUTPUTS`]).
    pub fn apply(&self, level: Level, x: &[f32], y: &mut [f32], working: &mut Working) {
        let windows = working.hidden.len();
        let inputs = windows * self.forward.input.inputs();
        let frames = x.len() / inputs;
        let at_once = frames_at_once(windows);
        for (direction, offset) in [(&self.forward, 0), (&self.backward, UNITS)] {
            working.hidden.fill([0.0; UNITS]);
            working.cells.fill([0.0; UNITS]);
            let panels = frames.div_ceil(at_once);
            for panel in 0..panels {
                let panel = if offset == 0 { panel } else { panels - 1 - panel };
                let panel = panel * at_once..frames.min((panel + 1) * at_once);
                let rows = direction.input.rows(level, &x[panel.start * inputs..panel.end * inputs]);
                let gates = &mut working.gates[..panel.len() * windows];
                direction.input.multiply_rows(level, &rows, gates.as_flattened_mut(), Epilogue::Store);
                for step in 0..panel.len() {
                    let step = if offset == 0 { step } else { panel.len() - 1 - step };
                    let gates = &mut gates[step * windows..][..windows];
                    let hidden = direction.recurrent.rows(level, working.hidden.as_flattened());
                    direction.recurrent.multiply_rows(
                        level,
                        &hidden,
                        gates.as_flattened_mut(),
                        Epilogue::Add,
                    );
                    let y = &mut y[(panel.start + step) * windows * OUTPUTS..][..windows * OUTPUTS];
                    update(level, gates, &mut working.cells, &mut working.hidden);
                    for (y, hidden) in y.chunks_exact_mut(OUTPUTS).zip(&working.hidden) {
                        y[offset..offset + UNITS].copy_from_slice(hidden);
                    }
                }
            }
        }
    }
}

multiversion! {
    /// The cells' new values and the hidden units, from the sums of the gates.
    fn update(gates: &[[f32; GATES]], cells: &mut [[f32; UNITS]], hidden: &mut [[f32; UNITS]]) = update_body
}

#[inline(always)]
fn update_body<const FMA: bool>(
    gates: &[[f32; GATES]],
    cells: &mut [[f32; UNITS]],
    hidden: &mut [[f32; UNITS]],
) {
    for ((gates, cells), hidden) in gates.iter().zip(cells).zip(hidden) {
        let [input, forget, cell, output]: &[[f32; UNITS]; 4] =
            gates.as_chunks().0.try_into().expect("there are four gates; this is a bug");
        for unit in 0..UNITS {
            let kept = sigmoid::<FMA>(forget[unit]) * cells[unit];
            let new = multiply_add::<FMA>(sigmoid::<FMA>(input[unit]), tanh::<FMA>(cell[unit]), kept);
            cells[unit] = new;
            hidden[unit] = sigmoid::<FMA>(output[unit]) * tanh::<FMA>(new);
        }
    }
}

/// `1 / (1 + e^-x)`
#[inline(always)]
fn sigmoid<const FMA: bool>(x: f32) -> f32 {
    1.0 / (1.0 + fine_exp::<FMA>(-x))
}

/// `tanh x = 2 sigmoid(2x) - 1`: absolute error below 3e-7, which is all that the gates need.
#[inline(always)]
fn tanh<const FMA: bool>(x: f32) -> f32 {
    2.0 * sigmoid::<FMA>(2.0 * x) - 1.0
}
