//! The composition root: configuration to running parts, and the order in which they stop.

use std::path::Path;
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::api::{self, JobWork, Readiness, Services, State};
use crate::config::Config;
use crate::demo::{self, Demo};
use crate::engine::{self, Engine};
use crate::fetch::{self, Fetcher};
use crate::http::{self, Authenticator};
use crate::jobs::{self, Jobs};
use crate::keys::{self, Store, Verifier};
use crate::models::{self, hub};
use crate::transcribe::{Transcriber, Windows};
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
    #[error("the keys cannot be read")]
    Keys(#[from] keys::Error),
    #[error("URL input did not start")]
    Fetch(#[from] fetch::SetupError),
    #[error("jobs did not start")]
    Jobs(#[from] jobs::Error),
    #[error("cannot listen on {address}")]
    Listen { address: std::net::SocketAddr, source: std::io::Error },
    #[error("the demo did not start")]
    Demo(#[from] demo::Error),
    #[error("the server failed")]
    Http(#[from] http::Error),
    #[error("stopped before it served anything")]
    Stopped,
}

/// Folder of the voice activity model, within the model folder.
const VAD_FOLDER: &str = "silero-vad";

/// Finds or fetches the model and starts the engine on it.
///
/// # Errors
/// [`Error::Model`], [`Error::Engine`], [`Error::Vad`].
pub async fn transcriber(config: &Config) -> Result<Transcriber, Error> {
    let name = config.models.model.clone();
    let folder = hub::locate(&name, &config.model_dir, &config.models.hub)
        .await
        .map_err(|source| Error::Model { name: name.clone(), source })?;
    let vad = match config.transcribe.windows {
        Windows::Speech => Some(Vad::load(&config.model_dir.join(VAD_FOLDER))?),
        Windows::Sequential => None,
    };
    let (engine_config, models) = (config.engine.clone(), config.models.clone());
    let start = move || Engine::start(&engine_config, move || models::load(&folder, &models));
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
    let listener = TcpListener::bind(config.listen)
        .await
        .map_err(|source| Error::Listen { address: config.listen, source })?;
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
    let parts = api::Parts {
        transcriber,
        authenticator: Authenticator::new(verifier, config.auth.clone()),
        fetcher,
        jobs: jobs.clone(),
        readiness: readiness.clone(),
        audio: config.audio.clone(),
    };
    let services = Arc::new(Services::new(parts, &config.api));
    // Jobs make way at once when the server is told to stop: what is left of it is for those who wait.
    let stop_jobs = stop.child_token();
    let jobs = jobs.map(|jobs| {
        let (work, stop) = (Arc::new(JobWork::new(services.clone())), stop_jobs.clone());
        tokio::spawn(async move { jobs.run(work, stop).await })
    });
    let router = api::router(services);
    readiness.set(State::Ready);
    // Port 0 is any that is free.
    tracing::info!(address = %listener.local_addr().unwrap_or(config.listen), "listening");
    let draining = async {
        stop.cancelled().await;
        readiness.set(State::Draining);
        tracing::info!("draining");
    };
    let served = http::run(listener, router, &config.http, draining).await;
    stop_jobs.cancel();
    if let Some(jobs) = jobs
        && let Err(error) = jobs.await
    {
        tracing::error!(%error, "jobs ended before they were told to");
    }
    served?;
    tracing::info!("stopped");
    Ok(())
}

/// Serves the demo backend and its pages until `stop`. They need no model and no state.
///
/// # Errors
/// What keeps it from starting.
pub async fn demo(config: &Config, stop: CancellationToken) -> Result<(), Error> {
    let demo = Demo::new(&config.demo)?;
    let bind =
        async |address| TcpListener::bind(address).await.map_err(|source| Error::Listen { address, source });
    let listener = bind(config.demo.listen).await?;
    let address = listener.local_addr().unwrap_or(config.demo.listen);
    let site = match config.demo.site_address() {
        None => None,
        Some(address) => match bind(address).await {
            // Somebody has pages of their own there, and did not ask for ours.
            Err(error) if config.demo.site_listen.is_none() => {
                tracing::warn!(%address, error = &error as &dyn std::error::Error, "pages are not served");
                None
            }
            listener => Some(listener?),
        },
    };
    let site_address = site.as_ref().and_then(|site| site.local_addr().ok());
    tracing::info!(%address, site = ?site_address, sts = config.demo.sts_base_url, "demo listening");
    let backend = http::run(listener, demo::router(&demo), &config.http, stop.clone().cancelled_owned());
    let pages = async {
        let Some(site) = site else { return Ok(()) };
        // Whoever serves them to others does so with certificates of theirs.
        let config = http::Config { tls: None, ..config.http.clone() };
        http::run(site, demo::site(&demo), &config, stop.cancelled()).await
    };
    tokio::try_join!(backend, pages)?;
    Ok(())
}

fn open_keys(state_dir: &Path) -> Result<Verifier, Error> {
    Ok(Verifier::new(Store::open(state_dir)?)?)
}
