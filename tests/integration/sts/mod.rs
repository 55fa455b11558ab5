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
#[cfg(feature = "livekit")]
mod livekit;
mod logged;
mod messages;
mod origins;
pub mod phone;
mod proofs;
mod reading;
pub mod room;
pub mod service;
mod shares;
mod turns;
mod voice;
mod voices;
