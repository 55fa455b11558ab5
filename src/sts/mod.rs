//! The voice agent: sessions that a client steers over HTTP, and rooms in which an agent listens and
//! speaks.
//!
//! ```text
//! POST /STS/interactiveAgent ─▶ action ─▶ Sessions ─ events ─▶ whoever watches
//!                                            │
//!      library: documents, website ──────────┤
//!      verifier: hook, or matcher ───────────┤
//!      sms: the provider's REST ─────────────┤
//!                                            ▼
//! WebSocket, LiveKit, telephone ─▶ Room ─▶ agent: ears → recognise → responder → voice ─▶ Room
//! ```
//! Utterances go to the engine through [`Recognize`], as windows of live speech (`hearing.rs`). A session is state with pure transitions (`session.rs`), kept on disk; its room and
//! agent live while a participant is there. When it ends, all goes but its remains (`remains.rs`).
#![doc = include_str!("README.md")]

mod access;
mod action;
mod agent;
mod concealed;
pub mod config;
mod digits;
mod endpoint;
mod event;
mod failure;
mod fields;
mod hearing;
mod held;
mod knowledge;
pub mod openapi;
mod outbound;
mod remains;
mod room;
mod session;
mod sessions;
mod setup;
mod sms;
mod snapshot;
mod store;
mod token;
mod turn;
mod twilio;
mod verify;
mod voice;

pub use config::{Auth, Config};
pub use hearing::{Recognize, recognizer};
pub use store::StoreError;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use hyper::Method;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::fetch::{self, Fetcher};
use crate::http::{Authenticator, Request, Router};
use crate::onnx;
use crate::share::Tenants;
use crate::vad::Vad;
use access::Access;
use agent::chat::Chat;
use knowledge::Library;
use room::livekit::LiveKit;
use sessions::{Limits, Sessions, now};
use sms::Courier;
use token::Signer;
use turn::TurnModel;
use verify::Verifier;
use voice::Voice;

/// Between two looks for sessions whose time is over.
const SWEEP_INTERVAL: Duration = Duration::from_secs(10);
/// Ended sessions whose messages are sent side by side after a restart.
const DELIVERIES: usize = 16;

