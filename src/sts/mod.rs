//! The voice-agent service: its HTTP and WebSocket endpoints, and the `Host` behind them.
//!
//! ```text
//! POST /STS/interactiveAgent ─▶ action ─▶ session::Sessions ─ events ─▶ watchers
//! WebSocket, LiveKit, telephone ─▶ Host ─▶ room::Seat ═ agent::run
//! ```
//! `Host` alone joins sessions, rooms and agents. A session is kept on disk; its agent runs while a participant
//! is there.
//!
#![doc = include_str!("README.md")]

mod access;
mod action;
pub mod asyncapi;
pub mod config;
mod converse;
mod endpoint;
mod failure;
mod host;
pub mod openapi;
mod twilio;
mod wire;

pub use crate::agent::{Recognize, Whose, recognizer};
pub use config::{Auth, Config};

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hyper::Method;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::agent::{Chat, ChatError, Settings, Tools, Verifier, VerifyError};
use crate::clock::now;
use crate::fetch::{self, Fetcher};
use crate::http::{Authenticator, Request, Router};
use crate::knowledge::Library;
use crate::onnx;
use crate::room::Signer;
use crate::room::livekit::{LiveKit, LiveKitError};
use crate::session::{Channel, Limits, Sessions, StoreError};
use crate::share::Tenants;
use crate::sms::{Courier, SmsError};
use crate::speech::Voice;
use crate::turn::TurnModel;
use crate::usage::Log;
use crate::vad::Vad;
use access::Access;
use host::Host;

/// Between two searches for sessions whose time is over.
const SWEEP_INTERVAL: Duration = Duration::from_secs(10);

/// Whether an agent's clients may send `text`, for tests that send anything.
pub fn understands(text: &str) -> bool {
    crate::room::Said::read(text).is_ok()
}

