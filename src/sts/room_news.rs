//! `POST /api/livekit/webhook`: events of a LiveKit server, which end sessions without delay.
//!
//! The agent sees the same events in its room. The webhook counts where it is not there to see them, and tells a caller
//! who has left from one whose connection was lost.

use std::sync::Arc;
use std::time::Duration;

use hyper::StatusCode;
use hyper::header::AUTHORIZATION;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::host::Host;
use crate::http::{Failure, Request, Response, json as answer};
use crate::room::livekit::{LiveKit, WebhookError};
use crate::room::{Happening, News};
use crate::session::{EndReason, Handle, Media};

/// Participants may have metadata.
const BODY_BYTES_MAX: u64 = 256 << 10;
/// A browser that loads its page anew has left, and is back within this.
const RELOAD: Duration = Duration::from_secs(10);

pub async fn webhook(host: Arc<Host>, request: Request) -> Result<Response, Failure> {
    let authorization = request.headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let authorization = authorization.unwrap_or_default().to_owned();
    let body = request.body.collect_at_most(BODY_BYTES_MAX).await?;
    let Some(livekit) = host.livekit.clone() else { return Err(not_signed()) };
    let bytes = body.bytes();
    match livekit.webhook(&authorization, &bytes) {
        Ok(Some(news)) => {
            take(&host, livekit, news);
            // The balancer chose a node, and the session may be at any: the one that has it acts.
            if let (Some(abroad), Ok(body)) = (&host.abroad, std::str::from_utf8(&bytes)) {
                let word = Word { authorization, body: body.to_owned() };
                abroad.tell(&serde_json::to_string(&word).unwrap_or_default()).await;
            }
        }
        Ok(None) => {}
        Err(WebhookError::NotSigned) => return Err(not_signed()),
        Err(error @ WebhookError::Form) => {
            return Err(Failure::new(StatusCode::BAD_REQUEST, "INVALID_JSON", error.to_string()));
        }
    }
    Ok(answer(StatusCode::OK, &json!({"ok": true})))
}

/// An event as it came to one node, for the others, which judge it themselves.
#[derive(Serialize, Deserialize)]
pub struct Word {
    authorization: String,
    body: String,
}

/// Takes an event that came to another node.
pub fn hear(host: &Arc<Host>, word: &Word) {
    let Some(livekit) = host.livekit.clone() else { return };
    if let Ok(Some(news)) = livekit.webhook(&word.authorization, word.body.as_bytes()) {
        take(host, livekit, news);
    }
}

fn not_signed() -> Failure {
    let message = "The request is not signed by the LiveKit server.";
    Failure::new(StatusCode::UNAUTHORIZED, "INVALID_SIGNATURE", message)
}

/// Looks after the session in the background: the server waits for the answer.
fn take(host: &Arc<Host>, livekit: LiveKit, News { room, happening }: News) {
    let sessions = host.tools.sessions.all();
    for handle in sessions.into_iter().filter(|handle| handle.room_name == room && !handle.is_over()) {
        let (host, livekit) = (host.clone(), livekit.clone());
        let stop = host.tools.stop.clone();
        host.tools.tasks.clone().spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = handle.over() => {}
                () = look(&host, &livekit, &handle, happening) => {}
            }
        });
    }
}

async fn look(host: &Host, livekit: &LiveKit, handle: &Handle, happening: Happening) {
    let room = &handle.room_name;
    let (is_over, reason) = match happening {
        // A room of that name may have been opened again.
        Happening::Finished => {
            let is_gone = matches!(livekit.has_room(room).await, Ok(false));
            (is_gone, if handle.was_joined() { EndReason::Left } else { EndReason::Expired })
        }
        Happening::HungUp => (is_empty(livekit, handle).await, EndReason::HungUp),
        Happening::Left => {
            let rejoin = Duration::from_secs(host.config.rejoin_seconds);
            tokio::time::sleep(RELOAD.min(rejoin)).await;
            (is_empty(livekit, handle).await, EndReason::Left)
        }
    };
    if !is_over {
        return;
    }
    handle.set_media(Media::Closed);
    if let Err(error) = host.tools.sessions.end(handle, reason).await {
        tracing::error!(session = handle.id, %error, "the end is not noted");
    }
}

/// Whether a caller was there, and none is any more. The agent may be away, so the server is asked too.
async fn is_empty(livekit: &LiveKit, handle: &Handle) -> bool {
    handle.was_joined()
        && !handle.is_occupied()
        && matches!(livekit.has_callers(&handle.room_name).await, Ok(false))
}
