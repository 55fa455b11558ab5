//! Decoding of audio that comes in pieces, as it comes.
//!
//! Samples and packets without a container are converted when they are pushed, and so are those of a
//! WAVE file once its header is there. Any other container is read on its own thread, because its reader blocks
//! for bytes at any point. The channels to and from it are bounded, so that a slow reader holds up the sender.
//! The output does not depend on where the pieces are cut.
//!
//! A stream ends when the sender ends it, not where a container claims to end: bytes after that are still audio
//! in a WAVE file, and ignored in others.
//!
//! An MP4 file whose index comes after its audio cannot be read before its end, and neither can CAF: it is
//! kept, up to [`KEPT_BYTES_MAX`], and read when the sender ends the stream.

mod reading;

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::error::Error;
use super::gather::Gather;
use super::mp4::{self, Index};
use super::options::SpeechCoding;
use super::opus::Packets;
use super::raw::{self, RawFormat};
use super::sniff::{self, Container, foreign};
use super::voice_codecs::speex;
use super::wave::{self, Coding as WaveCoding};
pub use reading::Piece;
use reading::{Input, Reading};

/// Bytes within which a container must be recognised.
const SNIFFED_BYTES_MAX: usize = 4096;
/// Bytes before which recognition is not tried: a frame of MPEG audio shows by the header of the next one.
const SNIFFED_BYTES_MIN: usize = 16;
/// The longest file that can be read only as a whole: half an hour of AAC at 64 kbit/s.
pub const KEPT_BYTES_MAX: usize = 16 << 20;
/// The index of an MP4 file must end before this.
const INDEX_BYTES_MAX: usize = 4 << 20;

/// The format that the sender announced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamFormat {
    /// Samples without a container.
    Raw(RawFormat),
    /// Opus packets of so many channels, one to a push; or a container of them.
    Opus { channels: u16 },
    /// Frames of speech, or a file of them. Speex packets are one to a push.
    Speech(SpeechCoding),
    /// A container, recognised by its first bytes.
    Container,
    /// MPEG audio, which may begin in the middle of a frame.
    Mpeg,
    /// AAC in ADTS frames, likewise.
    Adts,
}

pub struct StreamOptions {
    pub format: StreamFormat,
    /// One output for each source channel instead of their mean.
    pub split_channels: bool,
    pub max_channels: usize,
    /// Reading a container takes a permit, as it costs a thread.
    pub readers: Arc<Semaphore>,
}

/// A decoder of one stream.
pub struct PcmStream {
    options: StreamOptions,
    state: State,
    source_channels: Option<u16>,
    is_caught_up: bool,
    has_ended: bool,
}

enum State {
    /// Converted when it is pushed.
    Direct {
        coding: Coding,
        gather: Gather,
        output: Vec<Vec<f32>>,
    },
    /// The first bytes of a container.
    Unknown {
        first: Vec<u8>,
        /// The permit of its reader, if much is kept.
        place: Option<OwnedSemaphorePermit>,
    },
    Reading(Reading),
    Ended,
}

enum Coding {
    Samples {
        format: RawFormat,
        /// The bytes of an incomplete last frame.
        rest: Vec<u8>,
    },
    Opus(Box<Packets>),
    Speex(Box<speex::Packets>),
}

impl Coding {
    fn samples(format: RawFormat) -> Self {
        Self::Samples { format, rest: Vec::new() }
    }

    fn push(&mut self, bytes: &[u8], gather: &mut Gather) -> Result<(), Error> {
        match self {
            Self::Samples { format, rest } => read_raw(bytes, *format, rest, gather),
            Self::Opus(packets) => packets.push(bytes, gather),
            Self::Speex(packets) => packets.push(bytes, gather),
        }
    }
}

impl PcmStream {
    pub fn new(options: StreamOptions) -> Self {
        let state = match options.format {
            StreamFormat::Raw(format) => State::direct(Coding::samples(format), &options),
            _ => State::Unknown { first: Vec::new(), place: None },
        };
        Self { options, state, source_channels: None, is_caught_up: true, has_ended: false }
    }

    /// Channels of the source, once known.
    pub fn source_channels(&self) -> Option<u16> {
        self.source_channels
    }

    /// Whether more can be pushed before [`Self::next`] is called again.
    pub fn is_hungry(&self) -> bool {
        match &self.state {
            State::Direct { output, .. } => output.is_empty(),
            State::Reading(reading) => reading.is_hungry(),
            State::Unknown { .. } | State::Ended => true,
        }
    }

