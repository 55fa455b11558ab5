//! The decoder as its kernels see it: sizes, the addresses of weights, and the memory that launches work on.

use tch::{Kind, Tensor};

use super::super::torch::{self, Placement};
use super::kept::Kept;
use crate::cuda::{ATTENTION_SPLIT, Address, HEAD, Outcome, Row, State, TrieNode};
use crate::models::Error;
use crate::models::whisper::bias::NODES_MAX;
use crate::models::whisper::layers::{LayerNorm, Linear};
use crate::models::whisper::rules::Table;

/// The fewest rows of the largest launch; long prompts run in parts of this many tokens.
const ROWS_MIN: usize = 64;
/// The widest norm that its kernel can compute.
const WIDTH_MAX: usize = 2048;

/// Rows of the largest launch for `slots`.
pub fn rows_max(slots: usize) -> usize {
    slots.next_power_of_two().max(ROWS_MIN)
}

/// Sizes, weights and buffers, as the kernels see them.
pub struct Network {
    pub slots: usize,
    pub rows_max: usize,
    pub(super) width: usize,
    pub(super) heads: usize,
    pub vocabulary: usize,
    pub(super) text_positions: usize,
    pub(super) audio_positions: usize,
    pub(super) table: Table,
    pub(super) suppressed: Tensor,
    pub(super) embedding: Address,
    pub(super) positions: Address,
    pub(super) norm: Norm,
    pub(super) layers: Vec<Layer>,
    pub buffers: Buffers,
    /// The scores of alignment heads, unless there are too many.
    pub(super) kept: Option<Kept>,
    /// Biases in f32, which the layers hold by address.
    _biases: Vec<Tensor>,
}

pub(super) struct Layer {
    pub(super) attention_norm: Norm,
    pub(super) query_key_value: Weight,
    pub(super) output: Weight,
    pub(super) cross_norm: Norm,
    pub(super) cross_query: Weight,
    pub(super) cross_output: Weight,
    pub(super) feed_forward_norm: Norm,
    pub(super) expand: Weight,
    pub(super) contract: Weight,
    pub(super) text_keys: Address,
    pub(super) text_values: Address,
    pub(super) audio_keys: Address,
    pub(super) audio_values: Address,
    /// The scales of keys and of values, where these are in fp8.
    pub(super) audio_scales: Option<[Address; 2]>,
    /// For each head its index among the alignment heads; null if none of them is one.
    pub(super) kept_heads: Address,
}

pub(super) struct Norm {
    pub(super) gamma: Address,
    pub(super) beta: Address,
}

pub(super) struct Weight {
    pub(super) weight: Address,
    pub(super) bias: Address,
    pub(super) inputs: usize,
    pub(super) outputs: usize,
}

/// Memory that a launch works on, for as many rows as the largest launch has.
pub struct Buffers {
    pub rows: Tensor,
    pub states: Tensor,
    /// (slots, bytes of [`NODES_MAX`]).
    pub tries: Tensor,
    /// Gains of tokens, set while one is chosen and 0 otherwise: (rows, vocabulary), f32.
    pub(super) gains: Tensor,
    /// Audio positions of each slot.
    pub lengths: Tensor,
    pub(super) positions: Tensor,
    /// The residual, f32.
    pub(super) x: Tensor,
    /// The input of a product, bf16: (rows, 4 · d) at most.
    pub(super) input: Tensor,
    /// The output of one, f32: (rows, 4 · d) at most.
    pub(super) product: Tensor,
    pub(super) parts: Tensor,
    /// (rows, vocabulary), f32.
    pub logits: Tensor,
    pub outcomes: Tensor,
}

impl Buffers {
    fn new(torch_device: tch::Device, slots: usize, rows: usize, widths: [usize; 3]) -> Result<Self, Error> {
        let [width, parts, vocabulary] = widths.map(|width| width as i64);
        let (slots, rows) = (slots as i64, rows as i64);
        let zeros = |size: [i64; 2], kind| Tensor::f_zeros(size, (kind, torch_device));
        Ok(Self {
            rows: zeros([rows, Row::BYTES as i64], Kind::Uint8)?,
            states: zeros([slots, State::BYTES as i64], Kind::Uint8)?,
            tries: zeros([slots, (NODES_MAX * TrieNode::BYTES) as i64], Kind::Uint8)?,
            gains: zeros([rows, vocabulary], Kind::Float)?,
            lengths: zeros([slots, 1], Kind::Int)?,
            positions: zeros([rows, 1], Kind::Int)?,
            x: zeros([rows, width], Kind::Float)?,
            input: zeros([rows, 4 * width], Kind::BFloat16)?,
            product: zeros([rows, 4 * width], Kind::Float)?,
            parts: zeros([rows, parts], Kind::Float)?,
            logits: zeros([rows, vocabulary], Kind::Float)?,
            outcomes: zeros([rows, Outcome::BYTES as i64], Kind::Uint8)?,
        })
    }
}

