//! Why a span is closed, and what is recognised until then.

use std::ops::Range;

use super::second_listening::SecondListening;
use crate::transcript::Word;

/// Why a span is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    Pause,
    Gap,
    Silence,
    Long,
    Finalize,
    End,
}

#[derive(Debug, Clone, Copy)]
pub struct Close {
    pub at: u64,
    pub reason: Reason,
}

pub enum Work {
    Idle,
    /// An open span is being recognised up to here.
    Open {
        start: u64,
        end: u64,
    },
    /// A span is closed as soon as its window is recognised.
    Closing {
        close: Close,
        start: u64,
        end: u64,
        words: Vec<Word>,
        is_thorough: bool,
    },
    /// A span is closed as soon as its voice without words was listened to again: now this audio.
    ListeningAgain {
        close: Close,
        words: Vec<Word>,
        listening: SecondListening,
        audio: Range<u64>,
    },
}
