//! Weights on a CPU, for encoder and decoder: plain numbers, packed matrices, norms.

use tch::{Kind, Tensor};

use crate::cpu::matrix::{Matrix, Precision};
use crate::cpu::{Level, rows};
use crate::models::{Error, weights};

/// All elements in order, as f32.
pub fn plain(tensor: &Tensor) -> Result<Vec<f32>, Error> {
    Ok(Vec::<f32>::try_from(tensor.f_to_kind(Kind::Float)?.f_contiguous()?.f_view([-1])?)?)
}

pub fn pack(linear: &weights::Linear, precision: Precision) -> Result<Matrix, Error> {
    let (_, inputs) = linear.weight.size2()?;
    let bias = linear.bias.as_ref().map(plain).transpose()?;
    Ok(Matrix::new(&plain(&linear.weight)?, bias.as_deref(), inputs as usize, precision))
}

pub struct Norm {
    gamma: Vec<f32>,
    beta: Vec<f32>,
}

impl Norm {
    pub fn new(weights: &weights::LayerNorm) -> Result<Self, Error> {
        Ok(Self { gamma: plain(&weights.gamma)?, beta: plain(&weights.beta)? })
    }

    pub fn width(&self) -> usize {
        self.gamma.len()
    }

    /// Normalises one row.
    pub fn apply(&self, level: Level, x: &[f32], normal: &mut [f32]) {
        rows::layer_norm(level, x, &self.gamma, &self.beta, normal);
    }
}
