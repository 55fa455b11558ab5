//! Bytes to PCM: the choice of a reader, and the wall that contains its panics.

use bytes::Bytes;

use super::budget::{Budget, Meter};
use super::container;
use super::error::Error;
use super::gather::{Decoded, Gather};
use super::options::{Bare, DecodeOptions};
use super::raw::{self, RawFormat};
use super::sniff::{self, Container, foreign};
use super::wave::{self, Coding};

/// Checks from their beginning alone whether `bytes` look like audio that [`decode`] reads: microseconds.
///
/// # Errors
/// [`Error::Empty`], [`Error::Unsupported`], and [`Error::Corrupt`] for a header that makes no sense.
pub fn check(bytes: &[u8], raw: Option<Bare>) -> Result<(), Error> {
    match container_or_bare(bytes, raw)? {
        Reading::Container(Container::Wave) => wave_header(bytes).map(drop),
        Reading::Container(_) | Reading::Samples(_) => Ok(()),
    }
}

/// The reader of some bytes.
pub(super) enum Reading {
    Container(Container),
    Samples(RawFormat),
}

/// A container recognised from the bytes wins over the format that the caller announced.
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

/// Decodes a whole file, or raw samples if `options` describe them. The bytes alone decide: a container is read
/// as one even if raw samples were announced.
///
/// Blocks for some tens of milliseconds per minute of audio: do not call it on an async thread.
///
/// # Errors
/// See [`Error`]. A truncated file yields the audio before the break, marked as damaged.
pub fn decode(bytes: Bytes, options: &DecodeOptions) -> Result<Decoded, Error> {
    decode_within(bytes, options, &mut |_| Ok(()))
}

/// As [`decode`], until `budget` ends it; the last report comes when everything is decoded.
///
/// # Errors
/// As [`decode`], and those of `budget`.
pub fn decode_within(bytes: Bytes, options: &DecodeOptions, budget: Budget<'_>) -> Result<Decoded, Error> {
    let mut gather = Gather::new(options.split_channels, options.limits.clone());
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

/// Reads a second at a time, each of which counts as a packet.
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
    // Readers of untrusted files have panicked on arithmetic before: that may cost this file, not the
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
