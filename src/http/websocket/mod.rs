//! WebSockets (RFC 6455) on the hyper front end.
//!
//! fastwebsockets does the handshake and the outgoing frames; [`frames`] reads the incoming ones, more
//! strictly: unmasked frames, reserved bits, overlong lengths, endless messages and invalid text are refused
//! as soon as they show. No extension is ever agreed to.

mod frames;
mod tunnel;

use std::io;

use bytes::{Bytes, BytesMut};
use fastwebsockets::{Frame, OpCode, Payload};
use hyper::header::{
    CONNECTION, HeaderName, HeaderValue, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use hyper::upgrade::Upgraded;
use hyper::{StatusCode, Version};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use super::failure::Failure;
use super::request::{Request, Upgrades};
use super::response::{Response, empty};
use crate::patience::Patience;
use crate::usage;
use frames::Assembler;

pub use frames::{Limits, Message, Violation};
pub use tunnel::tunnel;

/// Read buffer while the next size is unknown: small, since most sockets are idle.
const IDLE_READ_BYTES: usize = 1024;
const READ_BYTES_MAX: usize = 64 << 10;

/// Answers a handshake, then runs `serve` on the socket in a task of its own, with a token that is cancelled
/// when the server begins to stop: the drain waits for the task.
///
/// `protocol`: the offered subprotocol to agree to.
///
/// # Errors
/// 426 if the request is no handshake of version 13; 400 if it is malformed.
pub fn accept<F, R>(
    request: Request,
    limits: Limits,
    protocol: Option<HeaderValue>,
    serve: F,
) -> Result<Response, Failure>
where
    F: FnOnce(Socket, CancellationToken) -> R + Send + 'static,
    R: Future<Output = ()> + Send,
{
    let mut handshake = hyper::Request::new(());
    *handshake.headers_mut() = request.headers;
    *handshake.extensions_mut() = request.extensions;
    if request.version != Version::HTTP_11 || !fastwebsockets::upgrade::is_upgrade_request(&handshake) {
        return Err(upgrade_required("This path is for POST, or for a WebSocket."));
    }
    if handshake.headers().get(SEC_WEBSOCKET_VERSION).is_none_or(|version| version != "13") {
        return Err(upgrade_required("The WebSocket's version must be 13."));
    }
    let malformed =
        |_| Failure::new(StatusCode::BAD_REQUEST, "Bad Request", "The WebSocket handshake is malformed.");
    let (answer, upgrade) = fastwebsockets::upgrade::upgrade(&mut handshake).map_err(malformed)?;
    let mut response = empty(StatusCode::SWITCHING_PROTOCOLS);
    response.headers_mut().extend(answer.into_parts().0.headers);
    if let Some(protocol) = protocol {
        response.headers_mut().insert(SEC_WEBSOCKET_PROTOCOL, protocol);
    }
    let Upgrades { tasks, permit, stop, cut } = request.upgrades;
    let run = async move {
        let _permit = permit;
        let Ok(socket) = upgrade.await else { return };
        let socket = Socket::new(socket.into_inner(), limits);
        tokio::select! {
            () = cut.cancelled() => {}
            () = serve(socket, stop) => {}
        }
    };
    // The caller's span ends with its answer; this one is a root, and lives as long as the socket.
    let run = usage::within(usage::current(), run);
    tasks.spawn(run.instrument(tracing::info_span!(parent: None, "websocket", id = %request.id)));
    Ok(response)
}

fn upgrade_required(message: &'static str) -> Failure {
    Failure::new(StatusCode::UPGRADE_REQUIRED, "UPGRADE_REQUIRED", message)
        .header(UPGRADE, HeaderValue::from_static("websocket"))
        .header(CONNECTION, HeaderValue::from_static("upgrade"))
        .header(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"))
}

/// The items of `Sec-WebSocket-Protocol`, the only header of a handshake that a browser can set.
pub fn offered_protocols(headers: &hyper::HeaderMap) -> impl Iterator<Item = &str> {
    let values = headers.get_all(HeaderName::from_static("sec-websocket-protocol")).iter();
    values.filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(',')).map(str::trim)
}

/// Why reading ended.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The peer broke the protocol: close with the violation's code.
    #[error(transparent)]
    Violation(#[from] Violation),
    #[error("the connection is gone")]
    Gone,
}

/// The server's end of an open WebSocket.
pub struct Socket {
    stream: TokioIo<Upgraded>,
    input: BytesMut,
    assembler: Assembler,
}

impl Socket {
    fn new(stream: TokioIo<Upgraded>, limits: Limits) -> Self {
        Self { stream, input: BytesMut::new(), assembler: Assembler::new(limits) }
    }

    /// The next complete message or control frame. Cancel-safe.
    ///
    /// # Errors
    /// [`ReadError`]; nothing more can be read after it.
    pub async fn next(&mut self) -> Result<Message, ReadError> {
        loop {
            if let Some(message) = self.assembler.next(&mut self.input)? {
                return Ok(message);
            }
            if self.input.is_empty() {
                // Frees the memory: an idle socket holds next to none.
                self.input = BytesMut::new();
            }
            self.input.reserve(self.assembler.missing().clamp(IDLE_READ_BYTES, READ_BYTES_MAX));
            match self.stream.read_buf(&mut self.input).await {
                Ok(0) | Err(_) => return Err(ReadError::Gone),
                Ok(_) => {}
            }
        }
    }

    /// [`Self::next`]; `None` if `patience` ends first. Cancel-safe.
    pub async fn next_by(&mut self, patience: &mut Patience) -> Option<Result<Message, ReadError>> {
        patience.wait(self.next()).await
    }

    /// # Errors
    /// The peer is gone. Not cancel-safe: a frame written in part cannot be taken back.
    pub async fn send_text(&mut self, text: String) -> io::Result<()> {
        self.send(Frame::text(Payload::Owned(text.into_bytes()))).await
    }

    /// # Errors
    /// As [`Self::send_text`].
    pub async fn send_binary(&mut self, bytes: Bytes) -> io::Result<()> {
        self.send(Frame::binary(Payload::Borrowed(&bytes))).await
    }

    /// # Errors
    /// As [`Self::send_text`].
    pub async fn pong(&mut self, payload: Bytes) -> io::Result<()> {
        self.send(Frame::new(true, OpCode::Pong, None, Payload::Borrowed(&payload))).await
    }

    /// # Errors
    /// As [`Self::send_text`].
    pub async fn ping(&mut self) -> io::Result<()> {
        self.send(Frame::new(true, OpCode::Ping, None, Payload::Borrowed(&[]))).await
    }

    /// Sends a close frame; `code` `None` answers a close frame without a code. `reason` has at most 123
    /// bytes.
    ///
    /// # Errors
    /// As [`Self::send_text`].
    pub async fn close(&mut self, code: Option<u16>, reason: &str) -> io::Result<()> {
        let frame = match code {
            Some(code) => Frame::close(code, reason.as_bytes()),
            None => Frame::close_raw(Payload::Borrowed(&[])),
        };
        self.send(frame).await
    }

    /// Sends nothing more, and drains input until the peer is gone.
    pub async fn linger(&mut self) {
        if self.stream.shutdown().await.is_err() {
            return;
        }
        self.input = BytesMut::new();
        while let Ok(1..) = self.stream.read_buf(&mut self.input).await {
            self.input.clear();
        }
    }

    async fn send(&mut self, mut frame: Frame<'_>) -> io::Result<()> {
        let mut bytes = Vec::new();
        let length = frame.write(&mut bytes).len();
        self.stream.write_all(&bytes[..length]).await?;
        self.stream.flush().await
    }
}
