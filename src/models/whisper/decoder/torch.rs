//! The decoder in libtorch's operations: for number formats that the CUDA kernels do not cover, and for the parts of
//! the work that they leave to libtorch.

use tch::{Device, Kind, Tensor};

use super::super::layers::{FeedForward, LayerNorm, Linear};
use super::audio_cache::AudioCache;
use super::{AlignmentWeights, Logits, Run};
use crate::cuda::{Address, Span};
use crate::engine::SlotId;
use crate::models::{Error, weights};

/// Where the decoder lives, how large it is and in which number formats.
#[derive(Clone)]
pub struct Placement {
    pub slots: usize,
    pub torch_device: Device,
    /// Number format of the encoder's output, the weights and the text cache.
    pub kind: Kind,
    /// Number format of the audio cache: `kind`, or e4m3.
    pub audio_kind: Kind,
    /// (layer, head), by layer.
    pub alignment_heads: Vec<(usize, usize)>,
}

pub struct Decoder {
    /// (vocabulary, d)
    pub(super) embedding: Tensor,
    /// (text positions, d)
    pub(super) positions: Tensor,
    pub(super) layers: Vec<Layer>,
    pub(super) norm: LayerNorm,
    heads: i64,
    /// For each slot, the audio positions that its cross-attention sees.
    audio_lengths: Vec<i64>,
    /// (layer, head), by layer.
    alignment_heads: Vec<(usize, usize)>,
}

pub(super) struct Layer {
    pub attention_norm: LayerNorm,
    pub query_key_value: Linear,
    pub output: Linear,
    pub cross_norm: LayerNorm,
    pub cross_query: Linear,
    cross_key_value: Linear,
    pub cross_output: Linear,
    pub feed_forward: FeedForward,
    /// Keys and values of the text so far: (2, slots, heads, text positions, d / heads)
    pub text_cache: Tensor,
    pub audio_cache: AudioCache,
}

impl Decoder {
    pub fn new(weights: &weights::Weights, placement: Placement) -> Result<Self, Error> {
        let Placement { slots, torch_device, kind, audio_kind, alignment_heads } = placement;
        let convert = |tensor: &Tensor, kind| tensor.f_to_device(torch_device)?.f_to_kind(kind);
        let heads = weights.decoder_heads as i64;
        let (text_positions, width) = weights.decoder_positions.size2()?;
        let (audio_positions, _) = weights.encoder_positions.size2()?;
        let size = |length: i64| [2, slots as i64, heads, length, width / heads];
        let layers = weights.decoder_layers.iter().map(|layer| {
            Ok(Layer {
                attention_norm: LayerNorm::new(&layer.attention.norm, torch_device, kind)?,
                query_key_value: Linear::new(&layer.attention.query_key_value, torch_device, kind)?,
                output: Linear::new(&layer.attention.output, torch_device, kind)?,
                cross_norm: LayerNorm::new(&layer.cross_attention.norm, torch_device, kind)?,
                cross_query: Linear::new(&layer.cross_attention.query, torch_device, kind)?,
                cross_key_value: Linear::new(&layer.cross_attention.key_value, torch_device, kind)?,
                cross_output: Linear::new(&layer.cross_attention.output, torch_device, kind)?,
                feed_forward: FeedForward::new(&layer.feed_forward, torch_device, kind)?,
                text_cache: Tensor::f_zeros(size(text_positions), (kind, torch_device))?,
                audio_cache: AudioCache::new(size(audio_positions), (audio_kind, torch_device))?,
            })
        });
        Ok(Self {
            embedding: convert(&weights.token_embedding, kind)?,
            positions: convert(&weights.decoder_positions, Kind::Float)?,
            layers: layers.collect::<Result<_, Error>>()?,
            norm: LayerNorm::new(&weights.decoder_norm, torch_device, kind)?,
            heads,
            audio_lengths: vec![0; slots],
            alignment_heads,
        })
    }

    /// Fills the audio caches of `slots` from the encoder's output (windows, audio positions, d).
    pub fn set_audio(&mut self, slots: &[SlotId], audio: &Tensor) -> Result<(), Error> {
        let (windows, length, width) = audio.size3()?;
        for layer in &self.layers {
            let fused = layer.cross_key_value.forward(audio)?;
            // (windows, length, 2, heads, d / heads) to (2, windows, heads, length, d / heads)
            let fused = fused
                .f_view([windows, length, 2, self.heads, width / self.heads])?
                .f_permute([2, 0, 3, 1, 4])?;
            layer.audio_cache.write(slots, &fused)?;
        }
        for slot in slots {
            self.audio_lengths[slot.0] = length;
        }
        Ok(())
    }

