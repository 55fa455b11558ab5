//! Turn taking: where a speaker's turn begins, and whether a speaker who pauses has finished.
//!
//! ```text
//! audio ─▶ Ear (voice activity) ─▶ Began, Insists
//!           │ ▲   └─ pause ─▶ Paused ─▶ TurnModel, recogniser
//!           │ └────── Evidence: probability, words ◀──┘
//! the agent's own sound ─▶ Reference   └─▶ Ended, or Echoed if the speech was the agent's own
//! ```
#![doc = include_str!("turn/README.md")]
//!
//! The model is Smart Turn (v3.2), which tells from the melody of the last seconds whether a speaker has finished. Source
//! of its input format: `pipecat-ai` 1.14, `audio/turn/smart_turn` (BSD-2-Clause).

mod backchannel;
mod complement;
mod config;
mod ear;
mod echo;
mod ending;
mod evidence;
mod judgement;
mod own_words;

pub use backchannel::is_backchannel;
pub use config::Turn;
pub use ear::{Ear, Look, Noticed};
pub use echo::Reference;
pub use ending::{Ending, Expected, ending};
pub use evidence::{Evidence, Rules, Words};
pub use judgement::Judgement;
pub use own_words::are_own_words;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde::{Deserialize, Serialize};

use crate::audio::{FFT_SAMPLES, HOP_SAMPLES, LogMel, Pcm, SAMPLE_RATE, clamp_log_mel};
use crate::onnx::{self, Input, Session, Worker};

const FILE: &str = "smart-turn/smart-turn-v3.2-cpu.onnx";
/// Length of its input: eight seconds.
pub const SAMPLES: usize = 8 * SAMPLE_RATE as usize;
const FRAMES: usize = SAMPLES / HOP_SAMPLES;
const BANDS: usize = 80;
/// Probability from which a turn counts as complete.
pub const THRESHOLD: f32 = 0.5;

/// How the end of a turn is recognised.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EndOfTurn {
    /// The model if it is installed, otherwise silence.
    #[default]
    Auto,
    /// A model that hears whether a sentence is complete (Smart Turn): `./setup smart-turn` installs it.
    Model,
    /// Silence alone.
    Silence,
}

/// The loaded model, on threads of its own. Cheap to clone: clones share the threads.
///
/// A question takes 27 ms of one processor, in a batch as much as alone, so each thread answers one at a time.
#[derive(Clone)]
pub struct TurnModel(Arc<Threads>);

struct Threads {
    workers: Vec<Worker<Pcm, Option<f32>>>,
    /// The number of questions so far: they go around.
    asked: AtomicUsize,
}

