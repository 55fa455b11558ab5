//! The trait of a coding.

use crate::audio;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("speech cannot be resampled")]
    Rate(#[from] audio::Error),
    #[error("speech cannot be encoded as {0}: {1}")]
    Codec(&'static str, String),
}

/// The coding of one stream.
pub trait Code: Send {
    /// The bytes before the first samples. `samples`: how many there will be, if that is known.
    fn head(&mut self, _samples: Option<u64>) -> Result<Vec<u8>, Error> {
        Ok(Vec::new())
    }

    /// The bytes that are ready.
    fn push(&mut self, samples: &[f32]) -> Result<Vec<u8>, Error>;

    /// The rest.
    fn finish(self: Box<Self>) -> Result<Vec<u8>, Error>;
}

/// A sample of 16 bits.
pub fn linear(sample: f32) -> i16 {
    // Saturates; the model's samples are within ±1, nearly always.
    (sample * 32_767.0).round() as i16
}
