//! The caller's options: the format of bare audio, and the form of the output.

use super::error::Error;
use super::limits::Limits;
use super::raw::RawFormat;
use super::sniff::{Band, Container};

/// The format of bytes that are no container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bare {
    Samples(RawFormat),
    Speech(SpeechCoding),
}

/// Codings of speech without a container; each has one channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpeechCoding {
    /// At 8 kHz, in the frames of files.
    AmrNarrow,
    /// At 16 kHz, likewise.
    AmrWide,
    /// At 8 kHz, in frames of 10 bytes.
    G729,
    /// In packets, one to a message.
    Speex { sample_rate_hz: u32 },
}

impl SpeechCoding {
    /// # Errors
    /// [`Error::Unsupported`] for a sample rate that the coding lacks.
    pub fn check(self) -> Result<(), Error> {
        match self {
            Self::Speex { sample_rate_hz } if !SPEEX_SAMPLE_RATES.contains(&sample_rate_hz) => {
                Err(Error::Unsupported(format!("Speex at {sample_rate_hz} Hz instead of 8, 16 or 32 kHz")))
            }
            _ => Ok(()),
        }
    }

    /// The container that a stream of bytes is read as; `None` if bytes alone do not separate the packets.
    pub(super) fn container(self) -> Option<Container> {
        match self {
            Self::AmrNarrow => Some(Container::Amr(Band::Narrow)),
            Self::AmrWide => Some(Container::Amr(Band::Wide)),
            Self::G729 => Some(Container::G729),
            Self::Speex { .. } => None,
        }
    }
}

impl From<RawFormat> for Bare {
    fn from(format: RawFormat) -> Self {
        Self::Samples(format)
    }
}

/// Narrowband, wideband and ultra-wideband, in Hz.
const SPEEX_SAMPLE_RATES: [u32; 3] = [8_000, 16_000, 32_000];

#[derive(Debug, Clone)]
pub struct DecodeOptions {
    /// The format of bytes that are no container.
    pub raw: Option<Bare>,
    /// One [`super::Sound`] for each source channel instead of their mean.
    pub split_channels: bool,
    pub limits: Limits,
}
