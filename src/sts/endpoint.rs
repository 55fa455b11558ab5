//! The contract's endpoints: `POST /STS/interactiveAgent` and the web session.

use std::sync::Arc;

use hyper::StatusCode;
use hyper::header::{CONTENT_TYPE, HeaderMap};
use serde_json::Value;

use super::action::{Action, Step, Verdict};
use super::failure::{self, Error};
use super::host::Host;
use super::wire::{
    AgentStatus, CallerBound, Completed, Engine, LiveKitRoom, PageShown, Snapshot, Started, Surroundings,
    Time, Verified, WebRoom, value, websocket_base,
};
use super::{observing, recordings, transfer};
use crate::fields::Fields;
use crate::http::{Body, Failure, Request, Response, json as answer};
use crate::knowledge::unread_website;
use crate::room::{Invitation, Kind, functions};
use crate::session::{
    self, AgentState, Asked, Channel, Checked, Handle, Notice, Remains, Setup, Source, Start, Status,
};

/// Largest body in bytes: documents may come with a start.
const BODY_BYTES_MAX: u64 = 4 << 20;

/// `POST /STS/interactiveAgent` (contract, section 4.2).
pub async fn interactive_agent(host: Arc<Host>, request: Request) -> Result<Response, Failure> {
    let (tenant, key) = host.access.caller(&request).await?;
    let base = host.base(&request.headers, &request.uri);
    let body = read(&request.headers, request.body.charged_to(tenant)).await?;
    let reply = match Action::read(&body)? {
        Action::Start(start) => begin(&host, tenant, Start { key, ..*start }, &base).await?,
        Action::Of { session_id, step } => match host.tools.sessions.find(&session_id, tenant)? {
            Asked::Open(handle) => take(&host, &handle, step, &base).await?,
            Asked::Ended if step == Step::Status => status_of_ended(&host, &session_id).await?,
            Asked::Ended => return Err(session::Error::Ended.into()),
        },
    };
    Ok(answer(StatusCode::OK, &reply))
}

/// `POST /api/livekit/sts` (contract, section 4.3): starts a session for a browser.
pub async fn web_session(host: Arc<Host>, request: Request) -> Result<Response, Failure> {
    let (tenant, key) = host.access.caller(&request).await?;
    let base = host.base(&request.headers, &request.uri);
    let body = read(&request.headers, request.body.charged_to(tenant)).await?;
    let mut start = Start::read(Fields::of(&body)?)?;
    (start.channel, start.key) = (Channel::Web, key);
    Ok(answer(StatusCode::OK, &begin(&host, tenant, start, &base).await?))
}

async fn read(headers: &HeaderMap, body: Body) -> Result<Value, Failure> {
    let media_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = media_type.split(';').next().unwrap_or_default().trim();
    if !essence.eq_ignore_ascii_case("application/json") {
        return Err(failure::not_json());
    }
    let body = body.collect_at_most(BODY_BYTES_MAX).await?;
    serde_json::from_slice(&body.bytes()).map_err(|_| failure::invalid_json())
}

async fn begin(host: &Arc<Host>, tenant: u64, mut start: Start, base: &str) -> Result<Value, Error> {
    let channel = start.channel;
    if let Some(Err(reason)) = start.setup.website_url.as_deref().map(|url| host.library.judge(url)) {
        start.warnings.push(unread_website(&reason));
    }
    check_webhook(host, &mut start).await?;
    transfer::leave_out_unusable(host, &mut start);
    let warnings = leave_out_unusable(host, &mut start.setup);
    start.warnings.extend(warnings);
    let handle = host.tools.sessions.create(tenant, start).await?;
    host.read_sources(handle.clone());
    let mut started = Started {
        ok: true,
        session_id: &handle.id,
        room_name: &handle.room_name,
        channel,
        status: handle.read(|s| s.status),
        expires_at: Time(handle.read(|s| s.expires)),
        warnings: handle.read(|s| s.warnings.clone()),
        web: None,
    };
    if channel == Channel::Web {
        started.web = Some(web_room(host, &handle, base).await?);
    }
    Ok(value(&started))
}

/// # Errors
/// [`Error::Webhook`] if events may not be sent to the address that the start names.
async fn check_webhook(host: &Host, start: &mut Start) -> Result<(), Error> {
    let Some(url) = &start.setup.talk.webhook_url else { return Ok(()) };
    let Some(jobs) = &host.jobs else {
        start.setup.talk.webhook_url = None;
        start.warnings.push("`webhook_url` was left out: this server delivers nothing later".to_owned());
        return Ok(());
    };
    let url = url.parse().map_err(|_| Error::Webhook)?;
    jobs.check_callback(&url).await.map_err(|_| Error::Webhook)
}

/// Leaves out a voice and functions that this server cannot use. Returns the warnings about them.
pub fn leave_out_unusable(host: &Host, setup: &mut Setup) -> Vec<String> {
    let voice = &host.tools.voice;
    let is_unknown = |name: &str| !voice.voices().is_empty() && voice.find(name).is_none();
    let mut warnings = Vec::new();
    if setup.voice.as_deref().is_some_and(is_unknown) {
        setup.voice = None;
        warnings.push("there is no `voice` of that name; the agent keeps its own".to_owned());
    }
    if let Err(problem) = functions(&setup.functions) {
        setup.functions = Vec::new();
        warnings.push(format!("`functions` were left out: {problem}"));
    }
    if host.tools.chat.is_none() && !setup.functions.is_empty() {
        setup.functions = Vec::new();
        warnings.push("`functions` are called by a chat model, and this server has none".to_owned());
    }
    warnings
}

