//! The served models: the default is loaded at the start, the others by the registry.

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use std::time::Duration;

use super::error::Error;
use super::memory;
use crate::api::openai::language_names;
use crate::config::Config;
use crate::engine::{self, Engine, Machine, ModelId, SpeechModel, StartError};
use crate::hub;
use crate::live::Live;
use crate::models::{self, Absent, LoadTime, Source};
use crate::registry::{self, LoadError, Loader, Registry};
use crate::transcribe::{Transcriber, Windows};
use crate::vad::Vad;

/// Folder of the voice activity model, within the model folder.
const VAD_FOLDER: &str = "silero-vad";

/// Loads the voice activity model; `None` if nothing is to listen for speech.
///
/// # Errors
/// [`Error::Vad`].
pub fn vad(config: &Config) -> Result<Option<Vad>, Error> {
    Ok(match config.transcribe.windows {
        Windows::Speech => Some(Vad::load(&config.model_dir.join(VAD_FOLDER))?),
        Windows::Sequential => None,
    })
}

/// The detector of speech, which agents need however files are transcribed.
///
/// # Errors
/// [`crate::vad::Error`].
pub fn detector(config: &Config) -> Result<Vad, crate::vad::Error> {
    Vad::load(&config.model_dir.join(VAD_FOLDER))
}

/// Finds or fetches the model and starts the engine on it.
///
/// # Errors
/// [`Error::Model`], [`Error::Memory`], [`Error::Engine`], [`Error::Vad`].
pub async fn transcriber(config: &Config) -> Result<Transcriber, Error> {
    transcriber_on(&Machine::new(&config.engine), config).await
}

/// As [`transcriber`], on a machine that other models share.
pub(super) async fn transcriber_on(machine: &Machine, config: &Config) -> Result<Transcriber, Error> {
    let source = source(&config.models.model, config).await?;
    memory::check(std::slice::from_ref(&source), config)?;
    let vad = vad(config)?;
    let engine = start(machine, ModelId::FIRST, source, config).await?;
    let (model, device) = (&engine.model().name, &engine.model().device);
    match &config.models.synthetic_tokens {
        Some(tokens) if config.models.synthetic_shape().is_some() => tracing::warn!(
            model,
            device,
            %tokens,
            "the model is synthetic: its weights are random, and its transcripts mean nothing"
        ),
        _ => tracing::info!(model, device, "model loaded"),
    }
    Ok(match vad {
        Some(vad) => Transcriber::with_vad(engine, vad, config.transcribe.vad.clone()),
        None => Transcriber::new(engine),
    })
}

/// In place of a model, for a node that has none: it has its name and its languages.
///
/// # Errors
/// [`Error::Engine`].
pub(super) async fn absent(machine: &Machine, config: &Config) -> Result<Transcriber, Error> {
    let folder = hub::folder(&config.models.model, &config.model_dir).ok().filter(|folder| folder.is_dir());
    let languages = language_names::codes().map(str::to_owned).collect();
    let model = Absent::new(&config.models, folder.map(Source::Folder).as_ref(), languages);
    let load = move || Ok::<Box<dyn SpeechModel>, models::Error>(Box::new(model));
    let machine = machine.clone();
    let start = move || Engine::start_on(&machine, ModelId::FIRST, vec![load]);
    let engine = tokio::task::spawn_blocking(start).await.unwrap_or(Err(StartError::Died))?;
    tracing::info!(model = engine.model().name, "this node has no model: it takes requests with `callback`");
    Ok(Transcriber::new(engine))
}

/// Starts an engine for the model of `source` on all devices.
async fn start(machine: &Machine, model: ModelId, source: Source, config: &Config) -> Result<Engine, Error> {
    let each_device = models::each_device(&config.models).map_err(StartError::Model)?;
    let load = each_device.into_iter().map(|models| {
        let source = source.clone();
        move || source.load(&models)
    });
    let (load, machine) = (load.collect::<Vec<_>>(), machine.clone());
    let start = move || Engine::start_on(&machine, model, load);
    Ok(tokio::task::spawn_blocking(start).await.unwrap_or(Err(StartError::Died))?)
}

/// The folder of `model`, which is fetched if need be; or random weights, if those are asked for by name.
async fn source(model: &str, config: &Config) -> Result<Source, Error> {
    let named = models::Config { model: model.to_owned(), ..config.models.clone() };
    if let Some(synthetic) = Source::synthetic(&named) {
        return Ok(synthetic);
    }
    let folder = hub::locate(model, &config.model_dir, &config.models.hub).await;
    folder.map(Source::Folder).map_err(|source| Error::Model { name: model.to_owned(), source })
}

/// Checks that there are models to serve by the configured names; those that are known are fetched once they are loaded.
///
/// # Errors
/// [`Error::Model`].
pub(super) fn check(config: &Config) -> Result<(), Error> {
    for model in config.models.serve.iter().filter(|model| !model.starts_with(models::SYNTHETIC)) {
        hub::folder(model, &config.model_dir)
            .map_err(|source| Error::Model { name: model.clone(), source })?;
    }
    Ok(())
}

