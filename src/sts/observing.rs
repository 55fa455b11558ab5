//! The action `observe`: how someone listens in on a session's talk.

use serde::Serialize;
use serde_json::Value;

use super::failure::Error;
use super::host::Host;
use super::wire::{LiveKitRoom, value, websocket_base};
use crate::room::{Invitation, Kind};
use crate::session::Handle;

/// The data with which someone listens in.
#[derive(Serialize)]
struct Observed<'a> {
    ok: bool,
    session_id: &'a str,
    /// The sound of both sides, and the messages, on this server.
    websocket_url: String,
    token: String,
    /// A room of a LiveKit server can be joined there too, unseen.
    #[serde(flatten)]
    livekit: Option<LiveKitRoom>,
}

/// # Errors
/// The session is over.
pub fn observe(host: &Host, handle: &Handle, base: &str) -> Result<Value, Error> {
    handle.read(|session| session.check_open())?;
    let token = host.token(handle, Kind::Observer);
    let is_there = handle.room_status().provider == "livekit";
    let livekit = host.livekit.as_ref().filter(|_| is_there).map(|livekit| {
        let Invitation { url, token, identity } =
            livekit.observer(&handle.room_name, host.config.token_seconds);
        LiveKitRoom { server_url: url, participant_token: token, participant_identity: identity }
    });
    // A room of someone else's may have any name.
    let id = &handle.id;
    let websocket_url = format!("{}/STS/rooms/{id}?access_token={token}", websocket_base(base));
    Ok(value(&Observed { ok: true, session_id: &handle.id, websocket_url, token, livekit }))
}
