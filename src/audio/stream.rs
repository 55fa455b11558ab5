//! Audio that comes in pieces, to PCM as it comes.
//!
//! Raw samples are converted where they are pushed. A container is read on a thread of its own, since
//! its reader waits for bytes in the middle of things; both ways are bounded, so that a reader that
//! falls behind stops the one who pushes. Where the pieces are cut changes nothing in what comes out.

use std::io::{self, Read, Seek, SeekFrom};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;

use bytes::{Buf as _, Bytes};
use symphonia::core::io::MediaSource;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use super::container::{self, Source};
use super::decode::Error;
use super::gather::Gather;
use super::raw::{self, RawFormat};
use super::sniff::{self, Container};

/// Bytes by which a container must be known.
const SNIFFED_BYTES_MAX: usize = 4096;
/// Fewer are not looked at: a frame of MPEG audio is told by the header of the next one.
const SNIFFED_BYTES_MIN: usize = 16;
/// Pieces on their way to the thread and back.
const PIECES_MAX: usize = 4;

/// What the sender says that the bytes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamFormat {
    /// Samples without a container.
    Raw(RawFormat),
    /// A container, to be known by its first bytes.
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
    /// A place here is needed to read a container, which costs a thread.
    pub readers: Arc<Semaphore>,
}

/// What comes out.
#[derive(Debug, PartialEq)]
pub enum Piece {
    /// Mono at [`super::SAMPLE_RATE`], of equal length: one, or one for each source channel.
    Pcm(Vec<Vec<f32>>),
    /// All that was pushed is decoded, but for what makes sense only with what follows.
    CaughtUp,
    End,
}

/// One stream on its way to PCM.
pub struct PcmStream {
    options: StreamOptions,
    state: State,
    source_channels: Option<u16>,
    has_ended: bool,
}

enum State {
    Raw {
        gather: Gather,
        /// Of the last frame, which is not whole yet.
        rest: Vec<u8>,
        output: Vec<Vec<f32>>,
        is_caught_up: bool,
    },
    /// The first bytes of a container.
    Unknown(Vec<u8>),
    Reading(Reading),
    Ended,
}

/// The near end of a reader's thread.
struct Reading {
    /// `None`: there are no more.
    bytes: Option<mpsc::Sender<Bytes>>,
    /// Pushed, and not yet on its way.
    pending: Option<Bytes>,
    pushed: u64,
    pieces: mpsc::Receiver<Report>,
}

enum Report {
    Pcm {
        channels: Vec<Vec<f32>>,
        source_channels: Option<u16>,
    },
    /// The reader waits for more after so many pieces.
    Starved(u64),
    End(Result<(), Error>),
}

impl PcmStream {
    pub fn new(options: StreamOptions) -> Self {
        let state = match options.format {
            StreamFormat::Raw(_) => State::Raw {
                gather: Gather::stream(options.split_channels, options.max_channels),
                rest: Vec::new(),
                output: Vec::new(),
                is_caught_up: true,
            },
            _ => State::Unknown(Vec::new()),
        };
        Self { options, state, source_channels: None, has_ended: false }
    }

    /// Channels of the source, once known.
    pub fn source_channels(&self) -> Option<u16> {
        self.source_channels
    }

    /// Whether more can be pushed before [`Self::next`] is called again.
    pub fn is_hungry(&self) -> bool {
        match &self.state {
            State::Raw { output, .. } => output.is_empty(),
            State::Reading(reading) => reading.pending.is_none(),
            State::Unknown(_) | State::Ended => true,
        }
    }

    /// Takes the next bytes. To be called while [`Self::is_hungry`].
    ///
    /// # Errors
    /// Raw samples or a container that cannot be read; [`Error::Busy`] where no thread is left for it.
    pub fn push(&mut self, bytes: Bytes) -> Result<(), Error> {
        match &mut self.state {
            State::Raw { gather, rest, output, is_caught_up } => {
                let StreamFormat::Raw(format) = self.options.format else { return Ok(()) };
                read_raw(&bytes, format, rest, gather)?;
                self.source_channels = gather.source_channels();
                *output = gather.take();
                *is_caught_up = false;
                Ok(())
            }
            State::Unknown(first) => {
                first.extend_from_slice(&bytes);
                self.start_reading(false)
            }
            State::Reading(reading) => {
                reading.pushed += 1;
                reading.pending = Some(bytes);
                Ok(())
            }
            State::Ended => Ok(()),
        }
    }