/// The registry of all configured models, with the default loaded on `machine`.
pub(super) fn registry(transcriber: Transcriber, live: Live, machine: Machine, config: &Config) -> Registry {
    let served = config.models.served();
    let mut names: Vec<String> = served.iter().map(|(name, _)| name.clone()).collect();
    if let Some(default) = names.first_mut() {
        default.clone_from(&transcriber.model().name);
    }
    let aliases = hub::ALIASES.iter().map(|(alias, name)| ((*alias).to_owned(), (*name).to_owned()));
    let own = config.models.names.iter();
    let own = own.map(|(name, model)| (name.clone(), models::Config::name_of(model)));
    let others = aliases.chain(own).collect();
    let seconds = |seconds: f64| Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
    let timing = registry::Config {
        idle: Some(config.models.idle_seconds).filter(|idle| *idle > 0).map(Duration::from_secs),
        wait: seconds(config.engine.max_wait_seconds),
    };
    let models = served.iter().map(|(_, model)| (*model).to_owned()).collect();
    let languages = served.iter().map(|(_, model)| languages(model, config)).collect();
    let loader = ModelLoader { machine, models, languages, config: config.clone() };
    Registry::of_several((transcriber, live), names, &others, timing, std::sync::Arc::new(loader))
}

/// Loads the models that are due at the start, then unloads idle ones. Never ends.
pub(super) async fn keep(models: Registry, load: LoadTime) {
    if load == LoadTime::Start {
        models.preload().await;
    }
    models.unload_idle().await;
}

/// Loads further models on the machine of the default.
struct ModelLoader {
    machine: Machine,
    /// As configured, by number.
    models: Vec<String>,
    /// Those of each model, if its folder is there.
    languages: Vec<Option<Vec<String>>>,
    config: Config,
}

fn languages(model: &str, config: &Config) -> Option<Vec<String>> {
    let folder = hub::folder(model, &config.model_dir).ok()?;
    Source::Folder(folder).languages()
}

impl ModelLoader {
    async fn source(&self, place: usize) -> Result<Source, Error> {
        let model = self.models.get(place).map_or("", String::as_str);
        source(model, &self.config).await
    }

    async fn start(&self, place: usize, beside: Vec<usize>) -> Result<Engine, Error> {
        let model = ModelId::new(place).ok_or(Error::Engine(StartError::Died))?;
        let mut sources = vec![self.source(place).await?];
        for other in beside {
            sources.push(self.source(other).await?);
        }
        // Reads the heads of the weights.
        let (all, config) = (sources.clone(), self.config.clone());
        let check = tokio::task::spawn_blocking(move || memory::check(&all, &config)).await;
        check.unwrap_or(Ok(()))?;
        let engine = start(&self.machine, model, sources.swap_remove(0), &self.config).await?;
        engine.probe().await.map_err(Error::Probe)?;
        Ok(engine)
    }
}

/// `is_alone`: beside the default, no other model is loaded.
fn failed(error: Error, is_alone: bool) -> LoadError {
    let reason: fn(String) -> LoadError = match &error {
        // Compared with all the memory that this program may have.
        Error::Memory(memory::Error::TooLittle { .. }) if is_alone => LoadError::TooLarge,
        Error::Memory(memory::Error::TooLittle { .. }) => LoadError::NoRoom,
        // Compared with the memory that other programs leave free at this moment.
        Error::Engine(engine::StartError::Model(models::Error::DeviceMemory { never: true, .. })) => {
            LoadError::TooLarge
        }
        Error::Engine(engine::StartError::Model(models::Error::DeviceMemory { .. })) => LoadError::NoRoom,
        _ => LoadError::Failed,
    };
    reason(format!("{:#}", anyhow::Error::new(error)))
}

impl Loader for ModelLoader {
    fn load(&self, place: usize, beside: Vec<usize>) -> BoxFuture<'_, Result<Engine, LoadError>> {
        let load = async move {
            // Beside the default, which stays, nothing can make room.
            let is_alone = beside == [0];
            self.start(place, beside).await.map_err(|error| failed(error, is_alone))
        };
        load.boxed()
    }

    fn languages(&self, place: usize) -> Option<Vec<String>> {
        self.languages.get(place).cloned().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_another_program_holds_now_may_be_free_later() {
        let device = |never| {
            let (needed, free, weights, slots, working) = (9, 1, 3, 3, 3);
            let error = models::Error::DeviceMemory { needed, free, weights, slots, working, never };
            failed(Error::Engine(engine::StartError::Model(error)), true)
        };
        assert!(matches!(device(false), LoadError::NoRoom(_)));
        assert!(matches!(device(true), LoadError::TooLarge(_)));
    }
}
