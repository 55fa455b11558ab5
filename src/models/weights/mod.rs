//! Whisper checkpoints: reads either layout on disk into one set of named tensors.
//!
//! | folder | files |
//! |---|---|
//! | Hugging Face | `model.safetensors` (or shards with an index), `config.json`, `tokenizer.json` |
//! | CTranslate2 | `model.bin`, `config.json`, `tokenizer.json` |

mod ctranslate2;
mod random;
mod safetensors;

use std::path::Path;

use tch::{Kind, Tensor};

use super::Error;

#[cfg(test)]
pub use random::of_numbers;
pub use random::{DEVIATION, Shape, random};

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

/// The dimensions of the model in `folder`, without reading its weights.
///
/// # Errors
/// As [`read`], where the file's table of contents shows it.
pub fn dimensions(folder: &Path) -> Result<Dimensions, Error> {
    if folder.join("model.bin").is_file() {
        ctranslate2::dimensions(&folder.join("model.bin"))
    } else {
        safetensors::dimensions(folder)
    }
}

/// The product of `shape`; saturates, as the file may be damaged.
fn elements(shape: &[usize]) -> usize {
    shape.iter().fold(1, |product, &length| product.saturating_mul(length))
}

/// Reads the checkpoint in `folder`, in either layout.
///
/// # Errors
/// [`Error::NoWeights`] without a file of weights; [`Error::BadWeights`] if the file is damaged, or a tensor is missing
/// or has a shape that contradicts the others.
pub fn read(folder: &Path) -> Result<Weights, Error> {
    let weights = if folder.join("model.bin").is_file() {
        ctranslate2::read(&folder.join("model.bin"))?
    } else if folder.join("model.safetensors").is_file()
        || folder.join("model.safetensors.index.json").is_file()
    {
        safetensors::read(folder)?
    } else {
        return Err(Error::NoWeights { folder: folder.to_owned() });
    };
    weights.check()?;
    Ok(weights)
}

impl Weights {
    /// Checks that every shape follows from the first few, so that an inconsistent file fails here and not deep
    /// inside a product.
    fn check(&self) -> Result<(), Error> {
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

/// Owned tensor from little-endian bytes.
fn tensor_from_bytes(bytes: &[u8], shape: &[usize], kind: Kind) -> Result<Tensor, Error> {
    let shape: Vec<i64> = shape.iter().map(|&length| length as i64).collect();
    let elements: i64 = shape.iter().product();
    if elements as usize * kind.elt_size_in_bytes() != bytes.len() {
        return Err(Error::BadWeights(format!("{} bytes for shape {shape:?} of {kind:?}", bytes.len())));
    }
    Ok(Tensor::f_from_data_size(bytes, &shape, kind)?)
}
