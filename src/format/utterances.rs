//! Utterances: words of one speaker without a long pause between them.

use super::word::{Word, speaker_index};

/// The wire format's default for `utt_split`.
pub const SPLIT_SECONDS: f64 = 0.8;

/// Runs of `words`, none empty, of one speaker, that have less than `split_seconds` of silence inside.
pub fn utterances(words: &[Word], split_seconds: f64) -> impl Iterator<Item = &[Word]> {
    words.chunk_by(move |word, next| {
        next.start - word.end < split_seconds && speaker_index(word) == speaker_index(next)
    })
}
