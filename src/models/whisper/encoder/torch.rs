//! The encoder by libtorch.

use tch::{Device, Kind, Tensor};

use super::super::layers::{FeedForward, LayerNorm, Linear};
use super::norm::{Launch, add_norm};
use crate::models::{Error, weights};

pub struct Encoder {
    conv1: Linear,
    conv2: Linear,
    /// (positions, d)
    positions: Tensor,
    layers: Vec<Layer>,
    norm: LayerNorm,
    heads: i64,
    /// Number format of the weights and the output.
    kind: Kind,
}

struct Layer {
    norm: LayerNorm,
    query_key_value: Linear,
    output: Linear,
    feed_forward: FeedForward,
}

impl Encoder {
    pub fn new(weights: &weights::Weights, torch_device: Device, kind: Kind) -> Result<Self, Error> {
        let layers = weights.encoder_layers.iter().map(|layer| {
            Ok(Layer {
                norm: LayerNorm::new(&layer.attention.norm, torch_device, kind)?,
                query_key_value: Linear::new(&layer.attention.query_key_value, torch_device, kind)?,
                output: Linear::new(&layer.attention.output, torch_device, kind)?,
                feed_forward: FeedForward::new(&layer.feed_forward, torch_device, kind)?,
            })
        });
        Ok(Self {
            conv1: Linear::new(&weights.conv1, torch_device, kind)?,
            conv2: Linear::new(&weights.conv2, torch_device, kind)?,
            positions: weights.encoder_positions.f_to_device(torch_device)?.f_to_kind(Kind::Float)?,
            layers: layers.collect::<Result<_, Error>>()?,
            norm: LayerNorm::new(&weights.encoder_norm, torch_device, kind)?,
            heads: weights.encoder_heads as i64,
            kind,
        })
    }

    /// Features (windows, bands, frames) to audio states (windows, frames / 2, d). `frames` is even
    /// and at most twice the number of positions.
    pub fn forward(&self, features: &Tensor) -> Result<Tensor, Error> {
        self.forward_with(features, None)
    }

    /// The same, in bf16 on a CUDA device, with this project's kernels between libtorch's operations.
    pub fn forward_on(&self, features: &Tensor, launch: Launch) -> Result<Tensor, Error> {
        self.forward_with(features, Some(launch))
    }

    fn forward_with(&self, features: &Tensor, launch: Option<Launch>) -> Result<Tensor, Error> {
        let x = features.f_to_kind(self.kind)?;
        let x = x.f_conv1d(&self.conv1.weight, self.conv1.bias.as_ref(), 1, 1, 1, 1)?.f_gelu("none")?;
        let x = x.f_conv1d(&self.conv2.weight, self.conv2.bias.as_ref(), 2, 1, 1, 1)?.f_gelu("none")?;
        let x = x.f_transpose(1, 2)?;
        let positions = self.positions.f_narrow(0, 0, x.size()[1])?;
        let mut x = x.f_add(&positions)?.f_contiguous()?;
        // Adds the output of a block to the residual and normalises it for the next.
        let mut next = |y: Option<&Tensor>, norm: &LayerNorm| -> Result<Tensor, Error> {
            if let Some(launch) = launch {
                return add_norm(launch, &x, y, norm);
            }
            if let Some(y) = y {
                let _ = x.f_add_(y)?;
            }
            norm.forward(&x)
        };
        let mut made = None;
        for layer in &self.layers {
            let attended = self.attention(layer, &next(made.as_ref(), &layer.norm)?)?;
            let normal = next(Some(&attended), &layer.feed_forward.norm)?;
            made = Some(layer.feed_forward.after_norm(&normal)?);
        }
        next(made.as_ref(), &self.norm)
    }

    fn attention(&self, layer: &Layer, x: &Tensor) -> Result<Tensor, Error> {
        let (windows, length, width) = x.size3()?;
        let heads = |tensor: Tensor| {
            tensor.f_view([windows, length, self.heads, width / self.heads])?.f_transpose(1, 2)
        };
        let fused = layer.query_key_value.forward(x)?;
        let [query, key, value] = [0, 1, 2].map(|index| fused.f_narrow(2, index * width, width));
        let attended = Tensor::f_scaled_dot_product_attention(
            &heads(query?)?,
            &heads(key?)?,
            &heads(value?)?,
            None::<&Tensor>,
            0.0,
            false,
            None,
            false,
        )?;
        layer.output.forward(&attended.f_transpose(1, 2)?.f_reshape([windows, length, width])?)
    }
}
