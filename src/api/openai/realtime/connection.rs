//! One client's session, from the upgrade to the last frame.
//!
//! One task does it all, as for `/v1/listen`: it reads while there is room for audio, and writes events. If a client
//! sends faster than its audio is recognised, reading pauses; a client that reads nothing is closed.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::event::{ErrorDetails, Event, Failed, Message};
use super::items::{ITEM_MS_MAX, Items, Style};
use super::request::{self, Invalid, Request, Update};
use super::settings::{Settings, Turns};
use crate::api::Services;
use crate::http::Failure;
use crate::http::websocket::{self, ReadError, Socket};
use crate::live::{Error, Progress, Session, StreamPermit};
use crate::patience::{Deadline, Patience, within};
use crate::registry::Loaded;
use crate::telemetry::metrics;
use crate::{engine, live};

/// How long a client may take to answer a close frame.
const GOODBYE: Duration = Duration::from_secs(2);
/// How long a slow reader may take to accept a message.
const SLOW_GRACE: Duration = Duration::from_secs(2);
/// A commit of less audio is refused.
const COMMITTED_MS_MIN: u64 = 100;

/// How a session ends: a close code and its reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct End(u16, &'static str);

const STOPPING: End = End(1001, "The server is stopping.");
const FAILED: End = End(1011, "The audio could not be transcribed.");
const IDLE: End = End(1011, "The client sent nothing within the time limit.");
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

/// The request of a session.
pub struct Asked {
    pub permit: StreamPermit,
    pub tenant: u64,
    /// The client speaks the older beta.
    pub is_beta: bool,
    pub settings: Settings,
    pub model: Loaded,
}

pub struct Connection {
    socket: Socket,
    services: Arc<Services>,
    id: String,
    is_beta: bool,
    tenant: u64,
    settings: Settings,
    /// The one that `settings` name.
    model: Loaded,
    /// Until the first audio.
    permit: Option<StreamPermit>,
    /// From the first audio on, when its format is settled.
    session: Option<Session>,
    items: Items,
    /// Bytes of audio so far.
    received: u64,
    /// The server stops: no more audio is taken.
    is_closing: bool,
}

impl Connection {
    pub fn new(socket: Socket, services: Arc<Services>, asked: Asked) -> Self {
        let Asked { permit, tenant, is_beta, settings, model } = asked;
        let items = Items::new(style(&settings, is_beta));
        let id = super::event::id("sess");
        let permit = Some(permit);
        Self {
            socket,
            services,
            id,
            is_beta,
            tenant,
            settings,
            model,
            permit,
            session: None,
            items,
            received: 0,
            is_closing: false,
        }
    }

    /// Runs the session to its end.
    pub async fn run(mut self: Box<Self>, stop: CancellationToken) {
        let _active = Active::new();
        let left = match self.greet().await {
            Ok(()) => self.converse(&stop).await,
            Err(left) => left,
        };
        let (code, reason) = match left {
            Left::With(End(code, reason)) => (Some(code), reason),
            Left::Answer(code, reason) => (code, reason),
            Left::Gone => (None, "gone"),
        };
        let seconds = self.session.as_ref().map_or(0.0, Session::duration);
        tracing::info!(code, reason, seconds, "realtime session ended");
        // Releases the engine's capacity before the closing handshake.
        (self.permit, self.session) = (None, None);
        if !matches!(left, Left::Gone) {
            let awaits_goodbye = matches!(left, Left::With(_));
            let _ = timeout(GOODBYE, farewell(&mut self.socket, code, reason, awaits_goodbye)).await;
        }
    }

    async fn greet(&mut self) -> Result<(), Left> {
        let session = self.shown(self.is_beta);
        let created = if self.is_beta {
            Event::BetaSessionCreated { session }
        } else {
            Event::SessionCreated { session }
        };
        self.send(created).await
    }