    /// Whether everything pushed has come out; [`Piece::CaughtUp`] is returned once each time.
    pub fn is_caught_up(&self) -> bool {
        self.is_caught_up
    }

    /// Takes the next bytes. Call it while [`Self::is_hungry`].
    ///
    /// # Errors
    /// Those of decoding; [`Error::Busy`] if no thread is left to read a container.
    pub fn push(&mut self, bytes: Bytes) -> Result<(), Error> {
        self.is_caught_up = false;
        match &mut self.state {
            State::Direct { coding, gather, output } => {
                coding.push(&bytes, gather)?;
                self.source_channels = gather.source_channels();
                *output = gather.take();
                Ok(())
            }
            State::Unknown { first, .. } => {
                if first.is_empty()
                    && sniff::packaged(&bytes).is_none()
                    && let Some(coding) = in_packets(self.options.format)?
                {
                    self.state = State::direct(coding, &self.options);
                    return self.push(bytes);
                }
                first.extend_from_slice(&bytes);
                self.begin(false)
            }
            State::Reading(reading) => {
                reading.push(bytes);
                Ok(())
            }
            State::Ended => Ok(()),
        }
    }

    /// Ends the stream.
    ///
    /// # Errors
    /// As [`Self::push`].
    pub fn finish(&mut self) -> Result<(), Error> {
        self.has_ended = true;
        match &mut self.state {
            State::Unknown { first, .. } if first.is_empty() => self.state = State::Ended,
            State::Unknown { .. } => self.begin(true)?,
            _ => {}
        }
        match &mut self.state {
            State::Direct { gather, output, .. } => {
                for (channel, tail) in gather.finish_stream()?.into_iter().enumerate() {
                    match output.get_mut(channel) {
                        Some(output) => output.extend(tail),
                        None => output.push(tail),
                    }
                }
            }
            State::Reading(reading) => reading.finish(),
            State::Unknown { .. } | State::Ended => {}
        }
        Ok(())
    }

    /// The next piece of output; pending while there is none. Cancel-safe.
    ///
    /// # Errors
    /// Those of decoding.
    pub async fn next(&mut self) -> Result<Piece, Error> {
        match &mut self.state {
            State::Direct { output, .. } => {
                if output.iter().any(|channel| !channel.is_empty()) {
                    return Ok(Piece::Pcm(std::mem::take(output)));
                }
                output.clear();
                if self.has_ended {
                    self.state = State::Ended;
                }
            }
            State::Reading(reading) => match reading.next(self.has_ended, &mut self.source_channels).await {
                Ok(Piece::Pcm(pcm)) => return Ok(Piece::Pcm(pcm)),
                Ok(Piece::CaughtUp) if self.is_caught_up => return Ok(Piece::Pcm(Vec::new())),
                Ok(Piece::CaughtUp) => {}
                Ok(Piece::End) => self.state = State::Ended,
                // If the sender broke off, the audio so far is all there is.
                Err(_) if self.has_ended && self.source_channels.is_some() => self.state = State::Ended,
                Err(error) => {
                    self.state = State::Ended;
                    return Err(error);
                }
            },
            State::Unknown { .. } | State::Ended => {}
        }
        if self.has_ended && matches!(self.state, State::Ended) {
            return Ok(Piece::End);
        }
        if !std::mem::replace(&mut self.is_caught_up, true) {
            return Ok(Piece::CaughtUp);
        }
        std::future::pending().await
    }

    /// Starts reading once the container is recognised.
    fn begin(&mut self, is_all: bool) -> Result<(), Error> {
        let State::Unknown { first, place } = &mut self.state else { return Ok(()) };
        if first.len() < SNIFFED_BYTES_MIN && !is_all {
            return Ok(());
        }
        let container = match (sniff::container(first), self.options.format) {
            (Some(container), _) => Some(container),
            (None, StreamFormat::Mpeg) => Some(Container::Mpeg),
            (None, StreamFormat::Adts) => Some(Container::Adts),
            (None, StreamFormat::Speech(coding)) => coding.container(),
            (None, _) => None,
        };
        let Some(container) = container else {
            let is_hopeless = is_all || first.len() >= SNIFFED_BYTES_MAX;
            return if is_hopeless { Err(Error::Unsupported(foreign::name(first).into())) } else { Ok(()) };
        };
        if container == Container::Wave {
            return self.begin_wave(is_all);
        }
        let arrived = if is_all { Arrival::All } else { arrival(container, first)? };
        let input = match arrived {
            Arrival::All => Input::Whole(Bytes::from(std::mem::take(first))),
            Arrival::Enough => Input::Arriving(Bytes::from(std::mem::take(first))),
            Arrival::TooLittle => return Ok(()),
            Arrival::Kept if first.len() > KEPT_BYTES_MAX => {
                let reason =
                    format!("more than {KEPT_BYTES_MAX} bytes of it would have to be kept until its end");
                return Err(Error::Corrupt(reason));
            }
            Arrival::Kept => {
                if place.is_none() {
                    *place = Some(self.options.readers.clone().try_acquire_owned().map_err(|_| Error::Busy)?);
                }
                return Ok(());
            }
        };
        self.read(container, input)
    }

