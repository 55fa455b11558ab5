//! The contract's two doors: `POST /STS/interactiveAgent` and the web session.

use std::sync::Arc;

use hyper::header::{CONTENT_TYPE, HeaderMap};
use hyper::{StatusCode, Uri};
use serde_json::{Value, json};

use super::action::{Action, Notice, Step, Verdict};
use super::fields::Fields;
use super::remains::Remains;
use super::room::{AgentState, Invitation};
use super::session::{Checked, Source, Status};
use super::sessions::{Asked, Live, now};
use super::setup::{Channel, Start};
use super::snapshot::{Around, snapshot, time};
use super::token::{Claims, Kind};
use super::{Error, Service, failure};
use crate::http::{Body, Failure, Request, Response, authority, json as answer};
use crate::knowledge::unread_website;

/// Documents may come with a start.
const BODY_BYTES_MAX: u64 = 4 << 20;

/// `POST /STS/interactiveAgent` (contract, section 4.2).
pub async fn interactive_agent(service: Arc<Service>, request: Request) -> Result<Response, Failure> {
    let tenant = service.access.tenant(&request).await?;
    let base = service.base(&request.headers, &request.uri);
    let body = read(&request.headers, request.body.charged_to(tenant)).await?;
    let reply = match Action::read(&body)? {
        Action::Start(start) => service.start(tenant, *start, &base).await?,
        Action::Of { session_id, step } => match service.sessions.find(&session_id, tenant)? {
            Asked::Open(live) => service.take(&live, step, &base).await?,
            Asked::Ended if step == Step::Status => service.status_of_ended(&session_id).await?,
            Asked::Ended => return Err(Error::Ended.into()),
        },
    };
    Ok(answer(StatusCode::OK, &reply))
}

