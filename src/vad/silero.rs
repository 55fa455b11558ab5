//! Silero VAD v6 at 16 kHz: the probability of speech in every 32 ms.
//!
//! Reference: github.com/snakers4/silero-vad, whose published weights this reads. A frame is
//! [`FRAME_SAMPLES`] and the [`CONTEXT`] samples before it. All but the recurrence is computed for
//! many frames at once; see `network` and `lstm`.

use std::path::Path;
use std::sync::Arc;

use super::error::Error;
use super::lstm::Memories;
use super::network::{Layers, Network};
use super::spectrum::{BINS, COLUMNS, SPAN, SpectrumScratch};
use crate::audio::{Pcm, Sound};
use crate::cpu::Level;

/// Samples in a frame: 32 ms.
pub const FRAME_SAMPLES: usize = 512;
/// Samples of the frame before that the network sees again.
const CONTEXT: usize = 64;
/// Samples mirrored at the frame's end, so that the last window is whole.
const MIRRORED: usize = SPAN - CONTEXT - FRAME_SAMPLES;
/// Frames that go through the layers together: enough to fill the tiles, few enough that the
/// activations stay in the second-level cache.
const BATCH: usize = 96;
/// Samples of a file that are converted to `f32` at a time: half a minute, in whole batches.
const PIECE: usize = 10 * BATCH * FRAME_SAMPLES;
/// Louder samples are clamped: far above any sound, far below where squares overflow `f32`.
const SAMPLE_LIMIT: f32 = 1e4;
/// The level that the loudest frame of a recording is raised to, as root mean square: that of a
/// voice close to the microphone. The network depends on the level: of words 40 dB fainter than usual it misses
/// one in 40, and of the same words raised one in 1,000, as of usual ones.
const LOUDEST_FRAME: f32 = 0.1;
/// The most that a recording is raised: 30 dB, lest the noise of a converter become a sound.
const GAIN_LIMIT: f32 = 32.0;

/// The model. Clones share the weights.
#[derive(Clone)]
pub struct Vad {
    network: Arc<Network>,
}

impl Vad {
    /// Reads `silero_vad_16k_op15.onnx` in `folder` (1.3 MB).
    ///
    /// # Errors
    /// [`Error::Unreadable`], [`Error::Malformed`], [`Error::Unexpected`].
    pub fn load(folder: &Path) -> Result<Self, Error> {
        Ok(Self { network: Arc::new(Network::load(folder, Level::detect())?) })
    }

    /// The probability of speech, 0 to 1, in each frame of [`FRAME_SAMPLES`]; silence is added to the
    /// last one if it isn't whole. A faint recording is raised to a usual level first. Runs on the
    /// calling thread: about 9 ms for 30 s of audio.
    pub fn probabilities(&self, pcm: &Pcm) -> Vec<f32> {
        let mut stream = VadStream { gain: gain(loudest(pcm.samples())), ..self.stream() };
        let mut probabilities = stream.push(pcm.samples());
        probabilities.extend(stream.finish());
        probabilities
    }

    /// As [`Self::probabilities`], for a file of which only half a minute at a time becomes `f32`. `goes_on` is
    /// called before each; once it returns false the result is `None`.
    pub fn probabilities_while(&self, sound: &Sound, goes_on: impl Fn() -> bool) -> Option<Vec<f32>> {
        let pieces = || sound.pieces(PIECE).map(|piece| goes_on().then_some(piece));
        let mut peak = 0.0_f32;
        for piece in pieces() {
            peak = peak.max(loudest(piece?.samples()));
        }
        let mut stream = VadStream { gain: gain(peak), ..self.stream() };
        let mut probabilities = Vec::with_capacity(sound.len().div_ceil(FRAME_SAMPLES));
        for piece in pieces() {
            probabilities.extend(stream.push(piece?.samples()));
        }
        probabilities.extend(stream.finish());
        Some(probabilities)
    }

    /// Starts a stream of audio, whose level is left as it is.
    pub fn stream(&self) -> VadStream {
        VadStream {
            network: self.network.clone(),
            gain: 1.0,
            memories: Memories::default(),
            context: [0.0; CONTEXT],
            pending: Vec::new(),
        }
    }
}

/// The model's state for one stream of audio. The probabilities do not depend, to the bit, on the lengths of the
/// pieces that it is fed.
pub struct VadStream {
    network: Arc<Network>,
    gain: f32,
    memories: Memories,
    /// The last samples of the frame before.
    context: [f32; CONTEXT],
    /// Samples of an incomplete frame.
    pending: Vec<f32>,
}

