//! Turns that go on, and their words so far.

use std::collections::HashMap;

/// The turns that go on.
#[derive(Default)]
pub(super) struct Overhearing {
    /// The seat whose turn is being noted; none if its words were typed or keyed.
    pub(super) speaker: Option<u64>,
    turns: HashMap<u64, Turn>,
    /// Turns so far.
    count: u64,
}

#[derive(Default)]
pub(super) struct Turn {
    pub(super) number: u64,
    /// Samples of it that were recognised, or are being.
    pub(super) samples: usize,
    pub(super) is_busy: bool,
}

/// The words of a turn so far; none if it could not be recognised.
pub(super) struct Overheard {
    pub(super) seat: u64,
    pub(super) turn: u64,
    pub(super) text: Option<String>,
}

impl Overhearing {
    /// The turn that goes on in `seat`.
    pub(super) fn turn(&mut self, seat: u64) -> &mut Turn {
        self.turns.entry(seat).or_insert_with(|| {
            self.count += 1;
            Turn { number: self.count, ..Turn::default() }
        })
    }

    /// Its words are known: whether the turn that they belong to goes on.
    pub(super) fn goes_on(&mut self, seat: u64, turn: u64) -> bool {
        let current = self.turns.get_mut(&seat).filter(|current| current.number == turn);
        current.map(|current| current.is_busy = false).is_some()
    }

    pub(super) fn turn_over(&mut self, seat: u64) {
        self.turns.remove(&seat);
    }
}
