//! WebSocket endpoints of the embedded room.
//!
//! ```text
//! /STS/rooms/{room}       token  ─┐
//! /v1/agent/converse  Settings  ─┴▶ host ─▶ room::websocket ─▶ the agent
//! ```
//! The messages are those of `room::message`; `room::owner` reads those that only a session's owner may send, such as
//! `Settings`, and `agent::orders` obeys them.

use std::sync::Arc;
use std::time::Duration;

use hyper::StatusCode;
use hyper::header::{AUTHORIZATION, HeaderMap};
use serde_json::json;
use tokio_util::sync::CancellationToken;
use url::form_urlencoded;
use uuid::Uuid;

use super::host::Host;
use crate::clock::now;
use crate::http::websocket::{self, Message, ReadError, Socket, offered_protocols};
use crate::http::{Failure, Request, Response, json as answer};
use crate::patience::Patience;
use crate::room::websocket::{
    CLOSE_ENDED, CLOSE_INTERNAL, CLOSE_NORMAL, CLOSE_RESTART, Connection, LIMITS, Opening, goodbye,
};
use crate::room::{Claims, Kind, Message as Sent, Said, Seat, observe};
use crate::session::{Channel, Handle, Session, Setup, Start};
use crate::usage;

/// From the `Welcome`. No other message prolongs it: a socket without a session counts in no share.
const SETTINGS_WAIT: Duration = Duration::from_secs(10);
const CLOSE_REFUSED: u16 = 1008;
const CLOSE_TRY_LATER: u16 = 1013;
/// The status, in the log of requests, of a stream that ended because the server stops.
const STOPPING: u16 = 503;

/// `GET /STS/rooms/{room}`: joins the room that the token is for.
pub async fn join_room(host: Arc<Host>, request: Request) -> Result<Response, Failure> {
    let claims = token(&request).and_then(|token| host.signer.check(&token, now() / 1000)).filter(|claims| {
        let named = request.captures.first();
        named.is_some_and(|(_, room)| room == claims.room() || *room == claims.session)
    });
    let Some(claims) = claims else {
        return Err(Failure::new(
            StatusCode::UNAUTHORIZED,
            "INVALID_AUTH",
            "The token is not for this room, or its time is over.",
        ));
    };
    let handle = host.tools.sessions.enter(&claims.session)?;
    handle.read(Session::check_open)?;
    // A browser offers its token as a subprotocol, and fails unless one is agreed to.
    let agreed = offered_protocols(&request.headers).next().filter(|name| *name == "token");
    let agreed = agreed.and_then(|name| name.parse().ok());
    let id = request.id;
    websocket::accept(request, LIMITS, agreed, move |mut socket, stop| async move {
        let Claims { sub, kind, .. } = &claims;
        if *kind == Kind::Observer {
            return watch(&host, &handle, (socket, stop), id).await;
        }
        match host.join(&handle, *kind, sub).await {
            Ok(seat) => {
                let (session_id, room_name) = (handle.id.as_str(), handle.room_name.as_str());
                let welcome = Sent::Welcome { request_id: id, session_id, room_name }.to_json();
                serve(&host, (socket, stop), seat, Opening::Welcome(welcome)).await;
            }
            Err(error) => drop(socket.close(Some(CLOSE_ENDED), &error.to_string()).await),
        }
    })
}

/// `GET /v1/agent/converse`: the SDKs' way, a session that begins with `Settings` and belongs to the owner of the
/// key.
pub async fn converse(host: Arc<Host>, request: Request) -> Result<Response, Failure> {
    let (tenant, agreed) = host.access.websocket_tenant(&request).await?;
    // The session begins with the settings. A full server says so while it can still say when to come again.
    host.tools.sessions.has_room(tenant)?;
    let id = request.id;
    websocket::accept(request, LIMITS, agreed, move |socket, stop| async move {
        if let Err((mut socket, failure)) = begin(&host, socket, tenant, id, stop).await {
            usage::ended(failure.status().as_u16());
            let error = Sent::Error { code: failure.code(), description: failure.message() };
            let _ = socket.send_text(error.to_json()).await;
            goodbye(socket, Some(close_code(failure.status()))).await;
        }
    })
}

/// `GET /v1/agent/settings/think/models`: the chat model that the server is configured with, if any.
pub async fn think_models(host: Arc<Host>, request: Request) -> Result<Response, Failure> {
    host.access.tenant(&request).await?;
    let chat = host.tools.chat.as_ref();
    let models = chat.map(|chat| json!({"id": chat.model(), "name": chat.model(), "provider": "open_ai"}));
    Ok(answer(StatusCode::OK, &json!({"models": Vec::from_iter(models)})))
}

