//! One client's WebSocket while a stream runs: messages in with a limit on idleness, text out with a limit on slowness, and
//! the closing handshake.

use std::pin::pin;
use std::time::Duration;

use serde::Serialize;
use tokio::time::timeout;

use crate::http::websocket::{Message, ReadError, Socket};
use crate::live::{self, Error};
use crate::patience::{Patience, within};
use crate::telemetry::metrics;
use crate::{audio, engine, usage};

/// How long a client may take to answer a close frame.
const GOODBYE: Duration = Duration::from_secs(2);
const FOR_EVER: Duration = Duration::from_secs(365 * 86_400);
/// How long a slow reader may take to accept a message.
const SLOW_GRACE: Duration = Duration::from_secs(2);

/// How a stream ends: a close code and its reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct End(pub u16, pub &'static str);

pub const DONE: End = End(1000, "");
pub const STOPPING: End = End(1001, "The server is stopping.");
pub const NO_AUDIO: End =
    End(1008, "DATA-0000: The payload cannot be decoded as audio. See https://dpgr.am/data0000");
pub const NO_RESPONSE: End = End(
    1011,
    "Deepgram did not provide a response message within the timeout window. See https://dpgr.am/net0000",
);
/// The wire format's own words: clients look for them.
pub const IDLE: End = End(
    1011,
    "Deepgram did not receive audio data or a text message within the timeout window. See https://dpgr.am/net0001",
);
pub const BUSY: End = End(1013, "The server cannot take another stream of encoded audio.");
pub const SLOW: End = End(1013, "The client did not take in its messages in time.");

/// Why a stream was left.
pub enum Left {
    /// Close with this.
    With(End),
    /// The client closed, or broke the protocol: answer with this code.
    Answer(Option<u16>, &'static str),
    Gone,
}

impl From<std::io::Error> for Left {
    fn from(_: std::io::Error) -> Self {
        Self::Gone
    }
}

impl From<Error> for Left {
    fn from(error: Error) -> Self {
        let end = match &error {
            Error::Audio(audio::Error::Busy) => BUSY,
            Error::Audio(_) => NO_AUDIO,
            Error::Engine(engine::Error::ShuttingDown) => STOPPING,
            Error::Engine(_) => NO_RESPONSE,
        };
        tracing::info!(error = %anyhow::Error::new(error), "stream failed");
        Self::With(end)
    }
}

/// Counts a stream as open, however it ends.
pub struct Active;

impl Active {
    pub fn new() -> Self {
        metrics::STREAMS.with(&[]).increment(1);
        Self
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        metrics::STREAMS.with(&[]).decrement(1);
    }
}

pub struct Line {
    socket: Socket,
    idle: Patience,
    idle_limit: Duration,
    write_limit: Duration,
    was_read: bool,
}

impl Line {
    pub fn new(socket: Socket, config: &live::Config) -> Self {
        let idle_limit = Duration::from_millis(config.idle_timeout_ms);
        let write_limit = Duration::from_millis(config.write_timeout_ms);
        Self { socket, idle: Patience::new(idle_limit), idle_limit, write_limit, was_read: true }
    }

    /// With another limit on the time for which the client may be silent.
    #[must_use]
    pub fn idle_after(mut self, limit: Duration) -> Self {
        (self.idle, self.idle_limit) = (Patience::new(limit), limit);
        self
    }

    /// Called before each wait: whether [`Self::next`] will be called, and whether the client has sent everything. A client
    /// is not idle while the server does not read, nor once it need not send anything more.
    pub fn prepare(&mut self, reads: bool, is_closing: bool) {
        if is_closing {
            self.idle = Patience::new(FOR_EVER);
        } else if !(self.was_read && reads) {
            self.idle = Patience::new(self.idle_limit);
        }
        self.was_read = reads;
    }

    /// The next message. Cancel-safe.
    ///
    /// # Errors
    /// [`IDLE`], or why there are no more messages.
    pub async fn next(&mut self) -> Result<Message, Left> {
        match self.socket.next_by(&mut self.idle).await {
            None => Err(Left::With(IDLE)),
            Some(Ok(message)) => {
                if matches!(message, Message::Text(_) | Message::Binary(_)) {
                    self.idle.renew();
                }
                Ok(message)
            }
            Some(Err(ReadError::Violation(violation))) => {
                Err(Left::Answer(Some(violation.code), violation.reason))
            }
            Some(Err(ReadError::Gone)) => Err(Left::Gone),
        }
    }

    /// Sends a message as JSON.
    ///
    /// # Errors
    /// [`SLOW`] if the client does not take it in.
    pub async fn send(&mut self, message: &impl Serialize) -> Result<(), Left> {
        let text = serde_json::to_string(message).map_err(std::io::Error::other)?;
        let mut sending = pin!(self.socket.send_text(text));
        match within(self.write_limit, sending.as_mut()).await {
            Some(sent) => Ok(sent?),
            // A frame that was begun must be finished before a close frame can be sent.
            None => match timeout(SLOW_GRACE, sending).await {
                Ok(Ok(())) => Err(Left::With(SLOW)),
                _ => {
                    tracing::info!(reason = SLOW.1, "stream cut");
                    Err(Left::Gone)
                }
            },
        }
    }

    pub async fn pong(&mut self, payload: bytes::Bytes) -> Result<(), Left> {
        Ok(self.socket.pong(payload).await?)
    }

    pub async fn close(&mut self, left: &Left) {
        close(&mut self.socket, left).await;
    }
}

/// Sends a close frame, and waits for the client's unless it has come.
pub async fn close(socket: &mut Socket, left: &Left) {
    let (code, reason) = left.told();
    let farewell = async {
        if socket.close(code, reason).await.is_err() {
            return;
        }
        if matches!(left, Left::With(_)) {
            while !matches!(socket.next().await, Ok(Message::Close(_)) | Err(_)) {}
        }
        socket.linger().await;
    };
    if !matches!(left, Left::Gone) {
        let _ = timeout(GOODBYE, farewell).await;
    }
}

/// The status of a stream that its client ended by a fault, in the log of requests.
const CLIENT_FAULT: u16 = 400;
const SERVER_FAULT: u16 = 500;
const STOPPED: u16 = 503;

impl Left {
    /// Notes in the log of requests that the stream failed, if it did. `faults`: further ends that are the client's.
    pub fn log(&self, faults: &[End]) {
        let status = match self {
            Self::With(end) if faults.contains(end) => Some(CLIENT_FAULT),
            _ => self.status(),
        };
        if let Some(status) = status {
            usage::ended(status);
        }
    }

    /// As a request would have ended; `None` if the stream was not cut short.
    fn status(&self) -> Option<u16> {
        match *self {
            Self::With(IDLE | SLOW) => Some(CLIENT_FAULT),
            Self::With(End(1000, _)) | Self::Answer(_, "") | Self::Gone => None,
            Self::With(End(1001 | 1013, _)) => Some(STOPPED),
            Self::With(End(1011, _)) => Some(SERVER_FAULT),
            Self::With(_) | Self::Answer(..) => Some(CLIENT_FAULT),
        }
    }

    /// For the log.
    pub fn told(&self) -> (Option<u16>, &'static str) {
        match *self {
            Self::With(End(code, reason)) => (Some(code), reason),
            Self::Answer(code, reason) => (code, reason),
            Self::Gone => (None, "gone"),
        }
    }
}
