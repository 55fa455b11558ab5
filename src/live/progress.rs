//! How far a channel is: the open span, and what is known of the spans before it.

use super::agreement::Agreement;
use super::context::Context;
use super::span::Span;
use super::utterance::Utterance;
use crate::transcript::Word;

/// The open span and its recognition so far.
pub struct OpenSpan {
    pub span: Span,
    pub agreement: Agreement,
    /// The end of this span's last window so far.
    pub asked: u64,
    /// All words of the span if it ends as it is, and the end of the window that they were heard in.
    pub complete: Option<(u64, Vec<Word>)>,
}

impl OpenSpan {
    pub fn new(span: Span) -> Self {
        Self { asked: span.start, span, agreement: Agreement::default(), complete: None }
    }
}

/// The spans before: their words and the events sent.
pub struct Past {
    pub context: Context,
    pub last_word_end: f64,
    pub utterance: Utterance,
    /// Seconds.
    pub voice_without_words: f64,
    pub has_ended: bool,
}

impl Past {
    pub fn new(utterance: Utterance) -> Self {
        Self {
            context: Context::default(),
            last_word_end: 0.0,
            utterance,
            voice_without_words: 0.0,
            has_ended: false,
        }
    }
}
