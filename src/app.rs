//! The composition root: it turns the configuration into running parts, and stops them in order.
//!
//! [further models]: crate::models
//! [admission and load]: crate::engine
//! [sharing]: crate::share
//! [TLS, uploads and stopping]: crate::http
//! [fetching]: crate::fetch
#![doc = include_str!("app/README.md")]

mod demonstration;
mod error;
mod memory;
mod serving;

pub use demonstration::{Demonstration, demo, demo_with_sts};
pub use error::Error;
pub use serving::{detector, transcriber, vad};

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::api::{self, JobWork, Readiness, Services, State};
use crate::cluster::{Cluster, Places, SharedKeys};
use crate::config::Config;
use crate::console::{self, Console};
use crate::engine::{self, Engine, LanguageChoice, Machine};
use crate::fetch::Fetcher;
use crate::http::{self, Authenticator, Shutdown};
use crate::jobs::Jobs;
use crate::keys::{Ledger, Store, Verifier};
use crate::live::Live;
use crate::models::DeviceChoice;
use crate::onnx;
use crate::patience;
use crate::share::Tenants;
use crate::speakers::{self, Diarizer};
use crate::speech::{Speech, Voice, VoiceError};
use crate::sts::{self, Sts};
use crate::telemetry::{gpu, metrics, traces};
use crate::turn::TurnModel;
use crate::usage::Log;
use crate::vad::Vad;
use crate::voices::Voices;
use crate::{models, speech};

/// Folder of the speaker models, within the model folder.
const SPEAKERS_FOLDER: &str = "speakers";
/// Interval at which histograms are summed up, whether or not anything reads them.
const SUM_UP_EVERY: Duration = Duration::from_secs(5);
/// Interval at which the use of limited keys is written: as much may be lost in a crash.
const WRITE_USE_EVERY: Duration = Duration::from_secs(2);

/// Loads the speaker models; `None` if they aren't there, or are switched off. `vad` hears voices that they pass over.
///
/// # Errors
/// [`Error::Speakers`], [`Error::SpeakersDevice`].
pub async fn diarizer(config: &Config, vad: Option<Vad>) -> Result<Option<Diarizer>, Error> {
    let folder = config.model_dir.join(SPEAKERS_FOLDER);
    match config.speakers.models {
        speakers::Models::Auto if folder.is_dir() => {}
        speakers::Models::Auto => {
            tracing::info!(folder = %folder.display(), "no speaker models: requests for speakers are refused");
            return Ok(None);
        }
        speakers::Models::Off => return Ok(None),
    }
    let cores = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let threads = if config.speakers.threads == 0 { cores() } else { config.speakers.threads };
    let models = models::Config {
        device: match config.speakers.device {
            speakers::DeviceChoice::Auto => config.models.device,
            speakers::DeviceChoice::Cpu => models::DeviceChoice::Cpu,
            speakers::DeviceChoice::Cuda(index) => models::DeviceChoice::Cuda(Some(index)),
        },
        ..config.models.clone()
    };
    let load = move || {
        let device = models::first_device(&models).map_err(Error::SpeakersDevice)?;
        let diarizer = Diarizer::load(&folder, device, threads)?.with_vad(vad);
        tracing::info!(?device, threads, "speaker models loaded");
        Ok(diarizer)
    };
    let loaded = tokio::task::spawn_blocking(load).await;
    loaded.unwrap_or(Err(Error::Speakers(speakers::Error::Failed))).map(Some)
}

/// Serves until `stop`; calls `is_ready` once requests are accepted, with the one-time link of the console, if one is wanted.
/// When `stop` leaves, jobs return to the queue and new requests get 503; when it closes, requests in
/// progress finish, then the engine ends with its last handle.
///
/// # Errors
/// The reason why the server can't start; [`Error::Stopped`] if that is `stop`, in which case threads that load the model
/// run on.
pub async fn serve(
    config: &Config,
    around: Around,
    stop: Shutdown,
    is_ready: impl FnOnce(Option<&str>),
) -> Result<(), Error> {
    refuse_open(config)?;
    let listener = listen(config.listen)?;
    serve_on(listener, config, around, stop, is_ready).await
}

/// Facts about the process that the console shows.
#[derive(Default)]
pub struct Around {
    /// All settings with their sources.
    pub settings: Vec<console::Setting>,
    /// Whether an operator reads standard output.
    pub is_terminal: bool,
}

