//! Whole recordings, kept in half the memory of `f32`.

use std::ops::{Bound, Range, RangeBounds};
use std::sync::Arc;

use super::pcm::{Pcm, SAMPLE_RATE};

/// Bytes of one second of [`Sound`].
pub const SOUND_BYTES_PER_SECOND: u64 = SAMPLE_RATE as u64 * size_of::<i16>() as u64;

/// Samples in a chunk: 1 MiB, so that a recording grows without being copied as a whole.
const CHUNK_SAMPLES: usize = 1 << 19;
/// Bounds of a chunk's full scale: from 48 dB below that of the source to 18 dB above it.
const FAINTEST: f32 = 1.0 / 256.0;
const LOUDEST: f32 = 8.0;
/// Steps of 16 bits on either side of silence.
const STEPS: f32 = 32_768.0;

/// Mono audio at [`SAMPLE_RATE`] that no longer changes. Cloning shares the samples.
///
/// They are kept in 16 bits, as in the reference (openai/whisper `load_audio`). Each half minute has its own full
/// scale, a power of two, so that neither a faint recording nor one beyond full scale suffers: rounding stays
/// about 90 dB below the loudest sample, and samples that came in 16 bits stay exact.
#[derive(Clone, Default)]
pub struct Sound {
    chunks: Arc<[Chunk]>,
    samples: usize,
}

struct Chunk {
    /// In units of `full_scale` / [`STEPS`].
    samples: Vec<i16>,
    full_scale: f32,
}

impl Sound {
    pub fn len(&self) -> usize {
        self.samples
    }

    pub fn is_empty(&self) -> bool {
        self.samples == 0
    }

    pub fn duration_seconds(&self) -> f64 {
        self.samples as f64 / f64::from(SAMPLE_RATE)
    }

    /// A copy of the samples of `range`, clamped to the length: 4 bytes a sample.
    pub fn pcm(&self, range: impl RangeBounds<usize>) -> Pcm {
        let start = match range.start_bound() {
            Bound::Included(&start) => start,
            Bound::Excluded(&start) => start.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(&end) => end.saturating_add(1),
            Bound::Excluded(&end) => end,
            Bound::Unbounded => self.samples,
        };
        let end = end.min(self.samples);
        let mut samples = Vec::with_capacity(end.saturating_sub(start));
        self.append(start..end, &mut samples);
        Pcm::new(samples)
    }

    /// Appends the samples of `range`, clamped to the length.
    pub fn append(&self, range: Range<usize>, samples: &mut Vec<f32>) {
        let mut at = range.start;
        while at < range.end
            && let Some(chunk) = self.chunks.get(at / CHUNK_SAMPLES)
        {
            let start = at % CHUNK_SAMPLES;
            let end = (start + (range.end - at)).min(chunk.samples.len());
            let Some(kept) = chunk.samples.get(start..end).filter(|kept| !kept.is_empty()) else { break };
            let step = chunk.full_scale / STEPS;
            samples.extend(kept.iter().map(|&sample| f32::from(sample) * step));
            at += kept.len();
        }
    }

    /// All of it in order, `samples` at a time; the last piece may be shorter.
    pub fn pieces(&self, samples: usize) -> impl Iterator<Item = Pcm> {
        let samples = samples.max(1);
        (0..self.samples).step_by(samples).map(move |start| self.pcm(start..start.saturating_add(samples)))
    }
}

impl From<&[f32]> for Sound {
    fn from(samples: &[f32]) -> Self {
        let mut recorder = Recorder::default();
        recorder.push(samples);
        recorder.finish()
    }
}

impl From<Pcm> for Sound {
    fn from(pcm: Pcm) -> Self {
        pcm.samples().into()
    }
}

impl std::fmt::Debug for Sound {
    /// Length only: audio never reaches a log.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Sound({:.3} s)", self.duration_seconds())
    }
}

/// A [`Sound`] under construction. Samples are clamped to [`LOUDEST`].
#[derive(Default)]
pub struct Recorder {
    chunks: Vec<Chunk>,
}

impl Recorder {
    pub fn push(&mut self, samples: &[f32]) {
        let mut rest = samples;
        while !rest.is_empty() {
            if self.chunks.last().is_none_or(|chunk| chunk.samples.len() >= CHUNK_SAMPLES) {
                self.chunks.push(Chunk { samples: Vec::new(), full_scale: FAINTEST });
            }
            let Some(chunk) = self.chunks.last_mut() else { return };
            let (head, tail) = rest.split_at(rest.len().min(CHUNK_SAMPLES - chunk.samples.len()));
            chunk.push(head);
            rest = tail;
        }
    }

    /// Samples so far.
    pub fn len(&self) -> usize {
        self.chunks.last().map_or(0, |last| (self.chunks.len() - 1) * CHUNK_SAMPLES + last.samples.len())
    }

    pub fn finish(mut self) -> Sound {
        let samples = self.len();
        if let Some(last) = self.chunks.last_mut() {
            last.samples.shrink_to_fit();
        }
        Sound { chunks: self.chunks.into(), samples }
    }
}

impl Chunk {
    /// Takes samples that fit into it.
    fn push(&mut self, samples: &[f32]) {
        let (highest, lowest) = (peak(samples, 0), peak(samples, SIGN));
        while self.full_scale < LOUDEST
            && (highest * STEPS > self.full_scale * (STEPS - 1.0) || lowest > self.full_scale)
        {
            self.full_scale *= 2.0;
            for sample in &mut self.samples {
                *sample = ((i32::from(*sample) + 1) >> 1) as i16;
            }
        }
        let needed = self.samples.len() + samples.len();
        if needed > self.samples.capacity() {
            // Doubled, but not beyond what a chunk may ever hold.
            let room = (2 * self.samples.capacity()).min(CHUNK_SAMPLES).max(needed);
            self.samples.reserve_exact(room - self.samples.len());
        }
        let steps = STEPS / self.full_scale;
        self.samples.extend(samples.iter().map(|&sample| rounded(sample * steps)));
    }
}

