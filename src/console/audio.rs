//! `/console/api/audio`: the audio at an address, so that the playground plays what the server has transcribed. The
//! policy of the pages lets them load nothing from elsewhere themselves.

use std::sync::Arc;
use std::time::Duration;

use hyper::StatusCode;
use hyper::header::{CONTENT_DISPOSITION, HeaderValue};
use serde::Deserialize;

use super::body::read;
use super::guard::Admin;
use super::services::Services;
use crate::http::{Failure, Request, Response, whole};

const RETRY_AFTER: Duration = Duration::from_secs(5);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    url: String,
}

/// `POST /console/api/audio`: the bytes at `url`, by the rules of all addresses that clients name.
pub async fn fetched(services: Arc<Services>, _: Admin, request: Request) -> Result<Response, Failure> {
    let asked: Option<Asked> = read(&request.headers, request.body).await?;
    let asked = asked
        .ok_or_else(|| Failure::new(StatusCode::BAD_REQUEST, "Bad Request", "The body has no `url`."))?;
    let _turn = services.downloads.try_acquire().map_err(|_| Failure::busy(RETRY_AFTER))?;
    let download = services.parts.fetcher.fetch(&asked.url).await?;
    // Whatever it is, no browser shows it.
    let mut response = whole("application/octet-stream", download.bytes);
    response.headers_mut().insert(CONTENT_DISPOSITION, HeaderValue::from_static("attachment"));
    Ok(response)
}
