//! The host: joins sessions, rooms and agents. Nothing else knows all three.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::BoxFuture;
use futures_util::{StreamExt as _, stream};
use hyper::header::HeaderMap;
use hyper::{StatusCode, Uri};
use tokio::sync::mpsc;
use tokio_util::sync::WaitForCancellationFuture;
use uuid::Uuid;

use super::abroad::Abroad;
use super::access::Access;
use super::config::Config;
use super::failure::Error;
use crate::agent::{self, Tools};
use crate::clock::now;
use crate::fields;
use crate::http::authority;
use crate::jobs::Jobs;
use crate::knowledge::Library;
use crate::room::livekit::LiveKit;
use crate::room::{
    AgentSettings, Claims, Inbound, Kind, NoSeat, Outbound, Reception, RoomEnd, RoomLimits, Seat, Signer,
    agent_channel, observer_channel,
};
use crate::session::{
    self, Channel, EndReason, Handle, Media, PARTICIPANTS_MAX, Transfer, phone_number, read_sources,
};
use crate::usage::{self, Holder, Log, ROOM, TELEPHONE, Ticket, Work};

/// Ended sessions whose messages are sent at the same time after a restart.
const DELIVERIES: usize = 16;

/// The parts of a [`Host`] beside its agents' tools.
pub struct Parts {
    pub access: Access,
    pub signer: Signer,
    pub library: Library,
    pub livekit: Option<LiveKit>,
    pub log: Log,
    pub is_tls: bool,
    pub jobs: Option<Jobs>,
    pub abroad: Option<Abroad>,
}

pub struct Host {
    pub config: Config,
    pub access: Access,
    pub signer: Signer,
    pub library: Library,
    /// None: browsers join rooms on this server.
    pub livekit: Option<LiveKit>,
    pub tools: Arc<Tools>,
    /// Notes the stays of participants.
    pub log: Log,
    /// Whether the server itself serves TLS.
    pub is_tls: bool,
    /// Delivers events.
    pub jobs: Option<Jobs>,
    /// The sessions of other nodes, if there are other nodes.
    pub abroad: Option<Abroad>,
    /// The running agents, by session.
    agents: Mutex<HashMap<String, mpsc::Sender<Inbound>>>,
}

impl Host {
    pub fn new(config: Config, tools: Tools, parts: Parts) -> Self {
        let Parts { access, signer, library, livekit, log, is_tls, jobs, abroad } = parts;
        let (tools, agents) = (Arc::new(tools), Mutex::default());
        Self { config, access, signer, library, livekit, tools, log, is_tls, jobs, abroad, agents }
    }

    /// The address at which clients reach this server, `https://voice.example`: the configured one, or the one in
    /// the request.
    pub fn base(&self, headers: &HeaderMap, uri: &Uri) -> String {
        if let Some(url) = &self.config.public_url {
            return url.trim_end_matches('/').to_owned();
        }
        let named = authority::named(headers, uri);
        let host = named.as_ref().map_or("localhost", |authority| authority.as_str());
        format!("{}://{host}", if self.is_tls { "https" } else { "http" })
    }

    /// A token for joining the session's room.
    pub fn token(&self, handle: &Handle, kind: Kind) -> String {
        let expires = now() / 1000 + self.config.token_seconds;
        self.signer.sign(&Claims::new(&handle.id, &handle.room_name, kind, expires))
    }

    /// Takes a seat in a session's room. The agent starts with the first participant.
    ///
    /// # Errors
    /// [`session::Error::Ended`]; [`fields::Error::TooMany`] participants.
    pub async fn join(
        self: &Arc<Self>,
        handle: &Arc<Handle>,
        kind: Kind,
        identity: &str,
    ) -> Result<Seat, session::Error> {
        self.enter(handle, kind, identity, None).await
    }

    /// As [`Self::join`], for a client whom the session belongs to: its settings come first.
    ///
    /// # Errors
    /// As [`Self::join`].
    pub async fn join_as_owner(
        self: &Arc<Self>,
        handle: &Arc<Handle>,
        identity: &str,
        settings: AgentSettings,
    ) -> Result<Seat, session::Error> {
        self.enter(handle, Kind::Web, identity, Some(settings)).await
    }

    /// Binds the number that calls, if it is valid and none is bound yet.
    pub async fn bind(&self, handle: &Arc<Handle>, from: &str) {
        let Some(number) = phone_number(from) else { return };
        let bound = handle.change(|session, _, events| {
            session.check_open()?;
            if session.caller_number.is_none() {
                session.bind_caller(&number, events);
            }
            Ok(())
        });
        if let Err(error) = bound.await {
            tracing::warn!(session = handle.id, %error, "the caller is not bound");
        }
        self.tools.deliver(handle.clone());
    }

    /// Listens in on a session's talk.
    pub async fn observe(self: &Arc<Self>, handle: &Arc<Handle>) -> mpsc::Receiver<Outbound> {
        let (output, talk) = observer_channel();
        // If the agent is gone, the channel is closed.
        let _ = self.agent_of(handle).send(Inbound::Observed(output)).await;
        talk
    }