    /// As [`Self::begin`], for bytes that begin as a WAVE file.
    fn begin_wave(&mut self, is_all: bool) -> Result<(), Error> {
        let State::Unknown { first, .. } = &mut self.state else { return Ok(()) };
        let Some(header) = wave::header(first)? else {
            return if is_all { Err(Error::Corrupt("it ends in its header".into())) } else { Ok(()) };
        };
        let bytes = Bytes::from(std::mem::take(first));
        let audio = bytes.slice(header.start..);
        match header.coding {
            WaveCoding::Samples(format) => {
                self.state = State::direct(Coding::samples(format), &self.options);
                self.push(audio)
            }
            WaveCoding::Mpeg => self.read(Container::Mpeg, Input::Arriving(audio)),
            WaveCoding::Adpcm => self.read(Container::Wave, Input::Arriving(bytes)),
        }
    }

    fn read(&mut self, container: Container, input: Input) -> Result<(), Error> {
        let held = match &mut self.state {
            State::Unknown { place, .. } => place.take(),
            _ => None,
        };
        let place = match held {
            Some(place) => place,
            None => self.options.readers.clone().try_acquire_owned().map_err(|_| Error::Busy)?,
        };
        let gather = Gather::stream(self.options.split_channels, self.options.max_channels);
        self.state = State::Reading(Reading::start(input, container, gather, place)?);
        Ok(())
    }
}

/// The part of a file that has come.
enum Arrival {
    TooLittle,
    /// Enough to begin to read it.
    Enough,
    /// It cannot be read before its end.
    Kept,
    All,
}

fn arrival(container: Container, first: &[u8]) -> Result<Arrival, Error> {
    Ok(match container {
        // Its first packet names the codec.
        Container::Ogg if first.len() < sniff::OGG_BYTES => Arrival::TooLittle,
        // The sizes of its packets may be behind them.
        Container::Caf => Arrival::Kept,
        Container::Mp4 => match mp4::index(first) {
            Some(Index::Ahead) => Arrival::Enough,
            Some(Index::Behind) => Arrival::Kept,
            None if first.len() > INDEX_BYTES_MAX => {
                return Err(Error::Corrupt(format!("its index is longer than {INDEX_BYTES_MAX} bytes")));
            }
            None => Arrival::TooLittle,
        },
        _ => Arrival::Enough,
    })
}

/// The decoder of packets that come one to a push; `None` for other formats.
fn in_packets(format: StreamFormat) -> Result<Option<Coding>, Error> {
    Ok(match format {
        StreamFormat::Opus { channels } => Some(Coding::Opus(Box::new(Packets::new(channels)?))),
        StreamFormat::Speech(SpeechCoding::Speex { sample_rate_hz }) => {
            Some(Coding::Speex(Box::new(speex::Packets::new(sample_rate_hz)?)))
        }
        _ => None,
    })
}

impl State {
    fn direct(coding: Coding, options: &StreamOptions) -> Self {
        let gather = Gather::stream(options.split_channels, options.max_channels);
        Self::Direct { coding, gather, output: Vec::new() }
    }
}

/// Converts the whole frames of the bytes left over and of `bytes`.
fn read_raw(bytes: &[u8], format: RawFormat, rest: &mut Vec<u8>, gather: &mut Gather) -> Result<(), Error> {
    let frame = format.frame_bytes();
    let mut bytes = bytes;
    if !rest.is_empty() {
        let (head, tail) = bytes.split_at(bytes.len().min(frame - rest.len()));
        rest.extend_from_slice(head);
        bytes = tail;
        if rest.len() < frame {
            return Ok(());
        }
        raw::read(rest, format, gather)?;
        rest.clear();
    }
    let (whole, tail) = bytes.split_at(bytes.len() - bytes.len() % frame);
    rest.extend_from_slice(tail);
    raw::read(whole, format, gather)
}
