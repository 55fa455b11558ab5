//! The embedded room over a WebSocket: binary frames are audio, text frames the messages of
//! [`super::wire`].

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::{AUTHORIZATION, HeaderMap};
use tokio_util::sync::CancellationToken;
use url::form_urlencoded;
use uuid::Uuid;

use super::media::{Incoming, Outgoing};
use super::wire::{self, Said, Settings};
use super::{Inbound, Outbound, Seat};
use crate::audio;
use crate::http::websocket::{self, Limits, Message, ReadError, Socket, offered_protocols};
use crate::http::{Failure, Request, Response};
use crate::patience::Patience;
use crate::sts::Service;
use crate::sts::sessions::now;
use crate::sts::setup::{Channel, Setup, Start};
use crate::sts::token::{Claims, Kind};

pub const LIMITS: Limits = Limits { frame_bytes_max: 256 << 10, message_bytes_max: 1 << 20 };
const SETTINGS_WAIT: Duration = Duration::from_secs(10);
/// How long a client may take to close after we did.
const GOODBYE: Duration = Duration::from_secs(2);

const CLOSE_NORMAL: u16 = 1000;
const CLOSE_REFUSED: u16 = 1008;
const CLOSE_RESTART: u16 = 1012;
const CLOSE_INTERNAL: u16 = 1011;
const CLOSE_ENDED: u16 = 4000;
const CLOSE_IDLE: u16 = 4008;

/// `GET /STS/rooms/{room}`: joins the room that the token is for.
pub async fn join(service: Arc<Service>, request: Request) -> Result<Response, Failure> {
    let claims = token(&request)
        .and_then(|token| service.signer.check(&token, now() / 1000))
        .filter(|claims| request.captures.first().is_some_and(|(_, room)| room == claims.room()));
    let Some(claims) = claims else {
        return Err(Failure::new(
            StatusCode::UNAUTHORIZED,
            "INVALID_AUTH",
            "The token is not for this room, or its time is over.",
        ));
    };
    let live = service.sessions.enter(&claims.session)?;
    live.read(|session| session.check_open())?;
    // A browser offers its token as a subprotocol, and fails where nothing is agreed to.
    let agreed = offered_protocols(&request.headers).next().filter(|name| *name == "token");
    let agreed = agreed.and_then(|name| name.parse().ok());
    let id = request.id;
    websocket::accept(request, LIMITS, agreed, move |mut socket, stop| async move {
        let Claims { sub, kind, .. } = &claims;
        match service.join(&live, *kind, sub).await {
            Ok(seat) => Connection::new(&service, socket, seat, stop).run(id, None).await,
            Err(error) => drop(socket.close(Some(CLOSE_ENDED), &error.to_string()).await),
        }
    })
}

/// `GET /v1/agent/converse`: as the wire format's SDKs have it, a session that begins with `Settings`
/// and belongs to the key that is shown.
pub async fn converse(service: Arc<Service>, request: Request) -> Result<Response, Failure> {
    let (tenant, agreed) = service.access.websocket_tenant(&request).await?;
    let id = request.id;
    websocket::accept(request, LIMITS, agreed, move |socket, stop| async move {
        if let Err((mut socket, reason)) = begin(&service, socket, tenant, id, stop).await {
            let _ = socket.send_text(wire::error("INVALID_SETTINGS", &reason)).await;
            let _ = socket.close(Some(CLOSE_REFUSED), "").await;
        }
    })
}

async fn begin(
    service: &Arc<Service>,
    mut socket: Socket,
    tenant: u64,
    id: Uuid,
    stop: CancellationToken,
) -> Result<(), (Socket, String)> {
    if socket.send_text(wire::welcome(id, "", "")).await.is_err() {
        return Ok(());
    }
    let mut patience = Patience::new(SETTINGS_WAIT);
    let settings = loop {
        let Some(message) = socket.next_by(&mut patience).await else {
            return Err((socket, "no Settings came in time".into()));
        };
        patience.renew();
        match message {
            Ok(Message::Text(text)) => match Said::read(&text) {
                Ok(Said::Settings(settings)) => break settings,
                Ok(Said::KeepAlive) => {}
                Ok(_) => return Err((socket, "the first message must be Settings".into())),
                Err(problem) => return Err((socket, problem.into())),
            },
            Ok(Message::Ping(payload)) => drop(socket.pong(payload).await),
            Ok(Message::Pong | Message::Binary(_)) => {}
            Ok(Message::Close(_)) | Err(_) => return Ok(()),
        }
    };
    let setup = Setup {
        instructions: settings.instructions.clone(),
        greeting: settings.greeting.clone(),
        ..Setup::default()
    };
    let start = Start { setup, channel: Channel::Web, caller_number: None, warnings: Vec::new() };
    let live = match service.sessions.create(tenant, start).await {
        Ok(live) => live,
        Err(error) => return Err((socket, error.to_string())),
    };
    service.read_for(live.clone());
    match service.join(&live, Kind::Web, "sdk").await {
        Ok(seat) => Connection::new(service, socket, seat, stop).run(id, Some(*settings)).await,
        Err(error) => return Err((socket, error.to_string())),
    }
    Ok(())
}

/// In the query, as a subprotocol after `token`, or as a bearer's.
fn token(request: &Request) -> Option<String> {
    let query = request.uri.query().unwrap_or_default();
    let asked = form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == "access_token");
    if let Some((_, token)) = asked {
        return Some(token.into_owned());
    }
    let mut offered = offered_protocols(&request.headers);
    if offered.next() == Some("token") {
        return offered.next().map(str::to_owned);
    }
    bearer(&request.headers)
}

