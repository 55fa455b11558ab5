//! Estimates of the work and memory that decoding a file takes, from its header alone. Headers lie: this is for
//! planning, and [`super::decode_within`] enforces bounds.

use std::io::{self, Cursor, Read, Seek, SeekFrom};
use std::panic::{AssertUnwindSafe, catch_unwind};

use bytes::Bytes;
use symphonia::core::formats::probe::Hint;
use symphonia::core::formats::{FormatOptions, TrackType};
use symphonia::core::io::{MediaSource, MediaSourceStream};
use symphonia::core::meta::MetadataOptions;
use symphonia::core::units::{Duration, TimeBase};

use super::container::probe;
use super::decode::{Reading, container_or_bare, wave_header};
use super::error::Error;
use super::limits::{Limits, SAMPLE_RATES};
use super::options::DecodeOptions;
use super::raw::RawFormat;
use super::sniff::{Band, Container};
use super::sound::SOUND_BYTES_PER_SECOND;
use super::wave::Coding;

/// Bytes that are read for an estimate: the index of hours of audio is shorter.
const READ_BYTES_MAX: usize = 4 << 20;
/// Audio that exceeds the limit by so many seconds is refused without decoding it.
const MARGIN_SECONDS: f64 = 1.0;

/// The audio of a file according to its header, with the container's usual values for missing ones.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    pub channels: u16,
    pub sample_rate_hz: u32,
    /// At most the limit: longer audio is refused.
    pub seconds: f64,
}

impl Estimate {
    /// Seconds of audio that decoding yields, all output channels counted; `split` keeps channels apart.
    pub fn output_seconds(&self, split: bool) -> f64 {
        self.seconds * if split { f64::from(self.channels) } else { 1.0 }
    }

    /// The memory of the decoded audio.
    pub fn held_bytes(&self, split: bool) -> u64 {
        (self.output_seconds(split) * SOUND_BYTES_PER_SECOND as f64) as u64
    }

    /// Samples to decode, all channels counted: the measure of the work.
    pub fn source_samples(&self) -> f64 {
        self.seconds * f64::from(self.sample_rate_hz) * f64::from(self.channels)
    }
}

/// Estimates what [`super::decode`] of `bytes` will cost: microseconds, a few milliseconds for a long index.
///
/// # Errors
/// Those of [`super::check`]; [`Error::TooLong`] for samples without compression that are.
pub fn estimate(bytes: &Bytes, options: &DecodeOptions) -> Result<Estimate, Error> {
    match container_or_bare(bytes, options.raw)? {
        Reading::Samples(format) => of_samples(bytes.len(), format, &options.limits),
        Reading::Container(Container::Wave) => {
            let header = wave_header(bytes)?;
            let (audio, _) = header.audio(bytes);
            match header.coding {
                Coding::Samples(format) => of_samples(audio.len(), format, &options.limits),
                Coding::Mpeg => Ok(of_container(&bytes.slice_ref(audio), Container::Mpeg, &options.limits)),
                Coding::Adpcm => Ok(of_container(bytes, Container::Wave, &options.limits)),
            }
        }
        Reading::Container(container) => Ok(of_container(bytes, container, &options.limits)),
    }
}

/// Exact, as it counts the bytes that are there.
fn of_samples(bytes: usize, format: RawFormat, limits: &Limits) -> Result<Estimate, Error> {
    let seconds = (bytes / format.frame_bytes()) as f64 / f64::from(format.sample_rate_hz.max(1));
    if seconds > limits.max_seconds + MARGIN_SECONDS {
        return Err(Error::TooLong { limit_seconds: limits.max_seconds });
    }
    Ok(within(limits, format.channels.into(), format.sample_rate_hz, seconds))
}

fn of_container(bytes: &Bytes, container: Container, limits: &Limits) -> Estimate {
    // The same readers as for decoding, behind the same wall.
    let told = catch_unwind(AssertUnwindSafe(|| told(bytes.clone(), container))).ok().flatten();
    let told = told.unwrap_or_default();
    let usual = usual(container);
    let seconds = told.seconds.unwrap_or(bytes.len() as f64 / usual.bytes_per_second);
    let channels = told.channels.unwrap_or(usual.channels);
    within(limits, channels, told.sample_rate_hz.unwrap_or(usual.sample_rate_hz), seconds)
}

