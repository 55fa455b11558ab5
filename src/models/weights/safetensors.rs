//! Hugging Face layout: `model.safetensors`, or the shards that `model.safetensors.index.json`
//! names. Tensor names as in transformers' `WhisperForConditionalGeneration`.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};
use serde::Deserialize;
use tch::{Kind, Tensor};

use super::tensors::{
    CrossAttention, DecoderLayer, Dimensions, EncoderLayer, FeedForward, LayerNorm, Linear, SelfAttention,
    Weights, elements, tensor_from_bytes,
};
use crate::models::Error;

/// In bytes, as in the reference implementation.
const HEADER_LIMIT: u64 = 100_000_000;

#[derive(Deserialize)]
struct Index {
    /// Tensor name → file name.
    weight_map: HashMap<String, String>,
}

/// The numbers of heads, which no tensor shows.
#[derive(Deserialize)]
struct Config {
    encoder_attention_heads: usize,
    decoder_attention_heads: usize,
}

pub fn read(folder: &Path) -> Result<Weights, Error> {
    let mut tensors = Tensors(HashMap::new());
    for file in files(folder)? {
        tensors.load(&file)?;
    }
    tensors.into_weights(&read_json(&folder.join("config.json"))?)
}

/// The dimensions of the model in `folder`, without its weights.
pub fn dimensions(folder: &Path) -> Result<Dimensions, Error> {
    let mut dimensions = Dimensions { width: 0, decoder_layers: 0, elements: 0 };
    for file in files(folder)? {
        each_tensor(&file, |_, name, info, _| {
            dimensions.elements = dimensions.elements.saturating_add(elements(&info.shape));
            if name == "decoder.embed_tokens.weight" {
                dimensions.width = info.shape.last().copied().unwrap_or(0);
            }
            let layer = name.starts_with("decoder.layers.") && name.ends_with(".fc1.weight");
            dimensions.decoder_layers += usize::from(layer);
            Ok(())
        })?;
    }
    Ok(dimensions)
}

/// The one file, or the shards.
fn files(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let single = folder.join("model.safetensors");
    if single.is_file() {
        return Ok(vec![single]);
    }
    let index = folder.join("model.safetensors.index.json");
    if !index.is_file() {
        return Err(Error::NoWeights { folder: folder.to_owned() });
    }
    let index: Index = read_json(&index)?;
    let mut shards: Vec<&String> = index.weight_map.values().collect();
    shards.sort();
    shards.dedup();
    // A name from the index must not lead out of the folder.
    let inside = |shard: &String| match Path::new(shard).components().count() {
        1 => Ok(folder.join(shard)),
        _ => Err(Error::BadWeights(format!("shard name {shard:?}"))),
    };
    shards.into_iter().map(inside).collect()
}

/// The tensors of the file at `path` by name, without the names' common prefix, and the position of each one's data.
///
/// Format: `u64` length of the header, the header (JSON), data. Source: github.com/huggingface/safetensors.
fn each_tensor(
    path: &Path,
    mut each: impl FnMut(&File, &str, &TensorInfo, u64) -> Result<(), Error>,
) -> Result<(), Error> {
    let io = |source| Error::Io { path: path.to_owned(), source };
    let bad = |reason: &str| Error::BadWeights(format!("{}: {reason}", path.display()));
    let file = File::open(path).map_err(io)?;
    let length = file.metadata().map_err(io)?.len();
    let mut header_length = [0; 8];
    file.read_exact_at(&mut header_length, 0).map_err(|_| bad("ends early"))?;
    let header_length = u64::from_le_bytes(header_length);
    if header_length > length.min(HEADER_LIMIT) {
        return Err(bad("ends early, or is none"));
    }
    let mut header = vec![0; header_length as usize];
    file.read_exact_at(&mut header, 8).map_err(|_| bad("ends early"))?;
    // Deserialising checks that the tensors follow one another and are as long as their shapes say.
    let metadata: Metadata = serde_json::from_slice(&header).map_err(|error| bad(&error.to_string()))?;
    if (8 + header_length).saturating_add(metadata.data_len() as u64) != length {
        return Err(bad("ends early"));
    }
    for (name, info) in metadata.tensors() {
        let position = 8 + header_length + info.data_offsets.0 as u64;
        each(&file, name.strip_prefix("model.").unwrap_or(&name), info, position)?;
    }
    Ok(())
}

fn read_json<T: for<'de> Deserialize<'de>>(path: &Path) -> Result<T, Error> {
    let text = std::fs::read(path).map_err(|source| Error::Io { path: path.to_owned(), source })?;
    serde_json::from_slice(&text).map_err(|source| Error::BadJson { path: path.to_owned(), source })
}

struct Tensors(HashMap<String, Tensor>);

