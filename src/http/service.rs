//! One request: its id, its handler, and what every answer has in common.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::FutureExt as _;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Empty, Full};
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::header::{
    CACHE_CONTROL, CONNECTION, CONTENT_TYPE, EXPECT, HeaderName, HeaderValue, X_CONTENT_TYPE_OPTIONS,
};
use hyper::http::Extensions;
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, StatusCode, Uri, Version};
use serde::Serialize;
use tokio_util::task::TaskTracker;
use tracing::Instrument as _;
use uuid::Uuid;

use super::body::Limits;
use super::connection::InFlight;
use super::cors::Cors;
use super::router::Found;
use super::websocket::Upgrades;
use super::{Body, Config, Error, Failure, Router};

/// The request's id in an answer, under the wire format's name and under the usual one.
const DG_REQUEST_ID: HeaderName = HeaderName::from_static("dg-request-id");
const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// How much of an unread body is taken in after a refusal, and for how long, so that the client gets
/// to read the answer: closing at once resets the connection under it.
const LINGER_BYTES_MAX: u64 = 64 << 20;
const LINGER_TIME_MAX: Duration = Duration::from_secs(2);

/// The body of an answer, whole or streamed.
pub type ReplyBody = UnsyncBoxBody<Bytes, std::io::Error>;
pub type Response = hyper::Response<ReplyBody>;

/// A request as handlers see it.
pub struct Request {
    /// New for each request; clients see it in headers and errors.
    pub id: Uuid,
    pub method: Method,
    pub uri: Uri,
    pub version: Version,
    pub headers: HeaderMap,
    pub extensions: Extensions,
    /// What the names in the route's pattern matched, in order.
    pub captures: Vec<(String, String)>,
    pub peer: SocketAddr,
    pub body: Body,
    /// Where a WebSocket goes on when its request is answered.
    pub(super) upgrades: Upgrades,
}

