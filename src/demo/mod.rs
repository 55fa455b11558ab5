//! The reference demo backend: an example of an integrator's own backend, beside the voice-agent service.
//!
//! ```text
//! telephony provider ─ phone ──┐
//! a client's backend ─ client ─┼─ voice_service ── HTTP ── the voice-agent service
//! second device ─ site ─ client┘                               │
//!                        hook  ◄───────────────────────────────┘ "is this who they say they are?"
//! ```
//! It knows only the service's address. The people in its records are invented (`records.json`).
#![doc = include_str!("README.md")]

mod backend;
mod client;
mod config;
mod digits;
mod error;
mod fields;
mod guesses;
mod hook;
mod phone;
mod records;
mod reply;
mod sessions;
mod site;
mod story;
mod visits;
mod voice_service;

pub use backend::Demo;
pub use config::Config;
pub use error::Error;
pub use site::site;
pub use story::story;

use std::net::IpAddr;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, StatusCode};
use serde_json::{Value, json};

use crate::http::{Failure, Request, Response, Router, json as json_response};
use fields::{BODY_BYTES_MAX, Fields};
use reply::{Refusal, answer};

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The backend's routes (contract, section 4.4).
pub fn router(demo: &Arc<Demo>) -> Router {
    let (proxied, calls, statuses) = (demo.clone(), demo.clone(), demo.clone());
    Router::new()
        .route(Method::POST, "/api/interactive-agent", move |request| proxy(proxied.clone(), request))
        .route(Method::POST, "/api/hooks/voice-verify", keyed(demo, hook::voice_verify))
        .route(Method::POST, "/api/client/form-event", keyed(demo, client::form_event))
        .route(Method::POST, "/api/client/form-even", keyed(demo, client::form_event))
        .route(Method::POST, "/api/client/verify-and-submit", keyed(demo, client::verify_and_submit))
        .route(Method::POST, "/api/client/verify-patient-info-demo", keyed(demo, client::verify_patient))
        .route(Method::POST, "/api/client/form-completed", keyed(demo, client::form_completed))
        .route(Method::POST, "/webhooks/twilio/incoming-call", move |request| {
            phone::incoming_call(calls.clone(), request)
        })
        .route(Method::POST, "/webhooks/twilio/call-status", move |request| {
            phone::call_status(statuses.clone(), request)
        })
        // Probes have no key, and learn nothing here.
        .route(Method::GET, "/health", |_| async {
            Ok(json_response(StatusCode::OK, &json!({"status": "ok"})))
        })
}

/// A handler that calls `function` for clients with the key that send a JSON object.
fn keyed<F, R>(
    demo: &Arc<Demo>,
    function: F,
) -> impl Fn(Request) -> BoxFuture<'static, Result<Response, Failure>> + Send + Sync + 'static
where
    F: Fn(Arc<Demo>, Fields, IpAddr) -> R + Copy + Send + Sync + 'static,
    R: Future<Output = Result<Value, Refusal>> + Send + 'static,
{
    let demo = demo.clone();
    move |request| {
        let demo = demo.clone();
        Box::pin(async move {
            demo.authorize(&request.headers)?;
            // A client with the key may speak for others.
            let address = forwarded_for(&request.headers).unwrap_or(request.peer.ip());
            let fields = Fields::read(request.body).await?;
            answer(function(demo, fields, address).await)
        })
    }
}

/// The address that the last proxy or backend says it forwards for.
fn forwarded_for(headers: &HeaderMap) -> Option<IpAddr> {
    let last = headers.get_all(X_FORWARDED_FOR).iter().next_back()?.to_str().ok()?;
    last.rsplit(',').next()?.trim().parse().ok()
}

/// `POST /api/interactive-agent`: forwards the body to the voice-agent service, byte for byte, and returns its answer
/// unchanged.
async fn proxy(demo: Arc<Demo>, request: Request) -> Result<Response, Failure> {
    demo.authorize(&request.headers)?;
    let media_type = request.headers.get(CONTENT_TYPE).cloned();
    let body = request.body.collect_at_most(BODY_BYTES_MAX).await?;
    let media_type = media_type.unwrap_or(HeaderValue::from_static("application/json"));
    let reply = demo.voice.forward(body.bytes(), media_type).await?;
    if let Some(id) = reply.session_id() {
        demo.sessions.insert(&id);
    }
    Ok(reply.into_response())
}