async fn begin(
    host: &Arc<Host>,
    mut socket: Socket,
    tenant: u64,
    id: Uuid,
    stop: CancellationToken,
) -> Result<(), (Socket, Failure)> {
    let welcome = Sent::Welcome { request_id: id, session_id: "", room_name: "" };
    if socket.send_text(welcome.to_json()).await.is_err() {
        return Ok(());
    }
    let mut patience = Patience::new(SETTINGS_WAIT);
    let settings = loop {
        let message = tokio::select! {
            message = socket.next_by(&mut patience) => message,
            () = stop.cancelled() => {
                usage::ended(STOPPING);
                goodbye(socket, Some(CLOSE_RESTART)).await;
                return Ok(());
            }
        };
        let Some(message) = message else {
            return Err((socket, invalid("no Settings came in time")));
        };
        match message {
            Ok(Message::Text(text)) => match Said::read(&text) {
                Ok(Said::Settings(settings)) => break settings,
                Ok(Said::KeepAlive) => {}
                Ok(_) => return Err((socket, invalid("the first message must be Settings"))),
                Err(problem) => return Err((socket, invalid(problem))),
            },
            Ok(Message::Ping(payload)) => drop(socket.pong(payload).await),
            Ok(Message::Pong | Message::Binary(_)) => {}
            Ok(Message::Close(code)) => {
                goodbye(socket, code).await;
                return Ok(());
            }
            Err(ReadError::Violation(violation)) => {
                usage::ended(StatusCode::BAD_REQUEST.as_u16());
                goodbye(socket, Some(violation.code)).await;
                return Ok(());
            }
            Err(ReadError::Gone) => return Ok(()),
        }
    };
    let setup = Setup {
        instructions: settings.agent.think.as_ref().and_then(|think| think.prompt.clone()),
        greeting: settings.greeting.clone(),
        ..Setup::default()
    };
    let start = Start::new(setup, Channel::Web);
    let handle = match host.tools.sessions.create(tenant, start).await {
        Ok(handle) => handle,
        Err(error) => return Err((socket, error.into())),
    };
    host.read_sources(handle.clone());
    match host.join_as_owner(&handle, "sdk", settings.agent.clone()).await {
        Ok(seat) => serve(host, (socket, stop), seat, Opening::Settings(settings)).await,
        Err(error) => return Err((socket, error.into())),
    }
    Ok(())
}

fn invalid(problem: &'static str) -> Failure {
    Failure::new(StatusCode::BAD_REQUEST, "INVALID_SETTINGS", problem)
}

/// The token in the query, as a subprotocol after `token`, or as a bearer token.
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

/// Serves someone who listens in.
async fn watch(
    host: &Arc<Host>,
    handle: &Arc<Handle>,
    (socket, stop): (Socket, CancellationToken),
    request_id: Uuid,
) {
    let (session_id, room_name) = (handle.id.as_str(), handle.room_name.as_str());
    let welcome = Sent::Welcome { request_id, session_id, room_name }.to_json();
    let idle = Duration::from_millis(host.config.room_idle_timeout_ms);
    let talk = host.observe(handle).await;
    note_end(observe(socket, talk, welcome, idle, stop).await);
}

/// Serves a connection to its end, and notes in the log of requests whether it failed.
async fn serve(host: &Host, (socket, stop): (Socket, CancellationToken), seat: Seat, opening: Opening) {
    let idle = Duration::from_millis(host.config.room_idle_timeout_ms);
    note_end(Connection::new(socket, seat, idle, stop).run(opening).await);
}

fn note_end(code: Option<u16>) {
    match code {
        None | Some(CLOSE_NORMAL | CLOSE_ENDED) => {}
        Some(CLOSE_RESTART) => usage::ended(STOPPING),
        Some(CLOSE_INTERNAL) => usage::ended(StatusCode::INTERNAL_SERVER_ERROR.as_u16()),
        Some(_) => usage::ended(StatusCode::BAD_REQUEST.as_u16()),
    }
}

/// The close code for a refusal of this status.
fn close_code(status: StatusCode) -> u16 {
    match status {
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => CLOSE_TRY_LATER,
        status if status.is_server_error() => CLOSE_INTERNAL,
        _ => CLOSE_REFUSED,
    }
}
