//! The front door: sockets, HTTP/1.1 and HTTP/2, limits and time. Knows nothing of speech.
//!
//! ```text
//! listener ─ admission ─ (TLS) ─ stall guard ─ refusals ─ hyper ─ service ─ router ─ handler
//!            how many            slow readers  hyper's own        id, CORS, panics, log
//! ```
//! [`run`] is given the socket and the [`Stop`] that ends it, so tests bind port 0 and need no signals.
//! A handler gets a [`Request`] whose [`Body`] is still unread: it refuses first and reads afterwards.
//! It answers with a [`Response`], or with a [`Failure`], which becomes a JSON body with the request's
//! id; what went wrong inside goes to the log, never to the client.
#![doc = include_str!("README.md")]

mod admission;
pub mod auth;
pub mod authority;
pub mod body;
mod connection;
mod cors;
mod failure;
mod linger;
mod refusals;
mod router;
mod server;
mod service;
pub mod shutdown;
mod stall;
mod timer;
mod tls;
pub mod websocket;

pub use auth::{Authenticator, Caller, Scheme};
pub use body::{Body, Buffered};
pub use failure::Failure;
pub use router::{Handler, Later, Router};
pub use server::{listen, run};
pub use service::{ReplyBody, Request, Response, json, text};
pub use shutdown::Stop;

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Limits of the front door. The defaults suit a server that clients reach directly.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Open connections; more wait in the kernel's backlog. Default 4096: keep it under the limit on
    /// open files.
    pub connections_max: usize,
    /// Open connections from one address; more are closed. 0: no such limit, the default, since
    /// behind a proxy all come from one.
    pub connections_per_address_max: usize,
    /// From a connection's opening to the end of its first request's head. Default 10 000.
    pub header_timeout_ms: u64,
    /// How long a connection may stand between requests. Default 75 000, a little more than common
    /// load balancers keep theirs.
    pub idle_timeout_ms: u64,
    /// How long a client may take in nothing of an answer. Default 30 000.
    pub write_timeout_ms: u64,
    /// How long a client may send nothing of a body. Default 15 000.
    pub body_idle_timeout_ms: u64,
    /// A body may be slower than `body_bytes_per_second_min` for this long. Default 10 000.
    pub body_grace_ms: u64,
    /// The least rate of a body after its grace, over as long as a client may send nothing. Default 4096; 0: any.
    pub body_bytes_per_second_min: u64,
    /// A larger body is refused, by its announced length or when it has been read. Default 256 MiB,
    /// which holds ten minutes of uncompressed studio sound.
    pub body_bytes_max: u64,
    /// Bodies in memory, of all requests together; above it clients get 503. One organisation may hold four
    /// fifths of it while others have keys. Default 2 GiB.
    pub buffered_bytes_max: u64,
    /// Fields of a request's head. Default 100.
    pub headers_max: usize,
    /// Bytes of a request's head. Default 32 KiB.
    pub header_bytes_max: usize,
    /// Requests at once on one HTTP/2 connection. Default 128.
    pub streams_max: u32,
    /// How long requests may take to finish after the server has closed its port. Default 30 000.
    pub drain_timeout_ms: u64,
    /// Origins whose pages may read answers (`https://app.example`), or `*`. Pages of others are refused where
    /// they show no key. Pages that `*` alone lets in need a key wherever one can be shown. Default: none.
    pub cors_origins: Vec<String>,
    /// Serve TLS with these files. Default: plain HTTP.
    pub tls: Option<TlsConfig>,
}

/// Files in PEM form.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsConfig {
    /// The server's certificate, followed by those that lead to the root.
    pub certificate: PathBuf,
    pub key: PathBuf,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            connections_max: 4096,
            connections_per_address_max: 0,
            header_timeout_ms: 10_000,
            idle_timeout_ms: 75_000,
            write_timeout_ms: 30_000,
            body_idle_timeout_ms: 15_000,
            body_grace_ms: 10_000,
            body_bytes_per_second_min: 4096,
            body_bytes_max: 256 << 20,
            buffered_bytes_max: 2 << 30,
            headers_max: 100,
            header_bytes_max: 32 << 10,
            streams_max: 128,
            drain_timeout_ms: 30_000,
            cors_origins: Vec::new(),
            tls: None,
        }
    }
}

impl Config {
    fn header_timeout(&self) -> Duration {
        Duration::from_millis(self.header_timeout_ms)
    }

    fn idle_timeout(&self) -> Duration {
        Duration::from_millis(self.idle_timeout_ms)
    }
}

/// Whether `text` may stand in `cors_origins`.
pub fn is_origin(text: &str) -> bool {
    cors::Cors::new(&[text.to_owned()]).is_ok()
}

/// Why the server could not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot read `{path}`")]
    TlsFile { path: PathBuf, source: tokio_rustls::rustls::pki_types::pem::Error },
    #[error("the certificate and its key cannot be used")]
    Tls(#[from] tokio_rustls::rustls::Error),
    #[error("`{0}` is not an origin such as `https://app.example`")]
    Origin(String),
    #[error("the listening socket failed")]
    Listener(#[source] std::io::Error),
}
