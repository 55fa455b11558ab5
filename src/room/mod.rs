//! Rooms: where participants meet an agent, whatever carries their audio.
//!
//! ```text
//! websocket, phone, livekit ─ Seat ═ Inbound ═▶ agent
//!                                  ◀═ Outbound ═
//! ```
//! A [`Seat`] is two channels. A participant hands in [`Inbound`] and gets [`Outbound`]; joining and leaving are
//! messages too. The agent does not know whether a browser's socket, a LiveKit room or a telephone is behind a
//! seat, and a room knows nothing of sessions.

mod config;
#[cfg(feature = "livekit")]
pub mod livekit;
#[cfg(not(feature = "livekit"))]
#[path = "no_livekit.rs"]
pub mod livekit;
mod media;
mod message;
mod mixer;
mod observer;
mod owner;
pub mod phone;
#[cfg_attr(not(feature = "livekit"), allow(dead_code, reason = "only a media server uses it"))]
mod reception;
mod seat;
mod token;
pub mod websocket;

pub use config::{Config, Relay};
pub use message::{FunctionCall, Message, Said, page_context};
pub use observer::observe;
pub use owner::{AgentSettings, Author, Behavior, Function, Listen, Order, Speak, Think, functions};
pub use reception::{
    Agency, Commission, Happening, Invitation, News, NoSeat, Reception, RoomEnd, RoomLimits,
};
pub use seat::{Inbound, Kind, Outbound, Participant, Seat, agent_channel, observer_channel};
pub use token::{Claims, Signer};
