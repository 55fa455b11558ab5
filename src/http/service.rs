//! One request: its id, its handler, and the common parts of every answer.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use futures_util::FutureExt as _;
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::header::{
    AUTHORIZATION, CACHE_CONTROL, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, DATE, EXPECT, HeaderName,
    HeaderValue, SEC_WEBSOCKET_PROTOCOL, X_CONTENT_TYPE_OPTIONS,
};
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, StatusCode, Uri, Version};
use metrics::Label;
use tokio_util::task::TaskTracker;
use tracing::Instrument as _;
use uuid::Uuid;

use super::activity::InFlight;
use super::body::{Body, Limits};
use super::config::Config;
use super::cors::{Cors, Page};
use super::error::Error;
use super::failure::Failure;
use super::refusals::Course;
use super::request::{Request, Upgrades};
use super::response::{ReplyBody, Response};
use super::router::{Found, Router};
use super::{authority, limited, linger};
use crate::share::Tenants;
use crate::telemetry::metrics::HTTP_REQUEST;
use crate::telemetry::traces::{self, Attribute};
use crate::usage;

/// The request's id in an answer, under the wire format's name and under the usual one.
const DG_REQUEST_ID: HeaderName = HeaderName::from_static("dg-request-id");
const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// W3C Trace Context.
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

const PROJECTS: &str = "/v1/projects";
const CONSOLE: &str = "/console";

/// While the server is leaving: about as long as a restart takes.
const LEAVING_RETRY: Duration = Duration::from_secs(5);

/// The parts of a connection that its requests need.
pub(super) struct Around {
    pub peer: SocketAddr,
    pub upgrades: Upgrades,
    pub course: Course,
}

/// Shared by all connections of a server.
pub(super) struct Service {
    router: Router,
    cors: Cors,
    limits: Arc<Limits>,
    headers_max: usize,
    header_bytes_max: usize,
    linger: linger::Bounds,
    /// New requests are refused, and connections end with their answers.
    is_leaving: AtomicBool,
    /// Tasks that drain unread bodies. They end with their connections at the latest.
    pub(super) lingering: TaskTracker,
}

impl Service {
    pub(super) fn new(router: Router, config: &Config, tenants: Tenants) -> Result<Self, Error> {
        Ok(Self {
            router,
            cors: Cors::new(&config.cors_origins)?,
            limits: Arc::new(Limits::new(config, tenants)),
            headers_max: config.headers_max,
            header_bytes_max: config.header_bytes_max,
            linger: linger::Bounds::new(config),
            is_leaving: AtomicBool::new(false),
            lingering: TaskTracker::new(),
        })
    }

    pub(super) fn leave(&self) {
        self.is_leaving.store(true, Relaxed);
    }

    /// Answers one request, whatever happens.
    pub(super) async fn answer(
        &self,
        request: hyper::Request<Incoming>,
        around: Around,
        in_flight: InFlight,
    ) -> Result<hyper::Response<CountedBody>, Infallible> {
        let id = Uuid::new_v4();
        let span = tracing::info_span!("request", %id, method = %request.method());
        let in_flight = Arc::new(in_flight);
        let response = self.answer_as(id, request, around, &in_flight).instrument(span).await;
        Ok(response.map(|body| CountedBody { body, _in_flight: in_flight }))
    }

