//! Conversion of a stream from any sample rate to any other, for conversations.

use rubato::audioadapter_buffers::direct::SequentialSlice;
use rubato::{Fft, FixedSync, Resampler as _};

use super::error::Error;
use super::limits::SAMPLE_RATES;

/// Pieces a second: each takes about 10 ms to fill.
const PIECES_PER_SECOND: u32 = 100;

/// Converts one stream. Frequencies that the new rate cannot hold are filtered out.
pub struct RateConverter {
    /// `None` if both rates are the same.
    fft: Option<Box<Fft<f32>>>,
    pending: Vec<f32>,
    chunk: Vec<f32>,
    /// Output that is still the converter's delay.
    delay: usize,
    ratio: f64,
    pushed: usize,
    given: usize,
}

impl RateConverter {
    /// # Errors
    /// [`Error::Corrupt`] for a rate outside the supported range.
    pub fn new(from_hz: u32, to_hz: u32) -> Result<Self, Error> {
        let failed = |hz: u32| Error::Corrupt(format!("a sample rate of {hz} Hz"));
        for hz in [from_hz, to_hz] {
            if !SAMPLE_RATES.contains(&hz) {
                return Err(failed(hz));
            }
        }
        let fft = match from_hz == to_hz {
            true => None,
            false => {
                let chunk = (from_hz / PIECES_PER_SECOND) as usize;
                let fft = Fft::new(from_hz as usize, to_hz as usize, chunk, 1, FixedSync::Both);
                Some(Box::new(fft.map_err(|_| failed(from_hz))?))
            }
        };
        Ok(Self {
            chunk: vec![0.0; fft.as_ref().map_or(0, |fft| fft.output_frames_max())],
            delay: fft.as_ref().map_or(0, |fft| fft.output_delay()),
            fft,
            pending: Vec::new(),
            ratio: f64::from(to_hz) / f64::from(from_hz),
            pushed: 0,
            given: 0,
        })
    }

    /// Takes the next samples and returns the output that is ready.
    pub fn push(&mut self, samples: &[f32]) -> Vec<f32> {
        let Some(fft) = &mut self.fft else { return samples.to_vec() };
        self.pushed += samples.len();
        self.pending.extend_from_slice(samples);
        let mut output = Vec::new();
        let mut taken = 0;
        while let Some(input) = self.pending.get(taken..taken + fft.input_frames_next()) {
            let (frames, room) = (input.len(), self.chunk.len());
            let Ok(input) = SequentialSlice::new(input, 1, frames) else { break };
            let Ok(mut out) = SequentialSlice::new_mut(&mut self.chunk, 1, room) else { break };
            let Ok((read, written)) = fft.process_into_buffer(&input, &mut out, None) else { break };
            if read == 0 {
                break;
            }
            taken += read;
            let late = self.delay.min(written);
            self.delay -= late;
            output.extend_from_slice(self.chunk.get(late..written).unwrap_or_default());
        }
        self.pending.drain(..taken);
        self.given += output.len();
        output
    }

    /// Ends the stream and returns the rest, which makes the output as long as the input.
    pub fn finish(mut self) -> Vec<f32> {
        let wanted = (self.pushed as f64 * self.ratio).round() as usize;
        let mut rest = Vec::new();
        while self.given < wanted {
            let (given, needed) = (self.given, self.fft.as_ref().map_or(0, |fft| fft.input_frames_next()));
            let silence = vec![0.0; needed];
            rest.extend(self.push(&silence));
            // The delay takes up two pieces at most; without progress there is none to come.
            if self.given == given && self.delay == 0 {
                break;
            }
        }
        rest.truncate(rest.len().saturating_sub(self.given.saturating_sub(wanted)));
        rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tone(rate: u32, hz: f32, samples: usize) -> Vec<f32> {
        (0..samples).map(|n| (n as f32 / rate as f32 * hz * std::f32::consts::TAU).sin()).collect()
    }

    #[test]
    fn a_tone_keeps_its_length_and_its_pitch() {
        for (from, to) in
            [(8_000, 16_000), (16_000, 16_000), (24_000, 8_000), (22_050, 24_000), (48_000, 16_000)]
        {
            let mut converter = RateConverter::new(from, to).expect("usual rates");
            let input = tone(from, 440.0, from as usize);
            let mut output: Vec<f32> = input.chunks(160).flat_map(|piece| converter.push(piece)).collect();
            output.extend(converter.finish());
            assert_eq!(output.len(), to as usize, "{from} to {to}");
            let expected = tone(to, 440.0, to as usize);
            let middle = output.len() / 4..output.len() * 3 / 4;
            let worst = middle.map(|n| (output[n] - expected[n]).abs()).fold(0.0, f32::max);
            // The delay is whole samples: the phase may be off by one.
            assert!(worst < 440.0 / to as f32 * std::f32::consts::TAU + 0.01, "{from} to {to}: {worst}");
        }
    }

    #[test]
    fn what_the_new_rate_cannot_hold_is_filtered_out() {
        let mut converter = RateConverter::new(24_000, 8_000).expect("usual rates");
        let output = converter.push(&tone(24_000, 6_000.0, 24_000));
        let loudest = output[1000..].iter().fold(0.0_f32, |loudest, sample| loudest.max(sample.abs()));
        assert!(loudest < 0.01, "{loudest}");
        assert!(RateConverter::new(0, 8_000).is_err());
    }
}
