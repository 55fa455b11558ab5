//! The layout of queries, keys and values in one product.

use std::ops::Range;

use crate::cpu::attention::HEAD;

/// The layout of a fused product.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    pub windows: usize,
    /// Positions of each window.
    pub length: usize,
    pub heads: usize,
}

impl Shape {
    #[inline]
    pub(super) fn width(&self) -> usize {
        self.heads * HEAD
    }

    /// The range of a head's query (0), key (1) or value (2) in the fused product.
    #[inline]
    pub(super) fn part(&self, window: usize, position: usize, head: usize, part: usize) -> Range<usize> {
        let start = (window * self.length + position) * 3 * self.width() + part * self.width() + head * HEAD;
        start..start + HEAD
    }
}