/// # Errors
/// [`Error::Open`] if the voice agent asks this machine for no key and other machines could reach it.
fn refuse_open(config: &Config) -> Result<(), Error> {
    let is_open = config.sts.enabled && config.sts.auth == sts::Auth::Loopback;
    if is_open && !config.listen.ip().is_loopback() { Err(Error::Open(config.listen)) } else { Ok(()) }
}

/// As [`serve`], on a bound socket.
///
/// The socket answers from the start, so that orchestrators see a live process; until the model is loaded, it serves
/// little more than that ([`api::starting`]).
async fn serve_on(
    listener: TcpListener,
    config: &Config,
    around: Around,
    stop: Shutdown,
    is_ready: impl FnOnce(Option<&str>),
) -> Result<(), Error> {
    patience::watch_the_clock();
    metrics::start();
    traces::start(&config.traces);
    gpu::watch();
    let operators_listener = match config.metrics.listen {
        Some(address) => Some(listen(address)?),
        None => None,
    };
    let console_listener = match config.console.listen.filter(|_| config.console.enabled) {
        Some(address) => Some(listen(address)?),
        None => None,
    };
    let ground = Ground::open(config).await?;
    let tenants = ground.verifier.tenants();
    let readiness = Readiness::default();
    let doors = Doors::default();
    // The system chooses a free port for port 0.
    let address = listener.local_addr().unwrap_or(config.listen);
    let console_address = match &console_listener {
        Some(listener) => listener.local_addr().ok(),
        None => Some(address).filter(|_| config.console.enabled),
    };
    tracing::info!(%address, "loading the model; until it is loaded, requests get 503");
    // The operators' listener stays open until the drain ends.
    let served = Shutdown::default();
    let spool_dir = config.http.spool_dir.clone().unwrap_or_else(|| config.state_dir.join("uploads"));
    let http = http::Config { spool_dir: Some(spool_dir), ..config.http.clone() };
    let server = async {
        let router = api::starting(doors.clients.clone());
        let has_console = config.console.enabled && config.console.listen.is_none();
        let router = if has_console { console::pages(router) } else { router };
        let result = http::run(listener, router, &http, tenants.clone(), stop.clone()).await;
        served.close();
        result
    };
    let for_operators = async {
        let Some(listener) = operators_listener else { return Ok(()) };
        tracing::info!(address = ?listener.local_addr().ok(), "metrics and health without keys");
        let http = http::Config { tls: None, ..http.clone() };
        let router = api::starting(doors.operators.clone());
        http::run(listener, router, &http, tenants.clone(), served.clone()).await
    };
    let for_admins = async {
        let Some(listener) = console_listener else { return Ok(()) };
        tracing::info!(address = ?listener.local_addr().ok(), "console");
        let router = console::pages(api::starting(doors.console.clone()));
        http::run(listener, router, &http, tenants.clone(), stop.clone()).await
    };
    let summing_up = async {
        while tokio::time::timeout(SUM_UP_EVERY, served.closing().cancelled()).await.is_err() {
            metrics::sum_up();
        }
    };
    let stopping = served.closing().run_until_cancelled(async {
        stop.leaving().cancelled().await;
        readiness.set(State::Draining);
        tracing::info!("stopping: new requests get 503");
        stop.closing().cancelled().await;
        tracing::info!("draining");
    });
    let mut serving =
        std::pin::pin!(async { tokio::join!(server, for_operators, for_admins, summing_up, stopping) });
    let at_work = tokio::select! {
        biased;
        () = stop.leaving().cancelled() => return Err(Error::Stopped),
        // Nothing can be served, so there is no point in waiting for the model.
        (result, for_operators, for_admins, ..) = serving.as_mut() => {
            result.and(for_operators).and(for_admins)?;
            return Err(Error::Stopped);
        }
        at_work = AtWork::begin(config, address, around.settings, ground, readiness.clone(), &doors, stop.leaving()) => at_work?,
    };
    readiness.set(State::Ready);
    tracing::info!(%address, "listening");
    let link = match (&at_work.console, console_address) {
        (Some(console), Some(address)) if config.console.prints_link(address, around.is_terminal) => {
            let scheme = if config.http.tls.is_some() { "https" } else { "http" };
            Some(format!("{scheme}://{address}{}", console.make_link().await?))
        }
        _ => None,
    };
    is_ready(link.as_deref());
    let (result, for_operators, for_admins, ..) = serving.await;
    at_work.end().await;
    traces::flush().await;
    result.and(for_operators).and(for_admins)?;
    tracing::info!("stopped");
    Ok(())
}