impl VadStream {
    /// Takes the next samples; returns the probability of speech in each frame that they complete.
    pub fn push(&mut self, samples: &[f32]) -> Vec<f32> {
        let mut probabilities = Vec::with_capacity((self.pending.len() + samples.len()) / FRAME_SAMPLES);
        let mut samples = samples;
        if !self.pending.is_empty() {
            let (head, rest) = samples.split_at(samples.len().min(FRAME_SAMPLES - self.pending.len()));
            self.pending.extend_from_slice(head);
            samples = rest;
            if let Ok(frame) = <[f32; FRAME_SAMPLES]>::try_from(self.pending.as_slice()) {
                self.pending.clear();
                self.batch(&[frame], &mut Scratch::new(&self.network), &mut probabilities);
            }
        }
        let (frames, rest) = samples.as_chunks::<FRAME_SAMPLES>();
        if !frames.is_empty() {
            // Not kept in the stream: of thousands of streams few are fed at one time.
            let mut scratch = Scratch::new(&self.network);
            for batch in frames.chunks(BATCH) {
                self.batch(batch, &mut scratch, &mut probabilities);
            }
        }
        self.pending.extend_from_slice(rest);
        probabilities
    }

    /// Ends the stream and returns the probability of speech in an incomplete last frame, if there is one.
    pub fn finish(mut self) -> Option<f32> {
        let missing = (FRAME_SAMPLES - self.pending.len()) % FRAME_SAMPLES;
        self.push(&[0.0; FRAME_SAMPLES][..missing]).pop()
    }

    /// Runs at most [`BATCH`] frames.
    fn batch(
        &mut self,
        frames: &[[f32; FRAME_SAMPLES]],
        scratch: &mut Scratch,
        probabilities: &mut Vec<f32>,
    ) {
        let Scratch { spectrum, magnitudes, layers } = scratch;
        layers.reserve(frames.len());
        magnitudes.resize(frames.len() * COLUMNS * BINS, 0.0);
        for (frame, magnitudes) in frames.iter().zip(magnitudes.chunks_exact_mut(COLUMNS * BINS)) {
            let span = with_surroundings(&self.context, frame, self.gain);
            self.context.copy_from_slice(&span[FRAME_SAMPLES..][..CONTEXT]);
            self.network.spectrum.magnitudes(&span, spectrum, magnitudes);
        }
        for gates in self.network.gates(frames.len(), magnitudes, layers) {
            let hidden = self.memories.step(&self.network.recurrence, gates);
            let [whole, recent] = hidden.map(|hidden| self.network.output(hidden));
            probabilities.push(whole.max(recent));
        }
    }
}

/// Working memory, as large as the largest batch so far needed.
struct Scratch {
    spectrum: SpectrumScratch,
    magnitudes: Vec<f32>,
    layers: Layers,
}

impl Scratch {
    fn new(network: &Network) -> Self {
        Self { spectrum: network.spectrum.scratch(), magnitudes: Vec::new(), layers: Layers::default() }
    }
}

/// The energy of the loudest frame.
fn loudest(samples: &[f32]) -> f32 {
    let energy = |frame: &[f32]| frame.iter().map(|sample| sample * sample).sum::<f32>();
    samples.chunks(FRAME_SAMPLES).map(energy).fold(0.0, f32::max)
}

/// The factor that raises a frame of the energy `loudest` to [`LOUDEST_FRAME`], between 1 and [`GAIN_LIMIT`].
fn gain(loudest: f32) -> f32 {
    (LOUDEST_FRAME / (loudest / FRAME_SAMPLES as f32).sqrt()).clamp(1.0, GAIN_LIMIT)
}

