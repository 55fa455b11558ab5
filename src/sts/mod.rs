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

mod abroad;
mod access;
mod action;
pub mod asyncapi;
pub mod config;
mod converse;
mod dispatch;
mod endpoint;
mod failure;
mod host;
mod observing;
pub mod openapi;
mod recording_status;
mod recordings;
mod room_news;
mod seek;
mod time;
mod transfer;
mod twilio;
mod webhook_event;
mod webhooks;
mod wire;

pub use crate::agent::{Recognize, Whose, recognizer};
pub use config::{Auth, Config};
pub(crate) use twilio::signature as provider_signature;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use hyper::Method;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::agent::{Chat, ChatError, Settings, Tools, Verifier, VerifyError};
use crate::clock::now;
use crate::cluster::Places;
use crate::fetch::{self, Fetcher};
use crate::http::{Authenticator, Request, Router};
use crate::jobs::Jobs;
use crate::knowledge::Library;
use crate::onnx;
use crate::recording::Shelf;
use crate::room::Signer;
use crate::room::livekit::{LiveKit, LiveKitError};
use crate::session::{Limits, Sessions, StoreError};
use crate::share::Tenants;
use crate::sms::{Courier, SmsError};
use crate::speech::Voice;
use crate::turn::TurnModel;
use crate::usage::Log;
use crate::vad::Vad;
use abroad::Abroad;
use access::Access;
use dispatch::Office;
use host::Host;
use webhooks::Webhooks;

/// Between two searches for sessions whose time is over.
const SWEEP_INTERVAL: Duration = Duration::from_secs(10);
/// Between two searches for recordings that are too old.
const RECORDINGS_SWEEP_INTERVAL: Duration = Duration::from_secs(60);

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
    /// Delivers the events of sessions; without it, none are sent.
    pub jobs: Option<Jobs>,
    /// The sessions of all nodes, for a node of a cluster.
    pub cluster: Option<Shared>,
}