    async fn answer_as(
        &self,
        id: Uuid,
        request: hyper::Request<Incoming>,
        Around { peer, upgrades, course }: Around,
        in_flight: &Arc<InFlight>,
    ) -> Response {
        let begun = Instant::now();
        let (parts, incoming) = request.into_parts();
        let (method, version) = (parts.method.clone(), parts.version);
        let awaits_continue = parts.headers.contains_key(EXPECT);
        let origin = self.cors.origin(&parts.headers);
        let stop = upgrades.stop.clone();
        let (body, unread) = Body::new(incoming, self.limits.clone());
        let form = self.router.failure_form(parts.uri.path(), &parts.headers);

        let trace = traces::request(id, parts.headers.get(TRACEPARENT).and_then(|value| value.to_str().ok()));
        let mut route = String::from("none");
        let dispatched = self.dispatch(id, parts, body, (peer, upgrades), &mut route);
        let mut response = match traces::within(trace.as_ref(), dispatched).await {
            Ok(response) => response,
            Err(failure) => {
                report(&failure);
                match form {
                    Some(form) => form(failure).into_response(id),
                    None => failure.into_response(id),
                }
            }
        };

        sign(response.headers_mut(), id);
        self.cors.mark(origin, response.headers_mut());
        let is_http2 = version >= Version::HTTP_2;
        let is_upgrade = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        let rest = if is_upgrade { None } else { unread.rest() };
        // The client's next request should use a new connection; to another server if this one is leaving.
        if !is_upgrade && !is_http2 && (rest.is_some() || self.is_leaving.load(Relaxed)) {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if is_upgrade {
            course.upgrades();
        } else if let Some(rest) = rest {
            // Reading on would send `100 Continue` to a client that waits for it. Most refused clients then
            // send nothing; whatever the others send is drained when the connection closes.
            if awaits_continue && !unread.is_begun() && !is_http2 {
                course.may_go_on();
            } else {
                let (in_flight, bounds) = (in_flight.clone(), self.linger);
                self.lingering.spawn(async move {
                    let _in_flight = in_flight;
                    linger::drop_body(rest, bounds, stop).await;
                });
            }
        }

        observe(Some(&method), &route, response.status(), begun.elapsed());
        if let Some(trace) = trace {
            let status = response.status();
            let attributes = attributes(id, &method, &route, status);
            trace.end(format!("{method} {route}"), attributes, status.is_server_error());
        }
        response
    }

    /// A complete answer, head and body, to a request that hyper could not read and refuses with `status`.
    pub(super) fn refuse(&self, status: StatusCode) -> Bytes {
        let id = Uuid::new_v4();
        let failure = match status {
            StatusCode::URI_TOO_LONG => uri_too_long(),
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => headers_too_large(),
            _ => Failure::new(
                StatusCode::BAD_REQUEST,
                "Bad Request",
                "The request's line or its header fields are malformed.",
            ),
        };
        tracing::info_span!("request", %id).in_scope(|| {
            report(&failure);
            observe(None, "none", status, Duration::ZERO);
        });
        let body = serde_json::to_vec(&failure.body(id)).unwrap_or_default();
        let mut headers = HeaderMap::new();
        sign(&mut headers, id);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
        headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
        if let Ok(date) = HeaderValue::try_from(httpdate::fmt_http_date(SystemTime::now())) {
            headers.insert(DATE, date);
        }
        let mut answer = format!("HTTP/1.1 {status}\r\n").into_bytes();
        for (name, value) in &headers {
            answer.extend([name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
        }
        answer.extend(b"\r\n");
        answer.extend(body);
        answer.into()
    }

    async fn dispatch(
        &self,
        id: Uuid,
        parts: Parts,
        body: Body,
        (peer, upgrades): (SocketAddr, Upgrades),
        route: &mut String,
    ) -> Result<Response, Failure> {
        let target = parts.uri.path_and_query().map_or(0, |target| target.as_str().len());
        if target > self.header_bytes_max {
            return Err(uri_too_long());
        }
        if parts.headers.len() > self.headers_max
            || target + header_bytes(&parts.headers) > self.header_bytes_max
        {
            return Err(headers_too_large());
        }
        authority::check(parts.version, &parts.headers, &parts.uri)?;
        let path = parts.uri.path();
        let preflight = self
            .router
            .methods(path)
            .and_then(|allow| self.cors.preflight(&parts.method, &parts.headers, &allow));
        if let Some(response) = preflight {
            return Ok(response);
        }
        let Found { handler, pattern, captures, is_to_the_end } = self.router.find(&parts.method, path)?;
        *route = pattern;
        if self.is_leaving.load(Relaxed) && !is_to_the_end {
            return Err(Failure::busy(LEAVING_RETRY).because("the server is stopping"));
        }
        let named = authority::named(&parts.headers, &parts.uri);
        let page = self.cors.page(&parts.headers, named.as_ref());
        if page == Page::Foreign && !shows_credentials(&parts.headers, &parts.uri) {
            return Err(Failure::foreign_origin());
        }
        let is_foreign = page != Page::Own;
        let is_stream = parts.method == Method::GET;
        let ticket = self.router.log().ticket(id, route, parts.uri.query(), is_stream);
        let Parts { method, uri, version, headers, extensions, .. } = parts;
        let request = Request {
            id,
            method,
            uri,
            version,
            headers,
            extensions,
            captures,
            peer,
            is_foreign,
            body,
            upgrades,
        };
        // A bug costs only its own request. Nothing is left half-changed behind it: state that outlives a
        // request is owned by threads or stores of its own.
        let served = AssertUnwindSafe(async move { handler(request).await }).catch_unwind();
        let served = usage::within(ticket.clone(), served).await;
        let mut served = served.unwrap_or_else(|_| Err(Failure::internal("the handler panicked")));
        if let Some(ticket) = ticket {
            let figures = limited::headers(ticket.figures());
            served = match served {
                Ok(mut response) => {
                    response.headers_mut().extend(figures);
                    Ok(response)
                }
                Err(failure) => {
                    Err(figures.fold(failure, |failure, (name, value)| failure.header(name, value)))
                }
            };
            let status = served.as_ref().map_or_else(Failure::status, |response| response.status());
            ticket.answered(status.as_u16());
        }
        served
    }
}

/// Whether a request carries anything that may be a credential; the handler decides whether it is valid.
/// Browsers add none of these by themselves, so a page can only send credentials that it was given.
fn shows_credentials(headers: &HeaderMap, uri: &Uri) -> bool {
    [AUTHORIZATION, X_API_KEY, SEC_WEBSOCKET_PROTOCOL].iter().any(|name| headers.contains_key(name))
        || url::form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes())
            .any(|(name, _)| name == "access_token")
}

fn uri_too_long() -> Failure {
    Failure::new(
        StatusCode::URI_TOO_LONG,
        "URI_TOO_LONG",
        "The request's target is longer than the server takes.",
    )
}

fn headers_too_large() -> Failure {
    Failure::new(
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
        "HEADERS_TOO_LARGE",
        "The request's head is larger than the server takes.",
    )
}

/// Adds the headers that every answer carries.
fn sign(headers: &mut HeaderMap, id: Uuid) {
    // An answer of another server has an id already, which its body names.
    let is_relayed = headers.contains_key(DG_REQUEST_ID);
    if let (false, Ok(id)) = (is_relayed, HeaderValue::try_from(id.to_string())) {
        headers.insert(DG_REQUEST_ID, id.clone());
        headers.insert(X_REQUEST_ID, id);
    }
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
}

fn header_bytes(headers: &HeaderMap) -> usize {
    headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum()
}

fn report(failure: &Failure) {
    let (status, code, cause) = (failure.status().as_u16(), failure.code(), failure.cause());
    if failure.status() == StatusCode::INTERNAL_SERVER_ERROR {
        tracing::error!(status, code, cause, "request failed");
    } else {
        tracing::info!(status, code, cause, "request refused");
    }
}

fn observe(method: Option<&Method>, route: &str, status: StatusCode, elapsed: Duration) {
    let seconds = elapsed.as_secs_f64();
    tracing::info!(route, status = status.as_u16(), seconds, "answered");
    let (method, route) = labels(method, route, status);
    let labels = vec![
        Label::new("method", method.to_owned()),
        Label::new("route", route.to_owned()),
        Label::new("status", status.as_str().to_owned()),
    ];
    HTTP_REQUEST.with_owned(labels).record(seconds);
}

/// Those of a request's span, by OpenTelemetry's conventions for HTTP.
fn attributes(id: Uuid, method: &Method, route: &str, status: StatusCode) -> Vec<(&'static str, Attribute)> {
    vec![
        ("http.request.method", Attribute::Text(method.to_string())),
        ("http.route", Attribute::Text(route.to_owned())),
        ("http.response.status_code", Attribute::Whole(status.as_u16().into())),
        ("verbatim.request_id", Attribute::Text(id.to_string())),
    ]
}

/// The method and route that label an answer. A client can invent methods, and can make any route refuse it
/// in many ways; each pair of labels is a histogram of its own. So unknown methods share one label, and
/// refusals and errors are labelled by their status alone.
fn labels<'a>(method: Option<&'a Method>, route: &'a str, status: StatusCode) -> (&'a str, &'a str) {
    if status.is_client_error() || status.is_server_error() {
        return ("any", "any");
    }
    let known = [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::DELETE, Method::OPTIONS];
    // The many paths of management are of one kind, and those of the console.
    let kinds = [PROJECTS, CONSOLE];
    let route = kinds.into_iter().find(|kind| route.starts_with(kind)).unwrap_or(route);
    (method.filter(|method| known.contains(method)).map_or("other", Method::as_str), route)
}

/// An answer's body that keeps its request counted as in progress until the last byte is handed over.
pub(super) struct CountedBody {
    body: ReplyBody,
    _in_flight: Arc<InFlight>,
}

impl hyper::body::Body for CountedBody {
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
