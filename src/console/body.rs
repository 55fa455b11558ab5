//! JSON bodies of the console's requests.

use hyper::header::CONTENT_TYPE;
use hyper::{HeaderMap, StatusCode};
use serde::de::DeserializeOwned;

use crate::http::{Body, Failure};

const BYTES_MAX: u64 = 16 << 10;

/// The body as a `T`; `None` if there is none.
///
/// # Errors
/// 415 unless it says that it is JSON; 400 for anything else than a `T`; 408, 413, 429, 503.
pub async fn read<T: DeserializeOwned>(headers: &HeaderMap, body: Body) -> Result<Option<T>, Failure> {
    // A form cannot say so.
    let media_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let essence = media_type.unwrap_or_default().split(';').next().unwrap_or_default().trim();
    if body.is_empty() {
        return Ok(None);
    }
    if !essence.eq_ignore_ascii_case("application/json") {
        let message = "The body must be JSON, with `Content-Type: application/json`.";
        return Err(Failure::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UNSUPPORTED_MEDIA_TYPE", message));
    }
    let body = body.collect_at_most(BYTES_MAX).await?;
    serde_json::from_slice(&body.bytes()).map(Some).map_err(|problem| {
        // The problem may quote the body.
        Failure::new(
            StatusCode::BAD_REQUEST,
            "Bad Request",
            "The body is not the JSON that this path expects.",
        )
        .because(format!("{:?}", problem.classify()))
    })
}
