//! A session's room: who is in it, and the ways to and from its agent.
//!
//! A participant holds a [`Seat`]: it hands in what it hears as [`Inbound`], and is handed [`Outbound`].
//! What lies behind a seat — a browser's socket, a LiveKit room, the leg of a telephone call, a test —
//! the agent does not know.

#[cfg(feature = "livekit")]
pub mod livekit;
#[cfg(not(feature = "livekit"))]
#[path = "no_livekit.rs"]
pub mod livekit;
pub mod media;
pub mod phone;
pub mod websocket;
pub mod wire;

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::event::Event;
use super::session::{Millis, Status};
use super::sessions::{Live, now};
use super::snapshot::time;
use super::token::Kind;
use super::{Error, Service, agent};

/// Audio and messages that an agent may be behind.
const INBOUND_MAX: usize = 256;
/// Messages that a participant may be behind before it is dropped: some seconds of audio.
const OUTBOUND_MAX: usize = 512;
const PARTICIPANTS_MAX: usize = 8;

/// What a participant hands in.
pub enum Inbound {
    Joined(Participant),
    /// At [`crate::audio::SAMPLE_RATE`].
    Audio {
        seat: u64,
        samples: Vec<f32>,
    },
    Text(String),
    Digit(char),
    /// A mark was reached in playing.
    Played(u64),
    Left {
        seat: u64,
        kind: Kind,
    },
}

/// What a participant is handed.
#[derive(Clone)]
pub enum Outbound {
    /// A message as JSON.
    Message(Arc<str>),
    /// Some of the samples, at [`crate::speech::VOICE_RATE`].
    Audio(Arc<[f32]>, Range<usize>),
    /// Say so when what came before was played.
    Mark(u64),
    /// What has not been played is not to be.
    Clear,
    /// The session is over.
    End,
}

/// A participant as the agent sees it.
pub struct Participant {
    pub seat: u64,
    pub kind: Kind,
    pub output: mpsc::Sender<Outbound>,
}

/// Who is in the room. The agent is made when the first one comes.
#[derive(Default)]
pub struct Room {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    people: Vec<Person>,
    /// When the last one left.
    empty_since: Option<Millis>,
    seats: u64,
    agent: Option<mpsc::Sender<Inbound>>,
    agent_state: AgentState,
    media: MediaState,
}

/// What a caller joins a room with that is not ours.
pub struct Invitation {
    pub url: String,
    pub token: String,
    pub identity: String,
}

/// Where the room is, and how it is with it.
#[cfg_attr(not(feature = "livekit"), allow(dead_code, reason = "a room elsewhere needs it"))]
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum MediaState {
    /// Here.
    #[default]
    Embedded,
    /// At the LiveKit server, and the agent is on its way.
    Connecting,
    /// The agent is there.
    Ready,
    /// It was closed.
    Closed,
    /// Why there is none.
    Failed(String),
}

impl MediaState {
    fn shown(&self) -> Value {
        let state = match self {
            Self::Embedded => return json!({"provider": "embedded", "state": "ready", "error": null}),
            Self::Connecting => "connecting",
            Self::Ready => "ready",
            Self::Closed => "closed",
            Self::Failed(error) => {
                return json!({"provider": "livekit", "state": "failed", "error": error});
            }
        };
        json!({"provider": "livekit", "state": state, "error": null})
    }
}

struct Person {
    seat: u64,
    identity: String,
    kind: Kind,
    joined: Millis,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AgentState {
    /// Nobody has come for it.
    #[default]
    None,
    Listening,
    Thinking,
    Speaking,
    Left,
}

impl AgentState {
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Listening => "listening",
            Self::Thinking => "thinking",
            Self::Speaking => "speaking",
            Self::Left => "left",
        }
    }
}

impl Room {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn is_occupied(&self) -> bool {
        !self.lock().people.is_empty()
    }

    /// When the last participant left; none where one is there, or none came.
    pub fn empty_since(&self) -> Option<Millis> {
        self.lock().empty_since
    }

    /// For the snapshot.
    pub fn participants(&self) -> Value {
        let people = &self.lock().people;
        let person =
            |p: &Person| json!({"identity": p.identity, "kind": p.kind, "joined_at": time(p.joined)});
        people.iter().map(person).collect()
    }

    /// Whether there is, or was, anybody for the agent.
    #[cfg_attr(not(feature = "livekit"), allow(dead_code, reason = "a room elsewhere needs it"))]
    pub fn is_agent_there(&self) -> bool {
        self.lock().agent.is_some()
    }

