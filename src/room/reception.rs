//! The questions that a room on a media server asks of its session: for seats, and whether it is over.

use futures_util::future::BoxFuture;
use tokio_util::sync::WaitForCancellationFuture;

use super::seat::{Kind, Seat};

/// Seats the callers of one room elsewhere, and learns the room's condition.
pub trait Reception: Send + Sync {
    fn seat<'a>(&'a self, kind: Kind, identity: &'a str) -> BoxFuture<'a, Result<Seat, NoSeat>>;

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
