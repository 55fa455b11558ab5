//! A stream of text that is spoken as it comes: by the sentence, and on request what there is of one.

use std::collections::VecDeque;
use std::time::Instant;

use super::sentences::Sentences;
use super::service::{Piece, Speech};
use super::voice::{Manner, Unspoken};
use crate::telemetry::metrics;

/// Text in, samples out, in order.
pub struct Dictation {
    speech: Speech,
    tenant: u64,
    manner: Manner,
    sentences: Sentences,
    queue: VecDeque<Queued>,
    /// The piece that is being spoken. Dropping it withdraws it.
    speaking: Option<Piece>,
    /// The text of the piece that is spoken or was spoken last.
    piece: String,
    /// Characters that are not yet spoken.
    held: usize,
    /// Since when the listener waits for a sound.
    waits: Option<Instant>,
}

enum Queued {
    Piece(String),
    Flush,
}

/// The outcome of the text.
#[derive(Debug, PartialEq)]
pub enum Spoken {
    /// Samples at [`VOICE_RATE`](super::VOICE_RATE); empty where there was no word.
    Audio(Vec<f32>),
    /// All text before this flush was spoken.
    Flushed,
}

/// The text is too far ahead of its speech.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("more text is waiting than a stream may hold")]
pub struct TooFarAhead;

impl Dictation {
    pub fn new(speech: Speech, tenant: u64, manner: Manner) -> Self {
        Self {
            speech,
            tenant,
            manner,
            sentences: Sentences::default(),
            queue: VecDeque::new(),
            speaking: None,
            piece: String::new(),
            held: 0,
            waits: None,
        }
    }

    pub fn speech(&self) -> &Speech {
        &self.speech
    }

    /// The text of the piece to which the samples belong that [`Self::next`] returned last.
    pub fn piece(&self) -> &str {
        &self.piece
    }

    /// The pace of pieces that are not yet begun, a factor.
    pub fn set_speed(&mut self, speed: f32) {
        self.manner.speed = speed;
    }

    /// Adds text, which need not end with a word.
    ///
    /// # Errors
    /// [`TooFarAhead`].
    pub fn push(&mut self, text: &str) -> Result<(), TooFarAhead> {
        self.held += text.chars().count();
        if self.held > self.speech.limits().stream_characters_max {
            return Err(TooFarAhead);
        }
        self.sentences.push(text);
        while let Some(sentence) = self.sentences.whole() {
            self.queue_up(&sentence);
        }
        Ok(())
    }

    /// Has the text so far spoken, whole sentences or not.
    pub fn flush(&mut self) {
        self.finish();
        self.queue.push_back(Queued::Flush);
    }

    /// As [`Self::flush`], without an answer.
    pub fn finish(&mut self) {
        while let Some(sentence) = self.sentences.rest() {
            self.queue_up(&sentence);
        }
    }

    /// Drops all text that was not yet spoken, and its flushes.
    pub fn clear(&mut self) {
        self.sentences.clear();
        self.queue.clear();
        (self.speaking, self.held, self.waits) = (None, 0, None);
    }

    /// Whether nothing is left to speak but the beginning of a sentence.
    pub fn is_silent(&self) -> bool {
        self.queue.is_empty() && self.speaking.is_none()
    }

    fn queue_up(&mut self, sentence: &str) {
        if self.is_silent() {
            self.waits = Some(Instant::now());
        }
        self.queue.extend(self.speech.pieces(sentence, &self.manner).into_iter().map(Queued::Piece));
    }

    /// The next outcome; waits for text if there is none. Cancel-safe.
    ///
    /// # Errors
    /// [`Unspoken`].
    pub async fn next(&mut self) -> Result<Spoken, Unspoken> {
        let speaking = match &mut self.speaking {
            Some(speaking) => speaking,
            none => match self.queue.pop_front() {
                None => return std::future::pending().await,
                Some(Queued::Flush) => {
                    if self.is_silent() {
                        self.held = 0;
                    }
                    return Ok(Spoken::Flushed);
                }
                Some(Queued::Piece(piece)) => {
                    // Spaces between the pieces are counted too, and given back at the next flush.
                    self.held = self.held.saturating_sub(piece.chars().count());
                    self.piece.clone_from(&piece);
                    none.insert(self.speech.say(self.tenant, piece, self.manner.clone()))
                }
            },
        };
        let heard = speaking.next().await;
        if heard.as_ref().map_or(true, |heard| heard.is_last) {
            self.speaking = None;
        }
        let samples = heard?.samples;
        if !samples.is_empty()
            && let Some(since) = self.waits.take()
        {
            metrics::TTS_FIRST_AUDIO.with(&[("surface", "stream")]).record(since.elapsed().as_secs_f64());
        }
        Ok(Spoken::Audio(samples))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use futures_util::FutureExt as _;

    use super::*;
    use crate::share::Tenants;
    use crate::speech::{Config, EmbeddedVoice, Limits, Voice};

    fn dictation() -> Dictation {
        let config = Config { embedded: EmbeddedVoice::None, ..Config::default() };
        let voice = Voice::open(&config, Path::new(".")).expect("no voice");
        let limits = Limits { stream_characters_max: 20, ..Limits::default() };
        Dictation::new(Speech::new(voice, limits, Tenants::default()), 1, Manner::default())
    }

    #[tokio::test]
    async fn text_is_spoken_in_order_and_flushed_where_asked() {
        let mut dictation = dictation();
        // Without a word, it is silent.
        dictation.push("... !").expect("room");
        assert_eq!(dictation.next().await, Ok(Spoken::Audio(Vec::new())));
        assert!(dictation.next().now_or_never().is_none(), "the rest may go on");
        dictation.flush();
        assert_eq!(dictation.next().await, Ok(Spoken::Audio(Vec::new())));
        assert_eq!(dictation.next().await, Ok(Spoken::Flushed));
        dictation.push("A word. ").expect("room");
        assert_eq!(dictation.next().await, Err(Unspoken::Failed), "there is no voice");
    }

    #[tokio::test]
    async fn what_is_cleared_is_neither_spoken_nor_flushed() {
        let mut dictation = dictation();
        dictation.push("One. Two. Thr").expect("room");
        dictation.flush();
        dictation.clear();
        assert!(dictation.is_silent() && dictation.next().now_or_never().is_none());
        assert_eq!(dictation.push(&"x".repeat(21)), Err(TooFarAhead));
    }
}
