//! Answers of the demo's routes: its own, and those of the voice-agent service that it passes on.

use std::convert::Infallible;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::StatusCode;
use hyper::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use serde_json::Value;

use crate::http::{Failure, Response, json as json_response};

/// An answer of the voice-agent service, of any status.
pub struct Reply {
    pub status: StatusCode,
    pub media_type: HeaderValue,
    pub retry_after: Option<HeaderValue>,
    pub body: Bytes,
}

impl Reply {
    /// The session that a successful answer names.
    pub fn session_id(&self) -> Option<String> {
        #[derive(serde::Deserialize)]
        struct About {
            session_id: String,
        }
        let about = self.status.is_success().then(|| serde_json::from_slice::<About>(&self.body))?;
        about.ok().map(|about| about.session_id)
    }

    pub fn into_response(self) -> Response {
        let mut response = whole(self.status, self.media_type, self.body);
        if let Some(after) = self.retry_after {
            response.headers_mut().insert(RETRY_AFTER, after);
        }
        response
    }
}

/// The reason why a route has no answer of its own.
pub enum Refusal {
    Failed(Failure),
    /// The voice-agent service refused; its answer is passed on.
    Passed(Reply),
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// The response of a route.
pub fn answer(outcome: Result<Value, Refusal>) -> Result<Response, Failure> {
    match outcome {
        Ok(value) => Ok(json_response(StatusCode::OK, &value)),
        Err(Refusal::Passed(reply)) => Ok(reply.into_response()),
        Err(Refusal::Failed(failure)) => Err(failure),
    }
}

/// A response with all of its body.
pub fn whole(status: StatusCode, media_type: HeaderValue, body: impl Into<Bytes>) -> Response {
    let body = Full::new(body.into()).map_err(|never: Infallible| match never {});
    let mut response = Response::new(body.boxed_unsync());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, media_type);
    response
}
