//! The way to sessions of other nodes: requests are sent on, and WebSockets connected.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use hyper::header::{
    CACHE_CONTROL, CONNECTION, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, HOST, HeaderMap,
    HeaderName, HeaderValue, RETRY_AFTER, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use hyper::{Method, StatusCode};
use reqwest::Client;
use serde_json::Value;

use crate::cluster::Places;
use crate::http::websocket::tunnel;
use crate::http::{Failure, Request, Response};
use crate::outbound;
use crate::session::Handle;

/// Says that a node sent the request on: it is not sent on again.
const FORWARDED: HeaderName = HeaderName::from_static("x-verbatim-forwarded");
/// When to ask again while the broker, or a session's node, cannot be reached.
pub const RETRY: Duration = Duration::from_secs(2);
/// The subject of events of rooms.
pub const ROOM_NEWS: &str = "room-news";

/// Headers of a connection, and not of the request on it (RFC 9110, section 7.6.1).
const OF_THE_CONNECTION: [HeaderName; 7] =
    [CONNECTION, CONTENT_LENGTH, EXPECT, HOST, TE, TRAILER, TRANSFER_ENCODING];
/// Headers of another node's answer that its client sees.
const ANSWERED: [HeaderName; 4] = [CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_TYPE];

/// The sessions of the cluster, and this node's way to the other nodes.
pub struct Abroad {
    pub places: Places,
    client: Client,
    /// Held while a session is taken over: requests that come meanwhile find it here.
    pub adopting: tokio::sync::Mutex<()>,
}

/// A session that a request is about.
pub enum Found {
    Open(Arc<Handle>),
    Ended,
    /// Another node has it.
    At(There),
}

/// The way to the node that has a session.
pub struct There {
    address: String,
    client: Client,
    /// Of that node.
    lease: Duration,
}

/// The part of a request that goes to another node.
pub struct Passed {
    method: Method,
    target: String,
    headers: HeaderMap,
    /// It comes from another node.
    pub is_forwarded: bool,
}

impl Passed {
    pub fn of(request: &Request) -> Self {
        Self {
            method: request.method.clone(),
            target: request.uri.path_and_query().map_or("/", |target| target.as_str()).to_owned(),
            headers: request.headers.clone(),
            is_forwarded: request.headers.contains_key(FORWARDED),
        }
    }
}

pub fn unreachable(cause: impl std::fmt::Display) -> Failure {
    Failure::busy(RETRY).because(cause)
}

impl Abroad {
    /// # Errors
    /// TLS cannot be set up.
    pub fn new(places: Places) -> Result<Self, reqwest::Error> {
        Ok(Self { places, client: outbound::http1_client()?, adopting: tokio::sync::Mutex::default() })
    }

    /// The way to the node at `address`.
    pub fn way(&self, address: String) -> There {
        There { address, client: self.client.clone(), lease: self.places.lease() }
    }

    /// Tells the other nodes of an event of a room.
    pub async fn tell(&self, text: &str) {
        if let Err(error) = self.places.tell(ROOM_NEWS, text).await {
            tracing::warn!(%error, "an event of a room is not told to the other nodes");
        }
    }
}

/// The refusal of another node, as this one's own: a request has one id for its client.
async fn refusal(answer: reqwest::Response) -> Failure {
    let (status, retry) = (answer.status(), answer.headers().get(RETRY_AFTER).cloned());
    let body = outbound::read_json(answer).await.unwrap_or_default();
    let text = |name: &str| body.get(name).and_then(Value::as_str).map(str::to_owned);
    let (Some(code), Some(message)) = (text("err_code"), text("err_msg")) else {
        return unreachable("the session's node refused without a reason");
    };
    let failure = Failure::new(status, code, message);
    match retry {
        Some(retry) => failure.header(RETRY_AFTER, retry),
        None => failure,
    }
}

impl There {
    /// The address of that node.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Sends a request on.
    ///
    /// # Errors
    /// 503 if that cannot be reached: its sessions can be taken over once its lease is over.
    pub async fn pass(&self, passed: Passed, body: Bytes) -> Result<Response, Failure> {
        let answer = self.request(&passed, false).body(body).send().await;
        let answer = answer.map_err(|error| self.lost(&error))?;
        let status = answer.status();
        if status.is_client_error() || status.is_server_error() {
            return Err(refusal(answer).await);
        }
        let mut headers = HeaderMap::new();
        for name in ANSWERED {
            headers.extend(answer.headers().get(&name).map(|value| (name, value.clone())));
        }
        let frames = answer.bytes_stream().map(|piece| piece.map(Frame::data).map_err(std::io::Error::other));
        let mut response = Response::new(StreamBody::new(frames).boxed_unsync());
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        Ok(response)
    }

    /// Connects a WebSocket with the node.
    ///
    /// # Errors
    /// As [`Self::pass`]; the other node's own refusal is an answer.
    pub async fn tunnel(&self, request: Request) -> Result<Response, Failure> {
        let passed = Passed::of(&request);
        let answer = self.request(&passed, true).send().await;
        let answer = answer.map_err(|error| self.lost(&error))?;
        if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
            return self.pass(passed, Bytes::new()).await;
        }
        let headers = answer.headers().clone();
        let there = answer.upgrade().await.map_err(|error| self.lost(&error))?;
        Ok(tunnel(request, &headers, there))
    }

    fn request(&self, passed: &Passed, is_upgrade: bool) -> reqwest::RequestBuilder {
        let mut headers = passed.headers.clone();
        for name in OF_THE_CONNECTION {
            headers.remove(name);
        }
        if is_upgrade {
            headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        } else {
            headers.remove(UPGRADE);
        }
        // Signatures of providers, and origins, are judged by the name that the client used.
        headers.extend(passed.headers.get(HOST).map(|host| (HOST, host.clone())));
        headers.insert(FORWARDED, HeaderValue::from_static("1"));
        let url = format!("{}{}", self.address, passed.target);
        self.client.request(passed.method.clone(), url).headers(headers)
    }

    fn lost(&self, error: &reqwest::Error) -> Failure {
        if error.is_connect() {
            return Failure::busy(self.lease).because("the session's node cannot be reached");
        }
        // Its text would hold the address, and that a token.
        let problem = if error.is_timeout() { "took too long" } else { "did not answer" };
        unreachable(format!("the session's node {problem}"))
    }
}
