//! The two networks of diarization, apart from the device that computes them.

use super::error::Error;

/// Samples in a window of segmentation: 10 s at 16 kHz.
pub const WINDOW_SAMPLES: usize = 160_000;
/// Frames in a window of segmentation, each 270 samples (16.875 ms) after the one before.
pub const WINDOW_FRAMES: usize = 589;
/// Classes of a frame: no speaker, 1, 2, 3, 1+2, 1+3, 2+3. The numbers are a window's own ("local speakers").
pub const CLASSES: usize = 7;
/// Bins of the filter banks that the embedding is computed from.
pub const MEL_BINS: usize = 80;
/// Channels of the embedding's trunk.
pub const CHANNELS: usize = 512;
/// Dimensions of an embedding.
pub const EMBEDDING: usize = 192;

/// The natural logarithm of each class's probability in one frame.
pub type LogProbabilities = [f32; CLASSES];

/// The networks of diarization on one device. Batches may have any size, and a result doesn't depend on what else is in
/// its batch.
pub trait Networks: Send + Sync + 'static {
    /// The log-probabilities in each of the [`WINDOW_FRAMES`] frames of each window of [`WINDOW_SAMPLES`].
    ///
    /// # Errors
    /// [`Error::Failed`], also where a window has another length.
    fn segment(&self, windows: &[Vec<f32>]) -> Result<Vec<Vec<LogProbabilities>>, Error>;

    /// The trunk's features of each piece, (frames / 2 rounded up, [`CHANNELS`]) row by row. A piece is mean-normalised
    /// filter banks, (frames, [`MEL_BINS`]) row by row.
    ///
    /// # Errors
    /// [`Error::Failed`], also where a piece isn't made of whole frames.
    fn trunk(&self, pieces: &[Vec<f32>]) -> Result<Vec<Vec<f32>>, Error>;

    /// Embeddings of unit length ([`EMBEDDING`]) of pooled statistics: the channels' means, then their standard
    /// deviations (2 × [`CHANNELS`]).
    ///
    /// # Errors
    /// [`Error::Failed`], also where statistics have another length.
    fn embed(&self, statistics: &[Vec<f32>]) -> Result<Vec<Vec<f32>>, Error>;
}
