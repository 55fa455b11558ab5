//! One client's session, from the upgrade to the last frame.
//!
//! One task does it all, as for `/v1/listen`: it reads while there is room for audio, and writes events. If a client
//! sends faster than its audio is recognised, reading pauses; a client that reads nothing is closed.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use super::event::{ErrorDetails, Event, Failed, Message};
use super::items::{ITEM_MS_MAX, Items, Style};
use super::request::{self, Invalid, Request, Update};
use super::semantic::Judge;
use super::settings::{Settings, Turns};
use super::update;
use crate::api::Services;
use crate::api::line::{self, Active, End, Left, Line, STOPPING};
use crate::engine::{self, TenantId};
use crate::http::websocket::{self, Socket};
use crate::live::{self, Error, Heard, Progress, Session, StreamPermit};
use crate::registry::Loaded;

/// A commit of less audio is refused.
const COMMITTED_MS_MIN: u64 = 100;
/// Bytes of messages that are held while a model is loaded; with as many, the server stops reading.
const HELD_BYTES_MAX: usize = 1 << 20;

const FAILED: End = End(1011, "The audio could not be transcribed.");
const OVERLOADED: End = End(1013, "The server is too busy. Please try again later.");
const IDLE: End = End(1011, "The client sent nothing within the time limit.");

/// The request of a session.
pub struct Asked {
    pub permit: StreamPermit,
    pub tenant: u64,
    /// The client speaks the older beta.
    pub is_beta: bool,
    pub settings: Settings,
    pub model: Loaded,
}

/// An update whose model is chosen, and loaded if need be.
struct Loading {
    update: Box<Update>,
    event_id: Option<String>,
    model: BoxFuture<'static, Result<Loaded, Invalid>>,
}