/// Routers that take over once the model is loaded.
#[derive(Default)]
struct Doors {
    clients: http::Later,
    operators: http::Later,
    /// The same as clients have, with the console, where that has a listener of its own.
    console: http::Later,
}

/// The parts that open before the model loads, so that their errors show at once.
struct Ground {
    verifier: Verifier,
    cluster: Option<Cluster>,
    keys: Option<SharedKeys>,
    voices: Voices,
    fetcher: Fetcher,
    jobs: Option<Jobs>,
    usage: Log,
}

impl Ground {
    async fn open(config: &Config) -> Result<Self, Error> {
        if config.sts.enabled {
            sts::check(&config.sts)?;
        }
        serving::check(config)?;
        let verifier = open_keys(&config.state_dir)?;
        let cluster = match config.cluster.is_enabled() {
            true => Some(Cluster::connect(&config.cluster, &config.state_dir).await?),
            false => None,
        };
        let keys = match &cluster {
            Some(cluster) => Some(SharedKeys::join(cluster.clone(), &verifier).await?),
            None => None,
        };
        let voices = Voices::open(&config.state_dir, &config.voices)?;
        let fetcher = Fetcher::new(&config.fetch)?;
        let jobs = match config.jobs.enabled {
            true => {
                let (tenants, fetcher) = (verifier.tenants(), fetcher.clone());
                Some(
                    Jobs::open_among(cluster.clone(), &config.state_dir, &config.jobs, fetcher, tenants)
                        .await?,
                )
            }
            false => None,
        };
        let usage = Log::open(&config.state_dir, &config.usage)?;
        Ok(Self { verifier, cluster, keys, voices, fetcher, jobs, usage })
    }
}

/// Tasks that run beside requests.
struct AtWork {
    jobs: Option<JoinHandle<()>>,
    stop_jobs: CancellationToken,
    agents: Option<JoinHandle<()>>,
    stop_agents: CancellationToken,
    keys: Option<JoinHandle<()>>,
    stop_keys: CancellationToken,
    usage: Log,
    /// Loads and unloads models.
    models: AbortOnDropHandle<()>,
    console: Option<Console>,
    /// The use of limited keys, which `_writer` writes from time to time.
    ledger: Ledger,
    _writer: AbortOnDropHandle<()>,
    /// Records the figures that the console shows.
    _recorder: Option<AbortOnDropHandle<()>>,
}

