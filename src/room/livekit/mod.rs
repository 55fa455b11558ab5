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
mod link;
mod participant;
mod peer;
mod protocol;
mod relay;
mod relay_server;
mod server;
mod signal;
mod socket;
mod sound;
mod tcp;
mod transcription;
mod transfer;
mod webhook;
mod worker;
mod worker_protocol;

pub use server::{LiveKit, LiveKitError};
pub use webhook::WebhookError;
