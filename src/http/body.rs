//! Request bodies: bounded in size and time, read only on demand, and kept in memory only while they are small.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::StatusCode;
use hyper::body::{Body as _, Incoming};

use super::config::Config;
use super::failure::Failure;
use super::joined::Joined;
use super::spool::{Draft, Spool};
use crate::patience::{Rate, RateTimer};
use crate::share::{Part, Refused, Share, Tenants};

/// A body that grows larger than this moves into a file: half a minute of uncompressed speech stays in memory.
const IN_MEMORY_BYTES_MAX: usize = 1 << 20;
/// The unit in which room for bodies is reserved.
const UNIT_BYTES: u64 = 4096;
const BUSY_RETRY: Duration = Duration::from_secs(1);

/// Why a body could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("Payload size exceeds limit of {limit} bytes.")]
    TooLarge { limit: u64 },
    #[error("The body came too slowly.")]
    TooSlow,
    #[error("the room for bodies is full: {0}")]
    NoRoom(Refused),
    #[error("a body could not be kept in a file: {0}")]
    NoFile(io::ErrorKind),
    #[error("The body ended before its announced length, or was malformed.")]
    Broken,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let message = error.to_string();
        match error {
            Error::TooLarge { .. } => Self::new(StatusCode::PAYLOAD_TOO_LARGE, "PAYLOAD_TOO_LARGE", message),
            Error::TooSlow => Self::new(StatusCode::REQUEST_TIMEOUT, "REQUEST_TIMEOUT", message),
            Error::NoRoom(refused) => Self::refused(refused, BUSY_RETRY),
            Error::NoFile(_) => Self::busy(BUSY_RETRY).because(message),
            Error::Broken => Self::new(StatusCode::BAD_REQUEST, "Bad Request", message),
        }
    }
}

/// A server's limits on bodies.
pub(super) struct Limits {
    rate: Rate,
    bytes_max: u64,
    /// In bytes, in memory and in files.
    room: Share,
    spool: Spool,
}

impl Limits {
    pub(super) fn new(config: &Config, tenants: Tenants) -> Self {
        Self {
            rate: Rate {
                idle: Duration::from_millis(config.body_idle_timeout_ms),
                grace: Duration::from_millis(config.body_grace_ms),
                bytes_per_second_min: config.body_bytes_per_second_min,
            },
            bytes_max: config.body_bytes_max,
            room: Share::new(config.buffered_bytes_max, tenants),
            spool: match &config.spool_dir {
                Some(folder) => Spool::open(folder.clone()),
                None => Spool::at(std::env::temp_dir()),
            },
        }
    }
}

/// Holds the unread part of a body, so that the connection can deal with it afterwards.
#[derive(Clone)]
pub(super) struct Unread(Arc<Mutex<Rest>>);

struct Rest {
    incoming: Option<Incoming>,
    is_begun: bool,
}

impl Unread {
    fn take(&self) -> Option<Incoming> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).incoming.take()
    }

    fn put(&self, incoming: Incoming) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) =
            Rest { incoming: Some(incoming), is_begun: true };
    }

    /// Whether reading has begun. That made hyper send `100 Continue` to a client that asked for it.
    pub(super) fn is_begun(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_begun
    }

    /// The rest of the body, unless it has ended.
    pub(super) fn rest(&self) -> Option<Incoming> {
        self.take().filter(|incoming| !incoming.is_end_stream())
    }
}

/// A request's body, not yet read.
pub struct Body {
    unread: Unread,
    declared: Option<u64>,
    is_empty: bool,
    limits: Arc<Limits>,
    /// 0 for requests without a key, which share one part of the room.
    tenant: u64,
}

impl Body {
    pub(super) fn new(incoming: Incoming, limits: Arc<Limits>) -> (Self, Unread) {
        let declared = incoming.size_hint().exact();
        let is_empty = incoming.is_end_stream();
        let unread = Unread(Arc::new(Mutex::new(Rest { incoming: Some(incoming), is_begun: false })));
        (Self { unread: unread.clone(), declared, is_empty, limits, tenant: 0 }, unread)
    }

    /// Counts what is kept of it in `tenant`'s share.
    #[must_use]
    pub fn charged_to(mut self, tenant: u64) -> Self {
        self.tenant = tenant;
        self
    }

    /// Whether it is known to be empty before it is read.
    pub fn is_empty(&self) -> bool {
        self.is_empty
    }

    /// The length that the client announced.
    pub fn declared_bytes(&self) -> Option<u64> {
        self.declared
    }

    /// Reads the whole body, up to the server's limit.
    ///
    /// # Errors
    /// [`Error`]. A declared length above the limit is refused unread.
    pub async fn collect(self) -> Result<Buffered, Error> {
        let limit = self.limits.bytes_max;
        self.collect_at_most(limit).await
    }

    /// Reads the whole body, up to `limit` bytes or the server's limit, whichever is less.
    ///
    /// # Errors
    /// As [`Body::collect`].
    pub async fn collect_at_most(self, limit: u64) -> Result<Buffered, Error> {
        let mut chunks = self.chunks_at_most(limit)?;
        let mut kept = chunks.keep();
        while let Some(piece) = chunks.next().await? {
            kept.add(piece).await?;
        }
        kept.finish().await
    }