impl AtWork {
    /// Loads the model, probes it, and opens `doors` to it.
    async fn begin(
        config: &Config,
        address: SocketAddr,
        settings: Vec<console::Setting>,
        ground: Ground,
        readiness: Readiness,
        doors: &Doors,
        stop: &CancellationToken,
    ) -> Result<Self, Error> {
        let Ground { verifier, cluster, keys, voices, fetcher, jobs, usage } = ground;
        let stop_keys = CancellationToken::new();
        let keys = keys.map(|keys| tokio::spawn(keys.run(stop_keys.clone())));
        let ledger = verifier.ledger().clone();
        let tenants = verifier.tenants();
        let machine = Machine::new(&config.engine);
        machine.share_between(tenants.clone());
        let has_model = config.models.device != DeviceChoice::None;
        let (transcriber, diarizer) = match has_model {
            true => {
                let transcriber = serving::transcriber_on(&machine, config).await?;
                let diarizer = diarizer(config, transcriber.vad().cloned()).await?;
                (transcriber, diarizer)
            }
            false => (serving::absent(&machine, config).await?, None),
        };
        let diarizer = diarizer.map(|diarizer| diarizer.shared_between(&tenants));
        transcriber.engine().probe().await.map_err(Error::Probe)?;
        let (engine, vad) = (transcriber.engine().clone(), transcriber.vad().cloned());
        let live =
            Live::new(engine, vad, config.live.clone(), tenants.clone()).with_diarizer(diarizer.clone());
        let live = live.with_turn_model(turn_model(config).await?);
        let authenticator = Authenticator::new(verifier.clone(), config.auth.clone());
        let voice = open_voice(config).await?;
        let speech = Speech::new(voice.clone(), config.speak.clone(), tenants.clone());
        if config.sts.enabled && !has_model {
            tracing::warn!("the voice agent is not served: this node has no model");
        }
        let sts = match config.sts.enabled && has_model {
            true => {
                let (config, engine) = (config.clone(), transcriber.engine().clone());
                let (authenticator, tenants) = (authenticator.clone(), tenants.clone());
                let shared = match cluster {
                    Some(cluster) => Some(shared(cluster, &verifier, &config, address)?),
                    None => None,
                };
                let around = (usage.clone(), jobs.clone(), shared);
                // Opening its models blocks, and the socket must answer meanwhile.
                let open = move || voice_agent(&config, &engine, &authenticator, tenants, voice, around);
                let opened = tokio::task::spawn_blocking(open).await;
                let sts = opened.unwrap_or(Err(Error::Engine(engine::StartError::Died)))?;
                sts.join_cluster().await;
                Some(sts)
            }
            false => None,
        };
        let models = serving::registry(transcriber, live, machine, config);
        let models = if has_model { models } else { models.absent() };
        let parts = api::Parts {
            models: models.clone(),
            diarizer,
            voices,
            speech,
            authenticator,
            fetcher: fetcher.clone(),
            jobs: jobs.clone(),
            readiness,
            tenants,
            usage: usage.clone(),
            audio: config.audio.clone(),
            other_paths: sts.as_ref().map(|_| sts::openapi::paths()).unwrap_or_default(),
            other_sockets: sts.as_ref().map(|_| sts::asyncapi::sockets()).unwrap_or_default(),
        };
        let services = Arc::new(Services::new(parts, &config.api));
        let console_jobs = jobs.clone();
        // Jobs make way as soon as the server begins to stop: the remaining time is for clients that wait for answers.
        let stop_jobs = stop.child_token();
        let jobs = jobs.map(|jobs| {
            let (work, stop) = (Arc::new(JobWork::new(services.clone())), stop_jobs.clone());
            tokio::spawn(async move {
                match has_model {
                    true => jobs.run(work, stop).await,
                    false => jobs.run_without_work(stop).await,
                }
            })
        });
        let console = config.console.enabled.then(|| {
            let (models, jobs, is_tls) = (models.clone(), console_jobs, config.http.tls.is_some());
            let usage = usage.clone();
            let parts = console::Parts { verifier, models, jobs, usage, settings, fetcher, is_tls };
            Console::new(parts, &config.console)
        });
        let recorder = console.clone().map(|console| tokio::spawn(async move { console.record().await }));
        let routes = || {
            let router = api::router(services.clone());
            match &sts {
                Some(sts) => sts.routes(router),
                None => router,
            }
        };
        let with_console = |router| match &console {
            Some(console) => console.routes(router),
            None => router,
        };
        if config.console.listen.is_some() {
            doors.clients.set(routes());
            doors.console.set(with_console(routes()));
        } else {
            doors.clients.set(with_console(routes()));
        }
        // Where there is no model, there are no others either.
        let load = if has_model { config.models.load } else { models::LoadTime::FirstUse };
        let models = tokio::spawn(serving::keep(models, load));
        let stop_agents = CancellationToken::new();
        let mut agents = None;
        doors.operators.set(api::operators_router(services));
        if let Some(sts) = sts {
            agents = Some(tokio::spawn(sts.run(stop_agents.clone())));
        }
        let models = AbortOnDropHandle::new(models);
        let _recorder = recorder.map(AbortOnDropHandle::new);
        let _writer = AbortOnDropHandle::new(tokio::spawn(write_use(ledger.clone())));
        Ok(Self {
            jobs,
            stop_jobs,
            agents,
            stop_agents,
            keys,
            stop_keys,
            usage,
            models,
            console,
            ledger,
            _writer,
            _recorder,
        })
    }

    async fn end(self) {
        drop(self.models);
        self.stop_jobs.cancel();
        if let Some(jobs) = self.jobs
            && let Err(error) = jobs.await
        {
            tracing::error!(%error, "the jobs task ended unexpectedly");
        }
        // Every live conversation has ended by now.
        self.stop_agents.cancel();
        if let Some(agents) = self.agents
            && let Err(error) = agents.await
        {
            tracing::error!(%error, "the voice agent ended unexpectedly");
        }
        self.stop_keys.cancel();
        if let Some(keys) = self.keys
            && let Err(error) = keys.await
        {
            tracing::error!(%error, "the task of shared keys ended unexpectedly");
        }
        self.usage.flush().await;
        write_once(self.ledger).await;
    }
}