/// # Safety
/// That of [`Address::new`]: the tensor is contiguous, of the size and type that the kernels which get the address
/// take it for, and outlives what is enqueued with it.
pub unsafe fn address(tensor: &Tensor) -> Address {
    // SAFETY: the caller's promise.
    unsafe { Address::new(tensor.data_ptr()) }
}

impl Network {
    pub fn new(
        base: &torch::Decoder,
        placement: &Placement,
        table: Table,
        heads: usize,
    ) -> Result<Self, Error> {
        let (vocabulary, width) = base.embedding.size2()?;
        let (text_positions, _) = base.positions.size2()?;
        let (width, vocabulary) = (width as usize, vocabulary as usize);
        if width != heads * HEAD || width > WIDTH_MAX || table.suppressed.len() != vocabulary {
            let refused = format!("{heads} heads, width {width}: not what the kernels are written for");
            return Err(Error::BadWeights(refused));
        }
        // SAFETY: weights and caches of `base`, or tensors of this network; both live in the decoder, which drops its
        // device first. They are contiguous, and `launch.rs` calls the kernels with their sizes and types.
        let address = |tensor: &Tensor| unsafe { address(tensor) };
        let mut biases = Vec::new();
        let mut weight = |linear: &Linear| -> Result<Weight, Error> {
            let (outputs, inputs) = linear.weight.size2()?;
            let bias = match &linear.bias {
                Some(bias) => {
                    let bias = bias.f_to_kind(Kind::Float)?.f_contiguous()?;
                    let at = address(&bias);
                    biases.push(bias);
                    at
                }
                None => Address::NULL,
            };
            let (inputs, outputs) = (inputs as usize, outputs as usize);
            Ok(Weight { weight: address(&linear.weight), bias, inputs, outputs })
        };
        let norm = |norm: &LayerNorm| Norm { gamma: address(&norm.gamma), beta: address(&norm.beta) };
        let half = |cache: &Tensor, index| Ok::<_, Error>(address(&cache.f_select(0, index)?));
        let mut layers = Vec::with_capacity(base.layers.len());
        let audio_positions = base.layers.first().map(|layer| layer.audio_cache.numbers.size()[3]);
        let audio_positions = audio_positions.unwrap_or(0) as usize;
        let kept = Kept::new(placement, [base.layers.len(), heads, audio_positions])?;
        for (index, layer) in base.layers.iter().enumerate() {
            let audio = &layer.audio_cache;
            layers.push(Layer {
                attention_norm: norm(&layer.attention_norm),
                query_key_value: weight(&layer.query_key_value)?,
                output: weight(&layer.output)?,
                cross_norm: norm(&layer.cross_norm),
                cross_query: weight(&layer.cross_query)?,
                cross_output: weight(&layer.cross_output)?,
                feed_forward_norm: norm(&layer.feed_forward.norm),
                expand: weight(&layer.feed_forward.expand)?,
                contract: weight(&layer.feed_forward.contract)?,
                text_keys: half(&layer.text_cache, 0)?,
                text_values: half(&layer.text_cache, 1)?,
                audio_keys: half(&audio.numbers, 0)?,
                audio_values: half(&audio.numbers, 1)?,
                audio_scales: match &audio.scales {
                    Some(scales) => Some([half(scales, 0)?, half(scales, 1)?]),
                    None => None,
                },
                kept_heads: match &kept {
                    Some(kept) => kept.indices_address(index)?,
                    None => Address::NULL,
                },
            });
        }
        let rows_max = rows_max(placement.slots);
        let parts = heads * audio_positions.div_ceil(ATTENTION_SPLIT) * (HEAD + 2);
        Ok(Self {
            slots: placement.slots,
            rows_max,
            width,
            heads,
            vocabulary,
            text_positions: text_positions as usize,
            audio_positions,
            suppressed: Tensor::from_slice(&table.suppressed).f_to_device(placement.torch_device)?,
            table,
            embedding: address(&base.embedding),
            positions: address(&base.positions),
            norm: norm(&base.norm),
            layers,
            buffers: Buffers::new(
                placement.torch_device,
                placement.slots,
                rows_max,
                [width, parts, vocabulary],
            )?,
            kept,
            _biases: biases,
        })
    }

    /// The size of a launch that `rows` fit into: a power of two.
    pub fn bucket(&self, rows: usize) -> usize {
        rows.next_power_of_two().min(self.rows_max)
    }
}
