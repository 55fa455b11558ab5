//! `/console/api/operations`, `/errors` and `/config`: how the server does, and how it is set up.

use std::sync::{Arc, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use hyper::StatusCode;
use serde::Serialize;
use serde_json::Value;
use url::form_urlencoded;

use super::guard::Admin;
use super::ring::{INTERVAL, SAMPLES};
use super::services::{Services, Setting};
use crate::engine::{Condition, Engine};
use crate::http::{Failure, Request, Response, json};
use crate::telemetry::gpu::{self, Gpu};
use crate::telemetry::{metrics, recent};

#[derive(Serialize)]
struct Figures {
    version: &'static str,
    uptime_seconds: u64,
    /// `working`, `failing`, `hung` or `ended`, of the default model's engine.
    engine: &'static str,
    models: Vec<Model>,
    memory: Option<Memory>,
    /// `null` without a driver of GPUs, or while it does not answer.
    gpus: Option<Vec<Gpu>>,
    interval_seconds: u64,
    samples_max: usize,
    samples: Value,
}

#[derive(Serialize)]
struct Model {
    name: String,
    is_default: bool,
    /// `unloaded`, `loading`, `loaded`, `no_room`, `failed` or `too_large`.
    state: &'static str,
    /// Requests that use it.
    uses: usize,
    /// `null` until the model was loaded once, like the next fields.
    device: Option<String>,
    slots: Option<usize>,
    languages: Option<usize>,
}

/// In bytes.
#[derive(Serialize)]
struct Memory {
    resident: u64,
    peak: u64,
}

/// `GET /console/api/operations?from=N`: the samples from that number on.
pub async fn figures(services: Arc<Services>, _: Admin, request: Request) -> Result<Response, Failure> {
    let mut parameters = form_urlencoded::parse(request.uri.query().unwrap_or_default().as_bytes());
    let from = parameters.find(|(name, _)| name == "from").map_or(Ok(0), |(_, from)| from.parse());
    let from = from.map_err(|_| {
        Failure::new(StatusCode::BAD_REQUEST, "Bad Request", "`from` is the number of a sample.")
    })?;
    let samples = services.ring.lock().unwrap_or_else(PoisonError::into_inner).since(from);
    let models = &services.parts.models;
    let engine = match models.default().transcriber().engine().condition() {
        Condition::Working => "working",
        Condition::Failing => "failing",
        Condition::Hung => "hung",
        Condition::Ended => "ended",
    };
    let models = models.statuses().into_iter().map(|status| Model {
        name: status.name,
        is_default: status.is_default,
        state: status.state,
        uses: status.uses,
        device: status.info.as_ref().map(|info| info.device.clone()),
        slots: status.info.as_ref().map(|info| info.slots),
        languages: status.info.as_ref().map(|info| info.languages.len()),
    });
    let memory = metrics::memory().map(|memory| Memory { resident: memory.resident, peak: memory.peak });
    let figures = Figures {
        version: env!("CARGO_PKG_VERSION"),
        uptime_seconds: services.started.elapsed().as_secs(),
        engine,
        models: models.collect(),
        memory,
        gpus: gpu::gpus(),
        interval_seconds: INTERVAL.as_secs(),
        samples_max: SAMPLES,
        samples,
    };
    Ok(json(StatusCode::OK, &figures))
}

#[derive(Serialize)]
struct Errors {
    /// The newest first.
    errors: Vec<recent::Event>,
}

/// `GET /console/api/errors`: the last warnings and errors of the log.
pub async fn errors(_: Arc<Services>, _: Admin, _: Request) -> Result<Response, Failure> {
    Ok(json(StatusCode::OK, &Errors { errors: recent::newest_first() }))
}

#[derive(Serialize)]
struct Settings<'a> {
    settings: &'a [Setting],
}

/// `GET /console/api/config`: the settings, as `verbatim config` shows them.
pub async fn settings(services: Arc<Services>, _: Admin, _: Request) -> Result<Response, Failure> {
    Ok(json(StatusCode::OK, &Settings { settings: &services.parts.settings }))
}

/// Fills the ring. Never ends.
pub async fn record(services: &Services) {
    let mut ticks = tokio::time::interval_at((Instant::now() + INTERVAL).into(), INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    loop {
        sample(services);
        ticks.tick().await;
    }
}

fn sample(services: &Services) {
    Engine::set_gauges(&services.parts.models.engines());
    let Some(exposition) = metrics::render() else { return };
    let unix_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64;
    services.ring.lock().unwrap_or_else(PoisonError::into_inner).add(&exposition, unix_ms);
}
