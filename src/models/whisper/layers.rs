//! Layers of encoder and decoder in libtorch's operations, on one device and in one number format.

use tch::{Device, Kind, Tensor};

use crate::models::{Error, weights};

const NORM_EPSILON: f64 = 1e-5;

pub struct Linear {
    pub weight: Tensor,
    pub bias: Option<Tensor>,
}

impl Linear {
    pub fn new(weights: &weights::Linear, torch_device: Device, kind: Kind) -> Result<Self, Error> {
        let convert = |tensor: &Tensor| tensor.f_to_device(torch_device)?.f_to_kind(kind);
        Ok(Self {
            weight: convert(&weights.weight)?.f_contiguous()?,
            bias: weights.bias.as_ref().map(convert).transpose()?,
        })
    }

    /// (…, inputs) to (…, outputs)
    pub fn forward(&self, x: &Tensor) -> Result<Tensor, Error> {
        Ok(x.f_linear(&self.weight, self.bias.as_ref())?)
    }
}

/// Normalises in f32 and rounds to the format of the products that follow. The residual stays f32: in bf16 it would
/// lose part of every layer's contribution.
pub struct LayerNorm {
    pub gamma: Tensor,
    pub beta: Tensor,
    kind: Kind,
}

impl LayerNorm {
    pub fn new(weights: &weights::LayerNorm, torch_device: Device, kind: Kind) -> Result<Self, Error> {
        let convert = |tensor: &Tensor| tensor.f_to_device(torch_device)?.f_to_kind(Kind::Float);
        Ok(Self { gamma: convert(&weights.gamma)?, beta: convert(&weights.beta)?, kind })
    }

    /// (…, d) f32 to (…, d) in this layer's format.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor, Error> {
        let width = self.gamma.size();
        let normal = x.f_layer_norm(&width, Some(&self.gamma), Some(&self.beta), NORM_EPSILON, false)?;
        Ok(normal.f_to_kind(self.kind)?)
    }
}

/// Norm, expansion, GELU, contraction; the caller adds the residual.
pub struct FeedForward {
    pub norm: LayerNorm,
    pub expand: Linear,
    pub contract: Linear,
}

impl FeedForward {
    pub fn new(weights: &weights::FeedForward, torch_device: Device, kind: Kind) -> Result<Self, Error> {
        Ok(Self {
            norm: LayerNorm::new(&weights.norm, torch_device, kind)?,
            expand: Linear::new(&weights.expand, torch_device, kind)?,
            contract: Linear::new(&weights.contract, torch_device, kind)?,
        })
    }

    pub fn forward(&self, x: &Tensor) -> Result<Tensor, Error> {
        self.after_norm(&self.norm.forward(x)?)
    }

    /// The same, given the norm's output.
    pub fn after_norm(&self, normal: &Tensor) -> Result<Tensor, Error> {
        let mut hidden = self.expand.forward(normal)?;
        self.contract.forward(&hidden.f_gelu_("none")?)
    }
}
