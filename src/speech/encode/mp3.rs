//! MP3 of a constant bit rate (ISO/IEC 13818-3, layer III at low sampling frequencies).
//!
//! The encoder gives out a stream when the stream is over. So that speech is heard before it ends, each piece of it is a
//! stream of its own: pieces begin and end in silence, and frames of streams that follow each other are one stream.

use oxideav_mp3::{ChannelMode, Mp3Encoder, QualityPreset};

use super::code::{Code, Error, linear};

/// Samples of a frame at 16 to 24 kHz.
const FRAME: usize = 576;
/// Frames of silence after a piece: the codec's delay, in which its last samples come out.
const FRAMES_AFTER: usize = 2;

pub struct Mp3 {
    sample_rate_hz: u32,
    bits_per_second: u32,
    /// Less than a frame.
    pending: Vec<i16>,
}

impl Mp3 {
    /// # Errors
    /// The combination does not exist.
    pub fn new(sample_rate_hz: u32, bits_per_second: u32) -> Result<Self, Error> {
        let mp3 = Self { sample_rate_hz, bits_per_second, pending: Vec::new() };
        mp3.encoder()?;
        Ok(mp3)
    }

    fn encoder(&self) -> Result<Mp3Encoder, Error> {
        let (bit_rate, mode) = (self.bits_per_second / 1000, ChannelMode::SingleChannel);
        Mp3Encoder::new_with_quality_preset(bit_rate, self.sample_rate_hz, mode, QualityPreset::Fast)
            .map_err(|error| Error::Codec("mp3", error.to_string()))
    }

    fn encode(&self, samples: &[i16]) -> Result<Vec<u8>, Error> {
        let failed = |error: &dyn std::fmt::Display| Error::Codec("mp3", error.to_string());
        let mut encoder = self.encoder()?;
        encoder.push_samples(samples).map_err(|error| failed(&error))?;
        encoder.push_samples(&[0; FRAME * FRAMES_AFTER]).map_err(|error| failed(&error))?;
        let mut bytes = Vec::new();
        encoder.finish(&mut bytes).map_err(|error| failed(&error))?;
        Ok(bytes)
    }
}

impl Code for Mp3 {
    fn push(&mut self, samples: &[f32]) -> Result<Vec<u8>, Error> {
        self.pending.extend(samples.iter().map(|sample| linear(*sample)));
        let whole = self.pending.len() / FRAME * FRAME;
        if whole == 0 {
            return Ok(Vec::new());
        }
        let rest = self.pending.split_off(whole);
        let samples = std::mem::replace(&mut self.pending, rest);
        self.encode(&samples)
    }

    fn finish(self: Box<Self>) -> Result<Vec<u8>, Error> {
        if self.pending.is_empty() { Ok(Vec::new()) } else { self.encode(&self.pending) }
    }
}