/// Why a request of the service is refused.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("The body must be a JSON object.")]
    NotAnObject,
    #[error("`action` must be one of: {known}.")]
    UnknownAction { known: String },
    #[error("`{0}` is missing.")]
    Missing(&'static str),
    #[error("`{field}` must be {expected}.")]
    Kind { field: &'static str, expected: &'static str },
    #[error("`{field}` has more than {bytes_max} bytes.")]
    TooLong { field: &'static str, bytes_max: usize },
    #[error("`{field}` has more than {count_max} entries.")]
    TooMany { field: &'static str, count_max: usize },
    #[error("`documents[{index}]`: {problem}.")]
    Document { index: usize, problem: &'static str },
    #[error("`caller_number` must be a number in E.164 form, such as +14155552671.")]
    PhoneNumber,
    #[error("There is no such session.")]
    NoSession,
    #[error("The session has ended.")]
    Ended,
    #[error("the media server cannot be reached")]
    MediaServer,
    #[error("as many sessions are open as may be, or they hold as much as they may")]
    Full { retry_after: Duration },
    #[error("the organisation has its share of the sessions, or of what they may hold")]
    OverShare { retry_after: Duration },
    #[error("the session could not be written")]
    Store(#[from] StoreError),
}

/// What the service is made of.
pub struct Parts {
    pub authenticator: Authenticator,
    /// Without one, agents hear no speech: only what is typed or keyed.
    pub vad: Option<Vad>,
    pub recognize: Recognize,
    /// The folder of models: of the end of a turn and of the voice, where they are installed.
    pub models: PathBuf,
    /// Whether the server listens on loopback addresses only.
    pub is_loopback: bool,
    /// Whether it serves TLS itself.
    pub is_tls: bool,
    /// How many organisations share the service.
    pub tenants: Tenants,
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("the sessions cannot be read")]
    Store(#[from] StoreError),
    #[error("websites cannot be read")]
    Fetch(#[from] fetch::SetupError),
    #[error("answers cannot be verified")]
    Verify(#[from] verify::VerifyError),
    #[error("messages cannot be sent")]
    Sms(#[from] sms::SmsError),
    #[error("the chat interface cannot be used")]
    Chat(#[from] agent::chat::ChatError),
    #[error("the LiveKit server cannot be used")]
    LiveKit(#[from] room::livekit::LiveKitError),
    #[error("nobody says when a turn ends")]
    Turn(#[from] onnx::Error),
    #[error("the agent cannot speak")]
    Voice(#[from] voice::VoiceError),
}

impl StartError {
    /// Whether other settings would help.
    pub fn is_configuration(&self) -> bool {
        !matches!(self, Self::Store(_))
    }
}

/// Looks for what is wrong with `config` by itself: a file of records, an address, an account.
///
/// # Errors
/// [`StartError`], as [`Sts::open`] would have it, which needs the model.
pub fn check(config: &Config) -> Result<(), StartError> {
    Verifier::open(&config.verification)?;
    Courier::new(&config.twilio)?;
    Chat::open(&config.chat)?;
    LiveKit::open(&config.livekit)?;
    Ok(())
}

/// The running service. Cheap handle; clones are one.
#[derive(Clone)]
pub struct Sts(Arc<Service>);

struct Service {
    config: Config,
    access: Access,
    sessions: Sessions,
    signer: Signer,
    library: Library,
    verifier: Verifier,
    courier: Courier,
    /// None: the embedded responder answers.
    chat: Option<Chat>,
    /// None: silence ends a turn.
    turn_model: Option<TurnModel>,
    voice: Voice,
    /// None: browsers join rooms of our own.
    livekit: Option<LiveKit>,
    parts: Parts,
    /// What goes on beside requests. [`Sts::run`] ends it.
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Sts {
    /// Opens the sessions that `state_dir` keeps. `fetch` says what websites may be reached.
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
        let tenants = &parts.tenants;
        let (sessions, secret) = Sessions::open(state_dir, limits, tenants.clone())?;
        let page = fetch::Config {
            max_bytes: config.crawl.page_bytes_max,
            total_timeout_ms: config.crawl.page_timeout_ms,
            ..fetch.clone()
        };
        let fetcher = Fetcher::new(&page)?;
        let library = Library::new(fetcher, config.crawl.clone(), state_dir, tenants.clone());
        let access = Access::new(parts.authenticator.clone(), config.auth, parts.is_loopback);
        let service = Service {
            config: config.clone(),
            access,
            sessions,
            signer: Signer::new(secret),
            library,
            verifier: Verifier::open(&config.verification)?,
            courier: Courier::new(&config.twilio)?,
            chat: Chat::open(&config.chat)?,
            livekit: LiveKit::open(&config.livekit)?,
            turn_model: TurnModel::open(config.turn.end_of_turn, &parts.models)?,
            voice: Voice::open(&config.speech, &parts.models)?,
            parts,
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        };
        Ok(Self(Arc::new(service)))
    }

    /// `router` with the service's routes.
    pub fn routes(&self, router: Router) -> Router {
        let actions = endpoint(&self.0, endpoint::interactive_agent);
        let incoming = endpoint(&self.0, twilio::incoming_call);
        router
            .route(Method::POST, "/STS/interactiveAgent", actions)
            .route(Method::POST, "/api/livekit/sts", endpoint(&self.0, endpoint::web_session))
            .route(Method::GET, "/STS/rooms/{room}", endpoint(&self.0, room::websocket::join))
            .route(Method::GET, "/v1/agent/converse", endpoint(&self.0, room::websocket::converse))
            .route(Method::POST, "/api/twilio/incoming-call", incoming.clone())
            .route(Method::GET, "/api/twilio/incoming-call", incoming)
            .route(Method::GET, "/api/twilio/media", endpoint(&self.0, room::phone::media))
    }

    /// Does what is to be done beside requests, until `stop`: goes on where a restart broke off, and
    /// ends sessions whose time is over.
    pub async fn run(self, stop: CancellationToken) {
        self.0.deliver_for_ended();
        for live in self.0.sessions.all() {
            if !live.read(|s| s.knowledge.is_ready) {
                self.0.read_for(live.clone());
            }
            self.0.deliver(live.clone());
            if live.read(|s| s.channel == setup::Channel::Web)
                && let Some(livekit) = &self.0.livekit
            {
                let (livekit, service) = (livekit.clone(), self.0.clone());
                // Where that fails the session is over, and says so.
                self.0.tasks.spawn(async move { drop(livekit.begin(&service, &live).await) });
            }
        }
        let mut sweep = tokio::time::interval(SWEEP_INTERVAL);
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                _ = sweep.tick() => self.0.sessions.sweep(now()).await,
            }
        }
        self.0.stop.cancel();
        self.0.tasks.close();
        self.0.tasks.wait().await;
    }
}

impl Service {
    /// Reads what a session was given, beside everything else, as long as the session is open.
    fn read_for(self: &Arc<Self>, live: Arc<sessions::Live>) {
        let (library, sessions, stop) = (self.library.clone(), self.sessions.clone(), self.stop.clone());
        self.tasks.spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = live.over() => {}
                () = library.read(&sessions, &live) => {}
            }
        });
    }

    /// Sends what was queued in sessions that had ended before a restart.
    fn deliver_for_ended(self: &Arc<Self>) {
        if !self.courier.can_send() {
            return;
        }
        let (courier, sessions, stop) = (self.courier.clone(), self.sessions.clone(), self.stop.clone());
        self.tasks.spawn(async move {
            let deliveries = stream::iter(sessions.sending()).for_each_concurrent(DELIVERIES, |id| {
                let (courier, sessions) = (courier.clone(), sessions.clone());
                async move {
                    match sessions.revive(&id).await {
                        Ok(live) => courier.deliver(&live).await,
                        Err(error) => {
                            tracing::error!(session = id, %error, "messages of an ended session are not sent");
                        }
                    }
                }
            });
            tokio::select! {
                () = stop.cancelled() => {}
                () = deliveries => {}
            }
        });
    }

    /// Sends what is queued in a session, beside everything else.
    fn deliver(self: &Arc<Self>, live: Arc<sessions::Live>) {
        let (courier, stop) = (self.courier.clone(), self.stop.clone());
        self.tasks.spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = courier.deliver(&live) => {}
            }
        });
    }
}

/// `function`, with the service at hand.
fn endpoint<F, R>(
    service: &Arc<Service>,
    function: F,
) -> impl Fn(Request) -> R + Clone + Send + Sync + 'static
where
    F: Fn(Arc<Service>, Request) -> R + Clone + Send + Sync + 'static,
{
    let service = service.clone();
    move |request| function(service.clone(), request)
}
