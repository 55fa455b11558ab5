//! Liveness and readiness of the server. They need no key and reveal little; `/metrics` is about all tenants,
//! so it needs an operator's key, except on a listener of its own.
//!
//! `/livez` answers as long as the process can, the engine's thread exists, and no call into the model has
//! hung for minutes: if it fails, restart. `/readyz` answers 200 while the server accepts work and the engine
//! recognises audio, which is probed before the first 200 and whenever no work has come for a while: if it
//! fails, send requests elsewhere. `/health` combines both in one body, for people. While the model loads,
//! [`starting`] answers.

use std::sync::Arc;
use std::time::Duration;

use hyper::header::{HeaderValue, RETRY_AFTER};
use hyper::{Method, StatusCode};
use serde::Serialize;

use super::openai;
use super::readiness::State;
use super::services::Services;
use crate::engine::{Condition, Engine};
use crate::http::{Failure, Later, Request, Response, Router, json, text};
use crate::telemetry::{hosted, metrics};

const NOT_READY_RETRY: Duration = Duration::from_secs(5);

#[derive(Serialize)]
struct Health {
    status: &'static str,
    ready: bool,
}

#[derive(Serialize)]
struct Alive {
    status: &'static str,
}

/// The routes while the model is fetched or loaded: the process lives, and accepts no work yet. `later`
/// replaces them.
pub fn starting(later: Later) -> Router {
    let livez = async |_: Request| Ok(json(StatusCode::OK, &Alive { status: "ok" }));
    let health = async |_: Request| Ok(json(StatusCode::OK, &Health { status: "ok", ready: false }));
    let status = async |_: Request| {
        let system_health = "Initializing";
        Ok(json(
            StatusCode::OK,
            &Status {
                system_health,
                active_batch_requests: 0,
                active_stream_requests: 0,
                models: Vec::new(),
            },
        ))
    };
    let engine = async |_: Request| {
        let engine_connection_status = "Disconnected";
        Ok(json(
            StatusCode::OK,
            &EngineStatus {
                engine_connection_status,
                active_batch_requests: 0,
                active_stream_requests: 0,
                max_batch_requests: 0,
                estimated_stream_capacity: 0,
            },
        ))
    };
    let loading = async |_: Request| Err(loading());
    Router::new()
        .route(Method::GET, "/livez", livez)
        .route(Method::GET, "/health", health)
        .route(Method::GET, "/v1/status", status)
        .route(Method::GET, "/v1/status/engine", engine)
        .until(later, loading)
        .with_failures(openai::error::form)
}

fn loading() -> Failure {
    Failure::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "Service Unavailable",
        "The server is starting: its model is still being loaded. Please try again later.",
    )
    .header(RETRY_AFTER, HeaderValue::from(NOT_READY_RETRY.as_secs()))
    .because("the model is still being loaded")
}

pub(super) async fn health(services: Arc<Services>, _: Request) -> Result<Response, Failure> {
    let ready = is_ready(&services);
    Ok(json(StatusCode::OK, &Health { status: "ok", ready }))
}

fn is_ready(services: &Services) -> bool {
    let takes_work = match &services.jobs {
        // Without a model, jobs are all that this node can take.
        Some(jobs) if services.models.is_absent() => jobs.is_reachable(),
        _ => true,
    };
    services.readiness.state() == State::Ready
        && takes_work
        && services.models.default().transcriber().engine().condition() == Condition::Working
}

pub(super) async fn livez(services: Arc<Services>, _: Request) -> Result<Response, Failure> {
    match services.models.engines().iter().any(Engine::is_lost) {
        true => Err(Failure::busy(NOT_READY_RETRY).because("only a restart helps the engine")),
        false => Ok(json(StatusCode::OK, &Alive { status: "ok" })),
    }
}

pub(super) async fn readyz(services: Arc<Services>, _: Request) -> Result<Response, Failure> {
    match is_ready(&services) {
        true => Ok(json(StatusCode::OK, &Health { status: "ok", ready: true })),
        false => Err(Failure::busy(NOT_READY_RETRY)),
    }
}

/// In the form that operators of the wire format's own servers know.
#[derive(Serialize)]
struct Status {
    system_health: &'static str,
    active_batch_requests: usize,
    active_stream_requests: usize,
    /// An extension: the served models, the default first.
    models: Vec<ModelStatus>,
}

#[derive(Serialize)]
struct ModelStatus {
    name: String,
    state: &'static str,
    default: bool,
}

pub(super) async fn status(services: Arc<Services>, _: Request) -> Result<Response, Failure> {
    let system_health = match services.readiness.state() {
        State::Starting => "Initializing",
        _ if services.models.default().transcriber().engine().condition() != Condition::Working => "Critical",
        State::Ready => "Healthy",
        State::Draining => "Degraded",
    };
    let active_batch_requests = services.activity.count();
    let active_stream_requests = services.models.default().live().streams();
    let models = services.models.statuses().into_iter().map(|model| ModelStatus {
        name: model.name,
        state: model.state,
        default: model.is_default,
    });
    let models = models.collect();
    Ok(json(StatusCode::OK, &Status { system_health, active_batch_requests, active_stream_requests, models }))
}

/// The requests with files, and the live streams, that the server would hold at its present speed.
fn capacity(services: &Services) -> (usize, usize) {
    let default = services.models.default();
    (default.transcriber().engine().requests_max(), default.live().capacity())
}

/// In the form that readiness probes of the wire format's own servers look for, its first member first.
#[derive(Serialize)]
struct EngineStatus {
    engine_connection_status: &'static str,
    active_batch_requests: usize,
    active_stream_requests: usize,
    /// Extensions: the requests with files, and the live streams, that the server would hold at its present speed.
    max_batch_requests: usize,
    estimated_stream_capacity: usize,
}

/// Whether there is an engine that works and takes requests; 200 in any case, as probes read the body.
pub(super) async fn engine_status(services: Arc<Services>, _: Request) -> Result<Response, Failure> {
    let (max_batch_requests, estimated_stream_capacity) = capacity(&services);
    let status = EngineStatus {
        engine_connection_status: if is_ready(&services) { "Connected" } else { "Disconnected" },
        active_batch_requests: services.activity.count(),
        active_stream_requests: services.models.default().live().streams(),
        max_batch_requests,
        estimated_stream_capacity,
    };
    Ok(json(StatusCode::OK, &status))
}

/// Metrics, for an operator's key.
pub(super) async fn metrics(services: Arc<Services>, request: Request) -> Result<Response, Failure> {
    if !services.authenticator.holder(&request.headers).await?.is_operator {
        return Err(Failure::new(
            StatusCode::FORBIDDEN,
            "FORBIDDEN",
            "The metrics of all tenants are for an operator's key.",
        ));
    }
    open_metrics(services, request).await
}

/// Metrics, without a key.
pub(super) async fn open_metrics(services: Arc<Services>, _: Request) -> Result<Response, Failure> {
    Engine::set_gauges(&services.models.engines());
    services.usage.set_gauges();
    let (files, streams) = capacity(&services);
    hosted::ACTIVE_MAX.with(&[]).set((files + streams) as f64);
    hosted::STREAM_CAPACITY.with(&[]).set(streams as f64);
    let exposition = metrics::render().ok_or_else(|| Failure::internal("metrics were not started"))?;
    Ok(text(metrics::CONTENT_TYPE, exposition))
}
