//! The voice-agent service through its public doors.

mod actions;
mod clinic;
mod converse;
mod crowd;
pub mod doubles;
mod ended;
pub mod endpoints;
mod functions;
mod hearing;
mod knowledge;
mod limits;
#[cfg(feature = "livekit")]
mod livekit;
#[cfg(feature = "livekit")]
mod livekit_breaks;
#[cfg(feature = "livekit")]
mod livekit_dispatch;
#[cfg(feature = "livekit")]
mod livekit_relays;
mod logged;
mod messages;
mod observed;
mod origins;
mod over_the_agent;
pub mod phone;
mod proofs;
mod reading;
mod recordings;
pub mod room;
pub mod service;
mod shares;
mod transfer;
mod turns;
mod voice;
mod voices;
mod webhooks;
