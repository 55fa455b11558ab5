//! The reader of a container that comes in pieces, on its own thread.

use std::io::{self, Read, Seek, SeekFrom};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use bytes::{Buf as _, Bytes};
use symphonia::core::io::MediaSource;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use crate::audio::container::{self, Source};
use crate::audio::error::Error;
use crate::audio::gather::{Ending, Gather};
use crate::audio::mp4;
use crate::audio::sniff::Container;

/// A piece of a stream's output.
#[derive(Debug, PartialEq)]
pub enum Piece {
    /// Mono at [`crate::audio::SAMPLE_RATE`], of equal length: one, or one for each source channel.
    Pcm(Vec<Vec<f32>>),
    /// Everything pushed so far is decoded, except bytes that only make sense with those that follow.
    CaughtUp,
    End,
}

/// Pieces on their way to the thread and back.
const PIECES_MAX: usize = 4;

/// The handle on a reader's thread.
pub struct Reading {
    /// `None`: there are no more.
    bytes: Option<mpsc::Sender<Bytes>>,
    /// Pushed, and not yet sent to the thread.
    pending: Option<Bytes>,
    pushed: u64,
    pieces: mpsc::Receiver<Report>,
}

/// The input of a reader.
pub enum Input {
    /// The first bytes; more follow.
    Arriving(Bytes),
    /// The whole input.
    Whole(Bytes),
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

impl Reading {
    pub fn start(
        input: Input,
        container: Container,
        gather: Gather,
        place: OwnedSemaphorePermit,
    ) -> Result<Self, Error> {
        let (bytes, incoming) = mpsc::channel(PIECES_MAX);
        let (reports, pieces) = mpsc::channel(PIECES_MAX);
        // A stream has no known end that could be trimmed, and the padding at its start is in its first packets.
        let trims = container != Container::Mpeg;
        let source = match input {
            Input::Whole(bytes) => Source::whole(bytes, container, trims),
            Input::Arriving(first) => {
                let codings = if container == Container::Mp4 { mp4::codings(&first) } else { Vec::new() };
                let arriving = Arriving {
                    current: first,
                    taken: 1,
                    incoming,
                    reports: reports.clone(),
                    has_ended: false,
                };
                Source { bytes: Box::new(arriving), container, trims, codings }
            }
        };
        let run = move || {
            let _place = place;
            read_container(source, gather, &reports);
        };
        thread::Builder::new().name("audio-stream".into()).spawn(run).map_err(|_| Error::Busy)?;
        Ok(Self { bytes: Some(bytes), pending: None, pushed: 1, pieces })
    }

    pub fn is_hungry(&self) -> bool {
        self.pending.is_none()
    }

    pub fn push(&mut self, bytes: Bytes) {
        self.pushed += 1;
        self.pending = Some(bytes);
    }

    /// Ends the input.
    pub fn finish(&mut self) {
        if self.pending.is_none() {
            self.bytes = None;
        }
    }

    /// As [`super::PcmStream::next`]; [`Piece::End`] where the container ends.
    pub async fn next(&mut self, has_ended: bool, source_channels: &mut Option<u16>) -> Result<Piece, Error> {
        loop {
            if self.pending.is_none() && has_ended {
                self.bytes = None;
            }
            let report = match (&self.bytes, &self.pending) {
                (Some(bytes), Some(_)) => tokio::select! {
                    room = bytes.reserve() => match room {
                        Ok(room) => {
                            if let Some(pending) = self.pending.take() {
                                room.send(pending);
                            }
                            // A sender that waits to push may go on.
                            return Ok(Piece::Pcm(Vec::new()));
                        }
                        // The reader has ended, and its last report is on its way.
                        Err(_) => self.pieces.recv().await,
                    },
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

/// The body of the reader's thread: it ends with the bytes, with an error, or when the handle is dropped.
fn read_container(source: Source, mut gather: Gather, reports: &mpsc::Sender<Report>) {
    let mut sent = 0;
    let mut send = |gather: &mut Gather| {
        // A packet without output is not reported.
        let decoded = gather.progress().source_samples;
        if std::mem::replace(&mut sent, decoded) == decoded {
            return Ok(());
        }
        let report = Report::Pcm { channels: gather.take(), source_channels: gather.source_channels() };
        // The handle was dropped: any error ends the reading.
        reports.blocking_send(report).map_err(|_| Error::Empty)
    };
    // Readers of untrusted bytes have panicked on arithmetic before: that may cost this stream alone.
    let read = AssertUnwindSafe(|| container::read(source, &mut gather, &mut send));
    let read = catch_unwind(read).unwrap_or_else(|_| Err(Error::Corrupt("it makes no sense".into())));
    let rest = gather.finish_stream().map(|channels| {
        let report = Report::Pcm { channels, source_channels: None };
        let _ = reports.blocking_send(report);
    });
    let result = match read {
        Err(error) => Err(error),
        Ok(_) if gather.is_empty() => Err(Error::Corrupt("none of it can be decoded".into())),
        Ok(Ending::Broken) => Err(Error::Corrupt("it goes on as something else".into())),
        Ok(Ending::Whole | Ending::Next) => rest,
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
