//! Bytes to PCM: which reader, within which limits, and a wall around it.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::budget::{Budget, Meter};
use super::gather::Gather;
use super::raw::{self, RawFormat};
use super::sniff::{self, Band, Container, foreign};
use super::wave::{self, Coding};
use super::{Sound, container};

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

/// The format of bytes that are no container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bare {
    Samples(RawFormat),
    Speech(SpeechCoding),
}

/// How speech without a container is coded; each has one channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpeechCoding {
    /// At 8 kHz, in the frames of files.
    AmrNarrow,
    /// At 16 kHz, likewise.
    AmrWide,
    /// At 8 kHz, in frames of 10 bytes.
    G729,
    /// In packets, whose bounds are those of the messages that bring them.
    Speex { sample_rate_hz: u32 },
}

impl SpeechCoding {
    /// # Errors
    /// [`Error::Unsupported`] for a sample rate that it does not have.
    pub fn check(self) -> Result<(), Error> {
        match self {
            Self::Speex { sample_rate_hz } if !SPEEX_SAMPLE_RATES.contains(&sample_rate_hz) => {
                Err(Error::Unsupported(format!("Speex at {sample_rate_hz} Hz instead of 8, 16 or 32 kHz")))
            }
            _ => Ok(()),
        }
    }

    /// As what a stream of bytes is read; `None` where those do not tell packets apart.
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
    /// For bytes that are no container.
    pub raw: Option<Bare>,
    /// One [`Sound`] for each source channel instead of their mean.
    pub split_channels: bool,
    pub limits: Limits,
}

#[derive(Debug)]
pub struct Decoded {
    /// One, or one for each source channel; all of one length.
    pub channels: Vec<Sound>,
    pub source_channels: u16,
    pub source_sample_rate_hz: u32,
    pub duration_seconds: f64,
    /// Some of the file could not be decoded; what could be is here.
    pub damaged: bool,
}

#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Error {
    /// Another format: what it is, as far as that can be told.
    #[error("{0} is not read")]
    Unsupported(String),
    #[error("the audio is corrupt: {0}")]
    Corrupt(String),
    #[error("there is no audio")]
    Empty,
    #[error("the audio is longer than {limit_seconds} s")]
    TooLong { limit_seconds: f64 },
    #[error("there is no thread left to read it")]
    Busy,
    /// The caller's budget ended it.
    #[error("decoding was stopped")]
    Stopped,
}

/// Whether `bytes` look like audio that [`decode`] reads, by their beginning alone: microseconds.
///
/// # Errors
/// [`Error::Empty`], [`Error::Unsupported`], and [`Error::Corrupt`] for a header that makes no sense.
pub fn check(bytes: &[u8], raw: Option<Bare>) -> Result<(), Error> {
    match container_or_bare(bytes, raw)? {
        Reading::Container(Container::Wave) => wave_header(bytes).map(drop),
        Reading::Container(_) | Reading::Samples(_) => Ok(()),
    }
}

/// How bytes are read.
pub(super) enum Reading {
    Container(Container),
    Samples(RawFormat),
}

/// A container that the bytes show wins over the format that the caller announced.
pub(super) fn container_or_bare(bytes: &[u8], raw: Option<Bare>) -> Result<Reading, Error> {
    if bytes.is_empty() {
        return Err(Error::Empty);
    }
    if let Some(container) = sniff::container(bytes) {
        return Ok(Reading::Container(container));
    }
    match raw {
        Some(Bare::Samples(format)) => Ok(Reading::Samples(format)),
        Some(Bare::Speech(coding)) => match coding.container() {
            Some(container) => Ok(Reading::Container(container)),
            None => {
                Err(Error::Unsupported("Speex without Ogg, whose packets do not tell where they end,".into()))
            }
        },
        None => Err(Error::Unsupported(foreign::name(bytes).into())),
    }
}

pub(super) fn wave_header(bytes: &[u8]) -> Result<wave::Header, Error> {
    wave::header(bytes)?.ok_or_else(|| Error::Corrupt("it ends in its header".into()))
}

/// Decodes a whole file, or raw samples where `options` describe them. The format is known by the
/// bytes alone: a container is read as one even where raw samples were announced.
///
/// Synchronous, some tens of milliseconds for each minute of audio: not for an async thread.
///
/// # Errors
/// See [`Error`]. A file that breaks off yields what comes before, marked as damaged.
pub fn decode(bytes: Bytes, options: &DecodeOptions) -> Result<Decoded, Error> {
    decode_within(bytes, options, &mut |_| Ok(()))
}

/// As [`decode`], as long as `budget` lets it go on; the last report comes when all is decoded.
///
/// # Errors
/// As [`decode`], and those of `budget`.
pub fn decode_within(bytes: Bytes, options: &DecodeOptions, budget: Budget<'_>) -> Result<Decoded, Error> {
    let mut gather = Gather::new(options);
    let mut meter = Meter::new(budget);
    match container_or_bare(&bytes, options.raw)? {
        Reading::Samples(format) => read_samples(&bytes, format, &mut gather, &mut meter)?,
        Reading::Container(Container::Wave) => read_wave(bytes, &mut gather, &mut meter)?,
        Reading::Container(container) => read_container(bytes, container, &mut gather, &mut meter)?,
    }
    meter.report(&gather)?;
    gather.finish()
}

fn read_wave(bytes: Bytes, gather: &mut Gather, meter: &mut Meter<'_>) -> Result<(), Error> {
    let header = wave_header(&bytes)?;
    let (audio, is_whole) = header.audio(&bytes);
    if !is_whole {
        gather.mark_damaged();
    }
    match header.coding {
        Coding::Samples(format) => read_samples(audio, format, gather, meter),
        Coding::Mpeg => read_container(bytes.slice_ref(audio), Container::Mpeg, gather, meter),
        Coding::Adpcm => read_container(bytes, Container::Wave, gather, meter),
    }
}

/// A second at a time, each of which counts as a packet.
fn read_samples(
    bytes: &[u8],
    format: RawFormat,
    gather: &mut Gather,
    meter: &mut Meter<'_>,
) -> Result<(), Error> {
    let second = format.frame_bytes().saturating_mul(format.sample_rate_hz as usize).max(1);
    for piece in bytes.chunks(second) {
        raw::read(piece, format, gather)?;
        meter.packet(gather)?;
    }
    Ok(())
}

fn read_container(
    bytes: Bytes,
    container: Container,
    gather: &mut Gather,
    meter: &mut Meter<'_>,
) -> Result<(), Error> {
    let trims = container != Container::Mpeg || sniff::tells_its_length(&bytes);
    let source = container::Source::whole(bytes, container, trims);
    // Readers of untrusted files have panicked on arithmetic before: that costs this file, not the
    // process.
    let read =
        std::panic::AssertUnwindSafe(|| container::read(source, gather, &mut |gather| meter.packet(gather)));
    match std::panic::catch_unwind(read) {
        Ok(result) => result.map(drop),
        Err(_) if gather.is_empty() => Err(Error::Corrupt("its structure makes no sense".into())),
        Err(_) => {
            gather.mark_damaged();
            Ok(())
        }
    }
}
