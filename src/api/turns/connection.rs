//! One client's conversational stream, from the upgrade to the last frame.

use bytes::Bytes;
use tokio_util::sync::CancellationToken;

use super::answer::{self, Asked, Writer};
use super::control::{Change, Control, Unchanged};
use super::wire::{Message, Numbered};
use crate::api::line::{Active, BUSY, DONE, End, IDLE, Left, Line, NO_AUDIO, NO_RESPONSE, STOPPING};
use crate::api::{language, terms};
use crate::http::websocket::{Message as Received, Socket};
use crate::live::{Live, TurnProgress, TurnSession};

/// Members of one `Configure` message without effect that are reported.
const WARNINGS_MAX: usize = 20;

const NOT_UNDERSTOOD: End = End(1008, "A text message was not understood.");

/// Errors reported in an `Error` message before the stream closes.
const FATAL: [(End, &str, &str); 5] = [
    (
        NOT_UNDERSTOOD,
        "UNPARSABLE_CLIENT_MESSAGE",
        "Text message received from client did not match any of the formats we expect: CloseStream, Configure, ForceEndTurn \
         or KeepAlive as JSON. Audio goes in binary messages.",
    ),
    (NO_AUDIO, "DATA-0000", "The payload cannot be decoded as audio."),
    (NO_RESPONSE, "INTERNAL_SERVER_ERROR", "The audio was not recognised."),
    (IDLE, "NET-0001", "Neither audio nor a text message was received within the timeout window."),
    (BUSY, "TOO_MANY_REQUESTS", "The server cannot take another stream of encoded audio."),
];

pub struct Connection<'a> {
    line: Line,
    session: TurnSession,
    asked: Asked,
    writer: Writer,
    live: &'a Live,
    /// The number of the next message.
    sequence_id: u64,
    /// The client has sent all of its audio.
    is_closing: bool,
    /// How to close once everything is sent.
    end: End,
}

impl<'a> Connection<'a> {
    pub fn new(socket: Socket, session: TurnSession, asked: Asked, live: &'a Live) -> Self {
        let writer = Writer::new(&asked.parameters);
        let line = Line::new(socket, live.config());
        Self { line, session, asked, writer, live, sequence_id: 0, is_closing: false, end: DONE }
    }

    /// Runs the stream to its end.
    pub async fn run(mut self: Box<Self>, stop: CancellationToken) {
        let _active = Active::new();
        let left = self.converse(&stop).await;
        let left = self.confess(left).await;
        left.log(&[]);
        let (code, reason) = left.told();
        tracing::info!(code, reason, seconds = self.session.duration(), "stream ended");
        // Releases the engine's capacity before the closing handshake.
        self.session.close();
        self.line.close(&left).await;
    }

    async fn converse(&mut self, stop: &CancellationToken) -> Left {
        for message in answer::greetings(&self.asked, self.live.model()) {
            if let Err(left) = self.send(&message).await {
                return left;
            }
        }
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
            Received::Binary(bytes) if bytes.is_empty() => self.finish(),
            Received::Binary(bytes) => self.audio(bytes),
            Received::Text(text) => self.control(&text).await,
            Received::Ping(payload) => self.line.pong(payload).await,
            Received::Pong => Ok(()),
            Received::Close(code) => Err(Left::Answer(code, "")),
        }
    }

    fn audio(&mut self, bytes: Bytes) -> Result<(), Left> {
        Ok(self.session.push(bytes)?)
    }

    async fn control(&mut self, text: &str) -> Result<(), Left> {
        match Control::read(text) {
            Some(Ok(Control::KeepAlive)) => Ok(()),
            Some(Ok(Control::ForceEndTurn)) => {
                self.session.force_end();
                Ok(())
            }
            Some(Ok(Control::CloseStream)) => self.finish(),
            Some(Ok(Control::Configure(change))) => self.configure(&change).await,
            Some(Err(unchanged)) => self.unchanged(unchanged).await,
            None => Err(Left::With(NOT_UNDERSTOOD)),
        }
    }

    /// Applies to what is decided from here on.
    async fn configure(&mut self, change: &Change) -> Result<(), Left> {
        let parameters = &mut self.asked.parameters;
        let message = match change.apply(parameters, self.live.model()) {
            Ok(()) => {
                self.session.set_thresholds(parameters.thresholds);
                if change.keyterms.is_some() {
                    self.session.set_bias(&terms::terms(&parameters.common));
                }
                if change.language_hints.is_some()
                    && let Ok(choice) = language::choice(&parameters.of_language(), self.live.model())
                {
                    self.session.set_language(&choice);
                }
                answer::configured(&self.asked)
            }
            Err(unchanged) => return self.unchanged(unchanged).await,
        };
        let request_id = self.asked.request_id;
        let idle: Vec<_> = change.without_effect(&self.asked.parameters).take(WARNINGS_MAX).collect();
        for name in idle {
            self.send(&answer::without_effect(request_id, name)).await?;
        }
        self.send(&message).await
    }

    async fn unchanged(&mut self, unchanged: Unchanged) -> Result<(), Left> {
        let Unchanged { code, description } = unchanged;
        let request_id = self.asked.request_id;
        self.send(&Message::ConfigureFailure { request_id, code, description }).await
    }

    fn finish(&mut self) -> Result<(), Left> {
        self.is_closing = true;
        Ok(self.session.finish()?)
    }

    async fn told(&mut self, progress: TurnProgress) -> Result<(), Left> {
        match progress {
            TurnProgress::Moved => Ok(()),
            TurnProgress::Event(event) => {
                let message = self.writer.message(&self.asked, event);
                self.send(&message).await
            }
            TurnProgress::Ended => Err(Left::With(self.end)),
        }
    }

    /// Tells the client why the stream ends, if that is an error.
    async fn confess(&mut self, left: Left) -> Left {
        let Left::With(end) = left else { return left };
        let Some((_, code, description)) = FATAL.into_iter().find(|(fatal, ..)| *fatal == end) else {
            return left;
        };
        self.send(&Message::Error { code, description }).await.err().unwrap_or(left)
    }

    async fn send(&mut self, message: &Message) -> Result<(), Left> {
        let sequence_id = self.sequence_id;
        self.sequence_id += 1;
        self.line.send(&Numbered { message, sequence_id }).await
    }
}
