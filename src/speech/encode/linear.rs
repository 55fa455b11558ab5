//! Codings of single samples: 16 bits, and the 8 of G.711. Bare, or as a WAVE file.

use super::code::{Code, Error, linear};
use super::format::Coding;
use super::wave;
use crate::audio::g711::{linear_to_alaw, linear_to_mulaw};

pub struct Linear {
    /// One of the three.
    pub coding: Coding,
    /// The sample rate in the file's head; none: no file.
    pub wave_rate_hz: Option<u32>,
}

impl Code for Linear {
    fn head(&mut self, samples: Option<u64>) -> Result<Vec<u8>, Error> {
        let samples = samples.and_then(|samples| u32::try_from(samples).ok());
        Ok(self.wave_rate_hz.map(|rate| wave::head(self.coding, rate, samples)).unwrap_or_default())
    }

    fn push(&mut self, samples: &[f32]) -> Result<Vec<u8>, Error> {
        let samples = samples.iter().map(|sample| linear(*sample));
        Ok(match self.coding {
            Coding::Mulaw => samples.map(linear_to_mulaw).collect(),
            Coding::Alaw => samples.map(linear_to_alaw).collect(),
            _ => samples.flat_map(i16::to_le_bytes).collect(),
        })
    }

    fn finish(self: Box<Self>) -> Result<Vec<u8>, Error> {
        Ok(Vec::new())
    }
}