/// `POST /api/livekit/sts` (contract, section 4.3): a start for a browser, without the word.
pub async fn web_session(service: Arc<Service>, request: Request) -> Result<Response, Failure> {
    let tenant = service.access.tenant(&request).await?;
    let base = service.base(&request.headers, &request.uri);
    let body = read(&request.headers, request.body.charged_to(tenant)).await?;
    let mut start = Start::read(Fields::of(&body)?)?;
    start.channel = Channel::Web;
    Ok(answer(StatusCode::OK, &service.start(tenant, start, &base).await?))
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

impl Service {
    /// Where clients reach this server: `https://voice.example`. As configured, or as this one did.
    pub fn base(&self, headers: &HeaderMap, uri: &Uri) -> String {
        if let Some(url) = &self.config.public_url {
            return url.trim_end_matches('/').to_owned();
        }
        let named = authority::named(headers, uri);
        let host = named.as_ref().map_or("localhost", |authority| authority.as_str());
        format!("{}://{host}", if self.parts.is_tls { "https" } else { "http" })
    }

    async fn start(self: &Arc<Self>, tenant: u64, mut start: Start, base: &str) -> Result<Value, Error> {
        let channel = start.channel;
        if let Some(Err(reason)) = start.setup.website_url.as_deref().map(|url| self.library.judge(url)) {
            start.warnings.push(unread_website(&reason));
        }
        let live = self.sessions.create(tenant, start).await?;
        self.read_for(live.clone());
        let mut reply = json!({
            "ok": true,
            "session_id": live.id,
            "room_name": live.room_name,
            "channel": channel,
            "status": live.read(|s| s.status),
            "expires_at": time(live.read(|s| s.expires)),
            "warnings": live.read(|s| s.warnings.clone()),
        });
        // A phone's leg gets its own leave to join when the call arrives.
        if let (Channel::Web, Some(reply)) = (channel, reply.as_object_mut()) {
            let (url, token) = match &self.livekit {
                None => {
                    let token = self.token(&live, Kind::Web);
                    (websocket_url(base, &live.room_name, &token), token)
                }
                Some(livekit) => {
                    livekit.begin(self, &live).await?;
                    let Invitation { url, token, identity } =
                        livekit.invite(&live.room_name, self.config.token_seconds);
                    // By the names that ready-made clients ask their token server for, too.
                    reply.insert("server_url".into(), url.clone().into());
                    reply.insert("participant_token".into(), token.clone().into());
                    reply.insert("participant_identity".into(), identity.into());
                    (url, token)
                }
            };
            reply.insert("websocket_url".into(), url.into());
            reply.insert("token".into(), token.into());
        }
        Ok(reply)
    }

    /// A step of a session that there is.
    async fn take(self: &Arc<Self>, live: &Arc<Live>, step: Step, base: &str) -> Result<Value, Error> {
        match step {
            Step::Status => Ok(self.status(live, base)),
            Step::BindCaller { number } => {
                live.change(|session, _, events| {
                    session.check_open()?;
                    session.bind_caller(&number, events);
                    Ok(())
                })
                .await?;
                self.deliver(live.clone());
                Ok(json!({"ok": true, "session_id": live.id, "caller_number": number}))
            }
            Step::PageContext(context) => {
                let version = live
                    .change(|session, now, events| {
                        session.check_open()?;
                        Ok(session.show_page(&context, now, events))
                    })
                    .await?;
                Ok(json!({"ok": true, "session_id": live.id, "page_context_version": version}))
            }
            Step::Verification(verdict) => {
                let reply = verification(live, verdict).await;
                self.deliver(live.clone());
                reply
            }
            Step::Completion(notice) => completion(live, notice).await,
        }
    }

    fn status(&self, live: &Live, base: &str) -> Value {
        let is_joinable = live.read(|s| s.channel == Channel::Web && s.status != Status::Ended);
        let around = Around {
            websocket_url: is_joinable.then(|| match &self.livekit {
                None => websocket_url(base, &live.room_name, &self.token(live, Kind::Web)),
                Some(livekit) => livekit.invite(&live.room_name, self.config.token_seconds).url,
            }),
            room: live.room.media(),
            participants: live.room.participants(),
            agent: self.agent(live.room.agent_state()),
            sms_provider: self.courier.provider(),
        };
        let setup = live.setup();
        live.read(|session| snapshot(session, &setup, around))
    }

    async fn status_of_ended(&self, id: &str) -> Result<Value, Error> {
        let Remains { session, setup, room, agent } = self.sessions.remains(id).await?;
        let around = Around {
            websocket_url: None,
            room,
            participants: json!([]),
            agent: self.agent(agent),
            sms_provider: self.courier.provider(),
        };
        Ok(snapshot(&session, &setup, around))
    }

    fn agent(&self, state: AgentState) -> Value {
        json!({
            "state": state.name(),
            "engine": {
                "end_of_turn": if self.turn_model.is_some() { "model" } else { "silence" },
                "ears": if self.parts.vad.is_some() { "embedded" } else { "none" },
                "brain": if self.chat.is_some() { "endpoint" } else { "embedded" },
                "voice": self.voice.name(),
            },
        })
    }

    pub fn token(&self, live: &Live, kind: Kind) -> String {
        let expires = now() / 1000 + self.config.token_seconds;
        self.signer.sign(&Claims::new(&live.id, &live.room_name, kind, expires))
    }
}

fn websocket_url(base: &str, room: &str, token: &str) -> String {
    format!("{}/STS/rooms/{room}?access_token={token}", websocket_base(base))
}

/// `http` becomes `ws`, and `https` `wss`.
pub fn websocket_base(base: &str) -> String {
    base.strip_prefix("http").map_or_else(|| base.to_owned(), |rest| format!("ws{rest}"))
}

async fn verification(live: &Live, verdict: Verdict) -> Result<Value, Error> {
    let Verdict { category, verified, details } = verdict;
    let checked = Checked { verified, source: Source::Action, details };
    let setup = live.setup();
    let pending = live
        .change(|session, now, events| {
            session.check_open()?;
            session.verify(&category, checked, &setup, now, events)?;
            Ok(session.messages.iter().filter(|m| m.status.is_pending()).cloned().collect::<Vec<_>>())
        })
        .await?;
    Ok(json!({
        "ok": true, "session_id": live.id, "category": category, "verified": verified, "pending_sms": pending,
    }))
}

async fn completion(live: &Live, notice: Notice) -> Result<Value, Error> {
    let noted = live
        .change(|session, now, events| {
            session.check_open()?;
            session.complete(&notice, now, events);
            Ok(session.completion.clone())
        })
        .await?;
    let reply = noted.map(|completion| {
        json!({
            "ok": true, "session_id": live.id, "status": completion.status, "message": completion.message,
            "updated_fields": completion.updated_fields,
        })
    });
    Ok(reply.unwrap_or_default())
}