/// An answer of JSON.
pub fn json<T: Serialize + ?Sized>(status: StatusCode, value: &T) -> Response {
    let (status, body) = match serde_json::to_vec(value) {
        Ok(body) => (status, body),
        Err(error) => {
            tracing::error!(%error, "an answer could not be written as JSON");
            (StatusCode::INTERNAL_SERVER_ERROR, b"{}".to_vec())
        }
    };
    let mut response =
        Response::new(Full::from(body).map_err(|never: Infallible| match never {}).boxed_unsync());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

pub(super) fn empty(status: StatusCode) -> Response {
    let mut response = Response::new(Empty::new().map_err(|never: Infallible| match never {}).boxed_unsync());
    *response.status_mut() = status;
    response
}

/// Shared by all connections of a server.
pub(super) struct Service {
    router: Router,
    cors: Cors,
    limits: Arc<Limits>,
    headers_max: usize,
    header_bytes_max: usize,
    /// The tasks that take in unread bodies. They end with their connections at the latest.
    pub(super) lingering: TaskTracker,
}

impl Service {
    pub(super) fn new(router: Router, config: &Config) -> Result<Self, Error> {
        Ok(Self {
            router,
            cors: Cors::new(&config.cors_origins)?,
            limits: Arc::new(Limits::new(config)),
            headers_max: config.headers_max,
            header_bytes_max: config.header_bytes_max,
            lingering: TaskTracker::new(),
        })
    }

    /// Answers one request, whatever happens.
    pub(super) async fn answer(
        &self,
        request: hyper::Request<Incoming>,
        peer: SocketAddr,
        upgrades: Upgrades,
        in_flight: InFlight,
    ) -> Result<hyper::Response<Held>, Infallible> {
        let id = Uuid::new_v4();
        let span = tracing::info_span!("request", %id, method = %request.method());
        let response = self.answer_as(id, request, peer, upgrades).instrument(span).await;
        Ok(response.map(|body| Held { body, _in_flight: in_flight }))
    }

    async fn answer_as(
        &self,
        id: Uuid,
        request: hyper::Request<Incoming>,
        peer: SocketAddr,
        upgrades: Upgrades,
    ) -> Response {
        let begun = Instant::now();
        let (parts, incoming) = request.into_parts();
        let (method, version) = (parts.method.clone(), parts.version);
        let awaits_continue = parts.headers.contains_key(EXPECT);
        let origin = self.cors.origin(&parts.headers);
        let (body, unread) = Body::new(incoming, self.limits.clone());

        let mut route = String::from("none");
        let mut response = match self.dispatch(id, parts, body, (peer, upgrades), &mut route).await {
            Ok(response) => response,
            Err(failure) => {
                report(&failure);
                failure.into_response(id)
            }
        };

        let out = response.headers_mut();
        if let Ok(id) = HeaderValue::try_from(id.to_string()) {
            out.insert(DG_REQUEST_ID, id.clone());
            out.insert(X_REQUEST_ID, id);
        }
        out.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        out.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
        self.cors.mark(origin, out);
        if let Some(rest) = unread.rest()
            && version < Version::HTTP_2
            && response.status() != StatusCode::SWITCHING_PROTOCOLS
        {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            // A client that waits for leave to send sends nothing when it is refused; reading on
            // would give it leave.
            if !awaits_continue {
                self.lingering.spawn(linger(rest));
            }
        }

        observe(&method, &route, response.status(), begun.elapsed());
        response
    }

    async fn dispatch(
        &self,
        id: Uuid,
        parts: Parts,
        body: Body,
        (peer, upgrades): (SocketAddr, Upgrades),
        route: &mut String,
    ) -> Result<Response, Failure> {
        if parts.headers.len() > self.headers_max || header_bytes(&parts) > self.header_bytes_max {
            return Err(Failure::new(
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
                "HEADERS_TOO_LARGE",
                "The request's head is larger than the server takes.",
            ));
        }
        let path = parts.uri.path();
        let preflight = self
            .router
            .methods(path)
            .and_then(|allow| self.cors.preflight(&parts.method, &parts.headers, &allow));
        if let Some(response) = preflight {
            return Ok(response);
        }
        let Found { handler, pattern, captures } = self.router.find(&parts.method, path)?;
        *route = pattern;
        let Parts { method, uri, version, headers, extensions, .. } = parts;
        let request =
            Request { id, method, uri, version, headers, extensions, captures, peer, body, upgrades };
        // One request's bug costs that request. Nothing of ours is left half-changed behind it: state
        // that outlives a request is owned by threads or stores of its own.
        let served = AssertUnwindSafe(async move { handler(request).await }).catch_unwind().await;
        served.unwrap_or_else(|_| Err(Failure::internal("the handler panicked")))
    }
}

fn header_bytes(parts: &Parts) -> usize {
    let target = parts.uri.path_and_query().map_or(0, |target| target.as_str().len());
    parts.headers.iter().fold(target, |sum, (name, value)| sum + name.as_str().len() + value.len())
}

fn report(failure: &Failure) {
    let (status, code, cause) = (failure.status().as_u16(), failure.code(), failure.cause());
    if failure.status() == StatusCode::INTERNAL_SERVER_ERROR {
        tracing::error!(status, code, cause, "request failed");
    } else {
        tracing::info!(status, code, cause, "request refused");
    }
}

fn observe(method: &Method, route: &str, status: StatusCode, elapsed: Duration) {
    let seconds = elapsed.as_secs_f64();
    tracing::info!(route, status = status.as_u16(), seconds, "answered");
    // Methods are the client's to invent; labels are not.
    let method = match *method {
        Method::GET | Method::HEAD | Method::POST | Method::PUT | Method::DELETE | Method::OPTIONS => {
            method.as_str().to_owned()
        }
        _ => "other".to_owned(),
    };
    metrics::histogram!(
        "http_server_request_duration_seconds",
        "method" => method,
        "route" => route.to_owned(),
        "status" => status.as_str().to_owned(),
    )
    .record(seconds);
}

async fn linger(mut rest: Incoming) {
    let take_in = async {
        let mut taken = 0;
        while let Some(Ok(frame)) = rest.frame().await {
            taken += frame.data_ref().map_or(0, |data| data.len() as u64);
            if taken > LINGER_BYTES_MAX {
                break;
            }
        }
    };
    let _ = tokio::time::timeout(LINGER_TIME_MAX, take_in).await;
}

/// An answer's body that counts its request as being served until the last byte is handed over.
pub(super) struct Held {
    body: ReplyBody,
    _in_flight: InFlight,
}

impl hyper::body::Body for Held {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