/// Writes what limited keys use. Never ends.
async fn write_use(ledger: Ledger) {
    loop {
        tokio::time::sleep(WRITE_USE_EVERY).await;
        write_once(ledger.clone()).await;
    }
}

async fn write_once(ledger: Ledger) {
    let written = tokio::task::spawn_blocking(move || ledger.write()).await;
    if let Ok(Err(error)) = written {
        tracing::warn!(%error, "the use of limited keys could not be written; it is tried again");
    }
}

/// The model that judges the turns of live streams, if it is wanted.
async fn turn_model(config: &Config) -> Result<Option<TurnModel>, Error> {
    let (wanted, threads) = (config.live.end_of_turn, config.live.turn_threads);
    let models = config.model_dir.clone();
    let open = move || TurnModel::open(wanted, &models, threads);
    let opened = tokio::task::spawn_blocking(open).await;
    opened.unwrap_or(Err(onnx::Error::Died)).map_err(Error::Turns)
}

fn listen(address: SocketAddr) -> Result<TcpListener, Error> {
    http::listen(address).map_err(|source| Error::Listen { address, source })
}

/// The voice of agents and of `/v1/speak`, or none if nothing is to speak.
async fn open_voice(config: &Config) -> Result<Voice, Error> {
    let (mut speech, models) = (config.sts.speech.clone(), config.model_dir.clone());
    if !config.sts.enabled && !config.speak.enabled {
        speech = speech::Config { base_url: None, embedded: speech::EmbeddedVoice::None, ..speech };
    }
    // Opening its model blocks, and the socket must answer meanwhile.
    let opened = tokio::task::spawn_blocking(move || Voice::open(&speech, &models)).await;
    Ok(opened.unwrap_or(Err(VoiceError::Model(onnx::Error::Died)))?)
}

/// The voice-agent service, which reaches the engine through one closure.
fn voice_agent(
    config: &Config,
    engine: &Engine,
    authenticator: &Authenticator,
    tenants: Tenants,
    voice: Voice,
    (log, jobs, cluster): (Log, Option<Jobs>, Option<sts::Shared>),
) -> Result<Sts, Error> {
    let vad = detector(config);
    if let Err(error) = &vad {
        tracing::warn!(%error, "voice activity detection is missing: voice agents can't hear speech");
    }
    let parts = sts::Parts {
        authenticator: authenticator.clone(),
        vad: vad.ok(),
        recognize: sts::recognizer(engine.clone(), agent_language(engine, &config.sts.language)?),
        voice,
        models: config.model_dir.clone(),
        is_loopback: config.listen.ip().is_loopback(),
        is_tls: config.http.tls.is_some(),
        tenants,
        log,
        jobs,
        cluster,
    };
    Ok(Sts::open(parts, &config.sts, &config.state_dir, &config.fetch)?)
}

/// The state that the nodes' voice agents share. Other nodes reach this one at `address` or at the configured one.
fn shared(
    cluster: Cluster,
    verifier: &Verifier,
    config: &Config,
    address: SocketAddr,
) -> Result<sts::Shared, Error> {
    let scheme = if config.http.tls.is_some() { "https" } else { "http" };
    let address = match &config.cluster.advertise {
        Some(advertised) => advertised.clone(),
        None if address.ip().is_unspecified() => return Err(Error::Advertise(config.listen)),
        None => format!("{scheme}://{address}"),
    };
    let secret = verifier.shared_secret("sessions in the broker");
    let places = Places::new(cluster, &secret, address, sts::copies_kept(&config.sts))?;
    Ok(sts::Shared { places, secret: verifier.shared_secret("tokens of rooms") })
}

/// The language that callers of agents speak: `auto`, or a tag as in a request.
fn agent_language(engine: &Engine, tag: &str) -> Result<LanguageChoice, Error> {
    if tag == "auto" {
        return Ok(LanguageChoice::Detect { among: Vec::new(), expected: None });
    }
    let asked = api::Parameters { language: Some(tag.to_owned()), ..api::Parameters::default() };
    Ok(api::language::choice(&asked, engine.model())?)
}

fn open_keys(state_dir: &Path) -> Result<Verifier, Error> {
    let store = Store::open(state_dir)?;
    if store.list()?.iter().all(|key| key.revoked.is_some()) {
        tracing::warn!(
            state_dir = %state_dir.display(),
            "there is no API key, so all requests that need one are refused; make one with \
             `verbatim keys create --label NAME`: it works at once"
        );
    }
    Ok(Verifier::new(store)?)
}
