//! A request on its way to its handler, and the part of its connection that a WebSocket takes over.

use std::net::SocketAddr;
use std::sync::Arc;

use hyper::http::Extensions;
use hyper::{HeaderMap, Method, Uri, Version};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use super::body::Body;
use super::connection_limit::ConnectionPermit;

/// A request as handlers see it.
pub struct Request {
    /// New for each request; clients see it in headers and errors.
    pub id: Uuid,
    pub method: Method,
    pub uri: Uri,
    pub version: Version,
    pub headers: HeaderMap,
    pub extensions: Extensions,
    /// The values of the names in the route's pattern, in order.
    pub captures: Vec<(String, String)>,
    pub peer: SocketAddr,
    /// A page of an unlisted origin sent it. The user's browser may reach more of the network than the page's
    /// author, so only credentials in the request itself count.
    pub is_foreign: bool,
    pub body: Body,
    /// Where a WebSocket goes on after its request is answered.
    pub(super) upgrades: Upgrades,
}

impl Request {
    /// The part of the path in the place of `name` in the route's pattern.
    pub fn capture(&self, name: &str) -> Option<&str> {
        self.captures.iter().find(|(captured, _)| captured == name).map(|(_, value)| value.as_str())
    }
}

/// Lets sockets go on after their requests are answered.
#[derive(Clone)]
pub(super) struct Upgrades {
    pub tasks: TaskTracker,
    /// The connection's permit stays taken.
    pub permit: Arc<ConnectionPermit>,
    pub stop: CancellationToken,
    pub cut: CancellationToken,
}
