//! The text of a request.

use hyper::StatusCode;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use serde::Deserialize;

use crate::http::{Body, Failure};

/// The wire format's limit on the body.
const BODY_BYTES_MAX: u64 = 2 << 20;

/// The body of a request.
#[derive(Deserialize)]
struct Text {
    text: String,
}

/// Reads a body: JSON with `text`, or the text itself.
///
/// # Errors
/// 400, 408, 413, 415, 503.
pub async fn read(headers: &HeaderMap, body: Body) -> Result<String, Failure> {
    let media_type = headers.get(CONTENT_TYPE).map_or(&b"application/json"[..], HeaderValue::as_bytes);
    let essence = media_type.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    let is_json = essence.eq_ignore_ascii_case(b"application/json");
    if !is_json && !essence.eq_ignore_ascii_case(b"text/plain") {
        return Err(Failure::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "UNSUPPORTED_MEDIA_TYPE",
            "`Content-Type` header is not supported. `Content-Type` must be either `text/plain` or `application/json`.",
        ));
    }
    let body = body.collect_at_most(BODY_BYTES_MAX).await?;
    let payload = |message| Failure::new(StatusCode::BAD_REQUEST, "PAYLOAD_ERROR", message);
    if is_json {
        let text: Result<Text, _> = serde_json::from_slice(&body.bytes());
        let text = text.map_err(|_| {
            payload("Failed to deserialize JSON payload. Please specify exactly one `text` in the JSON body.")
        });
        return Ok(text?.text);
    }
    String::from_utf8(body.bytes().into()).map_err(|_| payload("Failed to decode payload as UTF-8."))
}

/// # Errors
/// 400 for an empty text, 413 for one of more than `most` characters.
pub fn check(text: &str, most: usize) -> Result<(), Failure> {
    if text.trim().is_empty() {
        let message = "Input text contains no characters.";
        return Err(Failure::new(StatusCode::BAD_REQUEST, "Bad Request", message));
    }
    if text.chars().nth(most).is_some() {
        let message = format!("Input text exceeds maximum character limit of {most}.");
        return Err(Failure::new(StatusCode::PAYLOAD_TOO_LARGE, "Payload Too Large", message));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_have_a_length() {
        assert!(check("a", 2000).is_ok());
        assert!(check(&"é".repeat(2000), 2000).is_ok());
        assert_eq!(check(&"é".repeat(2001), 2000).unwrap_err().status(), StatusCode::PAYLOAD_TOO_LARGE);
        for empty in ["", " \n"] {
            assert_eq!(check(empty, 2000).unwrap_err().status(), StatusCode::BAD_REQUEST);
        }
    }
}
