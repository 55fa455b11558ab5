//! The endpoints: the contract's and those for operators, one file each.
//!
//! `parameters.rs`, `raw.rs` and `source.rs` parse requests, `answer.rs` and `wire.rs` write answers,
//! `openapi.rs` describes both, and only `error.rs` maps errors to statuses.
//!
//! [live streaming]: crate::live
//! [callbacks]: crate::jobs
//! [formats]: crate::audio
//! [fetching]: crate::fetch
//! [sharing]: crate::share
#![doc = include_str!("README.md")]

pub mod answer;
mod decode;
mod error;
mod health;
mod jobs;
pub mod language;
mod listen;
mod live;
mod openapi;
pub mod parameters;
mod raw;
mod source;
mod terms;
pub mod wire;

pub use health::{Readiness, State, starting};
pub use jobs::JobWork;
pub use parameters::Parameters;
pub use source::url_of;

use std::sync::Arc;
use std::time::Duration;

use hyper::Method;
use serde::{Deserialize, Serialize};

use crate::audio;
use crate::fetch::Fetcher;
use crate::http::{Authenticator, Failure, Request, Response, Router};
use crate::jobs::Jobs;
use crate::live::Live;
use crate::share::{Tenants, Turns};
use crate::transcribe::Transcriber;

/// How requests are processed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Time limit for a request, after which it gets 504. Time in which the process stood still does not
    /// count. Default 600 000.
    pub processing_timeout_ms: u64,
    /// Files decoded at once, each on a thread. Default: twice the number of processors, so that the next one
    /// is ready when one is done.
    pub decoders: usize,
    /// URLs fetched at once; others wait their turn. Each may take up `fetch.max_bytes` of memory. Default 8.
    pub downloads: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            processing_timeout_ms: 600_000,
            decoders: 2 * std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            downloads: 8,
        }
    }
}

/// Everything that the endpoints work with.
pub struct Services {
    transcriber: Transcriber,
    live: Live,
    authenticator: Authenticator,
    fetcher: Fetcher,
    jobs: Option<Jobs>,
    readiness: Readiness,
    audio: audio::Limits,
    processing_timeout: Duration,
    decoders: Turns,
    downloads: Turns,
    activity: health::Activity,
    /// `/openapi.json`.
    document: serde_json::Value,
}

/// The parts of [`Services`].
pub struct Parts {
    pub transcriber: Transcriber,
    pub live: Live,
    pub authenticator: Authenticator,
    pub fetcher: Fetcher,
    /// `None` if callbacks are not served.
    pub jobs: Option<Jobs>,
    pub readiness: Readiness,
    /// The organisations that share the server.
    pub tenants: Tenants,
    /// How much audio one request may hold.
    pub audio: audio::Limits,
    /// The paths of other services on the same port, in OpenAPI's form.
    pub other_paths: serde_json::Map<String, serde_json::Value>,
}

impl Services {
    pub fn new(parts: Parts, config: &Config) -> Self {
        Self {
            transcriber: parts.transcriber,
            live: parts.live,
            authenticator: parts.authenticator,
            fetcher: parts.fetcher,
            jobs: parts.jobs,
            readiness: parts.readiness,
            audio: parts.audio,
            processing_timeout: Duration::from_millis(config.processing_timeout_ms),
            decoders: Turns::new(config.decoders, parts.tenants.clone()),
            downloads: Turns::new(config.downloads, parts.tenants),
            activity: health::Activity::default(),
            document: openapi::build(parts.other_paths),
        }
    }
}

/// The table of routes.
pub fn router(services: impl Into<Arc<Services>>) -> Router {
    let services = services.into();
    let listen = endpoint(&services, listen::listen);
    Router::new()
        .route(Method::GET, "/v1/listen", endpoint(&services, live::stream))
        .route(Method::POST, "/v1/listen", listen.clone())
        .route(Method::POST, "/v1/listen/media", listen.clone())
        .route(Method::POST, "/v1/listen/media/transcribe", listen.clone())
        .route(Method::POST, "/v1/listen/media/transcribe_file", listen)
        .route(Method::GET, "/v1/listen/jobs/{request_id}", endpoint(&services, jobs::status))
        .route(Method::GET, "/openapi.json", endpoint(&services, openapi::document))
        .route_to_the_end(Method::GET, "/v1/status", endpoint(&services, health::status))
        .route_to_the_end(Method::GET, "/health", endpoint(&services, health::health))
        .route_to_the_end(Method::GET, "/livez", endpoint(&services, health::livez))
        .route_to_the_end(Method::GET, "/readyz", endpoint(&services, health::readyz))
        .route_to_the_end(Method::GET, "/metrics", endpoint(&services, health::metrics))
}

/// Routes for a listener that only operators can reach: they need no key.
pub fn operators_router(services: impl Into<Arc<Services>>) -> Router {
    let services = services.into();
    Router::new()
        .route(Method::GET, "/metrics", endpoint(&services, health::open_metrics))
        .route(Method::GET, "/health", endpoint(&services, health::health))
        .route(Method::GET, "/livez", endpoint(&services, health::livez))
        .route(Method::GET, "/readyz", endpoint(&services, health::readyz))
}

/// `function`, bound to the services.
fn endpoint<F, R>(
    services: &Arc<Services>,
    function: F,
) -> impl Fn(Request) -> R + Clone + Send + Sync + 'static
where
    F: Fn(Arc<Services>, Request) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = Result<Response, Failure>> + Send + 'static,
{
    let services = services.clone();
    move |request| function(services.clone(), request)
}