    /// The memory that [`Decoder::set_audio`] writes for one slot, and that of the slot's number in `lengths`.
    pub(super) fn audio_spans(&self, slot: SlotId, lengths: &Tensor) -> Vec<Span> {
        let whole = |tensor: Tensor| {
            let bytes = tensor.numel() * tensor.kind().elt_size_in_bytes();
            // SAFETY: contiguous memory, of as many bytes, in a tensor that the decoder keeps.
            (unsafe { Address::new(tensor.data_ptr()) }, bytes)
        };
        let caches = self.layers.iter().map(|layer| &layer.audio_cache);
        let tensors = caches.flat_map(|cache| [Some(&cache.numbers), cache.scales.as_ref()]).flatten();
        let of_slot = |tensor: &Tensor| tensor.get(slot.0 as i64);
        let halves = tensors.flat_map(|tensor| [0, 1].map(|half| of_slot(&tensor.get(half))));
        halves.chain([of_slot(lengths)]).map(whole).collect()
    }

    /// Runs `runs` and returns logits. `wanted`: indices into the tokens of all runs, in order.
    pub fn forward(&mut self, runs: &[Run], wanted: &[usize]) -> Result<Logits, Error> {
        let x = self.hidden(runs, self.layers.len(), None)?;
        let wanted: Vec<i64> = wanted.iter().map(|&row| row as i64).collect();
        let x = x.f_index_select(0, &Tensor::from_slice(&wanted).f_to_device(x.device())?)?;
        let logits = self.norm.forward(&x)?.f_linear(&self.embedding, None::<&Tensor>)?;
        let (_, vocabulary) = logits.size2()?;
        Ok(Logits { values: plain(&logits)?, vocabulary: vocabulary as usize })
    }

    /// Runs `runs` as far as the last layer that has alignment heads and returns their attention.
    pub fn alignment(&mut self, runs: &[Run]) -> Result<Vec<AlignmentWeights>, Error> {
        let layers = self.alignment_heads.iter().map(|&(layer, _)| layer + 1).max().unwrap_or(0);
        let mut collected = runs.iter().map(|_| Vec::new()).collect::<Vec<_>>();
        let _ = self.hidden(runs, layers, Some(&mut collected))?;
        let of_run = |heads: &Vec<Tensor>| {
            let weights = Tensor::f_stack(heads, 0)?;
            let (heads, tokens, positions) = weights.size3()?;
            Ok(AlignmentWeights {
                values: plain(&weights)?,
                heads: heads as usize,
                tokens: tokens as usize,
                positions: positions as usize,
            })
        };
        collected.iter().map(of_run).collect()
    }

    pub(super) fn hidden(
        &mut self,
        runs: &[Run],
        layers: usize,
        mut collected: Option<&mut Vec<Vec<Tensor>>>,
    ) -> Result<Tensor, Error> {
        let tokens: Vec<i64> =
            runs.iter().flat_map(|run| run.tokens).map(|&token| i64::from(token)).collect();
        let positions: Vec<i64> =
            runs.iter().flat_map(|run| (run.position as i64..).take(run.tokens.len())).collect();
        let device = self.embedding.device();
        let gather = |table: &Tensor, indices: &[i64]| {
            table.f_index_select(0, &Tensor::from_slice(indices).f_to_device(device)?)
        };
        let mut x = gather(&self.embedding, &tokens)?.f_add(&gather(&self.positions, &positions)?)?;
        for (index, layer) in self.layers.iter().enumerate().take(layers) {
            let fused = layer.query_key_value.forward(&layer.attention_norm.forward(&x)?)?;
            let attended = self.text_attention(layer, runs, &fused)?;
            x = x.f_add(&layer.output.forward(&attended)?)?;

            let query = layer.cross_query.forward(&layer.cross_norm.forward(&x)?)?;
            let wanted_heads: Vec<i64> =
                self.alignment_heads.iter().filter(|(l, _)| *l == index).map(|&(_, h)| h as i64).collect();
            let collected = collected.as_deref_mut().filter(|_| !wanted_heads.is_empty());
            let attended =
                self.audio_attention(layer, runs, &query, collected.map(|c| (&wanted_heads[..], c)))?;
            x = x.f_add(&layer.cross_output.forward(&attended)?)?;
            x = x.f_add(&layer.feed_forward.forward(&x)?)?;
        }
        Ok(x)
    }

