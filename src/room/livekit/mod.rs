//! Rooms on a LiveKit server, which the agent joins as a participant.
//!
//! ```text
//! CreateRoom ─▶ participant ─ signalling (WebSocket, protobuf) ─▶ server ◀─ callers
//!                  │  ├─ publisher:  the agent's track, Opus;  data out
//!                  │  └─ subscriber: callers' tracks;          data in
//!                  ▼
//!           a Seat for each caller ─▶ agent
//! ```
//! The agent treats callers there like any other participants.

mod caller;
mod crypto;
mod data;
mod grant;
mod participant;
mod peer;
mod protocol;
mod server;
mod signal;
mod sound;
mod tcp;

pub use server::{LiveKit, LiveKitError};
