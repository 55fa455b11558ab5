//! Speech as bytes: from samples at [`VOICE_RATE`] to a format that clients play, while it is spoken.
//!
//! ```text
//! samples ─▶ resample ─▶ Linear16 | G.711 | MP3 | AAC | FLAC | Opus ─▶ bare | WAVE | Ogg
//! ```

mod aac;
mod code;
mod flac;
mod format;
mod linear;
mod mp3;
mod opus;
mod wave;

pub use code::Error;
pub use format::{Coding, Format};

use super::wav::VOICE_RATE;
use crate::audio::RateConverter;
use aac::Aac;
use code::Code;
use flac::Flac;
use linear::Linear;
use mp3::Mp3;
use opus::OggOpus;

/// Encodes one stream of speech.
pub struct Encoder {
    converter: RateConverter,
    code: Box<dyn Code>,
    /// Sent before the first bytes.
    head: Vec<u8>,
}

impl Encoder {
    /// `samples`: how many there will be at [`VOICE_RATE`], if that is known. Then a WAVE or FLAC file has its length in
    /// its head; otherwise its length is open.
    ///
    /// # Errors
    /// [`Error`].
    pub fn new(format: Format, samples: Option<usize>) -> Result<Self, Error> {
        let Format { coding, sample_rate_hz, is_wave } = format;
        let converter = RateConverter::new(VOICE_RATE, sample_rate_hz)?;
        let samples = samples.map(|samples| {
            (samples as f64 * f64::from(sample_rate_hz) / f64::from(VOICE_RATE)).round() as u64
        });
        let mut code: Box<dyn Code> = match coding {
            Coding::Linear16 | Coding::Mulaw | Coding::Alaw => {
                Box::new(Linear { coding, wave_rate_hz: is_wave.then_some(sample_rate_hz) })
            }
            Coding::Mp3 { bits_per_second } => Box::new(Mp3::new(sample_rate_hz, bits_per_second)?),
            Coding::Aac { bits_per_second } => Box::new(Aac::new(sample_rate_hz, bits_per_second)?),
            Coding::Flac => Box::new(Flac::new(sample_rate_hz)?),
            Coding::Opus { bits_per_second } => Box::new(OggOpus::new(bits_per_second, rand::random())?),
        };
        let head = code.head(samples)?;
        Ok(Self { converter, code, head })
    }

    /// The bytes that are ready after `samples`.
    ///
    /// # Errors
    /// [`Error`].
    pub fn push(&mut self, samples: &[f32]) -> Result<Vec<u8>, Error> {
        let samples = self.converter.push(samples);
        let mut bytes = std::mem::take(&mut self.head);
        bytes.extend(self.code.push(&samples)?);
        Ok(bytes)
    }

    /// The rest.
    ///
    /// # Errors
    /// [`Error`].
    pub fn finish(mut self) -> Result<Vec<u8>, Error> {
        let mut bytes = std::mem::take(&mut self.head);
        bytes.extend(self.code.push(&self.converter.finish())?);
        bytes.extend(self.code.finish()?);
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audio::g711::{alaw_to_linear, mulaw_to_linear};

    fn tone(seconds: f32) -> Vec<f32> {
        let samples = (seconds * VOICE_RATE as f32) as u32;
        (0..samples)
            .map(|n| (n as f32 / VOICE_RATE as f32 * 440.0 * std::f32::consts::TAU).sin() * 0.5)
            .collect()
    }

    fn encoded(format: Format, samples: &[f32]) -> Vec<u8> {
        let mut encoder = Encoder::new(format, None).expect("a usual rate");
        let mut bytes = Vec::new();
        for piece in samples.chunks(1777) {
            bytes.extend(encoder.push(piece).expect("encoded"));
        }
        bytes.extend(encoder.finish().expect("encoded"));
        bytes
    }

    #[test]
    fn samples_keep_their_number_and_their_values() {
        let speech = tone(1.0);
        for (coding, sample_rate_hz, bytes) in [
            (Coding::Linear16, 24_000, 48_000),
            (Coding::Linear16, 48_000, 96_000),
            (Coding::Mulaw, 8_000, 8_000),
            (Coding::Alaw, 16_000, 16_000),
        ] {
            let format = Format { coding, sample_rate_hz, is_wave: false };
            assert_eq!(encoded(format, &speech).len(), bytes, "{format:?}");
        }
        let bytes =
            encoded(Format { coding: Coding::Linear16, sample_rate_hz: 24_000, is_wave: false }, &speech);
        let (samples, _) = bytes.as_chunks::<2>();
        for (bytes, sample) in samples.iter().zip(&speech) {
            assert!((f32::from(i16::from_le_bytes(*bytes)) / 32_767.0 - sample).abs() < 0.0001);
        }
        for (coding, back) in [
            (Coding::Mulaw, mulaw_to_linear as fn(u8) -> i16),
            (Coding::Alaw, alaw_to_linear as fn(u8) -> i16),
        ] {
            let bytes = encoded(Format { coding, sample_rate_hz: 24_000, is_wave: false }, &speech);
            for (code, sample) in bytes.iter().zip(&speech) {
                let error = (f32::from(back(*code)) / 32_768.0 - sample).abs();
                assert!(error < 0.02, "{coding:?}: {sample} came back {error} off");
            }
        }
    }

    #[test]
    fn a_wave_file_has_its_length_if_it_is_known() {
        let speech = tone(0.5);
        let format = Format { coding: Coding::Linear16, sample_rate_hz: 8_000, is_wave: true };
        let mut encoder = Encoder::new(format, Some(speech.len())).expect("a usual rate");
        let mut bytes = encoder.push(&speech).expect("encoded");
        bytes.extend(encoder.finish().expect("encoded"));
        assert_eq!(bytes.len(), 44 + 8_000);
        assert_eq!(bytes[4..8], (bytes.len() as u32 - 8).to_le_bytes());
        assert_eq!(bytes[40..44], 8_000_u32.to_le_bytes());
        let open = encoded(format, &speech);
        assert_eq!((open.len(), &open[40..44]), (bytes.len(), &[0xFF; 4][..]));
    }
}
