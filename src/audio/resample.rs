//! Resampling of one channel from any rate to [`SAMPLE_RATE`], piece by piece.

use rubato::audioadapter_buffers::direct::SequentialSlice;
use rubato::{Fft, FixedSync, Resampler};

use super::error::Error;
use super::pcm::SAMPLE_RATE;

/// Input frames that are resampled at a time, about.
const CHUNK_FRAMES: usize = 1024;
/// For streams, at most about this part of a second is held back.
const STREAM_CHUNKS_PER_SECOND: usize = 32;

/// A resampler of one channel. Its delay is removed, so that times stay the same and the output is as long as the
/// input, to a sample.
pub struct Resampling {
    /// `None` if the rate is right already.
    fft: Option<Box<Fft<f32>>>,
    /// Input that does not fill a chunk yet.
    pending: Vec<f32>,
    /// The buffer for one chunk of output.
    chunk: Vec<f32>,
    output: Vec<f32>,
    /// Output of an earlier rate, which comes before all of `output`.
    before: Vec<f32>,
    /// Input frames that are resampled at a time, about.
    chunk_frames: usize,
    /// Output samples at the start that are delay and not yet removed.
    delay: usize,
    /// Output samples that were taken already.
    taken: u64,
    pushed: u64,
    ratio: f64,
}

impl Resampling {
    pub fn new(sample_rate_hz: u32) -> Result<Self, Error> {
        Self::in_chunks(sample_rate_hz, CHUNK_FRAMES)
    }

    /// As [`Self::new`], with little held back between pushes.
    pub fn prompt(sample_rate_hz: u32) -> Result<Self, Error> {
        Self::in_chunks(sample_rate_hz, CHUNK_FRAMES.min(sample_rate_hz as usize / STREAM_CHUNKS_PER_SECOND))
    }

    fn in_chunks(sample_rate_hz: u32, chunk_frames: usize) -> Result<Self, Error> {
        let fft = match sample_rate_hz {
            SAMPLE_RATE => None,
            other => Some(Box::new(
                Fft::new(other as usize, SAMPLE_RATE as usize, chunk_frames, 1, FixedSync::Both)
                    .map_err(|error| Error::Corrupt(format!("a sample rate of {other} Hz: {error}")))?,
            )),
        };
        Ok(Self {
            chunk: vec![0.0; fft.as_ref().map_or(0, |fft| fft.output_frames_max())],
            delay: fft.as_ref().map_or(0, |fft| fft.output_delay()),
            fft,
            pending: Vec::new(),
            output: Vec::new(),
            before: Vec::new(),
            chunk_frames,
            taken: 0,
            pushed: 0,
            ratio: f64::from(SAMPLE_RATE) / f64::from(sample_rate_hz),
        })
    }

    /// Goes on at another rate; its output follows that of the first without a gap.
    pub fn change(&mut self, sample_rate_hz: u32) -> Result<(), Error> {
        let next = Self::in_chunks(sample_rate_hz, self.chunk_frames)?;
        self.before = std::mem::replace(self, next).finish()?;
        Ok(())
    }

    pub fn push(&mut self, samples: &[f32]) -> Result<(), Error> {
        self.pushed += samples.len() as u64;
        if self.fft.is_none() {
            self.output.extend_from_slice(samples);
            return Ok(());
        }
        self.pending.extend_from_slice(samples);
        self.run()
    }

    /// Resamples the whole chunks of what is pending.
    fn run(&mut self) -> Result<(), Error> {
        let Some(fft) = &mut self.fft else { return Ok(()) };
        let failed = |error: &dyn std::fmt::Display| Error::Corrupt(format!("resampling failed: {error}"));
        let mut taken = 0;
        while self.pending.len() - taken >= fft.input_frames_next() {
            let frames = fft.input_frames_next();
            let room = self.chunk.len();
            let input = SequentialSlice::new(&self.pending[taken..taken + frames], 1, frames)
                .map_err(|e| failed(&e))?;
            let mut output = SequentialSlice::new_mut(&mut self.chunk, 1, room).map_err(|e| failed(&e))?;
            let (read, written) =
                fft.process_into_buffer(&input, &mut output, None).map_err(|error| failed(&error))?;
            taken += read;
            self.output.extend_from_slice(&self.chunk[..written]);
        }
        self.pending.drain(..taken);
        Ok(())
    }

    /// Takes the output since the last call.
    pub fn take(&mut self) -> Vec<f32> {
        let delay = self.delay.min(self.output.len());
        self.delay -= delay;
        self.output.drain(..delay);
        self.taken += self.output.len() as u64;
        joined(std::mem::take(&mut self.before), std::mem::take(&mut self.output))
    }

