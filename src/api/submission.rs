//! Requests whose results are delivered later: the marks by which a repeated submission is recognised.

use bytes::Bytes;
use hyper::HeaderMap;
use sha2::{Digest as _, Sha256};
use url::Url;

use super::asker::asker;
use super::error;
use super::services::Services;
use crate::http::{Caller, Failure, Request};
use crate::jobs::{Coming, Idempotency, Jobs};

const IDEMPOTENCY_KEY: &str = "idempotency-key";
const IDEMPOTENCY_KEY_MAX: usize = 255;

/// The jobs, and a place for the one that `request` submits, unless there is no room for it. A client that sends its
/// submission again gets the existing job, whether or not there is room for another.
///
/// # Errors
/// 501 without jobs; 400 for an address that may not be sent to, or a wrong idempotency key; 429, 503.
pub async fn jobs_for<'s>(
    services: &'s Services,
    callback: &Url,
    request: &Request,
    caller: &Caller,
) -> Result<(&'s Jobs, Option<String>, Option<Coming>), Failure> {
    let Some(jobs) = &services.jobs else {
        return Err(error::not_implemented(
            "Callbacks are not served here: send the request without `callback`.",
        ));
    };
    jobs.check_callback(callback).await.map_err(|error| error::invalid_callback(&error))?;
    let key = idempotency_key(&request.headers)?;
    let is_known = match &key {
        Some(key) => jobs.is_known(caller.tenant, key).await?,
        None => false,
    };
    if is_known {
        return Ok((jobs, key, None));
    }
    let bytes = request.body.declared_bytes().unwrap_or(0);
    let coming = jobs.enter(caller.tenant, bytes, asker(caller, request)).await?;
    Ok((jobs, key, Some(coming)))
}

/// The client's name for its submission: sent again under the same name, it is the same job
/// (draft-ietf-httpapi-idempotency-key-header).
///
/// # Errors
/// 400 unless it is 1 to 255 visible characters.
fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, Failure> {
    let Some(value) = headers.get(IDEMPOTENCY_KEY) else { return Ok(None) };
    match value.to_str() {
        Ok(key) if (1..=IDEMPOTENCY_KEY_MAX).contains(&key.len()) => Ok(Some(key.to_owned())),
        _ => Err(error::invalid_header(IDEMPOTENCY_KEY, "expected 1 to 255 visible characters")),
    }
}

/// The submission of `body` under a key, if it has one: with a hash of all of it. Its query names the callback, which may hold
/// a password: so only the hash is kept.
///
/// # Errors
/// 500.
pub async fn idempotency(
    key: Option<String>,
    query: String,
    url: String,
    body: Bytes,
) -> Result<Option<Idempotency>, Failure> {
    let Some(key) = key else { return Ok(None) };
    let digest = move || {
        let mut hash = Sha256::new();
        // Neither can hold a line break.
        hash.update(format!("{query}\n{url}\n"));
        hash.update(&body);
        hash.finalize().into()
    };
    let fingerprint = tokio::task::spawn_blocking(digest).await.map_err(Failure::internal)?;
    Ok(Some(Idempotency { key, fingerprint }))
}