    #[cfg_attr(not(feature = "livekit"), allow(dead_code, reason = "a room elsewhere needs it"))]
    pub fn set_media(&self, state: MediaState) {
        self.lock().media = state;
    }

    /// For the snapshot.
    pub fn media(&self) -> Value {
        self.lock().media.shown()
    }

    /// As it will be when the session has ended and all have left.
    pub fn media_after_all(&self) -> Value {
        match self.lock().media {
            MediaState::Connecting | MediaState::Ready => MediaState::Closed.shown(),
            ref state => state.shown(),
        }
    }

    /// As [`Self::media_after_all`].
    pub fn agent_after_all(&self) -> AgentState {
        match self.agent_state() {
            AgentState::None => AgentState::None,
            _ => AgentState::Left,
        }
    }

    pub fn agent_state(&self) -> AgentState {
        self.lock().agent_state
    }

    pub fn set_agent_state(&self, state: AgentState) {
        self.lock().agent_state = state;
    }
}

/// A place in a room. Dropping it leaves.
pub struct Seat {
    live: Arc<Live>,
    number: u64,
    identity: String,
    kind: Kind,
    to_agent: mpsc::Sender<Inbound>,
    pub from_agent: mpsc::Receiver<Outbound>,
    tasks: tokio_util::task::TaskTracker,
}

impl Seat {
    /// Hands something in; false where the agent is gone.
    pub async fn send(&self, inbound: Inbound) -> bool {
        self.to_agent.send(inbound).await.is_ok()
    }

    pub async fn audio(&self, samples: Vec<f32>) -> bool {
        samples.is_empty() || self.send(Inbound::Audio { seat: self.number, samples }).await
    }

    pub fn live(&self) -> &Arc<Live> {
        &self.live
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut room = self.live.room.lock();
        room.people.retain(|person| person.seat != self.number);
        if room.people.is_empty() {
            room.empty_since = Some(now());
        }
        drop(room);
        let (live, to_agent) = (self.live.clone(), self.to_agent.clone());
        let (identity, seat, kind) = (std::mem::take(&mut self.identity), self.number, self.kind);
        self.tasks.spawn(async move {
            // Where the agent is gone, the session has ended.
            let _ = to_agent.send(Inbound::Left { seat, kind }).await;
            let left = live.change(|_, _, events| {
                events.push(Event::ParticipantLeft { identity, kind: kind.name() });
                Ok(())
            });
            if let Err(error) = left.await {
                tracing::error!(session = live.id, %error, "that a participant left is not noted");
            }
        });
    }
}

impl Service {
    /// Takes a place in a session's room; its agent comes with the first one.
    ///
    /// # Errors
    /// [`Error::Ended`]; [`Error::TooMany`] participants.
    pub async fn join(self: &Arc<Self>, live: &Arc<Live>, kind: Kind, identity: &str) -> Result<Seat, Error> {
        live.read(|session| session.check_open())?;
        let (output, from_agent) = mpsc::channel(OUTBOUND_MAX);
        let (number, to_agent) = {
            let mut room = live.room.lock();
            if room.people.len() >= PARTICIPANTS_MAX {
                return Err(Error::TooMany { field: "participants", count_max: PARTICIPANTS_MAX });
            }
            room.empty_since = None;
            room.seats += 1;
            let number = room.seats;
            room.people.push(Person { seat: number, identity: identity.to_owned(), kind, joined: now() });
            let to_agent = match &room.agent {
                Some(agent) if !agent.is_closed() => agent.clone(),
                _ => {
                    let (to_agent, inbound) = mpsc::channel(INBOUND_MAX);
                    self.tasks.spawn(agent::run(self.clone(), live.clone(), inbound));
                    room.agent = Some(to_agent.clone());
                    to_agent
                }
            };
            (number, to_agent)
        };
        let seat = Seat {
            live: live.clone(),
            number,
            identity: identity.to_owned(),
            kind,
            to_agent,
            from_agent,
            tasks: self.tasks.clone(),
        };
        live.change(|session, _, events| {
            session.check_open()?;
            if session.status == Status::Created {
                session.status = Status::Active;
            }
            events.push(Event::ParticipantJoined { identity: identity.to_owned(), kind: kind.name() });
            Ok(())
        })
        .await?;
        seat.send(Inbound::Joined(Participant { seat: number, kind, output })).await;
        Ok(seat)
    }
}
