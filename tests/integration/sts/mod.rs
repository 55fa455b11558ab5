//! The voice-agent service through its public doors.

mod actions;
mod doubles;
mod phone;
mod room;
pub mod service;
