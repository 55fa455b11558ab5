//! The events of a stream, and the errors that end it.

use super::voice::Voice;
use crate::transcript::Word;
use crate::voices::Identified;
use crate::{audio, engine};

/// An event of a stream. Times are seconds of audio from its start.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    Results(Results),
    SpeechStarted {
        channel: usize,
        at: f64,
    },
    UtteranceEnd {
        channel: usize,
        last_word_end: f64,
    },
    /// Only with [`super::Options::voice`].
    Voice(Voice),
}

impl Event {
    pub(super) fn channel(&self) -> usize {
        match self {
            Self::Results(Results { channel, .. })
            | Self::SpeechStarted { channel, .. }
            | Self::UtteranceEnd { channel, .. }
            | Self::Voice(Voice { channel, .. }) => *channel,
        }
    }
}

/// The text of a span, or of the span so far.
#[derive(Debug, Clone, PartialEq)]
pub struct Results {
    pub channel: usize,
    /// The start of the span, which is the end of the one before.
    pub start: f64,
    pub duration: f64,
    pub words: Vec<Word>,
    /// The span is closed: its words no longer change.
    pub is_final: bool,
    /// It was closed at a pause.
    pub speech_final: bool,
    /// It was closed because the client asked.
    pub from_finalize: bool,
    /// The name of each speaker, by number, whose voice is enrolled; empty unless names were asked for.
    pub names: Vec<Option<Identified>>,
    /// The language of the last window; `None` before the first.
    pub language: Option<String>,
}

impl Results {
    /// The answer to a client that asks for the end of a span before there is any audio.
    pub(super) fn nothing_finalized() -> Self {
        Self {
            channel: 0,
            start: 0.0,
            duration: 0.0,
            words: Vec::new(),
            is_final: true,
            speech_final: false,
            from_finalize: true,
            names: Vec::new(),
            language: None,
        }
    }
}

/// The reason why a stream cannot go on.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    #[error("the audio cannot be read")]
    Audio(#[from] audio::Error),
    #[error("the audio is not recognised")]
    Engine(#[from] engine::Error),
}
