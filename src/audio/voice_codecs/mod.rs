//! Telephone codecs, which encode a model of the voice rather than a spectrum. Their streams are sequences of
//! frames of 10 or 20 ms.

pub mod amr;
pub mod g729;
pub mod speex;

use super::error::Error;
use super::gather::Gather;

/// Full scale of the samples from these decoders.
const FULL_SCALE: f32 = 32_768.0;

/// The callback after each frame, as in [`super::container::read`].
pub type Decoded<'a> = &'a mut dyn FnMut(&mut Gather) -> Result<(), Error>;

fn extend(samples: &mut Vec<f32>, pcm: &[i16]) {
    samples.extend(pcm.iter().map(|&sample| f32::from(sample) / FULL_SCALE));
}
