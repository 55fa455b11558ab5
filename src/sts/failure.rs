//! The service's errors and their HTTP answers.

use std::time::Duration;

use hyper::StatusCode;

use crate::http::Failure;
use crate::{fields, session};

/// When to try again while the media server cannot be reached.
const MEDIA_RETRY: Duration = Duration::from_secs(5);

/// Why a request is refused.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("`action` must be one of: {known}.")]
    UnknownAction { known: String },
    #[error("`webhook_url` must be a publicly routable http or https address.")]
    Webhook,
    #[error(
        "Callers may not be connected with this number: the server's operator lists those in `sts.transfer.numbers`."
    )]
    TransferNotAllowed,
    #[error("No telephone caller is in this session's room.")]
    NoTelephone,
    #[error("the media server cannot be reached")]
    MediaServer,
    #[error(transparent)]
    Session(#[from] session::Error),
}

impl From<fields::Error> for Error {
    fn from(error: fields::Error) -> Self {
        Self::Session(error.into())
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::UnknownAction { .. } => {
                Self::new(StatusCode::BAD_REQUEST, "UNKNOWN_ACTION", error.to_string())
            }
            Error::Webhook => Self::new(StatusCode::BAD_REQUEST, "INVALID_FIELD", error.to_string()),
            Error::TransferNotAllowed => {
                Self::new(StatusCode::FORBIDDEN, "TRANSFER_NOT_ALLOWED", error.to_string())
            }
            Error::NoTelephone => Self::new(StatusCode::CONFLICT, "NO_TELEPHONE_CALL", error.to_string()),
            Error::MediaServer => Self::busy(MEDIA_RETRY).because(error.to_string()),
            Error::Session(error) => error.into(),
        }
    }
}

impl From<fields::Error> for Failure {
    fn from(error: fields::Error) -> Self {
        session::Error::from(error).into()
    }
}

impl From<session::Error> for Failure {
    fn from(error: session::Error) -> Self {
        let message = error.to_string();
        match error {
            session::Error::NoSession => Self::new(StatusCode::NOT_FOUND, "SESSION_NOT_FOUND", message),
            session::Error::Ended => Self::new(StatusCode::CONFLICT, "SESSION_ENDED", message),
            session::Error::Field(fields::Error::TooLong { .. }) => {
                Self::new(StatusCode::PAYLOAD_TOO_LARGE, "PAYLOAD_TOO_LARGE", message)
            }
            session::Error::Full { retry_after } => Self::busy(retry_after).because(message),
            session::Error::OverShare { retry_after } => Self::too_many(retry_after).because(message),
            session::Error::Store(error) => Self::internal(error),
            session::Error::Field(_) | session::Error::Document { .. } | session::Error::PhoneNumber => {
                Self::new(StatusCode::BAD_REQUEST, "INVALID_FIELD", message)
            }
        }
    }
}

pub fn invalid_json() -> Failure {
    Failure::new(StatusCode::BAD_REQUEST, "INVALID_JSON", "The body is no JSON.")
}

/// Pages of other origins may send forms and text without permission, but not JSON.
pub fn not_json() -> Failure {
    Failure::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "UNSUPPORTED_MEDIA_TYPE",
        "The body must be JSON, with `Content-Type: application/json`.",
    )
}
