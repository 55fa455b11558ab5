//! HTTP front end: sockets, HTTP/1.1 and HTTP/2, limits and timeouts. Knows nothing of speech.
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

mod activity;
pub mod auth;
pub mod authority;
pub mod body;
mod config;
mod connection;
mod connection_limit;
mod cors;
mod error;
mod failure;
mod joined;
pub mod limited;
mod linger;
mod refusals;
mod request;
mod response;
mod router;
mod server;
mod service;
pub mod shutdown;
mod spool;
mod stall;
mod timer;
mod tls;
pub mod websocket;

pub use auth::{Authenticator, Caller, Scheme};
pub use body::{Body, Buffered, Chunks, Error as BodyError, Keeping, Room};
pub use config::{Config, TlsConfig};
pub use error::Error;
pub use failure::Failure;
pub use joined::Joined;
pub use request::Request;
pub use response::{ReplyBody, Response, empty, json, relayed, streamed, text, whole};
pub use router::{FailureForm, Handler, Later, Router};
pub use server::{listen, run};
pub use shutdown::Shutdown;

/// Whether `text` is valid in `cors_origins`.
pub fn is_origin(text: &str) -> bool {
    cors::Cors::new(&[text.to_owned()]).is_ok()
}