    /// As [`Self::take`], passed to `sink`; the buffer is kept for later output.
    pub fn drain(&mut self, mut sink: impl FnMut(&[f32])) {
        sink(&std::mem::take(&mut self.before));
        let delay = self.delay.min(self.output.len());
        self.delay -= delay;
        sink(&self.output[delay..]);
        self.taken += (self.output.len() - delay) as u64;
        self.output.clear();
    }

    /// Ends the input and returns the rest of the output.
    pub fn finish(mut self) -> Result<Vec<f32>, Error> {
        if self.fft.is_none() {
            return Ok(joined(self.before, self.output));
        }
        let length = (self.pushed as f64 * self.ratio).round() as u64;
        let wanted = length.saturating_sub(self.taken) as usize + self.delay;
        while self.output.len() < wanted {
            let chunk = self.fft.as_ref().map_or(CHUNK_FRAMES, |fft| fft.input_frames_next());
            self.pending.resize(self.pending.len().next_multiple_of(chunk).max(chunk), 0.0);
            self.run()?;
        }
        self.output.truncate(wanted);
        self.output.drain(..self.delay);
        Ok(joined(self.before, self.output))
    }
}

fn joined(mut before: Vec<f32>, after: Vec<f32>) -> Vec<f32> {
    if before.is_empty() {
        return after;
    }
    before.extend_from_slice(&after);
    before
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resampled(rate: u32, samples: &[f32], piece: usize) -> Vec<f32> {
        let mut resampling = Resampling::new(rate).expect("a usual rate");
        for piece in samples.chunks(piece) {
            resampling.push(piece).expect("pushed");
        }
        resampling.finish().expect("finished")
    }

    #[test]
    fn a_tone_keeps_its_length_its_phase_and_its_pitch_at_every_rate() {
        for rate in [8_000, 11_025, 22_050, 44_100, 48_000, 96_000] {
            let tone =
                |rate: u32| move |n: u32| (n as f32 / rate as f32 * 440.0 * std::f32::consts::TAU).sin();
            let input: Vec<f32> = (0..rate * 3).map(tone(rate)).collect();
            let output = resampled(rate, &input, 777);
            assert_eq!(output.len(), 48_000, "{rate}");
            let expected: Vec<f32> = (0..48_000).map(tone(SAMPLE_RATE)).collect();
            // Away from the ends, where the tone begins and breaks off. The delay is a whole number of
            // samples, so the phase may be off by one: 2π · 440 / 16000.
            let worst = (2_000..46_000).map(|n| (output[n] - expected[n]).abs()).fold(0.0, f32::max);
            assert!(worst < 0.173, "{rate}: {worst}");
        }
    }

    #[test]
    fn a_tone_goes_on_where_the_rate_changes() {
        let rates = [44_100, 16_000, 8_000, 16_000, 48_000];
        for takes in [false, true] {
            let mut resampling = Resampling::prompt(rates[0]).expect("a usual rate");
            let mut output = Vec::new();
            for (second, rate) in rates.into_iter().enumerate() {
                if second > 0 {
                    resampling.change(rate).expect("a usual rate");
                }
                let input: Vec<f32> = (0..rate)
                    .map(|n| (n as f32 / rate as f32 * 440.0 * std::f32::consts::TAU).sin())
                    .collect();
                for piece in input.chunks(500) {
                    resampling.push(piece).expect("pushed");
                    if takes {
                        output.extend(resampling.take());
                    }
                }
            }
            output.extend(resampling.finish().expect("finished"));
            assert_eq!(output.len(), rates.len() * 16_000);
            for (second, output) in output.chunks_exact(16_000).enumerate() {
                let expected = |n: usize| (n as f32 / 16_000.0 * 440.0 * std::f32::consts::TAU).sin();
                let worst = (1_000..15_000).map(|n| (output[n] - expected(n)).abs()).fold(0.0, f32::max);
                assert!(worst < 0.173, "second {second}: {worst}");
            }
        }
    }

    #[test]
    fn nine_minutes_do_not_drift() {
        let rate = 44_100;
        let mut input = vec![0.0; rate as usize * 540];
        let last = input.len() - rate as usize;
        input[rate as usize] = 1.0;
        input[last] = 1.0;
        let output = resampled(rate, &input, 1152);
        assert_eq!(output.len(), 540 * 16_000);
        let peak = |from: usize, to: usize| (from..to).max_by(|&a, &b| output[a].total_cmp(&output[b]));
        assert!(peak(0, 100_000).is_some_and(|n| n.abs_diff(16_000) <= 1));
        assert!(peak(8_000_000, output.len()).is_some_and(|n| n.abs_diff(539 * 16_000) <= 1));
    }
}
