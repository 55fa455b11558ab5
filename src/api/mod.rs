//! The HTTP endpoints for transcription and for operators.
//!
//! `parameters.rs`, `raw.rs` and `source.rs` parse requests, `answer.rs` and `wire.rs` write answers,
//! `openapi.rs` describes both, and only `error.rs` maps errors to statuses.
//!
//! [served models]: crate::models
//! [live streaming]: crate::live
//! [realtime]: crate::api::openai::realtime
//! [callbacks]: crate::jobs
//! [enrolled voices]: crate::voices
//! [formats]: crate::audio
//! [fetching]: crate::fetch
//! [requests]: crate::usage
//! [sharing]: crate::share
//! [whole files]: crate::transcribe
#![doc = include_str!("README.md")]

pub mod answer;
mod asker;
mod decode;
mod endpoint;
mod error;
pub mod forward;
mod grant;
mod health;
mod jobs;
mod json_body;
pub mod language;
mod line;
mod listen;
mod live;
mod manage;
pub mod messages;
mod model;
pub mod openai;
mod openapi;
pub mod parameters;
mod raw;
mod readiness;
mod services;
mod sockets;
mod source;
mod speak;
mod speakers;
mod submission;
mod terms;
mod transcription;
mod turns;
pub mod wire;

pub use health::starting;
pub use jobs::JobWork;
pub use parameters::Parameters;
pub use readiness::{Readiness, State};
pub use services::{Config, Parts, Services};
pub use source::url_of;

use std::future::ready;
use std::sync::Arc;

use hyper::{Method, StatusCode};

use crate::http::{Router, json};
use endpoint::endpoint;

/// The table of routes.
pub fn router(services: impl Into<Arc<Services>>) -> Router {
    let services = services.into();
    let description = openapi::build(services.other_paths.clone());
    let sockets = sockets::build(&services.other_sockets);
    let listen = endpoint(&services, listen::listen);
    manage::routes(Router::new(), &services)
        .logged_in(services.usage.clone())
        .route(Method::GET, "/v1/listen", endpoint(&services, live::stream))
        .route(Method::GET, "/v2/listen", endpoint(&services, turns::stream))
        .route(Method::POST, "/v1/listen", listen.clone())
        .route(Method::POST, "/v1/listen/media", listen.clone())
        .route(Method::POST, "/v1/listen/media/transcribe", listen.clone())
        .route(Method::POST, "/v1/listen/media/transcribe_file", listen)
        .route(Method::GET, "/v1/listen/jobs/{request_id}", endpoint(&services, jobs::status))
        .route(Method::POST, "/v1/speak", endpoint(&services, speak::request))
        .route(Method::GET, "/v1/speak", endpoint(&services, speak::stream))
        .route(Method::POST, "/v2/speak", endpoint(&services, speak::turns::request))
        .route(Method::GET, "/v2/speak", endpoint(&services, speak::turns::stream))
        .route(Method::GET, "/v1/realtime", endpoint(&services, openai::realtime::realtime))
        .route(
            Method::POST,
            "/v1/realtime/client_secrets",
            endpoint(&services, openai::realtime::client_secret),
        )
        .route(
            Method::POST,
            "/v1/realtime/transcription_sessions",
            endpoint(&services, openai::realtime::transcription_session),
        )
        .route(Method::POST, "/v1/speakers", endpoint(&services, speakers::enrol))
        .route(Method::GET, "/v1/speakers", endpoint(&services, speakers::list))
        .route(Method::GET, "/v1/speakers/{speaker_id}", endpoint(&services, speakers::one))
        .route(Method::DELETE, "/v1/speakers/{speaker_id}", endpoint(&services, speakers::delete))
        .route(Method::POST, "/v1/auth/grant", endpoint(&services, grant::grant))
        .route(Method::GET, "/v1/auth/token", endpoint(&services, grant::token))
        .route(Method::POST, "/v1/audio/speech", endpoint(&services, openai::speech::speech))
        .route(Method::POST, "/v1/audio/transcriptions", endpoint(&services, openai::transcribe))
        .route(Method::POST, "/v1/audio/translations", endpoint(&services, openai::translate))
        .route(Method::GET, "/v1/models", endpoint(&services, openai::list))
        .route(Method::GET, "/v1/models/{model}", endpoint(&services, openai::one))
        .with_failures(openai::error::form)
        .route(Method::GET, "/openapi.json", move |_| ready(Ok(json(StatusCode::OK, &description))))
        .route(Method::GET, "/asyncapi.json", move |_| ready(Ok(json(StatusCode::OK, &sockets))))
        .route_to_the_end(Method::GET, "/v1/status", endpoint(&services, health::status))
        .route_to_the_end(Method::GET, "/v1/status/engine", endpoint(&services, health::engine_status))
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