    /// There will be no more bytes.
    ///
    /// # Errors
    /// As [`Self::push`].
    pub fn finish(&mut self) -> Result<(), Error> {
        self.has_ended = true;
        match &mut self.state {
            State::Raw { gather, output, .. } => {
                for (channel, tail) in gather.finish_stream()?.into_iter().enumerate() {
                    match output.get_mut(channel) {
                        Some(output) => output.extend(tail),
                        None => output.push(tail),
                    }
                }
            }
            State::Unknown(first) if first.is_empty() => self.state = State::Ended,
            State::Unknown(_) => self.start_reading(true)?,
            State::Reading(_) | State::Ended => {}
        }
        if let State::Reading(reading) = &mut self.state
            && reading.pending.is_none()
        {
            reading.bytes = None;
        }
        Ok(())
    }

    /// What comes next; pending while there is nothing new to say. Cancel-safe.
    ///
    /// # Errors
    /// What is no audio, or no more.
    pub async fn next(&mut self) -> Result<Piece, Error> {
        match &mut self.state {
            State::Raw { output, is_caught_up, .. } => {
                if output.iter().any(|channel| !channel.is_empty()) {
                    return Ok(Piece::Pcm(std::mem::take(output)));
                }
                output.clear();
                if self.has_ended {
                    self.state = State::Ended;
                    return Ok(Piece::End);
                }
                if !std::mem::replace(is_caught_up, true) {
                    return Ok(Piece::CaughtUp);
                }
                std::future::pending().await
            }
            State::Reading(reading) => {
                let piece = reading.next(self.has_ended, &mut self.source_channels).await;
                if matches!(piece, Ok(Piece::End) | Err(_)) {
                    self.state = State::Ended;
                }
                piece
            }
            State::Ended if self.has_ended => Ok(Piece::End),
            State::Unknown(_) | State::Ended => std::future::pending().await,
        }
    }

    /// Starts the reader's thread once the container is known.
    fn start_reading(&mut self, is_all: bool) -> Result<(), Error> {
        let State::Unknown(first) = &mut self.state else { return Ok(()) };
        if first.len() < SNIFFED_BYTES_MIN && !is_all {
            return Ok(());
        }
        let container = match self.options.format {
            StreamFormat::Mpeg => sniff::container(first).or(Some(Container::Mpeg)),
            StreamFormat::Adts => sniff::container(first).or(Some(Container::Adts)),
            _ => sniff::container(first),
        };
        let Some(container) = container else {
            return if is_all || first.len() >= SNIFFED_BYTES_MAX { Err(Error::Unsupported) } else { Ok(()) };
        };
        if container == Container::Wave && !is_all && first.len() < SNIFFED_BYTES_MAX {
            // Its header is looked at before a reader believes it; the rest of it may be on its way.
            if sniff::check_wave(first).is_err() {
                return Ok(());
            }
        } else if container == Container::Wave {
            sniff::check_wave(first)?;
        }
        let place = self.options.readers.clone().try_acquire_owned().map_err(|_| Error::Busy)?;
        let first = Bytes::from(std::mem::take(first));
        let gather = Gather::stream(self.options.split_channels, self.options.max_channels);
        self.state = State::Reading(Reading::start(first, container, gather, place)?);
        Ok(())
    }
}

/// Converts the whole frames of what was left and of `bytes`.
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

impl Reading {
    fn start(
        first: Bytes,
        container: Container,
        gather: Gather,
        place: OwnedSemaphorePermit,
    ) -> Result<Self, Error> {
        let (bytes, incoming) = mpsc::channel(PIECES_MAX);
        let (reports, pieces) = mpsc::channel(PIECES_MAX);
        let arriving =
            Arriving { current: first, taken: 1, incoming, reports: reports.clone(), has_ended: false };
        let run = move || {
            let _place = place;
            read_container(arriving, container, gather, &reports);
        };
        thread::Builder::new().name("audio-stream".into()).spawn(run).map_err(|_| Error::Busy)?;
        Ok(Self { bytes: Some(bytes), pending: None, pushed: 1, pieces })
    }