/// The parts of the server that the service needs.
pub struct Parts {
    pub authenticator: Authenticator,
    /// Without it, agents hear no speech and react only to text and keys.
    pub vad: Option<Vad>,
    pub recognize: Recognize,
    /// Speaks for agents.
    pub voice: Voice,
    /// The folder with the models for turns and voice, if they are installed.
    pub models: PathBuf,
    /// Whether the server listens on loopback addresses only.
    pub is_loopback: bool,
    /// Whether the server itself serves TLS.
    pub is_tls: bool,
    /// The tenants that share the service.
    pub tenants: Tenants,
    /// The log of requests.
    pub log: Log,
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("the sessions cannot be read")]
    Store(#[from] StoreError),
    #[error("websites cannot be read")]
    Fetch(#[from] fetch::SetupError),
    #[error("answers cannot be verified")]
    Verify(#[from] VerifyError),
    #[error("messages cannot be sent")]
    Sms(#[from] SmsError),
    #[error("the chat interface cannot be used")]
    Chat(#[from] ChatError),
    #[error("the LiveKit server cannot be used")]
    LiveKit(#[from] LiveKitError),
    #[error("the model that ends turns cannot be used")]
    Turn(#[from] onnx::Error),
}

impl StartError {
    /// Whether other settings would help.
    pub fn is_configuration(&self) -> bool {
        !matches!(self, Self::Store(_))
    }
}

/// Checks `config` by itself: the file of records, addresses, accounts.
///
/// # Errors
/// The [`StartError`] that [`Sts::open`] would return, which needs the models too.
pub fn check(config: &Config) -> Result<(), StartError> {
    Verifier::open(&config.verification)?;
    Courier::new(&config.twilio)?;
    Chat::open(&config.chat)?;
    LiveKit::open(&config.livekit)?;
    Ok(())
}

/// The running service. Cheap handle; clones share it.
#[derive(Clone)]
pub struct Sts(Arc<Host>);

impl Sts {
    /// Opens the sessions that `state_dir` keeps. `fetch` decides which websites may be reached.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn open(
        parts: Parts,
        config: &Config,
        state_dir: &Path,
        fetch: &fetch::Config,
    ) -> Result<Self, StartError> {
        let limits = Limits {
            open_max: config.sessions_max,
            held_bytes_max: config.held_bytes_max,
            idle: Duration::from_secs(config.idle_seconds),
            rejoin: Duration::from_secs(config.rejoin_seconds),
            kept: Duration::from_secs(config.kept_seconds),
            kept_max: config.kept_max,
        };
        let (sessions, secret) = Sessions::open(state_dir, limits, parts.tenants.clone())?;
        let page = fetch::Config {
            max_bytes: config.crawl.page_bytes_max,
            total_timeout_ms: config.crawl.page_timeout_ms,
            ..fetch.clone()
        };
        let library = Library::new(Fetcher::new(&page)?, config.crawl.clone(), state_dir, parts.tenants);
        let access = Access::new(parts.authenticator, config.auth, parts.is_loopback);
        let settings = Settings {
            turn: config.turn.clone(),
            language: config.language.clone(),
            talk_max: Duration::from_secs(config.talk_seconds_max),
            rejoin: Duration::from_secs(config.rejoin_seconds),
        };
        let tools = Tools {
            sessions,
            vad: parts.vad,
            recognize: parts.recognize,
            verifier: Verifier::open(&config.verification)?,
            courier: Courier::new(&config.twilio)?,
            chat: Chat::open(&config.chat)?,
            turn_model: TurnModel::open(config.turn.end_of_turn, &parts.models, 1)?,
            voice: parts.voice,
            settings,
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        };
        let livekit = LiveKit::open(&config.livekit)?;
        let signer = Signer::new(secret);
        let (log, is_tls) = (parts.log, parts.is_tls);
        let parts = host::Parts { access, signer, library, livekit, log, is_tls };
        let host = Host::new(config.clone(), tools, parts);
        Ok(Self(Arc::new(host)))
    }

    /// Adds the service's routes to `router`.
    pub fn routes(&self, router: Router) -> Router {
        let actions = endpoint(&self.0, endpoint::interactive_agent);
        let incoming = endpoint(&self.0, twilio::incoming_call);
        router
            .route(Method::POST, "/STS/interactiveAgent", actions)
            .route(Method::POST, "/api/livekit/sts", endpoint(&self.0, endpoint::web_session))
            .route(Method::GET, "/STS/rooms/{room}", endpoint(&self.0, converse::join_room))
            .route(Method::GET, "/v1/agent/converse", endpoint(&self.0, converse::converse))
            .route(Method::GET, "/v1/agent/settings/think/models", endpoint(&self.0, converse::think_models))
            .route(Method::POST, "/api/twilio/incoming-call", incoming.clone())
            .route(Method::GET, "/api/twilio/incoming-call", incoming)
            .route(Method::GET, "/api/twilio/media", endpoint(&self.0, twilio::media))
    }

    /// Does the work beside requests until `stop`: resumes sessions that a restart interrupted, and ends sessions
    /// whose time is over.
    pub async fn run(self, stop: CancellationToken) {
        let tools = &self.0.tools;
        self.0.deliver_for_ended();
        for handle in tools.sessions.all() {
            if !handle.read(|s| s.knowledge.is_ready) {
                self.0.read_sources(handle.clone());
            }
            tools.deliver(handle.clone());
            if handle.read(|s| s.channel == Channel::Web)
                && let Some(livekit) = &self.0.livekit
            {
                let (livekit, host) = (livekit.clone(), self.0.clone());
                // If this fails, the session ends and gives the reason.
                tools.tasks.spawn(async move { drop(host.open_room(&livekit, &handle).await) });
            }
        }
        let mut sweep = tokio::time::interval(SWEEP_INTERVAL);
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                _ = sweep.tick() => tools.sessions.sweep(now()).await,
            }
        }
        tools.stop.cancel();
        tools.tasks.close();
        tools.tasks.wait().await;
    }
}

/// Binds a handler to the host.
fn endpoint<F, R>(host: &Arc<Host>, function: F) -> impl Fn(Request) -> R + Clone + Send + Sync + 'static
where
    F: Fn(Arc<Host>, Request) -> R + Clone + Send + Sync + 'static,
{
    let host = host.clone();
    move |request| function(host.clone(), request)
}