async fn web_room(host: &Arc<Host>, handle: &Arc<Handle>, base: &str) -> Result<WebRoom, Error> {
    let Some(livekit) = &host.livekit else {
        let token = host.token(handle, Kind::Web);
        let websocket_url = websocket_url(base, &handle.room_name, &token);
        return Ok(WebRoom { websocket_url, token, livekit: None });
    };
    host.open_room(livekit, handle).await?;
    let Invitation { url, token, identity } = livekit.invite(&handle.room_name, host.config.token_seconds);
    let livekit = LiveKitRoom {
        server_url: url.clone(),
        participant_token: token.clone(),
        participant_identity: identity,
    };
    Ok(WebRoom { websocket_url: url, token, livekit: Some(livekit) })
}

/// A step of an open session.
async fn take(host: &Arc<Host>, handle: &Arc<Handle>, step: Step, base: &str) -> Result<Value, Error> {
    match step {
        Step::Status => Ok(status(host, handle, base).await),
        Step::BindCaller { number } => {
            handle
                .change(|session, _, events| {
                    session.check_open()?;
                    session.bind_caller(&number, events);
                    Ok(())
                })
                .await?;
            host.tools.deliver(handle.clone());
            Ok(value(&CallerBound { ok: true, session_id: &handle.id, caller_number: &number }))
        }
        Step::PageContext(context) => {
            let page_context_version = handle
                .change(|session, now, events| {
                    session.check_open()?;
                    Ok(session.show_page(&context, now, events))
                })
                .await?;
            Ok(value(&PageShown { ok: true, session_id: &handle.id, page_context_version }))
        }
        Step::Verification(verdict) => {
            let reply = verification(handle, verdict).await;
            host.tools.deliver(handle.clone());
            reply
        }
        Step::Completion(notice) => completion(handle, notice).await,
        Step::Transfer { to } => Ok(value(&transfer::request(host, handle, to).await?)),
        Step::Observe => observing::observe(host, handle, base),
    }
}

async fn status(host: &Host, handle: &Handle, base: &str) -> Value {
    let recording = recordings::status(host, handle.tenant, &handle.id).await;
    let token = host.token(handle, Kind::Web);
    // Under the session's lock, so that an ended session is not shown with the room that it had before.
    handle.read(|session| {
        let is_joinable = session.channel == Channel::Web && session.status != Status::Ended;
        let around = Surroundings {
            websocket_url: is_joinable.then(|| match &host.livekit {
                None => websocket_url(base, &handle.room_name, &token),
                Some(livekit) => livekit.invite(&handle.room_name, host.config.token_seconds).url,
            }),
            room: handle.room_status(),
            participants: handle.participants(),
            agent: agent(host, handle.agent_state()),
            sms_provider: host.tools.courier.provider(),
            recording,
        };
        value(&Snapshot::new(session, &handle.setup(), around))
    })
}

async fn status_of_ended(host: &Host, id: &str) -> Result<Value, Error> {
    let Remains { session, setup, room, agent: state } = host.tools.sessions.remains(id).await?;
    let around = Surroundings {
        websocket_url: None,
        room,
        participants: Vec::new(),
        agent: agent(host, state),
        sms_provider: host.tools.courier.provider(),
        recording: recordings::status(host, session.tenant, id).await,
    };
    Ok(value(&Snapshot::new(&session, &setup, around)))
}

fn agent(host: &Host, state: AgentState) -> AgentStatus {
    let tools = &host.tools;
    AgentStatus {
        state: state.name(),
        engine: Engine {
            end_of_turn: if tools.turn_model.is_some() { "model" } else { "silence" },
            ears: if tools.vad.is_some() { "embedded" } else { "none" },
            brain: if tools.chat.is_some() { "endpoint" } else { "embedded" },
            voice: tools.voice.name(),
        },
    }
}

fn websocket_url(base: &str, room: &str, token: &str) -> String {
    format!("{}/STS/rooms/{room}?access_token={token}", websocket_base(base))
}

async fn verification(handle: &Handle, verdict: Verdict) -> Result<Value, Error> {
    let Verdict { category, verified, details } = verdict;
    let checked = Checked { verified, source: Source::Action, details };
    let setup = handle.setup();
    let pending_sms = handle
        .change(|session, now, events| {
            session.check_open()?;
            session.verify(&category, checked, &setup, now, events)?;
            Ok(session.messages.iter().filter(|m| m.status.is_pending()).cloned().collect::<Vec<_>>())
        })
        .await?;
    Ok(value(&Verified { ok: true, session_id: &handle.id, category: &category, verified, pending_sms }))
}

async fn completion(handle: &Handle, notice: Notice) -> Result<Value, Error> {
    let noted = handle
        .change(|session, now, events| {
            session.check_open()?;
            session.complete(&notice, now, events);
            Ok(session.completion.clone())
        })
        .await?;
    let reply = noted.map(|completion| {
        value(&Completed {
            ok: true,
            session_id: &handle.id,
            status: &completion.status,
            message: completion.message.as_deref(),
            updated_fields: &completion.updated_fields,
        })
    });
    Ok(reply.unwrap_or_default())
}