impl TurnModel {
    /// Loads the model from the folder `models`, once for each of `threads`. `None` if silence alone ends a turn.
    ///
    /// # Errors
    /// [`onnx::Error`] if the model is required and cannot be loaded.
    pub fn open(wanted: EndOfTurn, models: &Path, threads: usize) -> Result<Option<Self>, onnx::Error> {
        if wanted == EndOfTurn::Silence {
            return Ok(None);
        }
        let workers = (0..threads.max(1)).map(|_| Self::load(models)).collect::<Result<Vec<_>, _>>();
        match workers.map(|workers| Self(Arc::new(Threads { workers, asked: AtomicUsize::new(0) }))) {
            Ok(model) => Ok(Some(model)),
            Err(error) if wanted == EndOfTurn::Auto => {
                tracing::info!(%error, "silence alone ends a turn: `./setup smart-turn` installs the model");
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn load(models: &Path) -> Result<Worker<Pcm, Option<f32>>, onnx::Error> {
        let models = models.to_owned();
        let load = move || {
            let mut session = Session::load(&models, FILE, 1)?;
            let log_mel = LogMel::new(BANDS);
            Ok(move |so_far: Pcm| probability(&mut session, &log_mel, so_far.samples()))
        };
        Worker::start("smart-turn", load)
    }

    /// How probable it is that a speaker who paused after `so_far` has finished: 0 to 1, of its last [`SAMPLES`]. `None` if
    /// the model cannot tell, or too many questions wait.
    pub async fn probability(&self, so_far: Pcm) -> Option<f32> {
        let Threads { workers, asked } = &*self.0;
        let turn = asked.fetch_add(1, Ordering::Relaxed) % workers.len();
        workers.get(turn)?.ask(so_far).await?
    }
}

fn probability(session: &mut Session, log_mel: &LogMel, so_far: &[f32]) -> Option<f32> {
    let features = Input::Floats(vec![1, BANDS as i64, FRAMES as i64], features(log_mel, so_far));
    match session.run([("input_features", features)]) {
        Ok(output) => output.first().copied(),
        Err(error) => {
            tracing::warn!(%error, "the model of turns failed");
            None
        }
    }
}

/// Log-mel features of the last [`SAMPLES`] of `so_far`, preceded by silence if it is shorter: (bands, frames).
fn features(log_mel: &LogMel, so_far: &[f32]) -> Vec<f32> {
    let last = so_far.get(so_far.len().saturating_sub(SAMPLES)..).unwrap_or_default();
    let mut samples = vec![0.0; SAMPLES - last.len()];
    samples.extend_from_slice(last);
    // Normalize to mean 0 and variance 1, including the silence.
    let mean = samples.iter().map(|&x| f64::from(x)).sum::<f64>() / SAMPLES as f64;
    let variance = samples.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum::<f64>() / SAMPLES as f64;
    let scale = (variance + 1e-7).sqrt();
    samples.iter_mut().for_each(|x| *x = ((f64::from(*x) - mean) / scale) as f32);
    // The last window reaches past the end: reflect the signal there.
    let reflected: Vec<f32> = samples.iter().rev().skip(1).take(FFT_SAMPLES / 2).copied().collect();
    samples.extend(reflected);

    let mut frames = vec![0.0; FRAMES * BANDS];
    log_mel.log_energies(&samples, 0..FRAMES, &mut frames);
    clamp_log_mel(&mut frames);
    (0..BANDS).flat_map(|band| frames.iter().skip(band).step_by(BANDS).copied()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audio::{DecodeOptions, Limits, decode};

    fn cache() -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join(".verbatim")
    }

    /// Recordings of whole sentences, without the silence at their ends.
    fn sentences() -> Vec<(String, Vec<f32>)> {
        let manifest = std::fs::read_to_string(cache().join("speech/manifest.jsonl")).expect("run ./setup");
        let read = |line: &str| {
            let row: serde_json::Value = serde_json::from_str(line).expect("JSON");
            let file = row["file"].as_str().expect("a name").to_owned();
            let bytes = std::fs::read(cache().join("speech").join(&file)).expect("run ./setup");
            let options = DecodeOptions { raw: None, split_channels: false, limits: Limits::default() };
            let sound = decode(bytes.into(), &options).expect("decoded").channels[0].clone();
            let mut samples = sound.pcm(..).samples().to_vec();
            let end = samples.iter().rposition(|sample| sample.abs() > 0.02).expect("speech");
            samples.truncate(end + 800);
            (file, samples)
        };
        manifest.lines().map(read).collect()
    }

    async fn complete(model: &TurnModel, speech: &[f32]) -> f32 {
        let and_silence: Vec<f32> = speech.iter().copied().chain([0.0; 4000]).collect();
        model.probability(Pcm::new(and_silence)).await.expect("an answer")
    }

    /// Bounds are loose because speakers pause mid-phrase.
    #[tokio::test]
    async fn whole_sentences_are_complete_and_cut_ones_are_not() {
        let models = cache().join("models");
        let model = TurnModel::open(EndOfTurn::Model, &models, 1).expect("run ./setup").expect("asked for");
        // Results of the reference implementation for the same samples.
        let reference = [
            ("austen_0870.wav", 0.985),
            ("austen_0880.wav", 0.041),
            ("austen_0890.wav", 0.957),
            ("austen_0920.wav", 0.987),
        ];
        let (mut whole, mut all, mut cut, mut cuts) = (0, 0, 0, 0);
        for (file, speech) in sentences() {
            let probability = complete(&model, &speech).await;
            if let Some((_, expected)) = reference.iter().find(|(name, _)| *name == file) {
                assert!((probability - expected).abs() < 0.02, "{file}: {probability} instead of {expected}");
            }
            (whole, all) = (whole + usize::from(probability >= THRESHOLD), all + 1);
            // Read by people; the voices of the others are synthetic.
            if file.starts_with("austen") || file == "jfk.wav" {
                for share in [0.5, 0.6] {
                    let half = speech.get(..(speech.len() as f64 * share) as usize).expect("within");
                    (cut, cuts) = (cut + usize::from(complete(&model, half).await < THRESHOLD), cuts + 1);
                }
            }
        }
        assert!(all > 30 && whole * 4 >= all * 3, "{whole} of {all} sentences are complete");
        assert!(cuts == 12 && cut * 3 >= cuts * 2, "{cut} of {cuts} cut sentences are not");
    }

    #[test]
    fn what_is_not_installed_is_named_or_done_without() {
        let nowhere = tempfile::tempdir().expect("a folder");
        assert!(matches!(TurnModel::open(EndOfTurn::Auto, nowhere.path(), 1), Ok(None)));
        assert!(TurnModel::open(EndOfTurn::Model, nowhere.path(), 1).is_err());
        assert!(matches!(TurnModel::open(EndOfTurn::Silence, &cache(), 1), Ok(None)));
    }
}
