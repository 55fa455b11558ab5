//! Attention from a teacher-forced pass over a window's text, which the backend runs at once.

use super::super::decoder::AlignmentWeights;
use super::{AlignmentRequest, Attention, Costs};
use crate::cpu::{Level, alignment};
use crate::models::Error;

/// The attention of a window's pass, and the part of it that counts.
struct TeacherForced {
    weights: AlignmentWeights,
    prefix: usize,
    rows: usize,
    positions: usize,
}

/// `weights`: of the pass of each of `requests`.
pub fn attention(requests: &[AlignmentRequest], weights: Vec<AlignmentWeights>) -> Vec<Box<dyn Attention>> {
    let of_request = |(request, weights): (&AlignmentRequest, AlignmentWeights)| {
        let &AlignmentRequest { prefix, rows, positions, .. } = request;
        let positions = positions.clamp(1, weights.positions);
        Box::new(TeacherForced { weights, prefix, rows, positions }) as Box<dyn Attention>
    };
    requests.iter().zip(weights).map(of_request).collect()
}

impl Attention for TeacherForced {
    fn costs(self: Box<Self>) -> Result<Costs, Error> {
        let Self { weights, prefix, rows, positions } = *self;
        Ok(Costs { values: weights.costs(prefix, rows, positions), rows, positions })
    }
}

impl AlignmentWeights {
    /// One cost matrix (rows, positions) from all heads, for the `rows` tokens from `first_token` on.
    /// `positions`: those that hold audio; the rest is padding.
    pub fn costs(&self, first_token: usize, rows: usize, positions: usize) -> Vec<f32> {
        let &Self { heads, tokens, positions: of_row, .. } = self;
        let weights = &self.values[..heads * tokens * of_row];
        let attention = alignment::Attention { weights, tokens, positions: of_row };
        let mut costs = vec![0.0; rows * positions];
        alignment::costs(Level::detect(), attention, first_token, positions, &mut costs);
        costs
    }
}
