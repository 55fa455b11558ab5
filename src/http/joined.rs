//! Pieces of a body, joined once.

use bytes::{Bytes, BytesMut};

/// Memory is allocated in blocks of this length while a body arrives, so that there is never more than the body and one
/// block; a buffer that doubles holds three times as much when it moves.
const BLOCK_BYTES: usize = 1 << 20;
const BLOCK_BYTES_MIN: usize = 16 << 10;

/// Pieces that become one [`Bytes`]. A single piece is passed on without a copy.
#[derive(Default)]
pub struct Joined {
    only: Bytes,
    blocks: Vec<BytesMut>,
    len: usize,
}

impl Joined {
    pub fn add(&mut self, piece: Bytes) {
        if piece.is_empty() {
            return;
        }
        self.len += piece.len();
        if self.only.is_empty() && self.blocks.is_empty() {
            self.only = piece;
            return;
        }
        let only = std::mem::take(&mut self.only);
        self.append(&only);
        self.append(&piece);
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All pieces. While they are copied, each block is freed after it.
    pub fn finish(mut self) -> Bytes {
        match self.blocks.len() {
            0 => self.only,
            1 => self.blocks.remove(0).freeze(),
            _ => {
                let mut joined = BytesMut::with_capacity(self.len);
                for block in self.blocks {
                    joined.extend_from_slice(&block);
                }
                joined.freeze()
            }
        }
    }

    /// All pieces, without copying them.
    pub fn into_blocks(self) -> impl Iterator<Item = Bytes> {
        std::iter::once(self.only).chain(self.blocks.into_iter().map(BytesMut::freeze))
    }

    fn append(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let spare = self.blocks.last().map_or(0, |block| block.capacity() - block.len());
            if spare == 0 {
                let block = self.len.clamp(BLOCK_BYTES_MIN, BLOCK_BYTES);
                self.blocks.push(BytesMut::with_capacity(block));
                continue;
            }
            let Some(block) = self.blocks.last_mut() else { return };
            let (now, later) = bytes.split_at(spare.min(bytes.len()));
            block.extend_from_slice(now);
            bytes = later;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_single_piece_is_not_copied() {
        let piece = Bytes::from(vec![7; 100]);
        let mut joined = Joined::default();
        joined.add(Bytes::new());
        joined.add(piece.clone());
        let whole = joined.finish();
        assert_eq!((whole.as_ptr(), whole.len()), (piece.as_ptr(), 100));
        assert!(Joined::default().finish().is_empty());
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_nothing_moves(lengths in prop::collection::vec(0usize..700_000, 0..12)) {
            let mut joined = Joined::default();
            let mut expected = Vec::new();
            for (number, length) in lengths.into_iter().enumerate() {
                let piece: Vec<u8> = (0..length).map(|index| (index * 31 + number) as u8).collect();
                expected.extend_from_slice(&piece);
                joined.add(piece.into());
            }
            prop_assert_eq!(joined.len(), expected.len());
            prop_assert!(joined.finish() == expected);
        }
    }
}
