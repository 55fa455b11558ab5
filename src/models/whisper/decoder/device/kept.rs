//! The scores of the alignment heads that the device keeps while tokens are chosen, and the memory to make costs of them.

use tch::{Kind, Tensor};

use super::super::torch::Placement;
use crate::cuda::{Address, Alignment, KEPT_ROWS};
use crate::models::Error;

/// With more alignment heads no scores are kept, as they would take too much memory: large-v2 has the most of the known
/// models, 23.
const HEADS_MAX: usize = 32;
/// Requests of one launch. With more, launches follow one another in the same memory.
pub(super) const REQUESTS: usize = 8;

/// Alignment heads whose scores are kept, of `heads`: all or none.
pub fn kept_heads(heads: usize) -> usize {
    if heads <= HEADS_MAX { heads } else { 0 }
}

/// The scores of the alignment heads, and the memory to make costs of them.
pub struct Kept {
    pub(super) heads: usize,
    /// For each head of each layer its index among the alignment heads, or -1: (layers, heads).
    indices: Tensor,
    layers: Vec<bool>,
    /// (slots, alignment heads, [`KEPT_ROWS`], audio positions), f32. Rows by text position modulo their number.
    pub(super) scores: Tensor,
    /// [`Alignment`]s, then the text positions of all rows.
    pub(super) requests: Tensor,
    pub(super) softmax: Tensor,
    pub(super) columns: Tensor,
    pub(super) costs: Tensor,
    pub(super) audio_positions: usize,
}

impl Kept {
    /// `None` without alignment heads, or with too many.
    pub fn new(
        placement: &Placement,
        [layers, heads, audio_positions]: [usize; 3],
    ) -> Result<Option<Self>, Error> {
        let kept = kept_heads(placement.alignment_heads.len());
        if kept == 0 {
            return Ok(None);
        }
        let mut indices = vec![-1; layers * heads];
        let mut has_any = vec![false; layers];
        for (index, &(layer, head)) in placement.alignment_heads.iter().enumerate() {
            indices[layer * heads + head] = index as i32;
            has_any[layer] = true;
        }
        let device = placement.torch_device;
        let rows = (REQUESTS * KEPT_ROWS) as i64;
        let (slots, kept_there, positions) = (placement.slots as i64, kept as i64, audio_positions as i64);
        // Written before it is read.
        let memory = |size: &[i64], kind| Tensor::f_empty(size, (kind, device));
        Ok(Some(Self {
            heads: kept,
            indices: Tensor::from_slice(&indices).f_to_device(device)?,
            layers: has_any,
            scores: memory(&[slots, kept_there, KEPT_ROWS as i64, positions], Kind::Float)?,
            requests: memory(&[(REQUESTS * Alignment::BYTES) as i64 + 4 * rows], Kind::Uint8)?,
            softmax: memory(&[rows, kept_there, 2], Kind::Float)?,
            columns: memory(&[REQUESTS as i64, kept_there, 2, positions], Kind::Float)?,
            costs: memory(&[rows, positions], Kind::Float)?,
            audio_positions,
        }))
    }

    pub(super) fn scores_address(&self) -> Address {
        // SAFETY: contiguous f32 numbers of the size that `attention.cu` says, in a tensor of the network, which the
        // decoder drops after its device.
        unsafe { Address::new(self.scores.data_ptr()) }
    }

    /// The indices of a layer's heads; null if it has no alignment head.
    pub(super) fn indices_address(&self, layer: usize) -> Result<Address, Error> {
        if !self.layers[layer] {
            return Ok(Address::NULL);
        }
        let first = self.indices.f_narrow(0, (layer * self.heads_of_layer()) as i64, 1)?;
        // SAFETY: a contiguous row of the table, which is a tensor of the network, as above.
        Ok(unsafe { Address::new(first.data_ptr()) })
    }

    fn heads_of_layer(&self) -> usize {
        self.indices.numel() / self.layers.len().max(1)
    }
}