    /// Reads the body piece by piece, up to the server's limit.
    ///
    /// # Errors
    /// [`Error::TooLarge`] for a declared length above the limit, before anything is read.
    pub fn chunks(self) -> Result<Chunks, Error> {
        let limit = self.limits.bytes_max;
        self.chunks_at_most(limit)
    }

    fn chunks_at_most(self, limit: u64) -> Result<Chunks, Error> {
        let limit = limit.min(self.limits.bytes_max);
        if self.declared.is_some_and(|declared| declared > limit) {
            return Err(Error::TooLarge { limit });
        }
        let incoming = Some(self.unread.take().ok_or(Error::Broken)?);
        let timer = RateTimer::new(self.limits.rate);
        let Self { unread, limits, tenant, .. } = self;
        Ok(Chunks { incoming, unread, limits, tenant, timer, limit, received: 0 })
    }
}

/// A body that is read piece by piece. What is kept of it is counted by [`Chunks::keep`] and [`Chunks::room`].
pub struct Chunks {
    /// Taken when this is dropped.
    incoming: Option<Incoming>,
    unread: Unread,
    limits: Arc<Limits>,
    tenant: u64,
    timer: RateTimer,
    limit: u64,
    received: u64,
}

impl Chunks {
    /// The next piece, as it comes from the network; `None` at the end.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        loop {
            let Some(incoming) = &mut self.incoming else { return Ok(None) };
            let frame = self.timer.wait(incoming.frame()).await.ok_or(Error::TooSlow)?;
            let Some(frame) = frame else { return Ok(None) };
            // Trailers are ignored.
            let Ok(data) = frame.map_err(|_| Error::Broken)?.into_data() else { continue };
            self.timer.received(data.len() as u64);
            self.received += data.len() as u64;
            if self.received > self.limit {
                return Err(Error::TooLarge { limit: self.limit });
            }
            return Ok(Some(data));
        }
    }

    /// Keeps pieces of this body, in a file once they are large.
    pub fn keep(&self) -> Keeping {
        Keeping { room: self.room(), limits: self.limits.clone(), place: Place::Memory(Joined::default()) }
    }

    /// Room for what the caller keeps in memory itself; none yet.
    pub fn room(&self) -> Room {
        Room { share: self.limits.room.clone(), tenant: self.tenant, bytes: 0, part: None }
    }
}

impl Drop for Chunks {
    fn drop(&mut self) {
        if let Some(incoming) = self.incoming.take() {
            self.unread.put(incoming);
        }
    }
}

/// Room of the server's budget for bodies, free again once this is dropped.
pub struct Room {
    share: Share,
    tenant: u64,
    bytes: u64,
    part: Option<Part>,
}

impl Room {
    /// Reserves room for so many bytes more.
    ///
    /// # Errors
    /// [`Error::NoRoom`].
    pub fn add(&mut self, bytes: usize) -> Result<(), Error> {
        self.bytes += bytes as u64;
        let wanted = self.bytes.next_multiple_of(UNIT_BYTES);
        match &mut self.part {
            None => self.part = Some(self.share.take(self.tenant, wanted).map_err(Error::NoRoom)?),
            Some(part) if part.amount() < wanted => {
                part.grow(wanted - part.amount()).map_err(Error::NoRoom)?;
            }
            Some(_) => {}
        }
        Ok(())
    }
}

/// A body, or a part of one, as it grows.
pub struct Keeping {
    limits: Arc<Limits>,
    room: Room,
    place: Place,
}

enum Place {
    Memory(Joined),
    File(Draft),
}

impl Keeping {
    /// A place for a body, and room for what is kept beside it, of a budget of their own.
    pub fn alone() -> (Self, Room) {
        let limits = Arc::new(Limits::new(&Config::default(), Tenants::default()));
        let room = || Room { share: limits.room.clone(), tenant: 0, bytes: 0, part: None };
        (Self { room: room(), limits: limits.clone(), place: Place::Memory(Joined::default()) }, room())
    }

    /// # Errors
    /// [`Error::NoRoom`], [`Error::NoFile`].
    pub async fn add(&mut self, piece: Bytes) -> Result<(), Error> {
        self.room.add(piece.len())?;
        let failed = |error: io::Error| Error::NoFile(error.kind());
        match &mut self.place {
            Place::Memory(joined) if joined.len() + piece.len() <= IN_MEMORY_BYTES_MAX => joined.add(piece),
            Place::Memory(joined) => {
                let mut draft = self.limits.spool.create().await.map_err(failed)?;
                for block in std::mem::take(joined).into_blocks() {
                    draft.add(&block).await.map_err(failed)?;
                }
                draft.add(&piece).await.map_err(failed)?;
                self.place = Place::File(draft);
            }
            Place::File(draft) => draft.add(&piece).await.map_err(failed)?,
        }
        Ok(())
    }

    /// # Errors
    /// [`Error::NoFile`].
    pub async fn finish(self) -> Result<Buffered, Error> {
        let bytes = match self.place {
            Place::Memory(joined) => joined.finish(),
            Place::File(draft) => draft.finish().await.map_err(|error| Error::NoFile(error.kind()))?,
        };
        Ok(Buffered { bytes, _room: self.room })
    }
}

/// A body in memory or in a file, counted against the server's budget until it is dropped.
pub struct Buffered {
    bytes: Bytes,
    _room: Room,
}

impl Buffered {
    /// Shares the bytes; keep `self` alive as long as they are used.
    pub fn bytes(&self) -> Bytes {
        self.bytes.clone()
    }
}
