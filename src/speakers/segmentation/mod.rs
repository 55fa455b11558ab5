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

pub(super) mod architecture;
mod classifier;
mod lstm;
mod norm;
pub(super) mod sinc;
mod sincnet;

use std::path::Path;

use architecture::{FEATURES, LAYERS};
use classifier::Classifier;
use lstm::{Bidirectional, Working};
use sincnet::SincNet;

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
            layers: (0..LAYERS).map(layer).collect::<Result<_, Error>>()?,
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

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use serde::Deserialize;

    use super::*;
    use crate::speakers::network::CLASSES;
    use crate::vad::synthetic::SyntheticVoice;

    /// PyTorch 2.11's result for [`conversation`], in f32: the classes of all frames, and the log-probabilities of each
    /// 31st.
    #[derive(Deserialize)]
    struct Reference {
        classes: String,
        log_probabilities: Vec<LogProbabilities>,
    }

    fn reference() -> Reference {
        serde_json::from_str(include_str!("reference.json")).expect("the fields above")
    }

    fn load(level: Level) -> Segmentation {
        let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.verbatim/models/speakers"));
        Segmentation::load(folder, level).expect("`./setup` has put the model there")
    }

    /// Syllables in `talks`; `size` is that of a throat.
    fn voice(pitch: f64, size: f64, talks: &[Range<f64>]) -> Vec<f64> {
        let voice =
            SyntheticVoice { pitch, swing: pitch * 0.15, size, syllable: 0.2, voiced: 0.15, hush: 0.0005 };
        voice.samples(WINDOW_SAMPLES, |t| talks.iter().any(|talk| talk.contains(&t)))
    }

    /// Two voices that overlap for a second.
    fn conversation() -> Vec<f32> {
        let low = voice(105.0, 1.0, &[0.4..4.0, 8.0..10.0]);
        let high = voice(210.0, 1.18, &[3.0..7.0]);
        low.iter().zip(&high).map(|(low, high)| (low + high) as f32).collect()
    }

    fn class(of: &LogProbabilities) -> usize {
        (0..CLASSES).max_by(|a, b| of[*a].total_cmp(&of[*b])).expect("there are some")
    }

    #[test]
    fn every_level_agrees_with_the_reference() {
        let Reference { classes, log_probabilities } = reference();
        let window = [conversation()];
        for level in Level::available() {
            // The two likeliest classes of one frame are equal to the fourth digit; rounding to bf16 changes probabilities by
            // some hundredths where classes are close.
            let (frames, tolerance) =
                if level.has(Instructions::Avx512Products) { (6, 0.05) } else { (1, 1e-3) };
            let got = load(level).segment(&Threads::new(1), &window).expect("computed");
            assert_eq!(got[0].len(), WINDOW_FRAMES);
            let of_frames = got[0].iter().zip(classes.chars());
            let others =
                of_frames.filter(|(got, expected)| Some(class(got) as u32) != expected.to_digit(10)).count();
            assert!(others <= frames, "{level:?}: {others} frames have another class");
            for (got, expected) in got[0].iter().step_by(31).zip(&log_probabilities) {
                let worst =
                    got.iter().zip(expected).map(|(a, b)| (a.exp() - b.exp()).abs()).fold(0.0, f32::max);
                assert!(worst < tolerance, "{level:?} is off by {worst}");
                assert!((got.iter().map(|class| class.exp()).sum::<f32>() - 1.0).abs() < 1e-5);
            }
        }
    }

    #[test]
    fn a_window_gives_the_same_bits_alone_and_among_others_and_on_any_number_of_threads() {
        let conversation = conversation();
        let quiet: Vec<f32> = conversation.iter().map(|sample| sample / 3.0 + 0.001).collect();
        let windows: Vec<Vec<f32>> = [&conversation, &quiet, &vec![0.0; WINDOW_SAMPLES]]
            .into_iter()
            .cycle()
            .take(10)
            .cloned()
            .collect();
        let segmentation = load(Level::detect());
        let together = segmentation.segment(&Threads::new(1), &windows).expect("computed");
        assert!(segmentation.segment(&Threads::new(3), &windows).expect("computed") == together);
        for (index, window) in windows.iter().enumerate().take(3) {
            let alone =
                segmentation.segment(&Threads::new(1), std::slice::from_ref(window)).expect("computed");
            for copy in together[index..].iter().step_by(3) {
                assert!(alone[0] == *copy, "window {index}");
            }
        }
    }

    #[test]
    fn samples_that_are_no_sound_leave_probabilities() {
        let poison = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, 0.0];
        let window: Vec<f32> = poison.iter().cycle().take(WINDOW_SAMPLES).copied().collect();
        let got = load(Level::detect()).segment(&Threads::new(1), &[window]).expect("computed");
        assert!(got[0].as_flattened().iter().all(|log| *log <= 0.0));
    }

    #[test]
    fn a_window_of_another_length_is_refused() {
        let segmentation = load(Level::detect());
        let threads = Threads::new(1);
        assert!(segmentation.segment(&threads, &[]).expect("none").is_empty());
        let short = segmentation.segment(&threads, &[vec![0.0; WINDOW_SAMPLES], vec![0.0; 100]]);
        assert!(matches!(short, Err(Error::Failed)));
    }
}
