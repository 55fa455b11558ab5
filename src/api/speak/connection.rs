//! One client's stream of text, from the upgrade to the last frame.
//!
//! One task does it all: it reads text while it speaks, so that a `Clear` is obeyed at once, and sends speech as fast as
//! it is made.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use tokio::time::sleep_until;
use tokio_util::sync::CancellationToken;

use super::super::line::{self, DONE, End, Left, STOPPING};
use super::format::TEXT_CHARACTERS_MAX;
use super::outlet::{FAILED, Outlet};
use super::wire::{Message, Said};
use crate::http::websocket::{self, ReadError, Socket};
use crate::patience::Patience;
use crate::speech::encode::Format;
use crate::speech::{Dictation, Spoken};
use crate::usage::{self, Work};

/// Bytes of one message: a text of the greatest length, with each character escaped.
pub const BYTES_MAX: u64 = 64 << 10;
/// The limits of the wire format on flushes.
const FLUSHES_MAX: usize = 20;
const FLUSHES_WITHIN: Duration = Duration::from_secs(60);
/// A message that was not understood is closed with the code of one that is too large.
const TOO_LARGE: u16 = 1009;

// The close codes and reasons of the wire format.
const NO_TEXT: End = End(1003, "MESSAGE-0000: Input message isn't a supported websocket message type.");
const UNKNOWN: End = End(1008, "DATA-0000: Input message isn't recognized as a valid command.");
const TOO_FAST: End = End(1008, "DATA-0001: Too many input characters submitted in recent time window.");
const TOO_LONG: End = End(TOO_LARGE, "BIG-0001: Input text has too many characters.");
const IDLE: End = End(1011, "NET-0001: Failed to receive message.");

pub struct Connection {
    outlet: Outlet,
    dictation: Dictation,
    metadata: Message,
    /// When the last flushes came.
    flushes: VecDeque<Instant>,
    /// Answers to flushes and clears are numbered.
    sequence_id: u64,
    /// How to close once everything is spoken; none while text may come.
    end: Option<End>,
}

impl Connection {
    pub fn new(socket: Socket, dictation: Dictation, format: Format, metadata: Message) -> Self {
        let write_timeout = Duration::from_millis(dictation.speech().limits().write_timeout_ms);
        let outlet = Outlet::new(socket, format, write_timeout);
        Self { outlet, dictation, metadata, flushes: VecDeque::new(), sequence_id: 0, end: None }
    }

    /// Runs the stream to its end.
    pub async fn run(mut self: Box<Self>, stop: CancellationToken) {
        let left = match self.outlet.message(&self.metadata).await {
            Ok(()) => self.converse(&stop).await,
            Err(left) => left,
        };
        // Withdraws what is being spoken before the closing handshake.
        self.dictation.clear();
        left.log(&[IDLE]);
        let (code, reason) = left.told();
        tracing::info!(code, reason, "stream of text ended");
        line::close(&mut self.outlet.socket, &left).await;
    }

    async fn converse(&mut self, stop: &CancellationToken) -> Left {
        let mut idle = Patience::new(Duration::from_millis(self.dictation.speech().limits().idle_timeout_ms));
        loop {
            let is_silent = self.dictation.is_silent();
            if !is_silent {
                // A client receiving speech is not idle.
                idle.renew();
            }
            if let Some(end) = self.end.filter(|_| is_silent) {
                return match self.outlet.rest().await {
                    Ok(()) => Left::With(end),
                    Err(left) => left,
                };
            }
            let ping_at = self.outlet.ping_at().into();
            let moved = tokio::select! {
                message = self.outlet.socket.next_by(&mut idle) => match message {
                    None => Err(Left::With(IDLE)),
                    Some(Ok(message)) => {
                        idle.renew();
                        self.received(message).await
                    }
                    Some(Err(ReadError::Violation(violation))) if violation.code == TOO_LARGE => {
                        Err(Left::With(End(TOO_LARGE, "BIG-0000: Input message is too large.")))
                    }
                    Some(Err(ReadError::Violation(violation))) => {
                        Err(Left::Answer(Some(violation.code), violation.reason))
                    }
                    Some(Err(ReadError::Gone)) => Err(Left::Gone),
                },
                spoken = self.dictation.next() => match spoken {
                    Ok(spoken) => self.give(spoken).await,
                    Err(_) => Err(Left::With(FAILED)),
                },
                () = sleep_until(ping_at), if !is_silent => self.outlet.ping().await,
                () = stop.cancelled(), if self.end.is_none() => {
                    self.finish(STOPPING);
                    Ok(())
                }
            };
            if let Err(left) = moved {
                return left;
            }
        }
    }

    async fn received(&mut self, message: websocket::Message) -> Result<(), Left> {
        match message {
            websocket::Message::Text(text) => match Said::read(&text) {
                Some(said) => self.obey(said).await,
                None => Err(Left::With(UNKNOWN)),
            },
            websocket::Message::Binary(_) => Err(Left::With(NO_TEXT)),
            websocket::Message::Ping(payload) => Ok(self.outlet.socket.pong(payload).await?),
            websocket::Message::Pong => Ok(()),
            websocket::Message::Close(code) => Err(Left::Answer(code, "")),
        }
    }

    async fn obey(&mut self, said: Said) -> Result<(), Left> {
        match said {
            Said::Clear => {
                self.dictation.clear();
                self.outlet.forget();
                let sequence_id = self.number();
                self.outlet.message(&Message::Cleared { sequence_id }).await
            }
            // Nothing else counts after `Close`.
            _ if self.end.is_some() => Ok(()),
            Said::Speak { text } if text.chars().nth(TEXT_CHARACTERS_MAX).is_some() => {
                Err(Left::With(TOO_LONG))
            }
            Said::Speak { text } => {
                let was_silent = self.dictation.is_silent();
                self.dictation.push(&text).map_err(|_| Left::With(TOO_FAST))?;
                if was_silent {
                    self.outlet.waits();
                }
                usage::worked(Work { characters: text.chars().count() as u64, ..Work::default() });
                Ok(())
            }
            Said::Flush if self.may_flush(Instant::now()) => {
                if self.dictation.is_silent() {
                    self.outlet.waits();
                }
                self.dictation.flush();
                Ok(())
            }
            Said::Flush => {
                let description = "Flush was sent more than 20 times within 60 seconds; it is not obeyed until that \
                                   time has passed.";
                self.outlet.message(&Message::Warning { description, code: "EXCESSIVE_FLUSH" }).await
            }
            Said::Close => {
                self.finish(DONE);
                Ok(())
            }
            Said::KeepAlive => Ok(()),
        }
    }

    /// Counts a flush, unless there were too many of late.
    fn may_flush(&mut self, now: Instant) -> bool {
        while self.flushes.front().is_some_and(|at| now.duration_since(*at) >= FLUSHES_WITHIN) {
            self.flushes.pop_front();
        }
        let may = self.flushes.len() < FLUSHES_MAX;
        if may {
            self.flushes.push_back(now);
        }
        may
    }

    fn finish(&mut self, end: End) {
        self.dictation.finish();
        self.end = Some(end);
    }

    fn number(&mut self) -> u64 {
        let number = self.sequence_id;
        self.sequence_id += 1;
        number
    }

    async fn give(&mut self, spoken: Spoken) -> Result<(), Left> {
        match spoken {
            Spoken::Audio(samples) => self.outlet.speech(&samples).await,
            Spoken::Flushed => {
                self.outlet.rest().await?;
                let sequence_id = self.number();
                self.outlet.message(&Message::Flushed { sequence_id }).await
            }
        }
    }
}
