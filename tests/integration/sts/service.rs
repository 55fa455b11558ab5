//! The voice-agent service on its own port, with a scripted recogniser.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use verbatim::fetch;
use verbatim::fetch::Fetcher;
use verbatim::http::{self, Authenticator, Router, auth};
use verbatim::jobs::{self, Fault, Input, Jobs, Setback, Task, Work};
use verbatim::keys::{Store, Verifier};
use verbatim::speech::{EmbeddedVoice, Voice};
use verbatim::sts::config::EndOfTurn;
use verbatim::sts::{self, Auth, Config, Recognize, Sts};
use verbatim::usage::{self, Log};
use verbatim::vad::Vad;

use crate::server::{Door, answer, client, new_key, routes};

pub struct Setup {
    pub config: Config,
    pub is_loopback: bool,
    /// The transcripts of successive utterances; nothing is heard when they run out.
    pub heard: Vec<&'static str>,
    pub recognize: Option<Recognize>,
    /// Instead of one that may reach 127.0.0.1.
    pub fetch: Option<fetch::Config>,
    pub http: http::Config,
    /// Delivers webhooks, if there is one.
    pub jobs: Option<jobs::Config>,
}

impl Default for Setup {
    fn default() -> Self {
        // As `serve --dev`; tests of keys ask for them.
        let mut config = Config { auth: Auth::Loopback, ..Config::default() };
        config.crawl.pause_ms = 0;
        // As on a machine without optional models; tests of the models enable them.
        config.turn.end_of_turn = EndOfTurn::Silence;
        config.speech.embedded = EmbeddedVoice::None;
        Self {
            config,
            is_loopback: true,
            heard: Vec::new(),
            recognize: None,
            fetch: None,
            http: http::Config::default(),
            jobs: None,
        }
    }
}

pub struct Service {
    pub address: SocketAddr,
    /// Two keys, of two organisations; clients without a key are a third one.
    pub keys: [String; 2],
    log: Log,
    /// The organisations of the keys.
    tenants: Vec<u64>,
    _folder: Option<TempDir>,
    door: Option<Door>,
    /// Method and pattern of each.
    pub routes: Vec<(String, String)>,
    stop: CancellationToken,
    running: JoinHandle<()>,
}

/// Where the models are; `./setup` has put them there.
pub fn models() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(".verbatim/models")
}

fn vad() -> Vad {
    Vad::load(&models().join("silero-vad")).expect("run ./setup")
}