impl Tensors {
    fn load(&mut self, path: &Path) -> Result<(), Error> {
        each_tensor(path, |file, name, info, position| {
            let kind = match info.dtype {
                Dtype::F32 => Kind::Float,
                Dtype::F16 => Kind::Half,
                Dtype::BF16 => Kind::BFloat16,
                other => return Err(Error::BadWeights(format!("{name} has type {other:?}"))),
            };
            let mut data = vec![0; info.data_offsets.1 - info.data_offsets.0];
            file.read_exact_at(&mut data, position)
                .map_err(|source| Error::Io { path: path.to_owned(), source })?;
            let tensor = tensor_from_bytes(&data, &info.shape, kind)?;
            self.0.insert(name.to_owned(), tensor);
            Ok(())
        })
    }

    fn tensor(&self, name: &str) -> Result<Tensor, Error> {
        let found =
            self.0.get(name).ok_or_else(|| Error::BadWeights(format!("the checkpoint lacks {name}")))?;
        Ok(found.shallow_clone())
    }

    fn linear(&self, prefix: &str) -> Result<Linear, Error> {
        let bias = self.0.get(&format!("{prefix}.bias")).map(Tensor::shallow_clone);
        Ok(Linear { weight: self.tensor(&format!("{prefix}.weight"))?, bias })
    }

    fn norm(&self, prefix: &str) -> Result<LayerNorm, Error> {
        Ok(LayerNorm {
            gamma: self.tensor(&format!("{prefix}.weight"))?,
            beta: self.tensor(&format!("{prefix}.bias"))?,
        })
    }

    /// Several projections of the same input as one; a missing bias (the key's) is zero.
    fn fused(&self, prefix: &str, projections: &[&str]) -> Result<Linear, Error> {
        let parts = projections
            .iter()
            .map(|name| self.linear(&format!("{prefix}.{name}")))
            .collect::<Result<Vec<_>, _>>()?;
        let biases = parts
            .iter()
            .map(|part| match &part.bias {
                Some(bias) => Ok(bias.shallow_clone()),
                None => {
                    let outputs = part.weight.size().first().copied().unwrap_or(0);
                    Tensor::f_zeros([outputs], (part.weight.kind(), part.weight.device()))
                }
            })
            .collect::<Result<Vec<_>, _>>()?;
        let weights: Vec<&Tensor> = parts.iter().map(|part| &part.weight).collect();
        Ok(Linear { weight: Tensor::f_cat(&weights, 0)?, bias: Some(Tensor::f_cat(&biases, 0)?) })
    }

    fn self_attention(&self, layer: &str) -> Result<SelfAttention, Error> {
        Ok(SelfAttention {
            norm: self.norm(&format!("{layer}.self_attn_layer_norm"))?,
            query_key_value: self.fused(&format!("{layer}.self_attn"), &["q_proj", "k_proj", "v_proj"])?,
            output: self.linear(&format!("{layer}.self_attn.out_proj"))?,
        })
    }

    fn feed_forward(&self, layer: &str) -> Result<FeedForward, Error> {
        Ok(FeedForward {
            norm: self.norm(&format!("{layer}.final_layer_norm"))?,
            expand: self.linear(&format!("{layer}.fc1"))?,
            contract: self.linear(&format!("{layer}.fc2"))?,
        })
    }

    fn layers(&self, side: &str) -> Vec<String> {
        (0..)
            .map(|index| format!("{side}.layers.{index}"))
            .take_while(|layer| self.0.contains_key(&format!("{layer}.fc1.weight")))
            .collect()
    }

    fn into_weights(self, config: &Config) -> Result<Weights, Error> {
        let encoder_layers = self.layers("encoder").into_iter().map(|layer| {
            Ok(EncoderLayer {
                attention: self.self_attention(&layer)?,
                feed_forward: self.feed_forward(&layer)?,
            })
        });
        let decoder_layers = self.layers("decoder").into_iter().map(|layer| {
            Ok(DecoderLayer {
                attention: self.self_attention(&layer)?,
                cross_attention: CrossAttention {
                    norm: self.norm(&format!("{layer}.encoder_attn_layer_norm"))?,
                    query: self.linear(&format!("{layer}.encoder_attn.q_proj"))?,
                    key_value: self.fused(&format!("{layer}.encoder_attn"), &["k_proj", "v_proj"])?,
                    output: self.linear(&format!("{layer}.encoder_attn.out_proj"))?,
                },
                feed_forward: self.feed_forward(&layer)?,
            })
        });
        Ok(Weights {
            conv1: self.linear("encoder.conv1")?,
            conv2: self.linear("encoder.conv2")?,
            encoder_positions: self.tensor("encoder.embed_positions.weight")?,
            encoder_layers: encoder_layers.collect::<Result<_, Error>>()?,
            encoder_norm: self.norm("encoder.layer_norm")?,
            token_embedding: self.tensor("decoder.embed_tokens.weight")?,
            decoder_positions: self.tensor("decoder.embed_positions.weight")?,
            decoder_layers: decoder_layers.collect::<Result<_, Error>>()?,
            decoder_norm: self.norm("decoder.layer_norm")?,
            encoder_heads: config.encoder_attention_heads,
            decoder_heads: config.decoder_attention_heads,
        })
    }
}
