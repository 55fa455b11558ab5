//! The HTTP endpoints for transcription and for operators.
//!
//! `parameters.rs`, `raw.rs` and `source.rs` parse requests, `answer.rs` and `wire.rs` write answers,
//! `openapi.rs` describes both, and only `error.rs` maps errors to statuses.
//!
//! [served models]: crate::models
//! [live streaming]: crate::live
//! [callbacks]: crate::jobs
//! [enrolled voices]: crate::voices
//! [formats]: crate::audio
//! [fetching]: crate::fetch
//! [sharing]: crate::share
//! [whole files]: crate::transcribe
#![doc = include_str!("README.md")]

pub mod answer;
mod decode;
mod error;
mod health;
mod jobs;
pub mod language;
mod listen;
mod live;
mod model;
mod openapi;
pub mod parameters;
mod raw;
mod readiness;
mod services;
mod source;
mod speakers;
mod terms;
mod transcription;
pub mod wire;

pub use health::starting;
pub use jobs::JobWork;
pub use parameters::Parameters;
pub use readiness::{Readiness, State};
pub use services::{Config, Parts, Services};
pub use source::url_of;

use std::sync::Arc;

use hyper::{Method, StatusCode};

use crate::http::{Failure, Request, Response, Router, json};

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
        .route(Method::POST, "/v1/speakers", endpoint(&services, speakers::enrol))
        .route(Method::GET, "/v1/speakers", endpoint(&services, speakers::list))
        .route(Method::GET, "/v1/speakers/{speaker_id}", endpoint(&services, speakers::one))
        .route(Method::DELETE, "/v1/speakers/{speaker_id}", endpoint(&services, speakers::delete))
        .route(Method::GET, "/openapi.json", endpoint(&services, document))
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

async fn document(services: Arc<Services>, _: Request) -> Result<Response, Failure> {
    Ok(json(StatusCode::OK, &services.document))
}
