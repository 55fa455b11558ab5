//! One client's session of turns, from the upgrade to the last frame.
//!
//! One task does it all, as for `/v1/speak`: it reads while it speaks, so that an `Interrupt` is obeyed at once.

use std::time::Duration;

use tokio::time::sleep_until;
use tokio_util::sync::CancellationToken;

use super::super::super::line::{self, DONE, End, Left, STOPPING};
use super::super::format::TEXT_CHARACTERS_MAX;
use super::super::outlet::{FAILED, Outlet};
use super::super::parameters::TURN_SPEEDS;
use super::session::{Ignored, Interrupted, Session};
use super::wire::{Applied, Message, Offset, Said};
use crate::http::websocket::{self, ReadError, Socket};
use crate::patience::Patience;
use crate::speech::encode::Format;
use crate::speech::{Dictation, Spoken};
use crate::usage::{self, Work};

/// A message that was not understood is closed with the code of one that is too large.
const TOO_LARGE: u16 = 1009;
/// Steps of the pace.
const SPEED_STEP: f64 = 0.05;

const IDLE: End = End(1011, "NET-0001: Failed to receive message.");

/// A failure that ends the session: the code and description of its `Error`, and the code of the close frame.
struct Fault(&'static str, &'static str, u16);

const NO_TEXT: Fault = Fault("MESSAGE-0000", "A binary message was sent: messages are JSON.", 1003);
const UNKNOWN: Fault =
    Fault("DATA-0000", "The message is not one of Speak, Flush, Interrupt, Configure, Close.", 1008);
const TOO_FAST: Fault = Fault("DATA-0001", "More text is waiting than a session may hold.", 1008);
const TOO_LONG: Fault = Fault("BIG-0000", "The text has more than 2000 characters.", TOO_LARGE);
const TOO_BIG: Fault = Fault("BIG-0000", "The message is too large.", TOO_LARGE);
const UNSPOKEN: Fault = Fault("NET-0000", "The voice failed.", 1011);

pub struct Connection {
    outlet: Outlet,
    dictation: Dictation,
    session: Session,
    first: Message,
    applied: Applied,
    /// How to close once everything is spoken; none while text may come.
    end: Option<End>,
}

impl Connection {
    pub fn new(
        socket: Socket,
        dictation: Dictation,
        format: Format,
        (first, applied): (Message, Applied),
    ) -> Self {
        let write_timeout = Duration::from_millis(dictation.speech().limits().write_timeout_ms);
        let outlet = Outlet::new(socket, format, write_timeout);
        Self { outlet, dictation, session: Session::default(), first, applied, end: None }
    }