/// Clamped to the limits: nothing outside them is decoded.
fn within(limits: &Limits, channels: usize, sample_rate_hz: u32, seconds: f64) -> Estimate {
    Estimate {
        channels: channels.min(limits.max_channels).clamp(1, usize::from(u16::MAX)) as u16,
        sample_rate_hz: sample_rate_hz.clamp(*SAMPLE_RATES.start(), *SAMPLE_RATES.end()),
        seconds: seconds.min(limits.max_seconds).max(0.0),
    }
}

/// A header's own figures.
#[derive(Default)]
struct Told {
    channels: Option<usize>,
    sample_rate_hz: Option<u32>,
    seconds: Option<f64>,
}

fn told(bytes: Bytes, container: Container) -> Option<Told> {
    let source = Glance { bytes: Cursor::new(bytes), left: READ_BYTES_MAX };
    let stream = MediaSourceStream::new(Box::new(source), Default::default());
    let format = probe(container)?
        .probe(&Hint::new(), stream, FormatOptions::default(), MetadataOptions::default())
        .ok()?;
    let track = format.default_track(TrackType::Audio);
    let parameters = track.and_then(|track| track.codec_params.as_ref()?.audio());
    let sample_rate_hz = parameters.and_then(|parameters| parameters.sample_rate);
    let of_track = track.and_then(|track| seconds(track.time_base, track.duration));
    let of_frames = || Some(track?.num_frames? as f64 / f64::from(sample_rate_hz?));
    let media = format.media_info();
    let told = of_track.or_else(of_frames).or_else(|| seconds(media.time_base, media.duration));
    Some(Told {
        channels: parameters.and_then(|parameters| Some(parameters.channels.as_ref()?.count())),
        sample_rate_hz,
        // A writer that did not know leaves it out or writes 0.
        seconds: told.filter(|seconds| *seconds > 0.0),
    })
}

fn seconds(base: Option<TimeBase>, duration: Option<Duration>) -> Option<f64> {
    Some(base?.calc_duration(duration?)?.as_secs_f64()).filter(|seconds| *seconds > 0.0)
}

/// Typical speech in a container, for values that a header leaves out.
struct Usual {
    channels: usize,
    sample_rate_hz: u32,
    bytes_per_second: f64,
}

fn usual(container: Container) -> Usual {
    let (channels, sample_rate_hz, bytes_per_second) = match container {
        Container::Amr(Band::Narrow) => (1, 8_000, 1_600.0),
        Container::Amr(Band::Wide) => (1, 16_000, 1_600.0),
        // Always so.
        Container::G729 => (1, 8_000, 1_000.0),
        Container::Speex => (1, 16_000, 2_000.0),
        Container::Ogg | Container::Matroska => (2, 48_000, 3_000.0),
        Container::Mp4 | Container::Mpeg | Container::Adts => (2, 48_000, 8_000.0),
        Container::Wave | Container::Aiff | Container::Caf | Container::Flac => (2, 48_000, 16_000.0),
    };
    Usual { channels, sample_rate_hz, bytes_per_second }
}

/// A file of which no more than `left` bytes are read.
struct Glance {
    bytes: Cursor<Bytes>,
    left: usize,
}

impl Read for Glance {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let most = into.len().min(self.left);
        if most == 0 && !into.is_empty() {
            return Err(io::ErrorKind::Other.into());
        }
        let count = self.bytes.read(&mut into[..most])?;
        self.left -= count;
        Ok(count)
    }
}

impl Seek for Glance {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.bytes.seek(to)
    }
}

impl MediaSource for Glance {
    fn is_seekable(&self) -> bool {
        true
    }

    fn byte_len(&self) -> Option<u64> {
        Some(self.bytes.get_ref().len() as u64)
    }
}
