//! One client's stream, from the upgrade to the last frame.
//!
//! One task does it all: it reads while there is room for audio, and writes events. If a client sends faster
//! than its audio is recognised, reading pauses; a client that reads nothing is closed.

use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use sha2::{Digest as _, Sha256};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::answer::{self, Asked, Heard, Redactors};
use super::callback::{Callback, Lost};
use super::control::{Change, Control};
use super::wire::Message;
use crate::api::terms;
use crate::http::websocket::{self, ReadError, Socket};
use crate::live::{Error, Event, Live, Progress, Session};
use crate::patience::{Patience, within};
use crate::telemetry::metrics;
use crate::{audio, engine};

/// How long a client may take to answer a close frame.
const GOODBYE: Duration = Duration::from_secs(2);
const FOR_EVER: Duration = Duration::from_secs(365 * 86_400);
/// How long a slow reader may take to accept a message.
const SLOW_GRACE: Duration = Duration::from_secs(2);

/// How a stream ends: a close code and its reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct End(u16, &'static str);

const DONE: End = End(1000, "");
const STOPPING: End = End(1001, "The server is stopping.");
const NO_AUDIO: End =
    End(1008, "DATA-0000: The payload cannot be decoded as audio. See https://dpgr.am/data0000");
const NO_RESPONSE: End = End(
    1011,
    "Deepgram did not provide a response message within the timeout window. See https://dpgr.am/net0000",
);
/// The wire format's own words: clients look for them.
const IDLE: End = End(
    1011,
    "Deepgram did not receive audio data or a text message within the timeout window. See https://dpgr.am/net0001",
);
const UNDELIVERED: End = End(1011, "The callback does not take the stream's messages.");
const BUSY: End = End(1013, "The server cannot take another stream of encoded audio.");
const SLOW: End = End(1013, "The client did not take in its messages in time.");

/// Why the loop ended.
enum Left {
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
struct Active;

impl Active {
    fn new() -> Self {
        metrics::STREAMS.with(&[]).increment(1);
        Self
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        metrics::STREAMS.with(&[]).decrement(1);
    }
}

pub struct Connection<'a> {
    socket: Socket,
    session: Session,
    asked: Asked,
    redactors: Redactors,
    live: &'a Live,
    /// Delivers the messages instead, if the client wants that.
    callback: Option<Callback>,
    sha256: Sha256,
    /// When the last words were recognised.
    language: Option<String>,
    /// The client has sent all of its audio.
    is_closing: bool,
    /// How to close once everything is sent.
    end: End,
}

impl<'a> Connection<'a> {
    pub fn new(
        socket: Socket,
        session: Session,
        asked: Asked,
        live: &'a Live,
        callback: Option<Callback>,
    ) -> Self {
        let sha256 = Sha256::new();
        Self {
            socket,
            session,
            asked,
            redactors: Redactors::default(),
            live,
            callback,
            sha256,
            language: None,
            is_closing: false,
            end: DONE,
        }
    }

    /// Runs the stream to its end.
    pub async fn run(mut self: Box<Self>, stop: CancellationToken) {
        let _active = Active::new();
        let left = self.converse(&stop).await;
        let (code, reason) = match left {
            Left::With(End(code, reason)) => (Some(code), reason),
            Left::Answer(code, reason) => (code, reason),
            Left::Gone => (None, "gone"),
        };
        tracing::info!(code, reason, seconds = self.session.duration(), "stream ended");
        let awaits_goodbye = matches!(left, Left::With(_));
        // Releases the engine's capacity before the closing handshake.
        self.session.close();
        if !matches!(left, Left::Gone) {
            let _ = timeout(GOODBYE, farewell(&mut self.socket, code, reason, awaits_goodbye)).await;
        }
    }

    async fn converse(&mut self, stop: &CancellationToken) -> Left {
        let mut idle = Patience::new(Duration::from_millis(self.live.config().idle_timeout_ms));
        let mut was_read = true;
        loop {
            let reads = self.is_closing || self.session.wants_audio();
            if !(was_read && reads) {
                // The client is not idle while the server does not read.
                idle.renew();
            }
            was_read = reads;
            if self.is_closing {
                // A client that has sent everything need not send anything more.
                idle = Patience::new(FOR_EVER);
            }
            let moved = tokio::select! {
                message = self.socket.next_by(&mut idle), if reads => match message {
                    None => Err(Left::With(IDLE)),
                    Some(Ok(message)) => {
                        if matches!(message, websocket::Message::Text(_) | websocket::Message::Binary(_)) {
                            idle.renew();
                        }
                        self.received(message).await
                    }
                    Some(Err(ReadError::Violation(violation))) => {
                        Err(Left::Answer(Some(violation.code), violation.reason))
                    }
                    Some(Err(ReadError::Gone)) => Err(Left::Gone),
                },
                progress = self.session.next() => match progress {
                    Ok(progress) => self.told(progress).await,
                    Err(error) => Err(error.into()),
                },
                lost = lost(&mut self.callback) => {
                    tracing::info!(error = %anyhow::Error::new(lost), "callback lost");
                    Err(Left::With(UNDELIVERED))
                }
                () = stop.cancelled(), if !self.is_closing => {
                    self.end = STOPPING;
                    self.finish()
                }
            };
            if let Err(left) = moved {
                return left;
            }
        }
    }

