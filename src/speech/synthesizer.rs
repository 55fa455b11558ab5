//! The interface of synthesizers: a text in, its speech out, part by part.

use std::ops::RangeInclusive;

use futures_util::stream::BoxStream;

/// Something to say.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    pub text: String,
    /// One of [`Synthesizer::speakers`]; none: its first.
    pub voice: Option<String>,
    /// A factor of the usual pace, within [`Synthesizer::speeds`].
    pub speed: f32,
    /// A listener waits for it.
    pub is_urgent: bool,
}

/// A part of the speech of a text.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    /// At [`VOICE_RATE`](super::wav::VOICE_RATE).
    pub samples: Vec<f32>,
    /// The share of the text that has been said when the part ends, 0 to 1, as far as the synthesizer knows.
    pub until: f32,
}

/// The synthesizer could not say a text, or the rest of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the synthesizer failed")]
pub struct Failed;

/// The parts of a text's speech, in order. They are made whether or not they are asked for; dropping the stream stops the
/// work. Nothing comes after an error.
pub type Parts = BoxStream<'static, Result<Part, Failed>>;

/// A voice to choose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Speaker {
    pub name: String,
    /// The code of its language, such as `en`; empty: any.
    pub language: &'static str,
}

/// A synthesizer: a model, a program, an interface of another server.
pub trait Synthesizer: Send + Sync {
    /// Its kind, such as `kokoro`.
    fn kind(&self) -> &'static str;

    /// Its voices, the default first; never empty.
    fn speakers(&self) -> &[Speaker];

    /// Voices that are installed and cannot be used, and why: for clients that ask for one.
    fn unread(&self) -> &[(String, String)] {
        &[]
    }

    /// The paces at which it speaks clearly. Others are made of the nearest.
    fn speeds(&self) -> RangeInclusive<f32> {
        0.25..=4.0
    }

    /// Whether another machine does the work.
    fn is_remote(&self) -> bool {
        false
    }

    /// Whether its work grows so fast with a sentence that long ones are cut before.
    fn wants_pieces(&self) -> bool {
        false
    }

    fn speak(&self, line: Line) -> Parts;
}
