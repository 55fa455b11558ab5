//! The recurrent half of an LSTM cell: the only part of the network that must go frame by frame.
//!
//! Its 512 × 128 weights take 256 KiB, more than the first-level cache: a step is bound by reading
//! them from the second level once, in order. Equations and the order of the gates are those of
//! PyTorch's `LSTMCell`.

use crate::cpu::{Level, fine_exp, multiply_add, multiversion};

/// Hidden units.
pub(super) const UNITS: usize = 128;
/// Rows of the weights: input, forget, cell and output gate of every unit.
pub(super) const GATES: usize = 4 * UNITS;
/// Gate sums that stay in registers while the hidden state passes by.
const PANEL: usize = 64;

/// The state that a stream carries from frame to frame.
#[derive(Debug, Clone)]
pub(super) struct LstmState {
    pub hidden: [f32; UNITS],
    pub cell: [f32; UNITS],
}

impl Default for LstmState {
    fn default() -> Self {
        Self { hidden: [0.0; UNITS], cell: [0.0; UNITS] }
    }
}

/// Frames after which a younger state takes over: 15.4 s.
const RENEWAL_FRAMES: usize = 480;
/// Frames that the younger state hears before it takes over: 3.1 s.
const WARM_UP_FRAMES: usize = 96;

/// Two memories of one stream: one of all that came before, and one that begins anew again and again.
///
/// The first knows a voice in a reverberant room. Long steady noise makes it deaf: after 30 s of it, speech at 30 dB
/// above the noise got a probability of 0.06, and from a fresh state 0.9. Speech is what either of them hears.
#[derive(Debug, Clone, Default)]
pub(super) struct Memories {
    whole: LstmState,
    recent: LstmState,
    /// Takes the place of `recent`; present while it warms up.
    next: Option<LstmState>,
    /// Frames since the last renewal.
    frames: usize,
}

impl Memories {
    /// Advances by one frame; returns the hidden units of both.
    pub fn step(&mut self, recurrence: &Recurrence, gates: &[f32; GATES]) -> [&[f32; UNITS]; 2] {
        if self.frames == RENEWAL_FRAMES {
            self.recent = self.next.take().unwrap_or_default();
            self.frames = 0;
        }
        if self.frames == RENEWAL_FRAMES - WARM_UP_FRAMES {
            self.next = Some(LstmState::default());
        }
        self.frames += 1;
        recurrence.step(&mut self.whole, gates);
        recurrence.step(&mut self.recent, gates);
        if let Some(next) = &mut self.next {
            recurrence.step(next, gates);
        }
        [&self.whole.hidden, &self.recent.hidden]
    }
}

/// The recurrent weights.
pub(super) struct Recurrence {
    level: Level,
    /// `[panel][unit][gate of the panel]`
    packed: Vec<[f32; PANEL]>,
}

impl Recurrence {
    /// `weight(gate, unit)`.
    pub fn new(level: Level, weight: impl Fn(usize, usize) -> f32) -> Self {
        let packed = (0..GATES / PANEL)
            .flat_map(|panel| (0..UNITS).map(move |unit| (panel, unit)))
            .map(|(panel, unit)| std::array::from_fn(|lane| weight(panel * PANEL + lane, unit)))
            .collect();
        Self { level, packed }
    }

    /// Advances `state` by one frame. `gates` holds the input's part of each gate's sum, biases included.
    pub fn step(&self, state: &mut LstmState, gates: &[f32; GATES]) {
        step(self.level, &self.packed, state, gates);
    }
}

multiversion! {
    fn step(packed: &[[f32; PANEL]], state: &mut LstmState, gates: &[f32; GATES]) = step_body
}

#[inline(always)]
fn step_body<const FMA: bool>(packed: &[[f32; PANEL]], state: &mut LstmState, gates: &[f32; GATES]) {
    let mut sums = *gates;
    let (lanes, _) = sums.as_chunks_mut::<PANEL>();
    for (sums, panel) in lanes.iter_mut().zip(packed.chunks_exact(UNITS)) {
        let mut registers = *sums;
        for (weights, hidden) in panel.iter().zip(&state.hidden) {
            for (sum, weight) in registers.iter_mut().zip(weights) {
                *sum = multiply_add::<FMA>(*weight, *hidden, *sum);
            }
        }
        *sums = registers;
    }
    let [input, forget, cell, output]: &[[f32; UNITS]; 4] =
        sums.as_chunks().0.try_into().expect("there are four gates; this is a bug");
    for unit in 0..UNITS {
        let kept = sigmoid::<FMA>(forget[unit]) * state.cell[unit];
        let new = kept + sigmoid::<FMA>(input[unit]) * tanh::<FMA>(cell[unit]);
        state.cell[unit] = new;
        state.hidden[unit] = sigmoid::<FMA>(output[unit]) * tanh::<FMA>(new);
    }
}

/// `1 / (1 + e^-x)`
#[inline(always)]
pub(super) fn sigmoid<const FMA: bool>(x: f32) -> f32 {
    1.0 / (1.0 + fine_exp::<FMA>(-x))
}

/// `tanh x = 2 sigmoid(2x) - 1`: absolute error below 3e-7, which is all that the gates need.
#[inline(always)]
fn tanh<const FMA: bool>(x: f32) -> f32 {
    2.0 * sigmoid::<FMA>(2.0 * x) - 1.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weight(gate: usize, unit: usize) -> f32 {
        ((gate * 31 + unit * 17) % 101) as f32 / 404.0 - 0.125
    }

    fn gates(step: usize) -> [f32; GATES] {
        std::array::from_fn(|gate| ((gate * 13 + step * 29) % 97) as f32 / 16.0 - 3.0)
    }

    /// The equations as PyTorch writes them, in double precision.
    fn reference(hidden: &[f64], cell: &[f64], gates: &[f32; GATES]) -> (Vec<f64>, Vec<f64>) {
        let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
        let sum = |gate: usize| {
            let recurrent = hidden.iter().enumerate().map(|(unit, h)| f64::from(weight(gate, unit)) * h);
            f64::from(gates[gate]) + recurrent.sum::<f64>()
        };
        (0..UNITS)
            .map(|unit| {
                let [i, f, g, o] = [0, 1, 2, 3].map(|gate| sum(gate * UNITS + unit));
                let c = sigmoid(f) * cell[unit] + sigmoid(i) * g.tanh();
                (sigmoid(o) * c.tanh(), c)
            })
            .unzip()
    }

    #[test]
    fn every_level_follows_the_equations_over_many_steps() {
        for level in Level::available() {
            let recurrence = Recurrence::new(level, weight);
            let mut state = LstmState::default();
            let (mut hidden, mut cell) = (vec![0.0; UNITS], vec![0.0; UNITS]);
            for step in 0..50 {
                recurrence.step(&mut state, &gates(step));
                (hidden, cell) = reference(&hidden, &cell, &gates(step));
                for unit in 0..UNITS {
                    assert!(
                        (f64::from(state.hidden[unit]) - hidden[unit]).abs() < 1e-5,
                        "{level:?} step {step}"
                    );
                    assert!((f64::from(state.cell[unit]) - cell[unit]).abs() < 1e-5, "{level:?} step {step}");
                }
            }
        }
    }

    #[test]
    fn gates_far_out_of_range_saturate() {
        let mut state = LstmState::default();
        let recurrence = Recurrence::new(Level::detect(), weight);
        for extreme in [1e30, -1e30] {
            recurrence.step(&mut state, &[extreme; GATES]);
            assert!(state.hidden.iter().chain(&state.cell).all(|value| value.is_finite()));
        }
    }
}