pub struct Connection {
    line: Line,
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
    /// With `semantic_vad`.
    judge: Option<Judge>,
    /// An update that waits for its model, and the messages that came after it.
    loading: Option<Loading>,
    held: VecDeque<String>,
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
        let judge = judge(&settings, &model);
        let config = model.live().config();
        let line =
            Line::new(socket, config).idle_after(Duration::from_millis(config.realtime_idle_timeout_ms));
        Self {
            line,
            services,
            id,
            is_beta,
            tenant,
            settings,
            model,
            permit,
            session: None,
            items,
            judge,
            loading: None,
            held: VecDeque::new(),
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
        left.log(&[]);
        let left = match left {
            Left::With(line::IDLE) => Left::With(IDLE),
            other => other,
        };
        let (code, reason) = left.told();
        let seconds = self.session.as_ref().map_or(0.0, Session::duration);
        tracing::info!(code, reason, seconds, "realtime session ended");
        // Releases the engine's capacity before the closing handshake.
        (self.permit, self.session) = (None, None);
        self.line.close(&left).await;
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
        loop {
            // Audio after a commit is not a part of it.
            let takes_audio = |session: &Session| session.wants_audio() && !session.is_finalizing();
            let wants_audio = self.session.as_ref().is_none_or(takes_audio);
            let holds_more = self.held.iter().map(String::len).sum::<usize>() < HELD_BYTES_MAX;
            let reads = self.is_closing || (wants_audio && holds_more && !self.items.is_full());
            self.line.prepare(reads, self.is_closing);
            let holds = self.judge.as_ref().is_some_and(Judge::holds);
            let moved = tokio::select! {
                message = self.line.next(), if reads => match message {
                    Ok(message) => self.received(message).await,
                    Err(left) => Err(left),
                },
                progress = progress(&mut self.session), if !holds => match progress {
                    Ok(progress) => self.moved(progress).await,
                    Err(error) => Err(self.failed(error).await),
                },
                () = answered(&mut self.judge) => self.turn().await,
                model = loaded(&mut self.loading) => self.loaded(model).await,
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
            websocket::Message::Text(text) if self.loading.is_some() => {
                self.held.push_back(text);
                Ok(())
            }
            websocket::Message::Text(text) => self.read(&text).await,
            websocket::Message::Ping(payload) => self.line.pong(payload).await,
            websocket::Message::Pong => Ok(()),
            websocket::Message::Close(code) => Err(Left::Answer(code, "")),
        }
    }

    async fn read(&mut self, text: &str) -> Result<(), Left> {
        let Request { event_id, event } = Request::read(text);
        let done = match event {
            Ok(request::Event::Update(update)) => {
                self.load(update, event_id);
                return Ok(());
            }
            Ok(request::Event::Append(audio)) => self.append(audio).await?,
            Ok(request::Event::Commit) => self.commit().await?,
            Ok(request::Event::Clear) => self.clear().await.map(Ok)?,
            Err(invalid) => Err(invalid),
        };
        match done {
            Ok(()) => Ok(()),
            Err(invalid) => self.refuse(event_id, invalid).await,
        }
    }

    /// Makes the update that waited for this model, and goes on with the messages after it.
    async fn loaded(&mut self, model: Result<Loaded, Invalid>) -> Result<(), Left> {
        let Some(Loading { update, event_id, .. }) = self.loading.take() else { return Ok(()) };
        match model.and_then(|model| self.update(&update, model)) {
            Ok(()) => {
                let session = self.shown(update.is_beta);
                let updated = if update.is_beta {
                    Event::BetaSessionUpdated { session }
                } else {
                    Event::SessionUpdated { session }
                };
                self.send(updated).await?;
            }
            Err(invalid) => self.refuse(event_id, invalid).await?,
        }
        while self.loading.is_none()
            && let Some(text) = self.held.pop_front()
        {
            self.read(&text).await?;
        }
        Ok(())
    }

    /// Chooses the model of an update, which is made once it is there.
    fn load(&mut self, update: Box<Update>, event_id: Option<String>) {
        let services = self.services.clone();
        let (current, name) = (self.model.clone(), update.model().map(str::to_owned));
        let model = async move { update::chosen(&services, name.as_deref(), &current).await };
        self.loading = Some(Loading { update, event_id, model: model.boxed() });
    }

    async fn clear(&mut self) -> Result<(), Left> {
        let mut events = Vec::new();
        if let Some(session) = &mut self.session {
            let now = self.received / self.settings.bytes_per_ms();
            self.items.clear(now, &mut events);
            session.finalize(None);
        } else {
            events.push(Event::Cleared);
        }
        self.send_all(events).await
    }

    /// Within the outer result, the reason why the audio is refused.
    async fn append(&mut self, audio: Bytes) -> Result<Result<(), Invalid>, Left> {
        if audio.is_empty() {
            return Ok(Ok(()));
        }
        if self.session.is_none() {
            let options = match self.settings.options(self.model.live().model(), self.tenant) {
                Ok(options) => options,
                Err(invalid) => return Ok(Err(invalid)),
            };
            // Given up for another model, and gone since.
            let Some(permit) = self.permit.take() else { return Err(Left::With(OVERLOADED)) };
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

    /// Makes the whole update, or none of it.
    fn update(&mut self, update: &Update, model: Loaded) -> Result<(), Invalid> {
        let mut settings = self.settings.clone();
        let is_same = model.model().uuid == self.model.model().uuid;
        update::update(&self.services, &model, &mut settings, update)?;
        if let Some(session) = &mut self.session {
            if !is_same {
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
            session.configure(settings.options(model.model(), self.tenant)?);
        } else if !is_same {
            self.admit(&model)?;
        }
        if settings.turns() != self.settings.turns() {
            self.judge = judge(&settings, &model);
        }
        self.items.style = style(&settings, self.is_beta);
        (self.settings, self.model) = (settings, model);
        Ok(())
    }

    /// Takes a place at `model` instead of the one so far.
    fn admit(&mut self, model: &Loaded) -> Result<(), Invalid> {
        let tenant = TenantId(self.tenant);
        // The old place counts until it is given back, and may be the last one.
        self.permit = None;
        let admitted = model.live().admit(tenant);
        admitted.map(|permit| self.permit = Some(permit)).map_err(|_| {
            self.permit = self.model.live().admit(tenant).ok();
            let message = "The server is too busy for this model. Please try again later.";
            Invalid::new("server_overloaded", Some("transcription.model"), message)
        })
    }

    async fn moved(&mut self, progress: Progress) -> Result<(), Left> {
        let mut events = Vec::new();
        let mut is_over = false;
        match progress {
            Progress::Moved => {}
            Progress::Event(live::Event::Results(results)) => {
                self.items.results(&results, &mut events);
                if let Some(judge) = self.judge.as_mut().filter(|_| results.is_final) {
                    judge.settled();
                }
            }
            Progress::Event(live::Event::SpeechStarted { at, .. }) => {
                self.items.speech_started(at, &mut events);
            }
            Progress::Event(live::Event::Voice(voice)) => {
                if matches!(voice.heard, Heard::Pause(_)) {
                    self.items.paused(voice.at, &mut events);
                }
                if let Some(judge) = &mut self.judge {
                    judge.hear(voice);
                }
            }
            Progress::Event(live::Event::UtteranceEnd { .. }) => {}
            Progress::Ended => {
                let end = self.session.as_ref().map_or(0.0, Session::duration);
                self.items.ended(end, &mut events);
                is_over = true;
            }
        }
        self.send_all(events).await?;
        self.turn().await?;
        if is_over { Err(Left::With(STOPPING)) } else { Ok(()) }
    }

    /// Ends the turn, if the judge says so.
    async fn turn(&mut self) -> Result<(), Left> {
        let Some(end) = self.judge.as_mut().and_then(Judge::end) else { return Ok(()) };
        let mut events = Vec::new();
        self.items.turn_ended(end, &mut events);
        self.send_all(events).await
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
            Error::Engine(
                engine::Error::Overloaded { .. } | engine::Error::OverShare { .. } | engine::Error::Unwell,
            ) => OVERLOADED,
            Error::Audio(_) | Error::Engine(_) => FAILED,
        };
        tracing::info!(error = %anyhow::Error::new(error), "realtime session failed");
        let code = if end == OVERLOADED { "server_overloaded" } else { "transcription_failed" };
        let failed = Failed { kind: "server_error", code, message: end.1, param: None };
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
        self.line.send(&Message::from(event)).await
    }
}

fn style(settings: &Settings, is_beta: bool) -> Style {
    Style {
        is_beta,
        detects_turns: settings.turns() != Turns::Commits,
        ends_at_pauses: matches!(settings.turns(), Turns::Pause { .. }),
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

/// The judge of `semantic_vad`.
fn judge(settings: &Settings, model: &Loaded) -> Option<Judge> {
    let longest = settings.longest_silence()?;
    Some(Judge::new(model.live().turn_model().cloned(), longest))
}

/// Waits for the judge; pending without one. Cancel-safe.
async fn answered(judge: &mut Option<Judge>) {
    match judge {
        Some(judge) => judge.answered().await,
        None => std::future::pending().await,
    }
}

/// Pending if no update waits for its model.
async fn loaded(loading: &mut Option<Loading>) -> Result<Loaded, Invalid> {
    match loading {
        Some(loading) => (&mut loading.model).await,
        None => std::future::pending().await,
    }
}