/// The bit of an `f32` that makes it negative.
const SIGN: u32 = 1 << 31;

/// The largest sample of those that are positive once `sign` is turned over, or 0. As bits, positive floats
/// have the order of integers, of which the compiler makes vector code.
fn peak(samples: &[f32], sign: u32) -> f32 {
    let largest = samples.iter().fold(0, |largest, sample| largest.max((sample.to_bits() ^ sign) as i32));
    // A NaN counts as loud, so that the other samples are not cut.
    f32::from_bits(largest as u32).min(f32::INFINITY)
}

/// The nearest integer of 16 bits.
fn rounded(steps: f32) -> i16 {
    /// 1.5 · 2²³: the sum with it has the integer in its lowest bits. `f32::round` would be a call for each sample.
    const SHIFT: f32 = 12_582_912.0;
    (steps.clamp(-STEPS, STEPS - 1.0) + SHIFT).to_bits() as i16
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn recorded(samples: &[f32], piece: usize) -> Sound {
        let mut recorder = Recorder::default();
        samples.chunks(piece).for_each(|piece| recorder.push(piece));
        assert_eq!(recorder.len(), samples.len());
        recorder.finish()
    }

    #[test]
    fn samples_of_16_bits_stay_what_they_were() {
        let every: Vec<f32> = (i16::MIN..=i16::MAX).map(|sample| f32::from(sample) / STEPS).collect();
        // Faint ones first, so that the scale grows on the way.
        let mut grown = every.clone();
        grown.sort_by(|a, b| a.abs().total_cmp(&b.abs()));
        for samples in [every, grown] {
            for piece in [1, 7, 4096, samples.len()] {
                assert_eq!(recorded(&samples, piece).pcm(..).samples(), samples, "in pieces of {piece}");
            }
        }
    }

    #[test]
    fn loud_and_faint_recordings_keep_their_shape() {
        for level in [1e-4, 0.003, 0.4, 1.0, 1.9, 7.9] {
            let samples: Vec<f32> = (0..20_000).map(|n| level * (n as f32 * 0.37).sin()).collect();
            let sound = recorded(&samples, 777);
            let error = |(a, b): (&f32, &f32)| (a - b).abs();
            let worst = samples.iter().zip(sound.pcm(..).samples()).map(error).fold(0.0, f32::max);
            let step = FAINTEST / STEPS;
            // A step is at most the 16,384th part of the peak, and is rounded to twice where the scale grows.
            assert!(worst <= (level / 14_000.0).max(step), "{level}: off by {worst}");
        }
    }

    #[test]
    fn one_loud_moment_costs_its_chunk_and_no_other() {
        let mut samples = vec![0.001; 2 * CHUNK_SAMPLES];
        samples[CHUNK_SAMPLES + 9] = 100.0;
        samples[CHUNK_SAMPLES + 10] = f32::NAN;
        samples[CHUNK_SAMPLES + 11] = f32::NEG_INFINITY;
        let pcm = recorded(&samples, 5000).pcm(..);
        assert!((pcm.samples()[CHUNK_SAMPLES - 1] - 0.001).abs() < 1e-7);
        let odd = &pcm.samples()[CHUNK_SAMPLES + 9..CHUNK_SAMPLES + 12];
        assert!((odd[0] - LOUDEST).abs() < 1e-3 && odd[2] == -LOUDEST, "{odd:?}");
        assert!((pcm.samples()[CHUNK_SAMPLES + 12] - 0.001).abs() < 1e-3);
    }

    #[test]
    fn no_more_room_is_taken_than_two_bytes_a_sample() {
        for samples in [1, 1_000, CHUNK_SAMPLES, CHUNK_SAMPLES + 1, 3 * CHUNK_SAMPLES - 1] {
            let sound = recorded(&vec![0.5; samples], 1152);
            let room: usize = sound.chunks.iter().map(|chunk| chunk.samples.capacity()).sum();
            assert_eq!((sound.len(), room), (samples, samples));
        }
    }

    proptest! {
        #[test]
        fn any_range_is_cut_to_what_there_is(length in 0_usize..3000, start in 0_usize..4000, end in 0_usize..4000) {
            let samples: Vec<f32> = (0..length).map(|n| n as f32 / STEPS).collect();
            let sound = recorded(&samples, 100);
            let expected = samples.get(start.min(length)..end.min(length)).unwrap_or_default();
            let pcm = sound.pcm(start..end);
            prop_assert_eq!(pcm.samples(), expected);
            let pieces: Vec<f32> = sound.pieces(end).flat_map(|pcm| pcm.samples().to_vec()).collect();
            prop_assert_eq!(pieces, samples);
        }
    }

    #[test]
    fn a_range_may_lie_over_the_edge_of_chunks() {
        let samples: Vec<f32> = (0..2 * CHUNK_SAMPLES + 5).map(|n| (n % 1000) as f32 / STEPS).collect();
        let sound = recorded(&samples, 4096);
        for range in [CHUNK_SAMPLES - 3..CHUNK_SAMPLES + 3, 10..2 * CHUNK_SAMPLES + 5, 0..CHUNK_SAMPLES] {
            assert_eq!(sound.pcm(range.clone()).samples(), &samples[range]);
        }
    }
}
