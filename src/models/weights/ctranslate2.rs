//! CTranslate2's `model.bin`, binary version 6 (as faster-whisper models ship it).
//!
//! Little-endian: `u32` version · string spec · `u32` revision · `u32` count · variables (string
//! name, `u8` rank, `u32`×rank shape, `u8` type, `u32` bytes, data) · `u32` count · aliases
//! (string, string). A string is `u16` length including a closing NUL, then the bytes.
//! Source: CTranslate2 `src/models/model.cc`, `python/ctranslate2/specs/model_spec.py`.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

use tch::{Kind, Tensor};

use super::tensors::{
    CrossAttention, DecoderLayer, Dimensions, EncoderLayer, FeedForward, LayerNorm, Linear, SelfAttention,
    Weights, elements, tensor_from_bytes,
};
use crate::models::Error;

const BINARY_VERSION: u32 = 6;

pub fn read(path: &Path) -> Result<Weights, Error> {
    Variables::open(path)?.into_weights()
}

/// The dimensions of the model in `path`, without its weights.
pub fn dimensions(path: &Path) -> Result<Dimensions, Error> {
    let variables = Variables::open(path)?;
    let embedding = variables.get("decoder/embeddings/weight")?;
    Ok(Dimensions {
        width: embedding.shape.last().copied().unwrap_or(0),
        decoder_layers: variables.layers("decoder").len(),
        elements: variables.table.values().fold(0, |sum, found| sum.saturating_add(elements(&found.shape))),
    })
}

/// The position of a variable in the file.
struct Variable {
    shape: Vec<usize>,
    kind: u8,
    position: u64,
    length: usize,
}

/// The file's table. Data is read on demand: a memory map of the whole file would count as this process's memory,
/// beside the tensors made of it.
struct Variables {
    file: File,
    table: HashMap<String, Variable>,
}

struct Reader<'a> {
    file: BufReader<&'a File>,
    /// Bytes not read yet.
    left: u64,
}

impl Reader<'_> {
    fn take(&mut self, length: u64) -> Result<(), Error> {
        self.left =
            self.left.checked_sub(length).ok_or_else(|| Error::BadWeights("model.bin ends early".into()))?;
        Ok(())
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), Error> {
        self.take(bytes.len() as u64)?;
        self.file.read_exact(bytes).map_err(unreadable)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let mut array = [0; N];
        self.fill(&mut array)?;
        Ok(array)
    }

    fn u8(&mut self) -> Result<u8, Error> {
        Ok(self.array::<1>()?[0])
    }

    fn u32(&mut self) -> Result<u32, Error> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn string(&mut self) -> Result<String, Error> {
        let mut bytes = vec![0; usize::from(u16::from_le_bytes(self.array()?))];
        self.fill(&mut bytes)?;
        Ok(String::from_utf8_lossy(bytes.strip_suffix(b"\0").unwrap_or(&bytes)).into_owned())
    }

    fn skip(&mut self, length: u32) -> Result<(), Error> {
        self.take(u64::from(length))?;
        self.file.seek_relative(i64::from(length)).map_err(unreadable)
    }
}

fn unreadable(error: std::io::Error) -> Error {
    Error::BadWeights(format!("model.bin: {error}"))
}

impl Variables {
    fn open(path: &Path) -> Result<Self, Error> {
        let io = |source| Error::Io { path: path.to_owned(), source };
        let file = File::open(path).map_err(io)?;
        let length = file.metadata().map_err(io)?.len();
        let table = Self::table(&mut Reader { file: BufReader::new(&file), left: length }, length)?;
        Ok(Self { file, table })
    }

    fn table(reader: &mut Reader, file_length: u64) -> Result<HashMap<String, Variable>, Error> {
        let version = reader.u32()?;
        if version != BINARY_VERSION {
            return Err(Error::BadWeights(format!("model.bin has version {version}, not {BINARY_VERSION}")));
        }
        let spec = reader.string()?;
        if spec != "WhisperSpec" {
            return Err(Error::BadWeights(format!("model.bin holds a {spec}, not a WhisperSpec")));
        }
        reader.u32()?; // revision
        let mut table = HashMap::new();
        for _ in 0..reader.u32()? {
            let name = reader.string()?;
            let rank = reader.u8()?;
            let shape = (0..rank).map(|_| Ok(reader.u32()? as usize)).collect::<Result<Vec<_>, Error>>()?;
            let kind = reader.u8()?;
            let length = reader.u32()?;
            let position = file_length - reader.left;
            reader.skip(length)?;
            table.insert(name, Variable { shape, kind, position, length: length as usize });
        }
        // The only alias in use ties the output projection to the embedding, as in every Whisper model: read
        // just to check that the file is whole.
        for _ in 0..2 * u64::from(reader.u32()?) {
            reader.string()?;
        }
        Ok(table)
    }

