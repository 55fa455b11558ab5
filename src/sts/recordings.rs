//! The doors of recordings, for the organisation whose session it was.

use std::sync::Arc;
use std::time::UNIX_EPOCH;

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, stream};
use hyper::StatusCode;
use hyper::header::{CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_LENGTH, HeaderValue};
use tokio::io::AsyncReadExt as _;

use super::abroad::{Found, Passed};
use super::host::Host;
use super::recording_status::RecordingStatus;
use super::time::Time;
use crate::clock::millis;
use crate::figures::Seconds;
use crate::http::{Failure, Request, Response, empty, streamed};
use crate::recording::{HEAD_BYTES, Recording, head};

const PIECE_BYTES: usize = 64 << 10;

/// A session's recording for `status`. Looks at the disk.
pub async fn status(host: &Host, tenant: u64, session: &str) -> Option<RecordingStatus> {
    let found = find(host, tenant, session).await?;
    let expires = found.expires.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    Some(RecordingStatus {
        seconds: Seconds::new(found.seconds),
        bytes: found.bytes + HEAD_BYTES,
        expires_at: expires.map(|at| Time(millis(at))),
    })
}

async fn find(host: &Host, tenant: u64, session: &str) -> Option<Recording> {
    let (shelf, session) = (host.tools.recordings.clone(), session.to_owned());
    tokio::task::spawn_blocking(move || shelf.find(tenant, &session)).await.ok().flatten()
}

/// The answer of the node that has the session, as a recording lies where it was made.
async fn elsewhere(
    host: &Arc<Host>,
    tenant: u64,
    session: &str,
    request: Request,
) -> Result<Response, Failure> {
    let passed = Passed::of(&request);
    match host.seek(session, Some(tenant), &passed).await {
        Ok(Found::At(place)) => place.pass(passed, Bytes::new()).await,
        Ok(_) => Err(missing()),
        Err(failure) if failure.status() == StatusCode::NOT_FOUND => Err(missing()),
        Err(failure) => Err(failure),
    }
}

fn missing() -> Failure {
    Failure::new(StatusCode::NOT_FOUND, "RECORDING_NOT_FOUND", "There is no recording of such a session.")
}

/// `GET /STS/sessions/{session_id}/recording`: a WAVE file, the callers in the left channel, the agent in the right. Of
/// a talk that goes on, what there is so far.
pub async fn fetch(host: Arc<Host>, request: Request) -> Result<Response, Failure> {
    let tenant = host.access.tenant(&request).await?;
    let session = request.capture("session_id").unwrap_or_default().to_owned();
    let Some(found) = find(&host, tenant, &session).await else {
        return elsewhere(&host, tenant, &session, request).await;
    };
    let file = tokio::fs::File::open(&found.path).await.map_err(|_| missing())?;
    let start = stream::once(async move { Bytes::copy_from_slice(&head(found.bytes)) });
    let mut response = streamed("audio/wav", start.chain(pieces(file, found.bytes)));
    let headers = response.headers_mut();
    headers.insert(CONTENT_LENGTH, HeaderValue::from(HEAD_BYTES + found.bytes));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Ok(name) = HeaderValue::from_str(&format!("attachment; filename=\"{session}.wav\"")) {
        headers.insert(CONTENT_DISPOSITION, name);
    }
    Ok(response)
}

/// The first `bytes` of a file, which may grow meanwhile.
fn pieces(file: tokio::fs::File, bytes: u64) -> impl Stream<Item = Bytes> + Send {
    stream::unfold(file.take(bytes), |mut file| async move {
        let mut piece = vec![0; PIECE_BYTES];
        match file.read(&mut piece).await {
            Ok(count) if count > 0 => {
                piece.truncate(count);
                Some((Bytes::from(piece), file))
            }
            // A body that is shorter than its head said is a failure that the client sees.
            _ => None,
        }
    })
}

/// `DELETE /STS/sessions/{session_id}/recording`. A talk that goes on is not recorded any more.
pub async fn delete(host: Arc<Host>, request: Request) -> Result<Response, Failure> {
    let tenant = host.access.tenant(&request).await?;
    let session = request.capture("session_id").unwrap_or_default().to_owned();
    let (shelf, named) = (host.tools.recordings.clone(), session.clone());
    let deleted = tokio::task::spawn_blocking(move || shelf.delete(tenant, &named)).await;
    match deleted {
        Ok(Ok(true)) => Ok(empty(StatusCode::NO_CONTENT)),
        Ok(Ok(false)) => elsewhere(&host, tenant, &session, request).await,
        Ok(Err(error)) => Err(Failure::internal(error)),
        Err(error) => Err(Failure::internal(error)),
    }
}