    async fn received(&mut self, message: websocket::Message) -> Result<(), Left> {
        match message {
            websocket::Message::Binary(_) | websocket::Message::Text(_) if self.is_closing => Ok(()),
            // The wire format's older way to end the audio.
            websocket::Message::Binary(bytes) if bytes.is_empty() => self.finish(),
            websocket::Message::Binary(bytes) => self.audio(bytes),
            websocket::Message::Text(text) => self.control(&text).await,
            websocket::Message::Ping(payload) => Ok(self.socket.pong(payload).await?),
            websocket::Message::Pong => Ok(()),
            websocket::Message::Close(code) => Err(Left::Answer(code, "")),
        }
    }

    fn audio(&mut self, bytes: Bytes) -> Result<(), Left> {
        self.sha256.update(&bytes);
        Ok(self.session.push(bytes)?)
    }

    async fn control(&mut self, text: &str) -> Result<(), Left> {
        match Control::read(text) {
            Some(Control::KeepAlive) => Ok(()),
            Some(Control::Finalize { channel }) => {
                self.session.finalize(channel);
                Ok(())
            }
            Some(Control::CloseStream) => self.finish(),
            Some(Control::Configure(change)) => self.configure(&change).await,
            None => {
                let description = "A text message was not understood.";
                let message = "Expected KeepAlive, Finalize, Configure or CloseStream as JSON; audio goes in \
                               binary messages.";
                self.send(Message::Error { variant: "SchemaError", description, message }).await
            }
        }
    }

    /// Applies to the open span as well.
    async fn configure(&mut self, change: &Change) -> Result<(), Left> {
        let request_id = self.asked.request_id;
        let parameters = &mut self.asked.parameters.common;
        let message = match change.apply(parameters) {
            Ok(()) => {
                if change.keyterms.is_some() {
                    self.session.set_bias(&terms::terms(parameters));
                }
                Message::ConfigureSuccess { request_id, keyterms: change.keyterms.clone() }
            }
            Err(unchanged) => Message::ConfigureFailure {
                request_id,
                code: unchanged.code,
                description: unchanged.description,
            },
        };
        self.send(message).await
    }

    fn finish(&mut self) -> Result<(), Left> {
        self.is_closing = true;
        Ok(self.session.finish()?)
    }

    async fn told(&mut self, progress: Progress) -> Result<(), Left> {
        match progress {
            Progress::Moved => Ok(()),
            Progress::Event(event) => self.tell(event).await,
            Progress::Ended => {
                let heard = Heard {
                    sha256: self.sha256.clone().finalize().into(),
                    duration_seconds: self.session.duration(),
                    source_channels: self.session.source_channels(),
                    shortfall: self.session.shortfall(),
                    voice_without_words: self.session.voice_without_words(),
                    language: self.language.take(),
                };
                let metadata = answer::metadata(&self.asked, &heard, self.live.model());
                // The client gets this message as well: it waits for the end.
                if self.callback.is_some() {
                    self.deliver(&metadata).await?;
                }
                self.send(metadata).await?;
                Err(Left::With(self.delivered().await))
            }
        }
    }

    async fn tell(&mut self, event: Event) -> Result<(), Left> {
        if let Event::Results(heard) = &event {
            self.language.clone_from(&heard.language);
        }
        let (channels, model) = (self.session.channels(), self.live.model());
        let message = answer::message(&self.asked, &mut self.redactors, event, channels, model);
        if self.callback.is_some() { self.deliver(&message).await } else { self.send(message).await }
    }

    async fn deliver(&mut self, message: &Message) -> Result<(), Left> {
        let text = serde_json::to_string(message).map_err(std::io::Error::other)?;
        let limit = Duration::from_millis(self.live.config().write_timeout_ms);
        let Some(callback) = &self.callback else { return Ok(()) };
        within(limit, callback.send(text.into())).await.ok_or(Left::With(UNDELIVERED))
    }

    /// How the stream closes, once its messages are delivered.
    async fn delivered(&mut self) -> End {
        match self.callback.take() {
            Some(callback) => match callback.finish().await {
                Ok(()) => self.end,
                Err(lost) => {
                    tracing::info!(error = %anyhow::Error::new(lost), "callback lost");
                    UNDELIVERED
                }
            },
            None => self.end,
        }
    }

    async fn send(&mut self, message: Message) -> Result<(), Left> {
        let text = serde_json::to_string(&message).map_err(std::io::Error::other)?;
        let limit = Duration::from_millis(self.live.config().write_timeout_ms);
        let mut sending = pin!(self.socket.send_text(text));
        match within(limit, sending.as_mut()).await {
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
}

/// Pending if there is no callback, or while it works.
async fn lost(callback: &mut Option<Callback>) -> Lost {
    match callback {
        Some(callback) => callback.lost().await,
        None => std::future::pending().await,
    }
}

/// Sends a close frame, and waits for the client's unless it has come.
async fn farewell(socket: &mut Socket, code: Option<u16>, reason: &str, awaits_goodbye: bool) {
    if socket.close(code, reason).await.is_err() {
        return;
    }
    if awaits_goodbye {
        while !matches!(socket.next().await, Ok(websocket::Message::Close(_)) | Err(_)) {}
    }
    socket.linger().await;
}