    async fn enter(
        self: &Arc<Self>,
        handle: &Arc<Handle>,
        kind: Kind,
        identity: &str,
        settings: Option<AgentSettings>,
    ) -> Result<Seat, session::Error> {
        let number = handle.enter(identity, kind.name())?;
        let to_agent = self.agent_of(handle);
        let ticket = self.ticket(handle, kind, settings.is_some());
        let leave = {
            let (handle, to_agent, identity) = (handle.clone(), to_agent.clone(), identity.to_owned());
            let tasks = self.tools.tasks.clone();
            move |audio_seconds| {
                if let Some(ticket) = ticket {
                    ticket.worked(Work { audio_seconds, channels: 1, ..Work::default() });
                }
                handle.leave(number);
                tasks.spawn(async move {
                    // If the agent is gone, the session has ended.
                    let _ = to_agent.send(Inbound::Left { seat: number, kind }).await;
                    handle.left(identity, kind.name()).await;
                });
            }
        };
        let (seat, participant) = Seat::new(number, kind, to_agent, leave);
        if let Some(settings) = settings {
            seat.send(Inbound::Settings(Box::new(settings))).await;
        }
        handle.joined(identity, kind.name()).await?;
        seat.send(Inbound::Joined(participant)).await;
        Ok(seat)
    }

    /// The entry of a participant's stay in the log of requests: that of its WebSocket, or one of its own where a media
    /// server has the connection. `is_owner`: its own key opened the session just now.
    fn ticket(&self, handle: &Handle, kind: Kind, is_owner: bool) -> Option<Ticket> {
        let path = match kind {
            Kind::Web | Kind::Observer => ROOM,
            Kind::Phone => TELEPHONE,
        };
        let elsewhere = || {
            let ticket = self.log.ticket(Uuid::new_v4(), path, None, true)?;
            ticket.answered(StatusCode::SWITCHING_PROTOCOLS.as_u16());
            Some(ticket)
        };
        let ticket = usage::current().or_else(elsewhere)?;
        if let (false, Some(key)) = (is_owner, handle.read(|session| session.key)) {
            ticket.held_by(Holder { tenant: handle.tenant, key });
            if let Some(account) = self.access.account(key) {
                ticket.pays_from(account);
            }
        }
        Some(ticket)
    }

    /// The way to the session's agent, which is started if there is none.
    fn agent_of(self: &Arc<Self>, handle: &Arc<Handle>) -> mpsc::Sender<Inbound> {
        let mut agents = self.agents();
        if let Some(agent) = agents.get(&handle.id).filter(|agent| !agent.is_closed()) {
            return agent.clone();
        }
        let (to_agent, inbound) = agent_channel();
        agents.insert(handle.id.clone(), to_agent.clone());
        let (host, handle) = (self.clone(), handle.clone());
        self.tools.tasks.spawn(async move {
            agent::run(host.tools.clone(), handle.clone(), inbound).await;
            let mut agents = host.agents();
            // A successor may have taken its place.
            if agents.get(&handle.id).is_some_and(mpsc::Sender::is_closed) {
                agents.remove(&handle.id);
            }
        });
        to_agent
    }

