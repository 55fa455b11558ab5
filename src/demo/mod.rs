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

mod client;
mod config;
mod digits;
mod fields;
mod guesses;
mod hook;
mod phone;
mod records;
mod sessions;
mod site;
mod story;
mod visits;
mod voice_service;

pub use config::{Config, Secret};
pub use site::site;
pub use story::story;

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http_body_util::{BodyExt as _, Full};
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use hyper::{Method, StatusCode};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use crate::http::{Failure, Request, Response, Router, json as json_response};
use fields::Fields;
use guesses::Guesses;
use records::Records;
use sessions::Sessions;
use visits::Visits;
use voice_service::{Reply, VoiceService};

const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");
const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
/// Limit of a request's or an answer's body: a start may contain documents.
const BODY_BYTES_MAX: u64 = 4 << 20;

/// The reason why the demo can't start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("everybody knows the built-in key: set DEMO_API_KEY to listen on {0}")]
    BuiltInKey(SocketAddr),
    #[error(
        "every caller at {0} could pose as the telephony provider: set demo.twilio_auth_token, which the telephony provider signs \
         with, or let demo.listen be an address of loopback and leave demo.public_url out"
    )]
    Unsigned(String),
    #[error(
        "the voice service on {0} wants a key: make one with `verbatim keys create --label demo` and set \
         demo.sts_api_key, or let listen be an address of loopback"
    )]
    NoServiceKey(SocketAddr),
    #[error("`{0}` is no http or https address")]
    Address(&'static str),
    #[error("a key for the voice-agent service has characters that no header may have")]
    Key,
    #[error("the records in `{path}` cannot be read: {problem}")]
    Records { path: PathBuf, problem: String },
    #[error("cannot set up the HTTP client")]
    Client(#[from] reqwest::Error),
}

/// The state that the routes share.
pub struct Demo {
    config: Config,
    key: Secret,
    frontend: String,
    records: Records,
    guesses: Guesses,
    visits: Visits,
    sessions: Sessions,
    voice: VoiceService,
}

/// The reason why a route has no answer of its own.
enum Refusal {
    Failed(Failure),
    /// The voice-agent service refused; its answer is passed on.
    Passed(Reply),
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl Demo {
    /// # Errors
    /// [`Error`]
    pub fn new(config: &Config) -> Result<Arc<Self>, Error> {
        let key = config.key()?;
        config.check()?;
        Ok(Arc::new(Self {
            key,
            frontend: config::base_url("demo.frontend_base_url", &config.frontend_base_url)?,
            records: Records::open(config.records.as_deref())?,
            guesses: Guesses::default(),
            visits: Visits::default(),
            sessions: Sessions::default(),
            voice: VoiceService::new(config)?,
            config: config.clone(),
        }))
    }

    /// # Errors
    /// 401 unless the headers contain the key exactly once. Hashes are compared, so the time taken reveals nothing.
    fn authorize(&self, headers: &HeaderMap) -> Result<(), Failure> {
        let mut keys = headers.get_all(X_API_KEY).iter();
        let is_known = match (keys.next(), keys.next()) {
            (Some(key), None) => {
                Sha256::digest(key.as_bytes()).ct_eq(&Sha256::digest(self.key.expose().as_bytes())).into()
            }
            _ => false,
        };
        if is_known {
            return Ok(());
        }
        Err(Failure::new(StatusCode::UNAUTHORIZED, "INVALID_AUTH", "`X-API-Key` is missing or wrong."))
    }
}

impl Demo {
    /// Checks that the voice service has a session, so that guesses for invented sessions don't count.
    ///
    /// # Errors
    /// The service's: 404 if it has no session of that id.
    async fn expect(&self, session_id: &str) -> Result<(), Refusal> {
        if !self.sessions.has(session_id) {
            self.status(session_id).await?;
        }
        Ok(())
    }

    /// The voice service's status of a session.
    ///
    /// # Errors
    /// As [`Self::expect`].
    async fn status(&self, session_id: &str) -> Result<Value, Refusal> {
        let status = self.voice.act(&json!({"action": "status", "session_id": session_id})).await?;
        self.sessions.insert(session_id);
        Ok(status)
    }

    /// The record that `look` finds for credentials sent in a session from an address, unless the session or the address has
    /// sent too many wrong ones.
    ///
    /// # Errors
    /// 429.
    fn prove<T>(
        &self,
        session_id: &str,
        address: Option<IpAddr>,
        look: impl FnOnce(&Records) -> Option<T>,
    ) -> Result<Option<T>, Failure> {
        self.guesses.begin(session_id, address, Instant::now()).map_err(|wait| {
            let message = "There were too many attempts that were wrong.";
            Failure::new(StatusCode::TOO_MANY_REQUESTS, "TOO_MANY_ATTEMPTS", message)
                .header(RETRY_AFTER, HeaderValue::from(wait.as_secs() + 1))
        })?;
        let found = look(&self.records);
        if found.is_some() {
            self.guesses.was_right(session_id);
        }
        Ok(found)
    }
}

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

fn answer(outcome: Result<Value, Refusal>) -> Result<Response, Failure> {
    match outcome {
        Ok(value) => Ok(json_response(StatusCode::OK, &value)),
        Err(Refusal::Passed(reply)) => Ok(reply.into_response()),
        Err(Refusal::Failed(failure)) => Err(failure),
    }
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

fn whole(status: StatusCode, media_type: HeaderValue, body: impl Into<Bytes>) -> Response {
    let body = Full::new(body.into()).map_err(|never: Infallible| match never {});
    let mut response = Response::new(body.boxed_unsync());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, media_type);
    response
}