    /// (rows, d) to (heads, rows, d / heads)
    fn split_heads(&self, rows: &Tensor) -> Result<Tensor, Error> {
        let (length, width) = rows.size2()?;
        Ok(rows.f_view([length, self.heads, width / self.heads])?.f_transpose(0, 1)?)
    }

    /// (heads, rows, d / heads) to (rows, d)
    fn join_heads(&self, heads: &Tensor) -> Result<Tensor, Error> {
        let (count, length, width) = heads.size3()?;
        Ok(heads.f_transpose(0, 1)?.f_reshape([length, count * width])?)
    }

    pub(super) fn text_attention(
        &self,
        layer: &Layer,
        runs: &[Run],
        fused: &Tensor,
    ) -> Result<Tensor, Error> {
        let width = fused.size()[1] / 3;
        let mut attended = Vec::with_capacity(runs.len());
        let mut row = 0;
        for run in runs {
            let (count, position) = (run.tokens.len() as i64, run.position as i64);
            let part = |index| {
                self.split_heads(
                    &fused.f_narrow(0, row, count)?.f_narrow(1, index * width, width)?.f_contiguous()?,
                )
            };
            let cache = layer.text_cache.f_select(1, run.slot.0 as i64)?;
            for (index, side) in [(1, 0), (2, 1)] {
                cache.f_select(0, side)?.f_narrow(1, position, count)?.f_copy_(&part(index)?)?;
            }
            let cache = cache.f_narrow(2, 0, position + count)?;
            // Row i of the run sees everything up to position + i.
            let mask = (count > 1).then(|| -> Result<Tensor, Error> {
                let all = Tensor::f_ones([count, position + count], (Kind::Bool, fused.device()))?;
                Ok(all.f_tril(position)?)
            });
            let (keys, values) = (cache.f_select(0, 0)?, cache.f_select(0, 1)?);
            attended
                .push(self.join_heads(&attention(&part(0)?, &keys, &values, mask.transpose()?.as_ref())?.1)?);
            row += count;
        }
        Ok(Tensor::f_cat(&attended, 0)?)
    }

    pub(super) fn audio_attention(
        &self,
        layer: &Layer,
        runs: &[Run],
        query: &Tensor,
        mut collected: Option<(&[i64], &mut Vec<Vec<Tensor>>)>,
    ) -> Result<Tensor, Error> {
        let mut attended = Vec::with_capacity(runs.len());
        let mut row = 0;
        for (index, run) in runs.iter().enumerate() {
            let count = run.tokens.len() as i64;
            let query = self.split_heads(&query.f_narrow(0, row, count)?)?;
            let length = self.audio_lengths[run.slot.0];
            let cache = layer.audio_cache.read(run.slot.0 as i64, length, query.kind())?;
            let (weights, output) = attention(&query, &cache.f_select(0, 0)?, &cache.f_select(0, 1)?, None)?;
            if let Some((heads, collected)) = &mut collected {
                for &head in *heads {
                    collected[index].push(weights.f_select(0, head)?);
                }
            }
            attended.push(self.join_heads(&output)?);
            row += count;
        }
        Ok(Tensor::f_cat(&attended, 0)?)
    }
}

fn plain(tensor: &Tensor) -> Result<Vec<f32>, Error> {
    let tensor = tensor.f_to_kind(Kind::Float)?.f_to_device(Device::Cpu)?.f_contiguous()?;
    Ok(Vec::<f32>::try_from(tensor.f_view([-1])?)?)
}

/// Softmax(query · keyᵀ / √d) and its product with the values. All (heads, length, d); `mask` is
/// true where a query may look. Written out: libtorch's fused form is slower for few queries.
fn attention(
    query: &Tensor,
    key: &Tensor,
    value: &Tensor,
    mask: Option<&Tensor>,
) -> Result<(Tensor, Tensor), Error> {
    let scale = (query.size()[2] as f64).powf(-0.5);
    let mut scores = query.f_mul_scalar(scale)?.f_matmul(&key.f_transpose(1, 2)?)?;
    if let Some(mask) = mask {
        scores = scores.f_masked_fill(&mask.f_logical_not()?, f64::NEG_INFINITY)?;
    }
    let weights = scores.f_softmax(-1, scores.kind())?;
    let output = weights.f_matmul(value)?;
    Ok((weights, output))
}