impl Service {
    pub async fn start(setup: Setup) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let state = folder.path().to_owned();
        Self { _folder: Some(folder), ..Self::start_in(&state, setup).await }
    }

    /// Starts on the state of a previous service.
    pub async fn start_in(state: &Path, setup: Setup) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        // Made before: a running server notices others a little later.
        let keys = [new_key(state), new_key(state)];
        let verifier = Store::open(state).and_then(Verifier::new).expect("keys");
        let tenants = verifier.tenants();
        let log = Log::open(state, &usage::Config::default()).expect("a log");
        let listed = Store::open(state).and_then(|store| store.list()).expect("keys");
        let nearby = fetch::Config { allow: vec!["127.0.0.1".into()], ..fetch::Config::default() };
        let fetch = setup.fetch.clone().unwrap_or(nearby);
        let jobs = match &setup.jobs {
            Some(config) => {
                let fetcher = Fetcher::new(&fetch).expect("a client");
                Some(Jobs::open(state, config, fetcher, tenants.clone()).await.expect("they open"))
            }
            None => None,
        };
        let script = Arc::new(Mutex::new(VecDeque::from(setup.heard)));
        let scripted: Recognize = Arc::new(move |_, _| {
            let heard = script.lock().expect("no test panics here").pop_front();
            Box::pin(async move { Ok(heard.unwrap_or_default().to_owned()) })
        });
        let parts = sts::Parts {
            authenticator: Authenticator::new(verifier, auth::Config::default()),
            vad: Some(vad()),
            recognize: setup.recognize.unwrap_or(scripted),
            voice: Voice::open(&setup.config.speech, &models()).expect("the voice opens"),
            models: models(),
            is_loopback: setup.is_loopback,
            is_tls: false,
            tenants,
            log: log.clone(),
            jobs: jobs.clone(),
            cluster: None,
        };
        let sts = Sts::open(parts, &setup.config, state, &fetch).expect("the service starts");
        let router = sts.routes(Router::new()).logged_in(log.clone());
        let routes = routes(&router);
        let door = Door::open(router, setup.http).await;
        let stop = CancellationToken::new();
        let stopping = stop.clone();
        let running = tokio::spawn(async move {
            let deliver = async {
                if let Some(jobs) = &jobs {
                    jobs.run(Arc::new(NoWork), stopping.clone()).await;
                }
            };
            tokio::join!(sts.run(stopping.clone()), deliver);
        });
        let (address, tenants) = (door.address, listed.iter().map(|key| key.tenant).collect());
        Self { address, keys, log, tenants, _folder: None, door: Some(door), routes, stop, running }
    }

    /// The requests of the keys' organisations that are logged, newest first, once there are `count`: paths and seconds of
    /// audio.
    pub async fn stays(&self, count: usize) -> Vec<(String, f64)> {
        let look = async {
            loop {
                let mut rows = Vec::new();
                for tenant in &self.tenants {
                    let end = SystemTime::now() + Duration::from_secs(60);
                    let all = usage::Filter::all(*tenant, SystemTime::UNIX_EPOCH, end);
                    rows.extend(self.log.requests(all, 0, 100).await.expect("readable"));
                }
                if rows.len() >= count {
                    return rows.into_iter().map(|row| (row.path, row.audio_seconds)).collect();
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(120), look).await.expect("they are logged")
    }

    /// Stops as a server does.
    pub async fn stop(mut self) {
        if let Some(door) = self.door.take() {
            door.stop().await;
        }
        self.stop.cancel();
        (&mut self.running).await.expect("no panic");
    }

    pub fn request(&self, body: &Value) -> reqwest::RequestBuilder {
        self.post("/STS/interactiveAgent", body)
    }

    pub fn post(&self, path: &str, body: &Value) -> reqwest::RequestBuilder {
        client()
            .post(format!("http://{}{path}", self.address))
            .header("content-type", "application/json")
            .body(body.to_string())
    }

    /// Status and body of an action.
    pub async fn action(&self, body: Value) -> (u16, Value) {
        answer(self.request(&body)).await
    }

    /// The reply to an action that must succeed.
    pub async fn act(&self, body: Value) -> Value {
        let (status, reply) = self.action(body).await;
        assert_eq!(status, 200, "{reply}");
        assert_eq!(reply["ok"], true);
        reply
    }

    /// Starts a session; its id and the reply.
    pub async fn session(&self, mut start: Value) -> (String, Value) {
        start["action"] = "start".into();
        let reply = self.act(start).await;
        (reply["session_id"].as_str().expect("an id").to_owned(), reply)
    }

    pub async fn status(&self, session: &str) -> Value {
        self.act(json!({"action": "status", "session_id": session})).await
    }

    /// Asks for the status until it is as wished; each answer leads to the next question.
    pub async fn until(&self, session: &str, wish: impl Fn(&Value) -> bool) -> Value {
        let wait = until(async || self.status(session).await, wish);
        tokio::time::timeout(std::time::Duration::from_secs(120), wait).await.expect("it comes about")
    }

    /// The status once all that the session was given is read.
    pub async fn ready(&self, session: &str) -> Value {
        self.until(session, is_ready).await
    }
}

/// There are no jobs but events.
struct NoWork;

impl Work for NoWork {
    fn run<'a>(&'a self, _: &'a Task, _: Input) -> BoxFuture<'a, Result<Vec<u8>, Setback>> {
        panic!("there is no such job")
    }

    fn given_up(&self, _: &Task, _: Fault) -> Vec<u8> {
        Vec::new()
    }
}

/// Polls until the observed value satisfies the condition.
pub async fn until(look: impl AsyncFn() -> Value, wish: impl Fn(&Value) -> bool) -> Value {
    loop {
        let seen = look().await;
        if wish(&seen) {
            return seen;
        }
        tokio::task::yield_now().await;
    }
}

/// Whether a session of this status has read all that it was given.
pub fn is_ready(status: &Value) -> bool {
    status["knowledge"]["ready"] == true
}
