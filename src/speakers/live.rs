//! Speakers while the audio is still coming.

use super::diarize::{Diarizer, Options};
use super::error::Error;
use crate::transcript::Word;

/// The diarization of one channel of a stream.
pub struct Stream {
    networks: std::convert::Infallible,
}

impl Diarizer {
    /// Begins a stream.
    pub fn stream(&self, _options: Options) -> Stream {
        match self.networks {}
    }
}

impl Stream {
    /// Takes the next samples, 16 kHz mono.
    pub fn push(&mut self, _samples: &[f32]) {
        match self.networks {}
    }

    /// Labels words that become final; their times are seconds since the stream began. A label once given is never
    /// changed.
    ///
    /// # Errors
    /// [`Error::Busy`], [`Error::Failed`].
    pub async fn label(&mut self, _words: &mut [Word]) -> Result<(), Error> {
        match self.networks {}
    }

    /// Each speaker's mean embedding so far, of unit length.
    pub fn voices(&self) -> Vec<Vec<f32>> {
        match self.networks {}
    }
}
