//! The turns of a recording.

use std::path::Path;

use super::error::Error;
use crate::audio::Sound;

/// The limits that a request sets on the number of speakers; `None` leaves it to the recording.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Options {
    pub min_speakers: Option<usize>,
    pub max_speakers: Option<usize>,
    /// Exactly so many.
    pub speakers_expected: Option<usize>,
}

/// A stretch of one speaker's speech, in seconds from the start of the audio.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Turn {
    /// By first appearance, from 0.
    pub speaker: usize,
    pub start: f64,
    pub end: f64,
    /// 0 to 1.
    pub confidence: f32,
}

/// The speakers of one channel of a recording.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Diarization {
    /// In order of their start. Where speakers talk at once, turns overlap.
    pub turns: Vec<Turn>,
    /// Each speaker's mean embedding, of unit length.
    pub voices: Vec<Vec<f32>>,
}

/// Cheap handle: clones share the networks.
#[derive(Clone)]
pub struct Diarizer {
    pub(super) networks: std::convert::Infallible,
}

impl Diarizer {
    /// # Errors
    /// [`Error::Unreadable`] without the weights; this build has no networks to put them into.
    pub fn load(folder: &Path, _threads: usize) -> Result<Self, Error> {
        let path = folder.join("segmentation.safetensors");
        std::fs::metadata(&path).map_err(|source| Error::Unreadable { path, source })?;
        Err(Error::Failed)
    }

    /// The turns of one channel of a recording.
    ///
    /// # Errors
    /// [`Error::Busy`], [`Error::Failed`].
    pub async fn diarize(&self, _sound: &Sound, _options: &Options) -> Result<Diarization, Error> {
        match self.networks {}
    }
}