/// What a node shares with the others.
pub struct Shared {
    pub places: Places,
    /// Signs the tokens of rooms, so that those of one node are known on all.
    pub secret: [u8; 32],
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("the sessions cannot be read")]
    Store(#[from] StoreError),
    #[error("the recordings cannot be read")]
    Recordings(#[source] std::io::Error),
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
    #[error("other nodes cannot be reached")]
    Nodes(#[source] reqwest::Error),
    #[error("the model that ends turns cannot be used")]
    Turn(#[from] onnx::Error),
}

impl StartError {
    /// Whether other settings would help.
    pub fn is_configuration(&self) -> bool {
        !matches!(self, Self::Store(_) | Self::Recordings(_))
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

/// How long nodes keep copies of a session that does not change: as long as it could be asked for.
pub fn copies_kept(config: &Config) -> Duration {
    let seconds = [config.idle_seconds, config.talk_seconds_max, config.kept_seconds];
    Duration::from_secs(seconds.into_iter().fold(3600, u64::saturating_add))
}

/// The running service. Cheap handle; clones share it.
#[derive(Clone)]
pub struct Sts {
    host: Arc<Host>,
    /// Until they run.
    webhooks: Arc<Mutex<Option<Webhooks>>>,
}

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
        let recordings = Shelf::open(state_dir, &config.recording, parts.tenants.clone());
        let recordings = recordings.map_err(StartError::Recordings)?;
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
            talk_warning: Duration::from_secs(config.talk_warning_seconds),
            silence: Some(config.silence_seconds).filter(|seconds| *seconds > 0).map(Duration::from_secs),
            nudges_max: config.nudges_max,
            rejoin: Duration::from_secs(config.rejoin_seconds),
        };
        let tools = Tools {
            sessions,
            vad: parts.vad,
            recognize: parts.recognize,
            verifier: Verifier::open(&config.verification)?,
            courier: Courier::new(&config.twilio)?,
            recordings,
            chat: Chat::open(&config.chat)?,
            turn_model: TurnModel::open(config.turn.end_of_turn, &parts.models, 1)?,
            voice: parts.voice,
            settings,
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        };
        let url = config.webhook.url.as_deref();
        let (webhooks, observer) = Webhooks::new(parts.jobs.clone(), url, tools.chat.is_some());
        tools.sessions.observe(observer);
        let livekit = LiveKit::open(&config.livekit)?;
        let (abroad, secret) = match parts.cluster {
            Some(Shared { places, secret }) => {
                (Some(Abroad::new(places).map_err(StartError::Nodes)?), secret)
            }
            None => (None, secret),
        };
        let signer = Signer::new(secret);
        let (log, is_tls, jobs) = (parts.log, parts.is_tls, parts.jobs);
        let parts = host::Parts { access, signer, library, livekit, log, is_tls, jobs, abroad };
        let host = Host::new(config.clone(), tools, parts);
        Ok(Self { host: Arc::new(host), webhooks: Arc::new(Mutex::new(Some(webhooks))) })
    }

    /// Joins the other nodes, if there are any: to be done before requests come.
    pub async fn join_cluster(&self) {
        self.host.join_cluster().await;
    }

    /// Adds the service's routes to `router`.
    pub fn routes(&self, router: Router) -> Router {
        let actions = endpoint(&self.host, endpoint::interactive_agent);
        let incoming = endpoint(&self.host, twilio::incoming_call);
        let ended = endpoint(&self.host, twilio::stream_ended);
        router
            .route(Method::POST, "/STS/interactiveAgent", actions)
            .route(Method::POST, "/api/livekit/sts", endpoint(&self.host, endpoint::web_session))
            .route(Method::POST, "/api/livekit/webhook", endpoint(&self.host, room_news::webhook))
            .route(
                Method::GET,
                "/STS/sessions/{session_id}/recording",
                endpoint(&self.host, recordings::fetch),
            )
            .route(
                Method::DELETE,
                "/STS/sessions/{session_id}/recording",
                endpoint(&self.host, recordings::delete),
            )
            .route(Method::GET, "/STS/rooms/{room}", endpoint(&self.host, converse::join_room))
            .route(Method::GET, "/v1/agent/converse", endpoint(&self.host, converse::converse))
            .route(
                Method::GET,
                "/v1/agent/settings/think/models",
                endpoint(&self.host, converse::think_models),
            )
            .route(Method::POST, "/api/twilio/incoming-call", incoming.clone())
            .route(Method::GET, "/api/twilio/incoming-call", incoming)
            .route(Method::POST, "/api/twilio/stream-ended", ended.clone())
            .route(Method::GET, "/api/twilio/stream-ended", ended)
            .route(Method::GET, "/api/twilio/media", endpoint(&self.host, twilio::media))
    }

    /// Does the work beside requests until `stop`: resumes sessions that a restart interrupted, and ends sessions
    /// whose time is over.
    pub async fn run(self, stop: CancellationToken) {
        let tools = &self.host.tools;
        self.host.deliver_for_ended();
        for handle in tools.sessions.all() {
            self.host.resume(handle);
        }
        if let (Some(livekit), Some(name)) = (&self.host.livekit, self.host.config.livekit.agent_name.clone())
        {
            let office = Office { host: self.host.clone(), livekit: livekit.clone() };
            let stop = tools.stop.clone();
            tools.tasks.spawn(async move {
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = office.livekit.work(&name, &office) => {}
                }
            });
        }
        let webhooks = self.webhooks.lock().unwrap_or_else(PoisonError::into_inner).take();
        let webhooks = webhooks.map(|webhooks| tokio::spawn(webhooks.run(tools.clone(), stop.clone())));
        let last = CancellationToken::new();
        let cluster = tokio::spawn(self.host.clone().follow_cluster(last.clone()));
        let mut sweep = tokio::time::interval(SWEEP_INTERVAL);
        let mut sweep_recordings = tokio::time::interval(RECORDINGS_SWEEP_INTERVAL);
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                _ = sweep.tick() => tools.sessions.sweep(now()).await,
                _ = sweep_recordings.tick() => {
                    let recordings = tools.recordings.clone();
                    tools.tasks.spawn_blocking(move || recordings.sweep(SystemTime::now()));
                }
            }
        }
        tools.stop.cancel();
        tools.tasks.close();
        tools.tasks.wait().await;
        tools.recordings.flush().await;
        if let Some(webhooks) = webhooks
            && let Err(error) = webhooks.await
        {
            tracing::error!(%error, "the task of webhooks ended unexpectedly");
        }
        // Other nodes may take over what is left open.
        last.cancel();
        if let Err(error) = cluster.await {
            tracing::error!(%error, "the task of shared sessions ended unexpectedly");
        }
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
