//! Audio formats of participants, converted to and from the samples of the room.

use crate::audio::g711::{linear_to_mulaw, mulaw_to_linear};
use crate::audio::{self, RateConverter, SAMPLE_RATE};
use crate::speech::VOICE_RATE;

/// How a participant's audio is encoded on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Format {
    /// μ-law, otherwise 16-bit little-endian.
    pub is_mulaw: bool,
    pub sample_rate_hz: u32,
}

/// Converts a participant's audio to samples at [`SAMPLE_RATE`].
pub struct Incoming {
    format: Format,
    converter: RateConverter,
    /// The first byte of a sample that a frame has cut.
    half: Option<u8>,
}

impl Incoming {
    /// # Errors
    /// The sample rate is not supported.
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

/// Converts speech at [`VOICE_RATE`] to a participant's format.
pub struct Outgoing {
    format: Format,
    converter: RateConverter,
}

impl Outgoing {
    /// # Errors
    /// Like [`Incoming::new`].
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

    /// Drops audio that has not been written.
    ///
    /// # Errors
    /// Like [`Incoming::new`].
    pub fn clear(&mut self) -> Result<(), audio::Error> {
        *self = Self::new(self.format)?;
        Ok(())
    }
}
