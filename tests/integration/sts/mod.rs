//! The voice-agent service through its public doors.

mod actions;
mod clinic;
mod converse;
mod crowd;
pub mod doubles;
mod endpoints;
mod knowledge;
#[cfg(feature = "livekit")]
mod livekit;
pub mod phone;
pub mod room;
pub mod service;
mod turns;
mod voice;
mod voices;
