//! The way out of a stream of text: messages, speech in its encoding, and pings while a client waits for either.

use std::time::{Duration, Instant};

use bytes::Bytes;
use serde::Serialize;

use super::super::line::{End, Left};
use crate::http::websocket::Socket;
use crate::patience::within;
use crate::speech::encode::{self, Encoder, Format};

/// Bytes of audio in a message.
const CHUNK_BYTES: usize = 16 << 10;
/// A client that waits for sound gets a ping after as long without a message. LiveKit's plugin gives up after 10 s, which
/// a busy machine may need for a piece; a frame of any kind renews its patience.
const PING_AFTER: Duration = Duration::from_secs(4);

pub const FAILED: End = End(1011, "NET-0000: Internal server error.");
const SLOW: End = End(1011, "NET-0002: Failed to send message.");

pub struct Outlet {
    pub socket: Socket,
    format: Format,
    /// For the speech since the last [`Self::rest`].
    encoder: Option<Encoder>,
    /// When the last frame was sent, or the client began to wait for one.
    sent: Instant,
    write_timeout: Duration,
}

impl Outlet {
    pub fn new(socket: Socket, format: Format, write_timeout: Duration) -> Self {
        Self { socket, format, encoder: None, sent: Instant::now(), write_timeout }
    }

    /// The client waits for sound from now on.
    pub fn waits(&mut self) {
        self.sent = Instant::now();
    }

    /// When a client that still waits is to get a ping.
    pub fn ping_at(&self) -> Instant {
        self.sent + PING_AFTER
    }

    pub async fn message(&mut self, message: &impl Serialize) -> Result<(), Left> {
        let text = serde_json::to_string(message).map_err(std::io::Error::other)?;
        let sent = within(self.write_timeout, self.socket.send_text(text)).await;
        self.waits();
        Ok(sent.ok_or_else(cut)??)
    }

    pub async fn ping(&mut self) -> Result<(), Left> {
        let sent = within(self.write_timeout, self.socket.ping()).await;
        self.waits();
        Ok(sent.ok_or_else(cut)??)
    }

    pub async fn speech(&mut self, samples: &[f32]) -> Result<(), Left> {
        let mut encoder = match self.encoder.take() {
            Some(encoder) => encoder,
            None => Encoder::new(self.format, None).map_err(|error| failed(&error))?,
        };
        let bytes = encoder.push(samples).map_err(|error| failed(&error))?;
        self.encoder = Some(encoder);
        self.audio(bytes).await
    }

    /// Sends audio that the encoder has kept back.
    pub async fn rest(&mut self) -> Result<(), Left> {
        let Some(encoder) = self.encoder.take() else { return Ok(()) };
        let bytes = encoder.finish().map_err(|error| failed(&error))?;
        self.audio(bytes).await
    }

    /// Discards that audio.
    pub fn forget(&mut self) {
        self.encoder = None;
    }

    async fn audio(&mut self, bytes: Vec<u8>) -> Result<(), Left> {
        let mut bytes = Bytes::from(bytes);
        while !bytes.is_empty() {
            let chunk = bytes.split_to(bytes.len().min(CHUNK_BYTES));
            let sent = within(self.write_timeout, self.socket.send_binary(chunk)).await;
            // A frame was begun, so no close frame can follow.
            sent.ok_or_else(cut)??;
            self.waits();
        }
        Ok(())
    }
}

fn cut() -> Left {
    tracing::info!(code = SLOW.0, reason = SLOW.1, "stream of text cut");
    Left::Gone
}

fn failed(error: &encode::Error) -> Left {
    tracing::warn!(%error, "speech could not be encoded");
    Left::With(FAILED)
}
