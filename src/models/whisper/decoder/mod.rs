//! Whisper's text decoder over the key-value caches of all slots: by the kernels for the CPU, by libtorch, and by the
//! kernels for CUDA in bf16.
//!
//! Every call takes runs of tokens. A decode step is a run of one token for each slot; a prompt is a
//! run of several; both are the same computation.

mod audio_cache;
pub mod device;
#[cfg(test)]
mod exactness_tests;
pub mod host;
pub mod torch;

use std::ops::Range;

use super::tokenizer::TokenId;
use crate::engine::SlotId;

/// Consecutive tokens of one slot, to be appended at `position`.
pub struct Run<'a> {
    pub slot: SlotId,
    pub position: usize,
    pub tokens: &'a [TokenId],
}

/// Row-major (rows, tokens): of the whole vocabulary, or of a range of it.
pub struct Logits {
    pub values: Vec<f32>,
    pub vocabulary: usize,
}

impl Logits {
    /// Those of `tokens` alone.
    pub fn of(&self, tokens: Range<usize>) -> Self {
        let rows = self.values.chunks_exact(self.vocabulary);
        let values = rows.flat_map(|row| row.get(tokens.clone()).unwrap_or_default()).copied().collect();
        Self { values, vocabulary: tokens.len() }
    }

    pub fn rows_mut(&mut self) -> std::slice::ChunksExactMut<'_, f32> {
        self.values.chunks_exact_mut(self.vocabulary)
    }
}

/// Cross-attention of the alignment heads in one run: (heads, tokens, positions), after the softmax.
pub struct AlignmentWeights {
    pub values: Vec<f32>,
    pub heads: usize,
    pub tokens: usize,
    pub positions: usize,
}
