//! AAC-LC in ADTS frames (ISO/IEC 14496-3).

use oxideav_aac::encoder::{EncoderConfig, FRAME_LEN, StreamEncoder};

use super::code::{Code, Error, linear};

pub struct Aac {
    encoder: StreamEncoder,
    /// Less than a frame.
    pending: Vec<i16>,
}

impl Aac {
    /// # Errors
    /// The combination does not exist.
    pub fn new(sample_rate_hz: u32, bits_per_second: u32) -> Result<Self, Error> {
        let config = EncoderConfig { sample_rate: sample_rate_hz, channels: 1, bitrate: bits_per_second };
        Ok(Self { encoder: StreamEncoder::new(config).map_err(failed)?, pending: Vec::new() })
    }
}

fn failed(error: impl std::fmt::Display) -> Error {
    Error::Codec("aac", error.to_string())
}

impl Code for Aac {
    fn push(&mut self, samples: &[f32]) -> Result<Vec<u8>, Error> {
        self.pending.extend(samples.iter().map(|sample| linear(*sample)));
        let mut bytes = Vec::new();
        let (frames, rest) = self.pending.as_chunks::<FRAME_LEN>();
        for frame in frames {
            bytes.extend(self.encoder.encode_frame(frame).map_err(failed)?);
        }
        self.pending = rest.to_vec();
        Ok(bytes)
    }

    fn finish(mut self: Box<Self>) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::new();
        if !self.pending.is_empty() {
            self.pending.resize(FRAME_LEN, 0);
            bytes.extend(self.encoder.encode_frame(&self.pending).map_err(failed)?);
        }
        bytes.extend(self.encoder.finish().map_err(failed)?);
        Ok(bytes)
    }
}