    async fn next(&mut self, has_ended: bool, source_channels: &mut Option<u16>) -> Result<Piece, Error> {
        loop {
            if self.pending.is_none() && has_ended {
                self.bytes = None;
            }
            let report = match (&self.bytes, &self.pending) {
                (Some(bytes), Some(_)) => tokio::select! {
                    room = bytes.reserve() => {
                        // Where the reader has ended, what it ended with is on its way.
                        if let (Ok(room), Some(pending)) = (room, self.pending.take()) {
                            room.send(pending);
                        }
                        // Whoever waits to push may.
                        return Ok(Piece::Pcm(Vec::new()));
                    }
                    report = self.pieces.recv() => report,
                },
                _ => self.pieces.recv().await,
            };
            match report {
                Some(Report::Pcm { channels, source_channels: told }) => {
                    *source_channels = told.or(*source_channels);
                    return Ok(Piece::Pcm(channels));
                }
                Some(Report::Starved(taken)) if taken == self.pushed && self.pending.is_none() => {
                    return Ok(Piece::CaughtUp);
                }
                Some(Report::Starved(_)) => {}
                Some(Report::End(Ok(()))) => return Ok(Piece::End),
                Some(Report::End(Err(error))) => return Err(error),
                None => return Err(Error::Corrupt("its reader broke".into())),
            }
        }
    }
}

/// The reader's thread: ends with the bytes, with an error, or when nobody listens.
fn read_container(
    arriving: Arriving,
    container: Container,
    mut gather: Gather,
    reports: &mpsc::Sender<Report>,
) {
    let mut send = |gather: &mut Gather| {
        let report = Report::Pcm { channels: gather.take(), source_channels: gather.source_channels() };
        // Nobody listens: whatever ends the reading will do.
        reports.blocking_send(report).map_err(|_| Error::Empty)
    };
    // A stream has no end that could be trimmed; what comes before its start is in its first packets.
    let source = Source { bytes: Box::new(arriving), container, trims: container != Container::Mpeg };
    // Readers of untrusted bytes have panicked on arithmetic before: that costs this stream alone.
    let read = AssertUnwindSafe(|| container::read(source, &mut gather, &mut send));
    let read = catch_unwind(read).unwrap_or_else(|_| Err(Error::Corrupt("it makes no sense".into())));
    let result = match (read, gather.is_empty()) {
        (Err(error), _) => Err(error),
        (Ok(()), true) => Err(Error::Corrupt("none of it can be decoded".into())),
        (Ok(()), false) => gather.finish_stream().map(|channels| {
            let report = Report::Pcm { channels, source_channels: None };
            let _ = reports.blocking_send(report);
        }),
    };
    let _ = reports.blocking_send(Report::End(result));
}

/// Bytes as they arrive, for a reader that blocks.
struct Arriving {
    current: Bytes,
    /// Pieces taken so far.
    taken: u64,
    incoming: mpsc::Receiver<Bytes>,
    reports: mpsc::Sender<Report>,
    has_ended: bool,
}

impl Read for Arriving {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.current.is_empty() && !self.has_ended {
            let next = match self.incoming.try_recv() {
                Ok(bytes) => Some(bytes),
                Err(mpsc::error::TryRecvError::Disconnected) => None,
                Err(mpsc::error::TryRecvError::Empty) => {
                    if self.reports.blocking_send(Report::Starved(self.taken)).is_err() {
                        return Err(io::ErrorKind::BrokenPipe.into());
                    }
                    self.incoming.blocking_recv()
                }
            };
            match next {
                Some(bytes) => {
                    self.current = bytes;
                    self.taken += 1;
                }
                None => self.has_ended = true,
            }
        }
        let count = into.len().min(self.current.len());
        into[..count].copy_from_slice(&self.current[..count]);
        self.current.advance(count);
        Ok(count)
    }
}

impl Seek for Arriving {
    fn seek(&mut self, _: SeekFrom) -> io::Result<u64> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

impl MediaSource for Arriving {
    fn is_seekable(&self) -> bool {
        false
    }

    fn byte_len(&self) -> Option<u64> {
        None
    }
}
