//! The events of a turn.

use std::ops::Range;
use std::sync::Arc;

use crate::transcript::Word;

/// An event of a turn, with the turn as it is then. Times are seconds from the start of the stream.
#[derive(Debug, Clone, PartialEq)]
pub struct TurnEvent {
    pub kind: Kind,
    /// The turn's number, from 0. Between turns, that of the next one.
    pub index: u64,
    /// The audio from the end of the turn before.
    pub window: Range<f64>,
    /// All words of the turn. Shared with the event before as long as they are the same.
    pub words: Arc<[Word]>,
    /// How probable it is that no more speech comes in this turn, 0 to 1.
    pub confidence: f64,
    /// The languages of the words, most frequent first.
    pub languages: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// There is more audio, and perhaps more words.
    Update,
    /// The first words.
    Start,
    /// The turn has probably ended; [`Self::Resumed`] or [`Self::End`] follows.
    EagerEnd,
    /// Speech or other words came after [`Self::EagerEnd`].
    Resumed,
    End(Trigger),
}

/// Why a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trigger {
    /// The confidence reached its threshold.
    Confidence,
    /// The client ended the turn, or its audio.
    Client,
    /// There was no speech for as long as a turn may pause, or the turn was as long as one may be.
    Timeout,
}