    async fn converse(&mut self, stop: &CancellationToken) -> Left {
        let idle_limit = self.model.live().config().realtime_idle_timeout_ms;
        let mut idle = Patience::new(Duration::from_millis(idle_limit));
        let mut was_read = true;
        loop {
            let wants_audio = self.session.as_ref().is_none_or(Session::wants_audio);
            let reads = self.is_closing || (wants_audio && !self.items.is_full());
            if !(was_read && reads) {
                // The client is not idle while the server does not read.
                idle.renew();
            }
            was_read = reads;
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
                progress = progress(&mut self.session) => match progress {
                    Ok(progress) => self.moved(progress).await,
                    Err(error) => Err(self.failed(error).await),
                },
                () = stop.cancelled(), if !self.is_closing => self.finish().await,
            };
            if let Err(left) = moved {
                return left;
            }
        }
    }

    async fn received(&mut self, message: websocket::Message) -> Result<(), Left> {
        match message {
            websocket::Message::Binary(_) | websocket::Message::Text(_) if self.is_closing => Ok(()),
            websocket::Message::Binary(_) => {
                let message =
                    "Binary messages are not read. Send audio as base64 in `input_audio_buffer.append`.";
                self.refuse(None, Invalid::new("invalid_event", None, message)).await
            }
            websocket::Message::Text(text) => {
                let Request { event_id, event } = Request::read(&text);
                let done = match event {
                    Ok(event) => self.request(event).await?,
                    Err(invalid) => Err(invalid),
                };
                match done {
                    Ok(()) => Ok(()),
                    Err(invalid) => self.refuse(event_id, invalid).await,
                }
            }
            websocket::Message::Ping(payload) => Ok(self.socket.pong(payload).await?),
            websocket::Message::Pong => Ok(()),
            websocket::Message::Close(code) => Err(Left::Answer(code, "")),
        }
    }

    /// Does what the client asks for; within the outer result, the reason why not.
    async fn request(&mut self, event: request::Event) -> Result<Result<(), Invalid>, Left> {
        match event {
            request::Event::Append(audio) => self.append(audio).await,
            request::Event::Commit => self.commit().await,
            request::Event::Clear => {
                let mut events = Vec::new();
                if let Some(session) = &mut self.session {
                    let now = self.received / self.settings.bytes_per_ms();
                    self.items.clear(now, &mut events);
                    session.finalize(None);
                } else {
                    events.push(Event::Cleared);
                }
                self.send_all(events).await.map(Ok)
            }
            request::Event::Update(update) => match self.update(&update).await {
                Ok(()) => {
                    let session = self.shown(update.is_beta);
                    let updated = if update.is_beta {
                        Event::BetaSessionUpdated { session }
                    } else {
                        Event::SessionUpdated { session }
                    };
                    self.send(updated).await.map(Ok)
                }
                Err(invalid) => Ok(Err(invalid)),
            },
        }
    }

    async fn append(&mut self, audio: Bytes) -> Result<Result<(), Invalid>, Left> {
        if audio.is_empty() {
            return Ok(Ok(()));
        }
        if self.session.is_none() {
            let options = match self.settings.options(self.model.live().model(), self.tenant) {
                Ok(options) => options,
                Err(invalid) => return Ok(Err(invalid)),
            };
            let Some(permit) = self.permit.take() else { return Err(Left::With(FAILED)) };
            self.session = Some(self.model.live().open(permit, options));
        }
        self.received += audio.len() as u64;
        let pushed = self.session.as_mut().map_or(Ok(()), |session| session.push(audio));
        if let Err(error) = pushed {
            return Err(self.failed(error).await);
        }
        let now = self.received / self.settings.bytes_per_ms();
        if !self.items.style.detects_turns && self.items.buffered_ms(now) >= ITEM_MS_MAX {
            return self.commit().await;
        }
        Ok(Ok(()))
    }

    async fn commit(&mut self) -> Result<Result<(), Invalid>, Left> {
        let now = self.received / self.settings.bytes_per_ms();
        let buffered = self.items.buffered_ms(now);
        let Some(session) = self.session.as_mut().filter(|_| buffered >= COMMITTED_MS_MIN) else {
            let message = format!(
                "The input audio buffer is too small to commit: it has {buffered} ms of audio, and at least \
                 {COMMITTED_MS_MIN} ms are needed."
            );
            return Ok(Err(Invalid::new("input_audio_buffer_commit_empty", None, message)));
        };
        let mut events = Vec::new();
        self.items.commit(now, &mut events);
        session.finalize(None);
        self.send_all(events).await.map(Ok)
    }

    /// Makes the whole update, or none of it. Waits while another model is loaded.
    async fn update(&mut self, update: &Update) -> Result<(), Invalid> {
        let mut settings = self.settings.clone();
        let model = match update.model() {
            Some(name) => {
                let deadline = Deadline::after(self.services.processing_timeout);
                let chosen = self.services.models.choose(Some(name), Some(deadline)).await;
                chosen.map_err(|unavailable| {
                    Invalid::value("transcription.model", Failure::from(unavailable).message())
                })?
            }
            None => self.model.clone(),
        };
        let live = model.live();
        settings.update(update, live.model())?;
        if settings.has_speakers() && !live.can_diarize() {
            let message = "This server cannot tell speakers apart: choose a model whose name does not end with \
                           `-diarize`.";
            return Err(Invalid::value("transcription.model", message));
        }
        if let Some(session) = &mut self.session {
            if model.model().uuid != self.model.model().uuid {
                let message = "The model cannot change once audio was sent. Open another session.";
                return Err(Invalid::value("transcription.model", message));
            }
            if settings.format != self.settings.format {
                let message = "The format cannot change once audio was sent. Open another session.";
                return Err(Invalid::value("session.audio.input.format", message));
            }
            if settings.has_speakers() != self.settings.has_speakers() {
                let message =
                    "Speakers cannot be switched on or off once audio was sent. Open another session.";
                return Err(Invalid::value("transcription.model", message));
            }
            session.configure(settings.options(live.model(), self.tenant)?);
        }
        self.items.style = style(&settings, self.is_beta);
        (self.settings, self.model) = (settings, model);
        Ok(())
    }

    async fn moved(&mut self, progress: Progress) -> Result<(), Left> {
        let mut events = Vec::new();
        let mut is_over = false;
        match progress {
            Progress::Moved => {}
            Progress::Event(live::Event::Results(results)) => self.items.results(&results, &mut events),
            Progress::Event(live::Event::SpeechStarted { at, .. }) => {
                self.items.speech_started(at, &mut events);
            }
            Progress::Event(live::Event::UtteranceEnd { .. } | live::Event::Voice(_)) => {}
            Progress::Ended => {
                let end = self.session.as_ref().map_or(0.0, Session::duration);
                self.items.ended(end, &mut events);
                is_over = true;
            }
        }
        self.send_all(events).await?;
        if is_over { Err(Left::With(STOPPING)) } else { Ok(()) }
    }

    /// The server stops: everything so far is transcribed.
    async fn finish(&mut self) -> Result<(), Left> {
        self.is_closing = true;
        match &mut self.session {
            None => Err(Left::With(STOPPING)),
            Some(session) => match session.finish() {
                Ok(()) => Ok(()),
                Err(error) => Err(self.failed(error).await),
            },
        }
    }

    /// Reports that the stream cannot go on.
    async fn failed(&mut self, error: Error) -> Left {
        let end = match &error {
            Error::Engine(engine::Error::ShuttingDown) => STOPPING,
            Error::Audio(_) | Error::Engine(_) => FAILED,
        };
        tracing::info!(error = %anyhow::Error::new(error), "realtime session failed");
        let failed =
            Failed { kind: "server_error", code: "transcription_failed", message: FAILED.1, param: None };
        let mut events = Vec::new();
        self.items.failed(&failed, &mut events);
        let error = ErrorDetails {
            kind: failed.kind,
            code: failed.code,
            message: format!("{} The session ends.", failed.message),
            param: None,
            event_id: None,
        };
        events.push(Event::Error { error });
        self.send_all(events).await.err().unwrap_or(Left::With(end))
    }

    async fn refuse(&mut self, event_id: Option<String>, invalid: Invalid) -> Result<(), Left> {
        let Invalid { code, param, message } = invalid;
        let error = ErrorDetails { kind: "invalid_request_error", code, message, param, event_id };
        self.send(Event::Error { error }).await
    }

    fn shown(&self, is_beta: bool) -> super::shape::Session {
        self.settings.shown(&self.id, is_beta, &self.model.live().model().name)
    }

    async fn send_all(&mut self, events: Vec<Event>) -> Result<(), Left> {
        for event in events {
            self.send(event).await?;
        }
        Ok(())
    }

    async fn send(&mut self, event: Event) -> Result<(), Left> {
        let text = serde_json::to_string(&Message::from(event)).map_err(std::io::Error::other)?;
        let limit = Duration::from_millis(self.model.live().config().write_timeout_ms);
        let mut sending = pin!(self.socket.send_text(text));
        match within(limit, sending.as_mut()).await {
            Some(sent) => Ok(sent?),
            // A frame that was begun must be finished before a close frame can be sent.
            None => match timeout(SLOW_GRACE, sending).await {
                Ok(Ok(())) => Err(Left::With(SLOW)),
                _ => {
                    tracing::info!(reason = SLOW.1, "realtime session cut");
                    Err(Left::Gone)
                }
            },
        }
    }
}

fn style(settings: &Settings, is_beta: bool) -> Style {
    Style {
        is_beta,
        detects_turns: settings.turns() != Turns::Commits,
        prefix_padding_ms: u64::from(settings.prefix_padding_ms()),
        delay: settings.delay(),
        log_probabilities: settings.log_probabilities,
        has_speakers: settings.has_speakers(),
    }
}

/// The stream's next step; pending before there is a stream. Cancel-safe.
async fn progress(session: &mut Option<Session>) -> Result<Progress, Error> {
    match session {
        Some(session) => session.next().await,
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
