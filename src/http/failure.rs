//! A refused or failed request: the message for the client, and apart from it the cause for the log.

use std::borrow::Cow;
use std::time::Duration;

use hyper::StatusCode;
use hyper::header::{ALLOW, HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use serde::Serialize;
use serde_json::Value;
use uuid::Uuid;

use super::response::{Response, json};
use crate::share::Refused;

/// An answer other than success. Built by handlers, and by this module for its own refusals.
#[derive(Debug)]
pub struct Failure {
    status: StatusCode,
    code: Cow<'static, str>,
    message: Cow<'static, str>,
    headers: Vec<(HeaderName, HeaderValue)>,
    cause: Option<String>,
    /// In place of [`ErrorBody`].
    body: Option<Box<Value>>,
    may_go_elsewhere: bool,
}

/// The body of a failure, in the form that the SDKs of the wire format read.
#[derive(Serialize)]
struct ErrorBody<'a> {
    err_code: &'a str,
    err_msg: &'a str,
    request_id: Uuid,
}

impl Failure {
    /// `code` is for programs, `message` for people; both are public.
    pub fn new(
        status: StatusCode,
        code: impl Into<Cow<'static, str>>,
        message: impl Into<Cow<'static, str>>,
    ) -> Self {
        debug_assert!(status.is_client_error() || status.is_server_error(), "{status} is no failure");
        Self {
            status,
            code: code.into(),
            message: message.into(),
            headers: Vec::new(),
            cause: None,
            body: None,
            may_go_elsewhere: false,
        }
    }

    /// A fault of the server. The client learns no more than that.
    pub fn internal(cause: impl std::fmt::Display) -> Self {
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "INTERNAL_ERROR",
            "The server failed to process the request.",
        )
        .because(cause)
    }

    /// Too much to do at present; `after` is rounded up to whole seconds, at least one.
    pub fn busy(after: Duration) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "Service Unavailable", "Please try again later")
            .header(RETRY_AFTER, whole_seconds(after))
    }

    /// The organisation holds its share of the server; others are served. `after` as for [`Self::busy`].
    pub fn too_many(after: Duration) -> Self {
        let message = "Too many requests. Please try again later";
        Self::new(StatusCode::TOO_MANY_REQUESTS, "TOO_MANY_REQUESTS", message)
            .header(RETRY_AFTER, whole_seconds(after))
    }

    /// For a refused part of something shared, of which more may be free `after` this time.
    pub fn refused(refused: Refused, after: Duration) -> Self {
        match refused {
            Refused::Full => Self::busy(after),
            Refused::OverShare => Self::too_many(after),
        }
        .because(refused)
    }

    pub(super) fn not_found() -> Self {
        Self::new(StatusCode::NOT_FOUND, "NOT_FOUND", "There is nothing at this path.")
    }

    pub(super) fn method_not_allowed(allow: HeaderValue) -> Self {
        Self::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "METHOD_NOT_ALLOWED",
            "This path does not answer to this method.",
        )
        .header(ALLOW, allow)
    }

    /// One answer for every way to lack a valid key.
    pub(super) fn unauthorized() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "INVALID_AUTH", "Invalid credentials.")
            .header(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))
    }

    /// For a page of another origin that shows no key.
    pub fn foreign_origin() -> Self {
        Self::new(
            StatusCode::FORBIDDEN,
            "ORIGIN_NOT_ALLOWED",
            "Pages of this origin are let in with a key alone; `http.cors_origins` lists those that need none.",
        )
    }

    #[must_use]
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    /// The cause for the log, beside the code. Never anything from the client: no text, no address, no
    /// parameter's value.
    #[must_use]
    pub fn because(mut self, cause: impl std::fmt::Display) -> Self {
        self.cause = Some(cause.to_string());
        self
    }

    /// Another server may have the room that is lacking here.
    #[must_use]
    pub fn or_elsewhere(mut self) -> Self {
        self.may_go_elsewhere = true;
        self
    }

    /// Whether another server may serve the request; see [`Self::or_elsewhere`].
    pub fn may_go_elsewhere(&self) -> bool {
        self.may_go_elsewhere
    }

    /// With a `Retry-After` of at most so long; one that is shorter stays.
    #[must_use]
    pub fn retry_within(mut self, after: Duration) -> Self {
        let at_most = whole_seconds(after);
        let seconds = |value: &HeaderValue| value.to_str().ok()?.parse::<u64>().ok();
        for (name, value) in &mut self.headers {
            if *name == RETRY_AFTER && seconds(&at_most) < seconds(value) {
                *value = at_most.clone();
            }
        }
        self
    }

    /// Answers with `body`, for clients that read another form of errors than the wire format's.
    #[must_use]
    pub fn with_body(mut self, body: Value) -> Self {
        self.body = Some(Box::new(body));
        self
    }

    /// The body of its own that it has already, see [`Self::with_body`].
    pub fn own_body(&self) -> Option<&Value> {
        self.body.as_deref()
    }

    pub fn status(&self) -> StatusCode {
        self.status
    }

    pub fn code(&self) -> &str {
        &self.code
    }

    pub fn message(&self) -> &str {
        &self.message
    }

    /// Empty if the code says it all. The message stays out of the log: it may quote the client.
    pub(super) fn cause(&self) -> &str {
        self.cause.as_deref().unwrap_or_default()
    }

    /// The body alone, for errors that are delivered in other ways than as an answer.
    pub fn body(&self, request_id: Uuid) -> impl Serialize + '_ {
        ErrorBody { err_code: &self.code, err_msg: &self.message, request_id }
    }

    pub(super) fn into_response(self, request_id: Uuid) -> Response {
        let mut response = match &self.body {
            Some(body) => json(self.status, body),
            None => json(self.status, &self.body(request_id)),
        };
        response.headers_mut().extend(self.headers);
        response
    }
}

pub(super) fn whole_seconds(after: Duration) -> HeaderValue {
    HeaderValue::from((after.as_secs() + u64::from(after.subsec_nanos() > 0)).max(1))
}
