//! One client's stream, from the upgrade to the last frame.
//!
//! One task does it all: it reads while there is room for audio, and writes events. If a client sends faster
//! than its audio is recognised, reading pauses; a client that reads nothing is closed.

use std::time::Duration;

use bytes::Bytes;
use sha2::{Digest as _, Sha256};
use tokio_util::sync::CancellationToken;

use super::answer::{self, Asked, Heard, Redactors};
use super::callback::{Callback, Lost};
use super::control::{Change, Control};
use super::wire::Message;
use crate::api::line::{Active, DONE, End, Left, Line, STOPPING};
use crate::api::terms;
use crate::http::websocket::{Message as Received, Socket};
use crate::live::{Event, Live, Progress, Session};
use crate::patience::within;

const UNDELIVERED: End = End(1011, "The callback does not take the stream's messages.");

pub struct Connection<'a> {
    line: Line,
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
            line: Line::new(socket, live.config()),
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
        left.log(&[UNDELIVERED]);
        let (code, reason) = left.told();
        tracing::info!(code, reason, seconds = self.session.duration(), "stream ended");
        // Releases the engine's capacity before the closing handshake.
        self.session.close();
        self.line.close(&left).await;
    }

    async fn converse(&mut self, stop: &CancellationToken) -> Left {
        loop {
            let reads = self.is_closing || self.session.wants_audio();
            self.line.prepare(reads, self.is_closing);
            let moved = tokio::select! {
                message = self.line.next(), if reads => match message {
                    Ok(message) => self.received(message).await,
                    Err(left) => Err(left),
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

    async fn received(&mut self, message: Received) -> Result<(), Left> {
        match message {
            Received::Binary(_) | Received::Text(_) if self.is_closing => Ok(()),
            // The wire format's older way to end the audio.
            Received::Binary(bytes) if bytes.is_empty() => self.finish(),
            Received::Binary(bytes) => self.audio(bytes),
            Received::Text(text) => self.control(&text).await,
            Received::Ping(payload) => self.line.pong(payload).await,
            Received::Pong => Ok(()),
            Received::Close(code) => Err(Left::Answer(code, "")),
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
                self.line.send(&Message::Error { variant: "SchemaError", description, message }).await
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
        self.line.send(&message).await
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
                self.line.send(&metadata).await?;
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
        match message {
            None => Ok(()),
            Some(message) if self.callback.is_some() => self.deliver(&message).await,
            Some(message) => self.line.send(&message).await,
        }
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
}

/// Pending if there is no callback, or while it works.
async fn lost(callback: &mut Option<Callback>) -> Lost {
    match callback {
        Some(callback) => callback.lost().await,
        None => std::future::pending().await,
    }
}
