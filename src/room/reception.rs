//! The questions that a room on a media server asks of its session: for seats, and whether it is over.

use futures_util::future::BoxFuture;
use tokio_util::sync::WaitForCancellationFuture;

use super::seat::{Kind, Seat};

/// Seats the callers of one room elsewhere, and learns the room's condition.
pub trait Reception: Send + Sync {
    fn seat<'a>(&'a self, kind: Kind, identity: &'a str) -> BoxFuture<'a, Result<Seat, NoSeat>>;

    /// The telephone number of the caller who comes next.
    fn bind<'a>(&'a self, number: &'a str) -> BoxFuture<'a, ()>;

    /// The agent is connecting to the room.
    fn connecting(&self);

    /// The agent is connected: it is heard, and it hears.
    fn ready(&self);

    fn is_over(&self) -> bool;

    /// Waits until the session is over. Cancel-safe.
    fn over(&self) -> WaitForCancellationFuture<'_>;
}

/// Why a caller gets no seat.
#[derive(Debug, thiserror::Error)]
pub enum NoSeat {
    /// The session is over or full. The caller can still watch.
    #[error("no seat is free")]
    Refused,
    #[error("no place in the room")]
    Failed(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// How a room elsewhere ended.
pub enum RoomEnd {
    /// The session is over.
    SessionOver,
    /// The server closed the room, or removed the agent from it.
    Closed,
    /// The server cannot be reached, and the reason.
    Failed(String),
}

/// An event in a room elsewhere, as its server reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct News {
    pub room: String,
    pub happening: Happening,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Happening {
    /// A caller left of their own accord.
    Left,
    /// A telephone is off the line.
    HungUp,
    /// The room is closed.
    Finished,
}

/// A job that a media server offers: an agent for one of its rooms.
pub struct Commission {
    pub room: String,
    /// From the one who asked for the agent.
    pub metadata: String,
}

/// Takes jobs for agents.
pub trait Agency: Send + Sync {
    /// Prepares a session for a job and returns its id; none if the job is refused.
    fn accept(&self, commission: Commission) -> BoxFuture<'_, Option<String>>;

    /// The work of a session that was accepted, until its talk is over.
    fn serve(&self, session: &str) -> BoxFuture<'static, RoomEnd>;

    /// Ends a session whose job is withdrawn.
    fn end<'a>(&'a self, session: &'a str) -> BoxFuture<'a, ()>;

    /// How busy this server is: from 1 on it takes no job.
    fn load(&self) -> f32;
}

/// Limits of a room elsewhere.
pub struct RoomLimits {
    /// How long a room without participants stays open.
    pub idle_seconds: u64,
    /// How long a room stays open after the last participant left.
    pub rejoin_seconds: u64,
    /// Callers and the agent.
    pub participants_max: usize,
}

/// The data with which a caller joins a room elsewhere.
pub struct Invitation {
    pub url: String,
    pub token: String,
    pub identity: String,
}
