//! The named tensors of a checkpoint, whichever layout they are read from.

use tch::{Kind, Tensor};

use crate::models::Error;

/// Positions of audio and of text, the same in every size of the model.
pub const AUDIO_POSITIONS: usize = 1500;
pub const TEXT_POSITIONS: usize = 448;

/// Weights of a matrix product: `y = x · weightᵀ + bias`.
pub struct Linear {
    /// (outputs, inputs)
    pub weight: Tensor,
    pub bias: Option<Tensor>,
}

pub struct LayerNorm {
    pub gamma: Tensor,
    pub beta: Tensor,
}

/// Self-attention: queries, keys and values in one product.
pub struct SelfAttention {
    pub norm: LayerNorm,
    /// (3·d, d): query, key, value rows; the key third of the bias is zero.
    pub query_key_value: Linear,
    pub output: Linear,
}

pub struct CrossAttention {
    pub norm: LayerNorm,
    pub query: Linear,
    /// (2·d, d): key, value rows.
    pub key_value: Linear,
    pub output: Linear,
}

pub struct FeedForward {
    pub norm: LayerNorm,
    /// (4·d, d)
    pub expand: Linear,
    /// (d, 4·d)
    pub contract: Linear,
}

pub struct EncoderLayer {
    pub attention: SelfAttention,
    pub feed_forward: FeedForward,
}

pub struct DecoderLayer {
    pub attention: SelfAttention,
    pub cross_attention: CrossAttention,
    pub feed_forward: FeedForward,
}

/// All weights of one model, in the number format of the file (int8 becomes f32).
pub struct Weights {
    /// weight (d, n_mels, 3)
    pub conv1: Linear,
    /// weight (d, d, 3)
    pub conv2: Linear,
    /// ([`AUDIO_POSITIONS`], d)
    pub encoder_positions: Tensor,
    pub encoder_layers: Vec<EncoderLayer>,
    pub encoder_norm: LayerNorm,
    /// (vocabulary, d); also the output projection.
    pub token_embedding: Tensor,
    /// ([`TEXT_POSITIONS`], d)
    pub decoder_positions: Tensor,
    pub decoder_layers: Vec<DecoderLayer>,
    pub decoder_norm: LayerNorm,
    pub encoder_heads: usize,
    pub decoder_heads: usize,
}

/// The dimensions that a model's memory follows from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dimensions {
    pub width: usize,
    pub decoder_layers: usize,
    /// Elements of all weights together.
    pub elements: usize,
}

impl Weights {
    /// Checks that every shape follows from the first few, so that an inconsistent file fails here and not deep
    /// inside a product.
    pub(super) fn check(&self) -> Result<(), Error> {
        let conv1 = self.conv1.weight.size();
        let &[width, _, 3] = conv1.as_slice() else {
            return Err(Error::BadWeights(format!("conv1 has shape {conv1:?}, not (d, n_mels, 3)")));
        };
        let vocabulary = self.token_embedding.size().first().copied().unwrap_or(0);
        let norm = |name: &str, norm: &LayerNorm| {
            shape(name, &norm.gamma, &[width])?;
            shape(name, &norm.beta, &[width])
        };
        let linear = |name: &str, linear: &Linear, outputs: i64, inputs: i64| {
            shape(name, &linear.weight, &[outputs, inputs])?;
            linear.bias.as_ref().map_or(Ok(()), |bias| shape(name, bias, &[outputs]))
        };
        let attention = |layer: &SelfAttention| {
            norm("self-attention norm", &layer.norm)?;
            linear("self-attention query, key, value", &layer.query_key_value, 3 * width, width)?;
            linear("self-attention output", &layer.output, width, width)
        };
        let feed_forward = |layer: &FeedForward| {
            norm("feed-forward norm", &layer.norm)?;
            linear("feed-forward expansion", &layer.expand, 4 * width, width)?;
            linear("feed-forward contraction", &layer.contract, width, 4 * width)
        };
        shape("conv2", &self.conv2.weight, &[width, width, 3])?;
        norm("encoder norm", &self.encoder_norm)?;
        norm("decoder norm", &self.decoder_norm)?;
        shape("token embedding", &self.token_embedding, &[vocabulary, width])?;
        for (name, positions) in
            [("encoder positions", &self.encoder_positions), ("decoder positions", &self.decoder_positions)]
        {
            let length = positions.size().first().copied().unwrap_or(0);
            shape(name, positions, &[length, width])?;
        }
        for layer in &self.encoder_layers {
            attention(&layer.attention)?;
            feed_forward(&layer.feed_forward)?;
        }
        for layer in &self.decoder_layers {
            attention(&layer.attention)?;
            feed_forward(&layer.feed_forward)?;
            let cross = &layer.cross_attention;
            norm("cross-attention norm", &cross.norm)?;
            linear("cross-attention query", &cross.query, width, width)?;
            linear("cross-attention key, value", &cross.key_value, 2 * width, width)?;
            linear("cross-attention output", &cross.output, width, width)?;
        }
        let heads_divide = |heads: usize| heads > 0 && width % heads as i64 == 0;
        if !heads_divide(self.encoder_heads) || !heads_divide(self.decoder_heads) {
            return Err(Error::BadWeights(format!("width {width} does not divide into the heads")));
        }
        Ok(())
    }
}

fn shape(name: &str, tensor: &Tensor, expected: &[i64]) -> Result<(), Error> {
    let found = tensor.size();
    if found == expected {
        return Ok(());
    }
    Err(Error::BadWeights(format!("{name} has shape {found:?}, not {expected:?}")))
}

/// The product of `shape`; saturates, as the file may be damaged.
pub(super) fn elements(shape: &[usize]) -> usize {
    shape.iter().fold(1, |product, &length| product.saturating_mul(length))
}

/// An owned tensor from little-endian bytes.
pub(super) fn tensor_from_bytes(bytes: &[u8], shape: &[usize], kind: Kind) -> Result<Tensor, Error> {
    let shape: Vec<i64> = shape.iter().map(|&length| length as i64).collect();
    let elements: i64 = shape.iter().product();
    if elements as usize * kind.elt_size_in_bytes() != bytes.len() {
        return Err(Error::BadWeights(format!("{} bytes for shape {shape:?} of {kind:?}", bytes.len())));
    }
    Ok(Tensor::f_from_data_size(bytes, &shape, kind)?)
}