/// The samples that the network sees for a frame: the context, the frame, and its end mirrored
/// around its last sample. A NaN becomes silence, or it would stay in the state for good.
fn with_surroundings(context: &[f32; CONTEXT], frame: &[f32; FRAME_SAMPLES], gain: f32) -> [f32; SPAN] {
    let mut span = [0.0; SPAN];
    span[..CONTEXT].copy_from_slice(context);
    for (clean, sample) in span[CONTEXT..].iter_mut().zip(frame) {
        let raised = sample * gain;
        *clean = if raised.is_nan() { 0.0 } else { raised.clamp(-SAMPLE_LIMIT, SAMPLE_LIMIT) };
    }
    for i in 0..MIRRORED {
        span[SPAN - MIRRORED + i] = span[SPAN - MIRRORED - 2 - i];
    }
    span
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::synthetic::SyntheticVoice;
    use super::*;

    /// ONNX Runtime 1.31's probabilities for [`babble`], frame by frame, with `silero_vad_16k_op15.onnx` of
    /// release 6.2.3.
    const REFERENCE: &str = include_str!("reference.json");

    fn folder() -> &'static Path {
        Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.verbatim/models/silero-vad"))
    }

    fn vad() -> Vad {
        Vad::load(folder()).expect("`./setup` has put the model there")
    }

    /// 4 s of a synthetic voice.
    fn babble() -> Vec<f32> {
        let voice =
            SyntheticVoice { pitch: 110.0, swing: 20.0, size: 1.0, syllable: 0.4, voiced: 0.28, hush: 0.001 };
        voice.samples(4 * 16000, |_| true).into_iter().map(|sample| sample as f32).collect()
    }

    #[test]
    fn agrees_with_the_reference_runtime() {
        let expected: Vec<f32> = serde_json::from_str(REFERENCE).expect("an array of numbers");
        let got = vad().probabilities(&Pcm::new(babble()));
        assert_eq!(got.len(), expected.len());
        let worst = got.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(worst < 2e-5, "off by {worst}");
    }

    #[test]
    fn every_level_agrees() {
        let babble = Pcm::new(babble());
        let of = |level| {
            let network = Network::load(folder(), level).expect("`./setup` has put the model there");
            Vad { network: Arc::new(network) }.probabilities(&babble)
        };
        let portable = of(Level::BASELINE);
        for level in Level::available() {
            let worst = of(level).iter().zip(&portable).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(worst < 2e-5, "{level:?} is off by {worst}");
        }
    }

    #[test]
    fn one_probability_for_each_frame_begun() {
        let vad = vad();
        for (samples, frames) in
            [(0, 0), (1, 1), (511, 1), (512, 1), (513, 2), (96 * 512, 96), (96 * 512 + 1, 97)]
        {
            assert_eq!(vad.probabilities(&Pcm::new(vec![0.01; samples])).len(), frames, "{samples} samples");
        }
    }

    #[test]
    fn silence_is_no_speech() {
        let probabilities = vad().probabilities(&Pcm::new(vec![0.0; 5 * 16000]));
        assert!(probabilities.iter().all(|p| *p < 0.1), "{probabilities:?}");
    }

    #[test]
    fn faint_recordings_are_heard_as_loud_ones() {
        let vad = vad();
        let loud = babble();
        let faint: Vec<f32> = loud.iter().map(|sample| sample / 16.0).collect();
        let gain = gain(loudest(&faint));
        assert!(gain > 5.0);
        let raised: Vec<f32> = faint.iter().map(|sample| sample * gain).collect();
        assert_eq!(vad.probabilities(&Pcm::new(faint)), vad.probabilities(&Pcm::new(raised)));
    }

    #[test]
    fn a_file_in_pieces_is_heard_as_a_whole_one_and_left_when_it_is_not_wanted() {
        let vad = vad();
        // The loudest moment is in the last of three pieces.
        let mut samples: Vec<f32> =
            babble().iter().map(|sample| sample / 50.0).collect::<Vec<_>>().repeat(16);
        samples.extend(babble());
        let sound = Sound::from(&samples[..]);
        let pieces = sound.len().div_ceil(PIECE);
        assert_eq!(pieces, 3);
        let asked = std::cell::Cell::new(0);
        let ask = |most: usize| {
            asked.set(0);
            let goes_on = || asked.replace(asked.get() + 1) < most;
            vad.probabilities_while(&sound, goes_on)
        };
        assert_eq!(ask(usize::MAX), Some(vad.probabilities(&sound.pcm(..))));
        assert_eq!(asked.get(), 2 * pieces);
        for most in [0, 2, 5] {
            assert_eq!((ask(most), asked.get()), (None, most + 1));
        }
    }

    #[test]
    fn what_is_no_sound_leaves_no_trace() {
        let vad = vad();
        let mut stream = vad.stream();
        let poison = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::MIN];
        let poisoned: Vec<f32> = poison.iter().cycle().take(512).copied().collect();
        let mut probabilities = stream.push(&poisoned);
        probabilities.extend(stream.push(&vec![0.0; 20 * 512]));
        assert!(probabilities.iter().all(|p| (0.0..=1.0).contains(p)), "{probabilities:?}");
        assert!(probabilities[20] < 0.1);
    }

    #[test]
    fn a_missing_or_broken_file_is_named() {
        let empty = tempfile::tempdir().expect("a folder");
        let missing = Vad::load(empty.path()).err();
        assert!(matches!(missing, Some(Error::Unreadable { .. })), "{missing:?}");
        let whole =
            std::fs::read(folder().join(super::super::network::FILE)).expect("`./setup` has put it there");
        let cut = Network::from_bytes(&whole[..whole.len() / 2], Level::BASELINE).err();
        assert!(matches!(cut, Some(Error::Malformed)), "{cut:?}");
        let none = Network::from_bytes(&[], Level::BASELINE).err();
        assert!(matches!(none, Some(Error::Unexpected { .. })), "{none:?}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn a_stream_gives_the_same_bits_whatever_its_pieces(sizes in prop::collection::vec(1_usize..3000, 1..40)) {
            let vad = vad();
            let babble = babble();
            let mut whole = vad.stream();
            let mut expected = whole.push(&babble);
            expected.extend(whole.finish());
            let mut stream = vad.stream();
            let (mut got, mut rest) = (Vec::new(), babble.as_slice());
            for size in sizes.iter().cycle() {
                let (piece, left) = rest.split_at((*size).min(rest.len()));
                got.extend(stream.push(piece));
                rest = left;
                if rest.is_empty() {
                    break;
                }
            }
            got.extend(stream.finish());
            prop_assert_eq!(got, expected);
        }
    }
}