    fn get(&self, name: &str) -> Result<&Variable, Error> {
        self.table.get(name).ok_or_else(|| Error::BadWeights(format!("model.bin lacks {name}")))
    }

    fn data(&self, variable: &Variable) -> Result<Vec<u8>, Error> {
        let mut data = vec![0; variable.length];
        self.file.read_exact_at(&mut data, variable.position).map_err(unreadable)?;
        Ok(data)
    }

    fn tensor(&self, name: &str) -> Result<Tensor, Error> {
        let variable = self.get(name)?;
        let kind = match variable.kind {
            0 => Kind::Float,
            1 => Kind::Int8,
            4 => Kind::Half,
            5 => Kind::BFloat16,
            other => return Err(Error::BadWeights(format!("{name} has type {other}"))),
        };
        let tensor = tensor_from_bytes(&self.data(variable)?, &variable.shape, kind)?;
        if kind != Kind::Int8 {
            return Ok(tensor);
        }
        // One scale for each output row (each kernel for a convolution): value = int8 / scale.
        let mut scale = self.tensor(&format!("{name}_scale"))?;
        while scale.dim() < tensor.dim() {
            scale = scale.f_unsqueeze(-1)?;
        }
        Ok(tensor.f_to_kind(Kind::Float)?.f_div(&scale)?)
    }

    /// A whole number stored as a scalar of any type.
    fn number(&self, name: &str) -> Result<usize, Error> {
        let data = self.data(self.get(name)?)?;
        let bad = || Error::BadWeights(format!("{name} is not a number"));
        let value = match *data.as_slice() {
            [a] => i64::from(a as i8),
            [a, b] => i64::from(i16::from_le_bytes([a, b])),
            [a, b, c, d] => i64::from(i32::from_le_bytes([a, b, c, d])),
            _ => return Err(bad()),
        };
        usize::try_from(value).map_err(|_| bad())
    }

    fn linear(&self, prefix: &str) -> Result<Linear, Error> {
        let bias = format!("{prefix}/bias");
        let bias = if self.table.contains_key(&bias) { Some(self.tensor(&bias)?) } else { None };
        Ok(Linear { weight: self.tensor(&format!("{prefix}/weight"))?, bias })
    }

    fn norm(&self, prefix: &str) -> Result<LayerNorm, Error> {
        Ok(LayerNorm {
            gamma: self.tensor(&format!("{prefix}/gamma"))?,
            beta: self.tensor(&format!("{prefix}/beta"))?,
        })
    }

    fn self_attention(&self, layer: &str) -> Result<SelfAttention, Error> {
        Ok(SelfAttention {
            norm: self.norm(&format!("{layer}/self_attention/layer_norm"))?,
            query_key_value: self.linear(&format!("{layer}/self_attention/linear_0"))?,
            output: self.linear(&format!("{layer}/self_attention/linear_1"))?,
        })
    }

    fn feed_forward(&self, layer: &str) -> Result<FeedForward, Error> {
        Ok(FeedForward {
            norm: self.norm(&format!("{layer}/ffn/layer_norm"))?,
            expand: self.linear(&format!("{layer}/ffn/linear_0"))?,
            contract: self.linear(&format!("{layer}/ffn/linear_1"))?,
        })
    }

    /// Prefixes of the consecutive layers of `side` that the file has.
    fn layers(&self, side: &str) -> Vec<String> {
        (0..)
            .map(|index| format!("{side}/layer_{index}"))
            .take_while(|layer| self.table.contains_key(&format!("{layer}/ffn/linear_0/weight")))
            .collect()
    }

    fn into_weights(self) -> Result<Weights, Error> {
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
                    norm: self.norm(&format!("{layer}/attention/layer_norm"))?,
                    query: self.linear(&format!("{layer}/attention/linear_0"))?,
                    key_value: self.linear(&format!("{layer}/attention/linear_1"))?,
                    output: self.linear(&format!("{layer}/attention/linear_2"))?,
                },
                feed_forward: self.feed_forward(&layer)?,
            })
        });
        Ok(Weights {
            conv1: self.linear("encoder/conv1")?,
            conv2: self.linear("encoder/conv2")?,
            encoder_positions: self.tensor("encoder/position_encodings/encodings")?,
            encoder_layers: encoder_layers.collect::<Result<_, Error>>()?,
            encoder_norm: self.norm("encoder/layer_norm")?,
            token_embedding: self.tensor("decoder/embeddings/weight")?,
            decoder_positions: self.tensor("decoder/position_encodings/encodings")?,
            decoder_layers: decoder_layers.collect::<Result<_, Error>>()?,
            decoder_norm: self.norm("decoder/layer_norm")?,
            encoder_heads: self.number("encoder/num_heads")?,
            decoder_heads: self.number("decoder/num_heads")?,
        })
    }
}
