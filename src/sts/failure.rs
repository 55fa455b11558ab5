//! The module's errors over HTTP, in the one shape that all of the server's failures have.

use std::time::Duration;

use hyper::StatusCode;

use super::Error;
use crate::http::Failure;

/// After which the media server may be there again.
const MEDIA_RETRY: Duration = Duration::from_secs(5);

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let message = error.to_string();
        match error {
            Error::NoSession => Self::new(StatusCode::NOT_FOUND, "SESSION_NOT_FOUND", message),
            Error::Ended => Self::new(StatusCode::CONFLICT, "SESSION_ENDED", message),
            Error::TooLong { .. } => Self::new(StatusCode::PAYLOAD_TOO_LARGE, "PAYLOAD_TOO_LARGE", message),
            Error::UnknownAction { .. } => Self::new(StatusCode::BAD_REQUEST, "UNKNOWN_ACTION", message),
            Error::Full { retry_after } => Self::busy(retry_after).because(message),
            Error::OverShare { retry_after } => Self::too_many(retry_after).because(message),
            Error::MediaServer => Self::busy(MEDIA_RETRY).because(message),
            Error::Store(error) => Self::internal(error),
            Error::NotAnObject
            | Error::Missing(_)
            | Error::Kind { .. }
            | Error::TooMany { .. }
            | Error::Document { .. }
            | Error::PhoneNumber => Self::new(StatusCode::BAD_REQUEST, "INVALID_FIELD", message),
        }
    }
}

pub fn invalid_json() -> Failure {
    Failure::new(StatusCode::BAD_REQUEST, "INVALID_JSON", "The body is no JSON.")
}

/// Pages of other origins may send forms and text without being asked; JSON they may not.
pub fn not_json() -> Failure {
    Failure::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "UNSUPPORTED_MEDIA_TYPE",
        "The body must be JSON, with `Content-Type: application/json`.",
    )
}