    fn agents(&self) -> MutexGuard<'_, HashMap<String, mpsc::Sender<Inbound>>> {
        self.agents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads a session's knowledge in the background while the session is open.
    pub fn read_sources(&self, handle: Arc<Handle>) {
        let (library, stop) = (self.library.clone(), self.tools.stop.clone());
        let sessions = self.tools.sessions.clone();
        self.tools.tasks.spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = handle.over() => {}
                () = read_sources(&library, &sessions, &handle) => {}
            }
        });
    }

    /// Sends queued messages of sessions that had ended before a restart.
    pub fn deliver_for_ended(&self) {
        if !self.tools.courier.can_send() {
            return;
        }
        let (courier, stop) = (self.tools.courier.clone(), self.tools.stop.clone());
        let sessions = self.tools.sessions.clone();
        self.tools.tasks.spawn(async move {
            let deliveries = stream::iter(sessions.sending()).for_each_concurrent(DELIVERIES, |id| {
                let (courier, sessions) = (courier.clone(), sessions.clone());
                async move {
                    match sessions.revive(&id).await {
                        Ok(handle) => courier.deliver(&handle).await,
                        Err(error) => {
                            tracing::error!(session = id, %error, "messages of an ended session are not sent");
                        }
                    }
                }
            });
            tokio::select! {
                () = stop.cancelled() => {}
                () = deliveries => {}
            }
        });
    }

    /// Goes on with a session that a process had before: this one before a restart, or another node's.
    pub fn resume(self: &Arc<Self>, handle: Arc<Handle>) {
        if !handle.read(|session| session.knowledge.is_ready) {
            self.read_sources(handle.clone());
        }
        self.tools.deliver(handle.clone());
        if handle.read(|session| session.channel == Channel::Web)
            && let Some(livekit) = &self.livekit
        {
            let (livekit, host) = (livekit.clone(), self.clone());
            // If this fails, the session ends and gives the reason.
            self.tools.tasks.spawn(async move { drop(host.reopen_room(&livekit, &handle).await) });
        }
    }

    /// Returns to a session's room after a restart.
    ///
    /// # Errors
    /// [`Error::MediaServer`].
    pub async fn reopen_room(self: &Arc<Self>, livekit: &LiveKit, handle: &Arc<Handle>) -> Result<(), Error> {
        if !handle.read(|session| session.is_guest) {
            return self.open_room(livekit, handle).await;
        }
        handle.set_media(Media::Connecting);
        let stop = self.tools.stop.clone();
        tokio::select! {
            () = stop.cancelled() => {}
            _ = self.attend(livekit, handle.clone()) => {}
        }
        Ok(())
    }

    /// Sends the agent to a room that is not this server's, until it or the session is over.
    pub async fn attend(self: &Arc<Self>, livekit: &LiveKit, handle: Arc<Handle>) -> RoomEnd {
        Desk { host: self.clone(), handle }.attend(livekit).await
    }

    /// Creates a session's room on the media server and sends the agent there in the background. If the room cannot
    /// be created, the session ends.
    ///
    /// # Errors
    /// [`Error::MediaServer`].
    pub async fn open_room(self: &Arc<Self>, livekit: &LiveKit, handle: &Arc<Handle>) -> Result<(), Error> {
        let limits = RoomLimits {
            idle_seconds: self.config.idle_seconds,
            rejoin_seconds: self.config.rejoin_seconds,
            participants_max: PARTICIPANTS_MAX + 1,
        };
        if let Err(error) = livekit.create_room(&handle.room_name, &limits).await {
            tracing::error!(
                session = handle.id,
                error = &error as &dyn std::error::Error,
                "the room could not be made"
            );
            handle.set_media(Media::Failed(error.to_string()));
            self.tools.sessions.end(handle, EndReason::RoomFailed).await?;
            return Err(Error::MediaServer);
        }
        handle.set_media(Media::Connecting);
        let (stop, livekit) = (self.tools.stop.clone(), livekit.clone());
        let desk = Desk { host: self.clone(), handle: handle.clone() };
        self.tools.tasks.spawn(async move {
            let stay = async {
                let (id, room) = (desk.handle.id.clone(), desk.handle.room_name.clone());
                let _ = desk.attend(&livekit).await;
                let transfer = desk.handle.read(|session| session.transfer_due(now()).cloned());
                // Frees the session before its room is gone.
                drop(desk);
                if let Some(Transfer { to, identity, .. }) = transfer
                    && let Err(error) = livekit.transfer(&room, &identity, &to).await
                {
                    let error: &dyn std::error::Error = &error;
                    tracing::error!(session = id, error, "a caller is not handed over");
                }
                livekit.delete_room(&id, &room).await;
            };
            tokio::select! {
                // The room stays: the agent returns to it after a restart.
                () = stop.cancelled() => {}
                () = stay => {}
            }
        });
        Ok(())
    }
}

/// Receives the callers of one session's room on a media server.
struct Desk {
    host: Arc<Host>,
    handle: Arc<Handle>,
}

impl Desk {
    /// Stays in the room until it or the session is over.
    async fn attend(&self, livekit: &LiveKit) -> RoomEnd {
        let handle = &self.handle;
        let end = livekit.serve(&handle.id, &handle.room_name, self).await;
        match &end {
            RoomEnd::SessionOver => handle.set_media(Media::Closed),
            RoomEnd::Closed => {
                tracing::info!(session = handle.id, "the room was closed");
                handle.set_media(Media::Closed);
                self.end(if handle.was_joined() { EndReason::Left } else { EndReason::Expired }).await;
            }
            RoomEnd::Failed(error) => {
                handle.set_media(Media::Failed(error.clone()));
                self.end(EndReason::RoomFailed).await;
            }
        }
        end
    }

    async fn end(&self, reason: EndReason) {
        if let Err(error) = self.host.tools.sessions.end(&self.handle, reason).await {
            tracing::error!(session = self.handle.id, %error, "the end is not noted");
        }
    }
}

impl Reception for Desk {
    fn seat<'a>(&'a self, kind: Kind, identity: &'a str) -> BoxFuture<'a, Result<Seat, NoSeat>> {
        Box::pin(async move {
            let seat = self.host.join(&self.handle, kind, identity).await;
            seat.map_err(|error| match error {
                session::Error::Ended | session::Error::Field(fields::Error::TooMany { .. }) => {
                    NoSeat::Refused
                }
                error => NoSeat::Failed(error.into()),
            })
        })
    }

    fn bind<'a>(&'a self, number: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(self.host.bind(&self.handle, number))
    }

    fn connecting(&self) {
        self.handle.set_media(Media::Connecting);
    }

    fn ready(&self) {
        self.handle.set_media(Media::Ready);
    }

    fn is_over(&self) -> bool {
        self.handle.is_over()
    }

    fn over(&self) -> WaitForCancellationFuture<'_> {
        self.handle.over()
    }
}
