//! Audio between a participant's wire and the room, both ways.

use super::wire::Format;
use crate::audio::g711::{linear_to_mulaw, mulaw_to_linear};
use crate::audio::{self, RateConverter, SAMPLE_RATE};
use crate::speech::VOICE_RATE;

/// What a participant sends, to samples at [`SAMPLE_RATE`].
pub struct Incoming {
    format: Format,
    converter: RateConverter,
    /// Half a sample, where a frame ends within one.
    half: Option<u8>,
}

impl Incoming {
    /// # Errors
    /// A sample rate that no audio has.
    pub fn new(format: Format) -> Result<Self, audio::Error> {
        Ok(Self { format, converter: RateConverter::new(format.sample_rate_hz, SAMPLE_RATE)?, half: None })
    }

    pub fn read(&mut self, bytes: &[u8]) -> Vec<f32> {
        let samples: Vec<f32> = if self.format.is_mulaw {
            bytes.iter().map(|code| f32::from(mulaw_to_linear(*code)) / 32_768.0).collect()
        } else {
            let mut whole = Vec::with_capacity(bytes.len() + 1);
            whole.extend(self.half.take());
            whole.extend_from_slice(bytes);
            let (samples, rest) = whole.as_chunks::<2>();
            self.half = rest.first().copied();
            samples.iter().map(|sample| f32::from(i16::from_le_bytes(*sample)) / 32_768.0).collect()
        };
        self.converter.push(&samples)
    }
}

/// Speech at [`VOICE_RATE`], to what a participant takes.
pub struct Outgoing {
    format: Format,
    converter: RateConverter,
}

impl Outgoing {
    /// # Errors
    /// As [`Incoming::new`].
    pub fn new(format: Format) -> Result<Self, audio::Error> {
        Ok(Self { format, converter: RateConverter::new(VOICE_RATE, format.sample_rate_hz)? })
    }

    pub fn write(&mut self, samples: &[f32]) -> Vec<u8> {
        let linear = |sample: f32| (sample * 32_767.0).clamp(-32_768.0, 32_767.0) as i16;
        let samples = self.converter.push(samples);
        if self.format.is_mulaw {
            samples.into_iter().map(|sample| linear_to_mulaw(linear(sample))).collect()
        } else {
            samples.into_iter().flat_map(|sample| linear(sample).to_le_bytes()).collect()
        }
    }

    /// Forgets the piece that has not gone out.
    ///
    /// # Errors
    /// As [`Incoming::new`].
    pub fn clear(&mut self) -> Result<(), audio::Error> {
        *self = Self::new(self.format)?;
        Ok(())
    }
}
