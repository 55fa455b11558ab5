//! Segmentation: which of up to three local speakers talk in each frame of a window of 10 s.
//!
//! The network is pyannote's segmentation 3.0 (`PyanNet`: A. Plaquet and H. Bredin, "Powerset multi-class cross entropy
//! loss for neural speaker diarization", 2023), in evaluation mode:
//!
//! ```text
//! 160000 samples → norm → 80 sinc filters → |·|, pool, norm → conv 60 → pool, norm → conv 60 → pool, norm: 589 × 60
//!               → 4 LSTMs in both directions, 128 units each → linear 128 → linear 128 → 7 classes
//! ```
//!
//! Windows of a batch pass side by side: the LSTMs must go frame by frame, and read their weights once for all windows.
//! Every sum of a window adds in an order of its own, so a window gives the same bits alone and among others.

mod classifier;
mod lstm;
mod norm;
mod sinc;
mod sincnet;

use std::path::Path;

use classifier::Classifier;
use lstm::{Bidirectional, Working};
use sincnet::{FEATURES, SincNet};

use super::error::Error;
use super::network::{LogProbabilities, WINDOW_FRAMES, WINDOW_SAMPLES};
use super::weights::Weights;
use crate::cpu::matrix::Precision;
use crate::cpu::{Instructions, Level, Places, Threads};

/// The file that the weights are read from. Names are those of pyannote.audio's state dict.
const FILE: &str = "segmentation.safetensors";
/// Windows that pass through the LSTMs side by side: eight rows fill the tiles of a product.
const SIDE_BY_SIDE: usize = 8;

/// The network, packed for this processor.
pub struct Segmentation {
    level: Level,
    sincnet: SincNet,
    layers: Vec<Bidirectional>,
    classifier: Classifier,
}

impl Segmentation {
    /// Reads the weights from `folder`.
    ///
    /// # Errors
    /// [`Error::Unreadable`], [`Error::Malformed`], [`Error::Unexpected`].
    pub fn load(folder: &Path, level: Level) -> Result<Self, Error> {
        let weights = Weights::read(&folder.join(FILE))?;
        let precision = match level {
            level if level.has(Instructions::Avx512Products) => Precision::Bf16,
            _ => Precision::F32,
        };
        let layer = |index| {
            Bidirectional::new(&weights, index, if index == 0 { FEATURES } else { lstm::OUTPUTS }, precision)
        };
        Ok(Self {
            level,
            sincnet: SincNet::new(&weights, level, precision)?,
            layers: (0..4).map(layer).collect::<Result<_, Error>>()?,
            classifier: Classifier::new(&weights, precision)?,
        })
    }

    /// The log-probabilities in each frame of each window.
    ///
    /// # Errors
    /// [`Error::Failed`] if a window isn't of [`WINDOW_SAMPLES`].
    pub fn segment(
        &self,
        threads: &Threads,
        windows: &[Vec<f32>],
    ) -> Result<Vec<Vec<LogProbabilities>>, Error> {
        if windows.iter().any(|window| window.len() != WINDOW_SAMPLES) {
            return Err(Error::Failed);
        }
        let mut results = vec![Vec::new(); windows.len()];
        let group = windows.len().div_ceil(threads.count()).clamp(1, SIDE_BY_SIDE);
        let places = Places::new(&mut results);
        threads.split(windows.len().div_ceil(group), |groups| {
            for first in groups.map(|index| index * group) {
                let members = first..windows.len().min(first + group);
                // SAFETY: `split` hands out each group once.
                let places = unsafe { places.range(members.clone()) };
                self.side_by_side(&windows[members], places);
            }
        });
        Ok(results)
    }

    fn side_by_side(&self, windows: &[Vec<f32>], results: &mut [Vec<LogProbabilities>]) {
        let count = windows.len();
        let mut x = vec![0.0; WINDOW_FRAMES * count * FEATURES];
        for (index, window) in windows.iter().enumerate() {
            let features = self.sincnet.features(window);
            for (frame, features) in features.chunks_exact(FEATURES).enumerate() {
                x[(frame * count + index) * FEATURES..][..FEATURES].copy_from_slice(features);
            }
        }
        let mut working = Working::new(count);
        let mut y = vec![0.0; WINDOW_FRAMES * count * lstm::OUTPUTS];
        for layer in &self.layers {
            layer.apply(self.level, &x, &mut y, &mut working);
            x.resize(y.len(), 0.0);
            std::mem::swap(&mut x, &mut y);
        }
        let classes = self.classifier.apply(self.level, &x);
        for (index, result) in results.iter_mut().enumerate() {
            *result = classes.iter().skip(index).step_by(count).copied().collect();
        }
    }
}
