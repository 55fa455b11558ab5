//! Presence: the participants of a session, and the state of its room and its agent. Plain data that rooms and
//! agents report.

use serde::{Deserialize, Serialize};

use super::error::Error;
use crate::clock::Millis;
use crate::fields;

pub const PARTICIPANTS_MAX: usize = 8;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attendee {
    seat: u64,
    pub identity: String,
    /// `web` or `phone`.
    pub kind: &'static str,
    pub joined: Millis,
}

#[derive(Debug, Default)]
pub struct Presence {
    participants: Vec<Attendee>,
    /// When the last participant left; none while one is there, or if none ever came.
    empty_since: Option<Millis>,
    /// Seats taken so far.
    seats: u64,
    pub agent: AgentState,
    pub media: Media,
}

impl Presence {
    /// Takes a seat and returns its number.
    ///
    /// # Errors
    /// [`fields::Error::TooMany`] participants.
    pub fn enter(&mut self, identity: &str, kind: &'static str, now: Millis) -> Result<u64, Error> {
        if self.participants.len() >= PARTICIPANTS_MAX {
            return Err(fields::Error::TooMany { field: "participants", count_max: PARTICIPANTS_MAX }.into());
        }
        self.empty_since = None;
        self.seats += 1;
        let identity = identity.to_owned();
        self.participants.push(Attendee { seat: self.seats, identity, kind, joined: now });
        Ok(self.seats)
    }

    pub fn leave(&mut self, seat: u64, now: Millis) {
        self.participants.retain(|participant| participant.seat != seat);
        if self.participants.is_empty() {
            self.empty_since = Some(now);
        }
    }

    pub fn participants(&self) -> &[Attendee] {
        &self.participants
    }

    pub fn is_occupied(&self) -> bool {
        !self.participants.is_empty()
    }

    pub fn empty_since(&self) -> Option<Millis> {
        self.empty_since
    }

    /// Whether a participant ever joined while the process runs.
    pub fn was_joined(&self) -> bool {
        self.seats > 0
    }

    /// The room's state as it will be after the session ended and everyone left.
    pub fn final_room(&self) -> RoomStatus {
        match &self.media {
            Media::Connecting | Media::Ready => Media::Closed.status(),
            media => media.status(),
        }
    }

    /// Like [`Self::final_room`], for the agent.
    pub fn final_agent(&self) -> AgentState {
        match self.agent {
            AgentState::None => AgentState::None,
            _ => AgentState::Left,
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AgentState {
    /// No participant has come yet, so there is no agent.
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

/// Where the room is, and its condition.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Media {
    /// On this server.
    #[default]
    Embedded,
    /// On a media server; the agent is connecting.
    Connecting,
    /// On a media server; the agent is connected.
    Ready,
    /// The media server closed it.
    Closed,
    /// The media server cannot provide it, and the reason.
    Failed(String),
}

/// The room as snapshots show it. Fields are in alphabetical order, like all JSON of the service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoomStatus {
    pub error: Option<String>,
    /// `embedded` or `livekit`.
    pub provider: String,
    pub state: String,
}

impl Media {
    pub fn status(&self) -> RoomStatus {
        let (provider, state, error) = match self {
            Self::Embedded => ("embedded", "ready", None),
            Self::Connecting => ("livekit", "connecting", None),
            Self::Ready => ("livekit", "ready", None),
            Self::Closed => ("livekit", "closed", None),
            Self::Failed(error) => ("livekit", "failed", Some(error.clone())),
        };
        RoomStatus { error, provider: provider.into(), state: state.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_room_is_empty_again_when_the_last_participant_has_left() {
        let mut presence = Presence::default();
        assert!(!presence.was_joined() && presence.empty_since().is_none());
        let (first, second) =
            (presence.enter("a", "web", 1).unwrap(), presence.enter("b", "phone", 2).unwrap());
        presence.leave(first, 3);
        assert!(presence.is_occupied() && presence.empty_since().is_none());
        presence.leave(second, 4);
        assert_eq!((presence.is_occupied(), presence.empty_since()), (false, Some(4)));
        presence.enter("c", "web", 5).unwrap();
        assert_eq!(presence.empty_since(), None);
    }

    #[test]
    fn one_participant_too_many_gets_no_seat() {
        let mut presence = Presence::default();
        let seats: Vec<u64> =
            (0..PARTICIPANTS_MAX).map(|_| presence.enter("a", "web", 1).expect("a seat")).collect();
        let error = presence.enter("a", "web", 1).expect_err("full");
        assert_eq!(error.to_string(), "`participants` has more than 8 entries.");
        presence.leave(seats[0], 2);
        // A number is never given twice.
        assert_eq!(presence.enter("a", "web", 3).unwrap(), PARTICIPANTS_MAX as u64 + 1);
    }

    #[test]
    fn after_the_end_no_room_is_open_and_no_agent_there() {
        let state = |media: Media| Presence { media, ..Presence::default() }.final_room().state;
        assert_eq!(state(Media::Embedded), "ready");
        assert_eq!((state(Media::Connecting), state(Media::Ready)), ("closed".into(), "closed".into()));
        assert_eq!(state(Media::Failed("why".into())), "failed");
        let agent = |agent| Presence { agent, ..Presence::default() }.final_agent();
        assert_eq!(
            (agent(AgentState::None), agent(AgentState::Speaking)),
            (AgentState::None, AgentState::Left)
        );
    }
}
