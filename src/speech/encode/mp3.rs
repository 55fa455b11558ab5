//! MP3 of a constant bit rate (ISO/IEC 13818-3, layer III at low sampling frequencies).
//!
//! The encoder produces output only at the end of a stream. So that speech is heard before it ends, each piece of it is a
//! stream of its own, which begins with the last frames of the piece before: they give the encoder's filters their past,
//! and are left out of the output. No frame takes bits from another one, so what remains is one stream.

use oxideav_mp3::{ChannelMode, Mp3Encoder, QualityPreset};

use super::code::{Code, Error, linear};

/// Samples of a frame at 16 to 24 kHz.
const FRAME: usize = 576;
/// Samples after the last ones until these come out: the delay of the filter bank and of the transform.
const DELAY: usize = 481 + FRAME;
/// Frames of the piece before that reach into the first one of a piece.
const LEAD_IN: usize = 2;
/// Bytes of a frame's header.
const HEADER: usize = 4;

pub struct Mp3 {
    sample_rate_hz: u32,
    bits_per_second: u32,
    /// The lead-in of the next frames, and less than a frame after it.
    pending: Vec<i16>,
    /// Samples of the lead-in: none at the beginning.
    lead_in: usize,
}

impl Mp3 {
    /// # Errors
    /// The combination does not exist.
    pub fn new(sample_rate_hz: u32, bits_per_second: u32) -> Result<Self, Error> {
        let mp3 = Self { sample_rate_hz, bits_per_second, pending: Vec::new(), lead_in: 0 };
        mp3.encoder()?;
        Ok(mp3)
    }

    fn encoder(&self) -> Result<Mp3Encoder, Error> {
        let (bit_rate, mode) = (self.bits_per_second / 1000, ChannelMode::SingleChannel);
        Mp3Encoder::new_with_quality_preset(bit_rate, self.sample_rate_hz, mode, QualityPreset::Fast)
            .map_err(|error| Error::Codec("mp3", error.to_string()))
    }

    /// The frames of `samples`, whole ones, without those of the lead-in.
    fn encode(&self, samples: &[i16]) -> Result<Vec<u8>, Error> {
        let failed = |error: &dyn std::fmt::Display| Error::Codec("mp3", error.to_string());
        let mut encoder = self.encoder()?;
        encoder.push_samples(samples).map_err(|error| failed(&error))?;
        let mut bytes = Vec::new();
        encoder.finish(&mut bytes).map_err(|error| failed(&error))?;
        let mut lead_in = 0;
        for _ in 0..self.lead_in / FRAME {
            let header =
                bytes.get(lead_in..).and_then(<[u8]>::first_chunk).ok_or(failed(&"a frame is missing"))?;
            lead_in += self.frame_bytes(*header);
        }
        Ok(bytes.split_off(lead_in.min(bytes.len())))
    }

    /// The size of the frame that begins with `header` (ISO/IEC 11172-3, 2.4.3.1, of half the samples).
    fn frame_bytes(&self, header: [u8; HEADER]) -> usize {
        let padding = usize::from(header[2] >> 1 & 1);
        (FRAME / 8 * self.bits_per_second as usize) / self.sample_rate_hz as usize + padding
    }
}

impl Code for Mp3 {
    fn push(&mut self, samples: &[f32]) -> Result<Vec<u8>, Error> {
        self.pending.extend(samples.iter().map(|sample| linear(*sample)));
        let whole = self.pending.len() / FRAME * FRAME;
        if whole == self.lead_in {
            return Ok(Vec::new());
        }
        let bytes = self.encode(&self.pending[..whole])?;
        self.lead_in = whole.min(LEAD_IN * FRAME);
        self.pending.drain(..whole - self.lead_in);
        Ok(bytes)
    }

    fn finish(mut self: Box<Self>) -> Result<Vec<u8>, Error> {
        if self.pending.is_empty() {
            return Ok(Vec::new());
        }
        let length = (self.pending.len() + DELAY).next_multiple_of(FRAME);
        self.pending.resize(length, 0);
        self.encode(&self.pending)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: u32 = 22_050;

    fn speech(samples: usize) -> Vec<f32> {
        (0..samples).map(|n| ((n as f32 * 0.06).sin() + (n as f32 * 0.011).sin()) * 0.3).collect()
    }

    fn encoded(samples: &[f32], piece: usize) -> Vec<u8> {
        let mut mp3 = Box::new(Mp3::new(RATE, 48_000).unwrap());
        let mut bytes = Vec::new();
        for piece in samples.chunks(piece) {
            bytes.extend(mp3.push(piece).unwrap());
        }
        bytes.extend(mp3.finish().unwrap());
        bytes
    }

    fn frames(bytes: &[u8]) -> Vec<&[u8]> {
        let mp3 = Mp3::new(RATE, 48_000).unwrap();
        let (mut frames, mut rest) = (Vec::new(), bytes);
        while let Some(header) = rest.first_chunk() {
            assert_eq!(header[..2], [0xFF, 0xF3], "a header after {} frames", frames.len());
            let (frame, after) = rest.split_at(mp3.frame_bytes(*header));
            frames.push(frame);
            rest = after;
        }
        frames
    }

    #[test]
    fn pieces_are_one_stream_without_silence_between_them() {
        let speech = speech(RATE as usize + 123);
        let whole = encoded(&speech, speech.len());
        let samples = frames(&whole).len() * FRAME;
        assert!((speech.len()..speech.len() + DELAY + FRAME).contains(&samples), "{samples}");
        for piece in [5_000, 3 * FRAME + 1] {
            assert_eq!(frames(&encoded(&speech, piece)).len() * FRAME, samples, "in pieces of {piece}");
        }
        assert!(encoded(&[], 1).is_empty());
    }
}
