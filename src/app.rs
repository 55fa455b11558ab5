//! The composition root: configuration to running parts, and the order in which they stop.

mod demonstration;
mod memory;

pub use demonstration::{Demonstration, demo, demo_with_sts};

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::api::{self, JobWork, Readiness, Services, State};
use crate::audio::Pcm;
use crate::config::Config;
use crate::demo;
use crate::engine::{self, Class, Engine, LanguageChoice, Task, TenantId};
use crate::fetch::{self, Fetcher};
use crate::http::{self, Authenticator};
use crate::jobs::{self, Jobs};
use crate::keys::{self, Store, Verifier};
use crate::live::Live;
use crate::models::{self, hub};
use crate::sts::{self, Recognize, Sts};
use crate::telemetry::metrics;
use crate::transcribe::{TranscribeOptions, Transcriber, Windows};
use crate::vad::{self, Vad};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the model `{name}` cannot be had")]
    Model { name: String, source: hub::Error },
    #[error("the engine did not start")]
    Engine(#[from] engine::StartError<models::Error>),
    #[error(
        "voice activity detection did not start: run ./setup, or set transcribe.windows = \"sequential\""
    )]
    Vad(#[from] vad::Error),
    #[error(
        "the model is loaded and recognises nothing; if it only takes longer than engine.stall_seconds, raise that"
    )]
    Probe(#[source] engine::Error),
    #[error(transparent)]
    Memory(#[from] memory::Error),
    #[error("the keys cannot be read")]
    Keys(#[from] keys::Error),
    #[error("URL input did not start")]
    Fetch(#[from] fetch::SetupError),
    #[error("jobs did not start")]
    Jobs(#[from] jobs::Error),
    #[error("the voice agent did not start")]
    Sts(#[from] sts::StartError),
    #[error("cannot listen on {address}")]
    Listen { address: SocketAddr, source: std::io::Error },
    #[error("the demo did not start")]
    Demo(#[from] demo::Error),
    #[error("the server failed")]
    Http(#[from] http::Error),
    #[error("stopped before it served anything")]
    Stopped,
}

/// Folder of the voice activity model, within the model folder.
const VAD_FOLDER: &str = "silero-vad";
/// How often histograms are summed up, whether or not somebody reads them.
const SUM_UP_EVERY: Duration = Duration::from_secs(5);

/// Finds or fetches the model and starts the engine on it.
///
/// # Errors
/// [`Error::Model`], [`Error::Memory`], [`Error::Engine`], [`Error::Vad`].
pub async fn transcriber(config: &Config) -> Result<Transcriber, Error> {
    let name = config.models.model.clone();
    let folder = hub::locate(&name, &config.model_dir, &config.models.hub)
        .await
        .map_err(|source| Error::Model { name: name.clone(), source })?;
    memory::check(&folder, config)?;
    let vad = match config.transcribe.windows {
        Windows::Speech => Some(Vad::load(&config.model_dir.join(VAD_FOLDER))?),
        Windows::Sequential => None,
    };
    let engine_config = config.engine.clone();
    let each_device = models::each_device(&config.models).map_err(engine::StartError::Model)?;
    let load = each_device.into_iter().map(|models| {
        let folder = folder.clone();
        move || models::load(&folder, &models)
    });
    let load = load.collect::<Vec<_>>();
    let start = move || Engine::start_each(&engine_config, load);
    let engine = tokio::task::spawn_blocking(start).await.unwrap_or(Err(engine::StartError::Died))?;
    tracing::info!(model = engine.model().name, device = engine.model().device, "model loaded");
    Ok(match vad {
        Some(vad) => Transcriber::with_vad(engine, vad, config.transcribe.vad.clone()),
        None => Transcriber::new(engine),
    })
}

/// Serves until `stop`, then drains: jobs go back in line, requests finish, then the engine ends with its
/// last handle.
///
/// # Errors
/// What keeps the server from starting; [`Error::Stopped`] where that is `stop`. What loads the model then
/// goes on in its threads.
pub async fn serve(config: &Config, stop: CancellationToken) -> Result<(), Error> {
    let listener = listen(config.listen).await?;
    serve_on(listener, config, stop, || {}).await
}

/// As [`serve`], where it has been bound already; `is_ready` is called when requests are taken.
async fn serve_on(
    listener: TcpListener,
    config: &Config,
    stop: CancellationToken,
    is_ready: impl FnOnce(),
) -> Result<(), Error> {
    metrics::start();
    let operators_listener = match config.metrics.listen {
        Some(address) => Some(listen(address).await?),
        None => None,
    };
    let verifier = open_keys(&config.state_dir)?;
    let fetcher = Fetcher::new(&config.fetch)?;
    let jobs = match config.jobs.enabled {
        true => Some(Jobs::open(&config.state_dir, &config.jobs, fetcher.clone()).await?),
        false => None,
    };
    let readiness = Readiness::default();
    let transcriber = tokio::select! {
        transcriber = transcriber(config) => transcriber?,
        () = stop.cancelled() => return Err(Error::Stopped),
    };
    tokio::select! {
        probed = transcriber.engine().probe() => probed.map_err(Error::Probe)?,
        () = stop.cancelled() => return Err(Error::Stopped),
    }
    let live = Live::new(transcriber.engine().clone(), transcriber.vad().cloned(), config.live.clone());
    let authenticator = Authenticator::new(verifier, config.auth.clone());
    let sts = match config.sts.enabled {
        true => Some(voice_agent(config, &transcriber, &authenticator)?),
        false => None,
    };
    let parts = api::Parts {
        transcriber,
        live,
        authenticator,
        fetcher,
        jobs: jobs.clone(),
        readiness: readiness.clone(),
        audio: config.audio.clone(),
        other_paths: sts.as_ref().map(|_| sts::openapi::paths()).unwrap_or_default(),
    };
    let services = Arc::new(Services::new(parts, &config.api));
    // Jobs make way at once when the server is told to stop: what is left of it is for those who wait.
    let stop_jobs = stop.child_token();
    let jobs = jobs.map(|jobs| {
        let (work, stop) = (Arc::new(JobWork::new(services.clone())), stop_jobs.clone());
        tokio::spawn(async move { jobs.run(work, stop).await })
    });
    let mut router = api::router(services.clone());
    let stop_agents = CancellationToken::new();
    let mut agents = None;
    if let Some(sts) = sts {
        router = sts.routes(router);
        agents = Some(tokio::spawn(sts.run(stop_agents.clone())));
    }
    readiness.set(State::Ready);
    // Port 0 is any that is free.
    tracing::info!(address = %listener.local_addr().unwrap_or(config.listen), "listening");
    is_ready();
    let draining = async {
        stop.cancelled().await;
        readiness.set(State::Draining);
        tracing::info!("draining");
    };
    // Operators see the drain to its end.
    let served = CancellationToken::new();
    let server = async {
        let result = http::run(listener, router, &config.http, draining).await;
        served.cancel();
        result
    };
    let for_operators = async {
        let Some(listener) = operators_listener else { return Ok(()) };
        tracing::info!(address = ?listener.local_addr().ok(), "metrics and health without keys");
        let http = http::Config { tls: None, ..config.http.clone() };
        http::run(listener, api::operators_router(services.clone()), &http, served.cancelled()).await
    };
    let summing_up = async {
        while tokio::time::timeout(SUM_UP_EVERY, served.cancelled()).await.is_err() {
            metrics::sum_up();
        }
    };
    let (result, for_operators, ()) = tokio::join!(server, for_operators, summing_up);
    stop_jobs.cancel();
    if let Some(jobs) = jobs
        && let Err(error) = jobs.await
    {
        tracing::error!(%error, "jobs ended before they were told to");
    }
    // Whoever was talking has been told goodbye by now.
    stop_agents.cancel();
    if let Some(agents) = agents
        && let Err(error) = agents.await
    {
        tracing::error!(%error, "the voice agent ended before it was told to");
    }
    result.and(for_operators)?;
    tracing::info!("stopped");
    Ok(())
}

async fn listen(address: SocketAddr) -> Result<TcpListener, Error> {
    TcpListener::bind(address).await.map_err(|source| Error::Listen { address, source })
}

/// The voice-agent service, which knows the engine by one closure.
fn voice_agent(
    config: &Config,
    transcriber: &Transcriber,
    authenticator: &Authenticator,
) -> Result<Sts, Error> {
    let vad = Vad::load(&config.model_dir.join(VAD_FOLDER));
    if let Err(error) = &vad {
        tracing::warn!(%error, "voice agents hear no speech");
    }
    let parts = sts::Parts {
        authenticator: authenticator.clone(),
        vad: vad.ok(),
        recognize: recognize(transcriber.clone(), &config.sts.language),
        models: config.model_dir.clone(),
        is_loopback: config.listen.ip().is_loopback(),
        is_tls: config.http.tls.is_some(),
    };
    Ok(Sts::open(parts, &config.sts, &config.state_dir, &config.fetch)?)
}

/// Utterances by `transcriber`, ahead of whole files.
fn recognize(transcriber: Transcriber, language: &str) -> Recognize {
    let language = match language {
        "auto" => LanguageChoice::Detect { among: Vec::new() },
        code => LanguageChoice::Named(code.to_owned()),
    };
    Arc::new(move |pcm: Pcm, tenant| {
        let options = TranscribeOptions {
            language: language.clone(),
            task: Task::Transcribe,
            prompt: None,
            bias: Arc::default(),
            word_times: false,
            class: Class::Live,
            tenant: TenantId(tenant),
            deadline: None,
        };
        let transcriber = transcriber.clone();
        Box::pin(async move {
            let transcript =
                transcriber.transcribe(pcm, &options).await.map_err(|error| error.to_string())?;
            Ok(transcript.text())
        })
    })
}

fn open_keys(state_dir: &Path) -> Result<Verifier, Error> {
    Ok(Verifier::new(Store::open(state_dir)?)?)
}