fn bearer(headers: &HeaderMap) -> Option<String> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim().to_owned())
}

struct Connection {
    socket: Socket,
    seat: Seat,
    stop: CancellationToken,
    idle: Patience,
    incoming: Incoming,
    outgoing: Outgoing,
}

/// Why a connection is over: the code to close with, none where the peer is gone.
struct Over(Option<u16>);

impl From<std::io::Error> for Over {
    fn from(_: std::io::Error) -> Self {
        Self(None)
    }
}

impl From<audio::Error> for Over {
    fn from(_: audio::Error) -> Self {
        Self(Some(CLOSE_INTERNAL))
    }
}

/// Whether the agent is.
fn there(is_there: bool) -> Result<(), Over> {
    if is_there { Ok(()) } else { Err(Over(Some(CLOSE_ENDED))) }
}

impl Connection {
    fn new(service: &Service, socket: Socket, seat: Seat, stop: CancellationToken) -> Self {
        let idle = Patience::new(Duration::from_millis(service.config.room_idle_timeout_ms));
        let incoming = Incoming::new(wire::INPUT).expect("a usual rate; this is a bug");
        let outgoing = Outgoing::new(wire::OUTPUT).expect("a usual rate; this is a bug");
        Self { socket, seat, stop, idle, incoming, outgoing }
    }

    /// Serves until either side has had enough. `settings`: have been sent already.
    async fn run(mut self, id: Uuid, settings: Option<Settings>) {
        let Err(Over(code)) = self.serve(id, settings).await;
        let Self { mut socket, seat, .. } = self;
        drop(seat);
        if let Some(code) = code
            && socket.close(Some(code), "").await.is_ok()
        {
            let _ = tokio::time::timeout(GOODBYE, socket.linger()).await;
        }
    }

    async fn serve(
        &mut self,
        id: Uuid,
        settings: Option<Settings>,
    ) -> Result<std::convert::Infallible, Over> {
        match settings {
            Some(settings) => self.apply(&settings).await?,
            None => {
                let live = self.seat.live();
                let welcome = wire::welcome(id, &live.id, &live.room_name);
                self.socket.send_text(welcome).await?;
            }
        }
        self.idle.renew();
        loop {
            tokio::select! {
                message = self.socket.next_by(&mut self.idle) => {
                    let message = message.ok_or(Over(Some(CLOSE_IDLE)))?;
                    self.idle.renew();
                    self.take(message).await?;
                }
                outbound = self.seat.from_agent.recv() => {
                    self.give(outbound.ok_or(Over(Some(CLOSE_ENDED)))?).await?;
                }
                () = self.stop.cancelled() => return Err(Over(Some(CLOSE_RESTART))),
            }
        }
    }

    async fn apply(&mut self, settings: &Settings) -> Result<(), Over> {
        self.incoming = Incoming::new(settings.input)?;
        self.outgoing = Outgoing::new(settings.output)?;
        Ok(self.socket.send_text(wire::bare("SettingsApplied")).await?)
    }

    async fn take(&mut self, message: Result<Message, ReadError>) -> Result<(), Over> {
        let text = match message {
            Ok(Message::Text(text)) => text,
            Ok(Message::Binary(bytes)) => {
                let samples = self.incoming.read(&bytes);
                return there(self.seat.audio(samples).await);
            }
            Ok(Message::Ping(payload)) => return Ok(self.socket.pong(payload).await?),
            Ok(Message::Pong) => return Ok(()),
            Ok(Message::Close(code)) => {
                self.socket.close(code, "").await?;
                return Err(Over(None));
            }
            Err(ReadError::Violation(violation)) => return Err(Over(Some(violation.code))),
            Err(ReadError::Gone) => return Err(Over(None)),
        };
        let is_there = match Said::read(&text) {
            Ok(Said::KeepAlive) => true,
            Ok(Said::Settings(settings)) => {
                self.apply(&settings).await?;
                true
            }
            Ok(Said::UserMessage(text)) => self.seat.send(Inbound::Text(text)).await,
            Ok(Said::Digit(digit)) => self.seat.send(Inbound::Digit(digit)).await,
            Ok(Said::Played(mark)) => self.seat.send(Inbound::Played(mark)).await,
            Ok(Said::PageContext(context)) => {
                let shown = self.seat.live().change(|session, now, events| {
                    session.check_open()?;
                    Ok(session.show_page(&context, now, events))
                });
                shown.await.is_ok()
            }
            Ok(Said::Close) => return Err(Over(Some(CLOSE_NORMAL))),
            Ok(Said::NotHere(kind)) => {
                let problem = format!("`{kind}` is for the session's owner");
                self.socket.send_text(wire::warning("NOT_ALLOWED", &problem)).await?;
                true
            }
            Err(problem) => {
                self.socket.send_text(wire::warning("INVALID_MESSAGE", problem)).await?;
                true
            }
        };
        there(is_there)
    }

    async fn give(&mut self, outbound: Outbound) -> Result<(), Over> {
        match outbound {
            Outbound::Message(text) => self.socket.send_text(text.to_string()).await?,
            Outbound::Audio(samples, range) => {
                let bytes = self.outgoing.write(samples.get(range).unwrap_or_default());
                if !bytes.is_empty() {
                    self.socket.send_binary(Bytes::from(bytes)).await?;
                }
            }
            Outbound::Mark(mark) => self.socket.send_text(wire::mark(mark)).await?,
            Outbound::Clear => {
                self.outgoing.clear()?;
                self.socket.send_text(wire::bare("Clear")).await?;
            }
            // What happened has been said by its own message.
            Outbound::End => return Err(Over(Some(CLOSE_ENDED))),
        }
        Ok(())
    }
}
