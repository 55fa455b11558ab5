//! Bytes to PCM: which reader, within which limits, and a wall around it.

use std::io::Cursor;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::gather::Gather;
use super::raw::{self, RawFormat};
use super::sniff::{self, Container};
use super::{Pcm, container};

/// What one piece of audio may cost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Longer audio is refused, never cut. Seconds, default 600.
    pub max_seconds: f64,
    /// Default 20.
    pub max_channels: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_seconds: 600.0, max_channels: 20 }
    }
}

/// Sample rates that are read, in Hz. Outside them a file is damaged or hostile.
pub(super) const SAMPLE_RATES: std::ops::RangeInclusive<u32> = 4_000..=384_000;

#[derive(Debug, Clone)]
pub struct DecodeOptions {
    /// For bytes that are no container.
    pub raw: Option<RawFormat>,
    /// One [`Pcm`] for each source channel instead of their mean.
    pub split_channels: bool,
    pub limits: Limits,
}

#[derive(Debug)]
pub struct Decoded {
    /// One, or one for each source channel; all of one length.
    pub channels: Vec<Pcm>,
    pub source_channels: u16,
    pub source_sample_rate_hz: u32,
    pub duration_seconds: f64,
    /// Some of the file could not be decoded; what could be is here.
    pub damaged: bool,
}

#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Error {
    #[error("the format is none of those that are read")]
    Unsupported,
    #[error("the audio is corrupt: {0}")]
    Corrupt(String),
    #[error("there is no audio")]
    Empty,
    #[error("the audio is longer than {limit_seconds} s")]
    TooLong { limit_seconds: f64 },
    #[error("there is no thread left to read it")]
    Busy,
}

/// Whether `bytes` look like audio that [`decode`] reads, by their beginning alone: microseconds.
///
/// # Errors
/// [`Error::Empty`], [`Error::Unsupported`], and [`Error::Corrupt`] for a header that makes no sense.
pub fn check(bytes: &[u8], raw: Option<RawFormat>) -> Result<(), Error> {
    match (sniff::container(bytes), raw) {
        _ if bytes.is_empty() => Err(Error::Empty),
        (Some(Container::Wave), _) => sniff::check_wave(bytes),
        (Some(_), _) | (None, Some(_)) => Ok(()),
        (None, None) => Err(Error::Unsupported),
    }
}

/// Decodes a whole file, or raw samples where `options` describe them. The format is known by the
/// bytes alone: a container is read as one even where raw samples were announced.
///
/// Synchronous, some tens of milliseconds for each minute of audio: not for an async thread.
///
/// # Errors
/// See [`Error`]. A file that breaks off yields what comes before, marked as damaged.
pub fn decode(bytes: Bytes, options: &DecodeOptions) -> Result<Decoded, Error> {
    if bytes.is_empty() {
        return Err(Error::Empty);
    }
    let mut gather = Gather::new(options);
    match (sniff::container(&bytes), options.raw) {
        (Some(container), _) => {
            if container == Container::Wave {
                sniff::check_wave(&bytes)?;
            }
            // Readers of untrusted files have panicked on arithmetic before: that costs this file,
            // not the process.
            let trims = container != Container::Mpeg || sniff::tells_its_length(&bytes);
            let source = container::Source { bytes: Box::new(Cursor::new(bytes)), container, trims };
            let read = std::panic::AssertUnwindSafe(|| container::read(source, &mut gather, &mut |_| Ok(())));
            match std::panic::catch_unwind(read) {
                Ok(result) => drop(result?),
                Err(_) if gather.is_empty() => {
                    return Err(Error::Corrupt("its structure makes no sense".into()));
                }
                Err(_) => gather.mark_damaged(),
            }
        }
        (None, Some(format)) => raw::read(&bytes, format, &mut gather)?,
        (None, None) => return Err(Error::Unsupported),
    }
    gather.finish()
}