    /// Runs the session to its end.
    pub async fn run(mut self: Box<Self>, stop: CancellationToken) {
        let left = match self.outlet.message(&self.first).await {
            Ok(()) => self.converse(&stop).await,
            Err(left) => left,
        };
        // Withdraws what is being spoken before the closing handshake.
        self.dictation.clear();
        left.log(&[IDLE]);
        let (code, reason) = left.told();
        tracing::info!(code, reason, "session of speech ended");
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
            if let Some(end) = self.end.filter(|_| is_silent && self.session.is_over()) {
                let sums = Message::SessionMetadata {
                    total_audio_duration_ms: self.session.audio_ms,
                    total_input_character_count: self.session.characters,
                    total_billable_character_count: self.session.billable,
                };
                return match self.outlet.message(&sums).await {
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
                        self.fail(TOO_BIG).await
                    }
                    Some(Err(ReadError::Violation(violation))) => {
                        Err(Left::Answer(Some(violation.code), violation.reason))
                    }
                    Some(Err(ReadError::Gone)) => Err(Left::Gone),
                },
                spoken = self.dictation.next() => match spoken {
                    Ok(spoken) => self.give(spoken).await,
                    Err(_) => self.fail(UNSPOKEN).await,
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

    /// Tells why the session ends.
    async fn fail(&mut self, Fault(code, description, close): Fault) -> Result<(), Left> {
        self.outlet.message(&Message::Error { code, description }).await?;
        Err(Left::With(if close == FAILED.0 { FAILED } else { End(close, description) }))
    }

    async fn warn(&mut self, code: &'static str, description: &'static str) -> Result<(), Left> {
        self.outlet.message(&Message::Warning { code, description }).await
    }

    async fn received(&mut self, message: websocket::Message) -> Result<(), Left> {
        match message {
            websocket::Message::Text(text) => match Said::read(&text) {
                Some(said) => self.obey(said).await,
                None => self.fail(UNKNOWN).await,
            },
            websocket::Message::Binary(_) => self.fail(NO_TEXT).await,
            websocket::Message::Ping(payload) => Ok(self.outlet.socket.pong(payload).await?),
            websocket::Message::Pong => Ok(()),
            websocket::Message::Close(code) => Err(Left::Answer(code, "")),
        }
    }

    async fn obey(&mut self, said: Said) -> Result<(), Left> {
        match said {
            Said::Interrupt { playback_offset } => self.interrupt(playback_offset).await,
            // Nothing else counts after `Close`.
            _ if self.end.is_some() => Ok(()),
            Said::Speak { text } if text.chars().nth(TEXT_CHARACTERS_MAX).is_some() => {
                self.fail(TOO_LONG).await
            }
            Said::Speak { text } if text.is_empty() => Ok(()),
            Said::Speak { text } => {
                let was_silent = self.dictation.is_silent();
                if self.dictation.push(&text).is_err() {
                    return self.fail(TOO_FAST).await;
                }
                if was_silent {
                    self.outlet.waits();
                }
                usage::worked(Work { characters: text.chars().count() as u64, ..Work::default() });
                match self.session.push(&text) {
                    Some(speech_id) => self.outlet.message(&Message::SpeechStarted { speech_id }).await,
                    None => Ok(()),
                }
            }
            Said::Flush if self.session.flush() => {
                if self.dictation.is_silent() {
                    self.outlet.waits();
                }
                self.dictation.flush();
                Ok(())
            }
            Said::Flush => self.warn("NO_ACTIVE_SPEECH", "No text came since the last Flush.").await,
            Said::Configure { speed } => self.configure(speed).await,
            Said::KeepAlive => Ok(()),
            Said::Close => {
                self.finish(DONE);
                Ok(())
            }
        }
    }

    async fn interrupt(&mut self, offset: Option<Offset>) -> Result<(), Left> {
        let played = offset.map(|Offset::TimeMs { value }| value);
        match self.session.interrupt(played) {
            Err(Ignored(code, description)) => self.warn(code, description).await,
            Ok(Interrupted { played_ms, text, figures }) => {
                self.dictation.clear();
                self.outlet.forget();
                let (text_spoken, text_remaining) = text.unzip();
                let message = Message::SpeechInterrupted {
                    audio_played_ms: played_ms,
                    text_spoken,
                    text_remaining,
                    metadata: figures,
                };
                self.outlet.message(&message).await
            }
        }
    }

    async fn configure(&mut self, speed: Option<f64>) -> Result<(), Left> {
        let refused = speed.and_then(|speed| {
            let range = f64::from(*TURN_SPEEDS.start())..=f64::from(*TURN_SPEEDS.end());
            let steps = speed / SPEED_STEP;
            if !range.contains(&speed) {
                Some(("SPEED_OUT_OF_RANGE", "`speed` has to be from 0.5 to 1.5."))
            } else if (steps - steps.round()).abs() > 1e-6 {
                Some(("SPEED_INCREMENT_INVALID", "`speed` has to be a multiple of 0.05."))
            } else {
                None
            }
        });
        if let Some((code, description)) = refused {
            let message = Message::ConfigureFailure { code, field: "speed", value: speed, description };
            return self.outlet.message(&message).await;
        }
        if let Some(speed) = speed {
            self.dictation.set_speed(speed as f32);
            self.applied.speed = Some(speed);
        }
        self.outlet.message(&Message::ConfigureSuccess { applied: self.applied.clone() }).await
    }

    /// Speaks the rest, and closes.
    fn finish(&mut self, end: End) {
        if self.session.flush() {
            self.dictation.flush();
        }
        self.end = Some(end);
    }

    async fn give(&mut self, spoken: Spoken) -> Result<(), Left> {
        match spoken {
            Spoken::Audio(samples) => {
                self.session.spoken(self.dictation.piece(), samples.len());
                self.outlet.speech(&samples).await
            }
            Spoken::Flushed => {
                self.outlet.rest().await?;
                let Some((figures, next)) = self.session.end() else { return Ok(()) };
                if figures.audio_duration_ms == 0 {
                    self.warn("NO_SYNTHESIZABLE_TEXT", "The text of the turn has no word.").await?;
                }
                self.outlet.message(&Message::Flushed { speech_id: figures.speech_id.clone() }).await?;
                self.outlet.message(&Message::SpeechMetadata(figures)).await?;
                match next {
                    Some(speech_id) => self.outlet.message(&Message::SpeechStarted { speech_id }).await,
                    None => Ok(()),
                }
            }
        }
    }
}
