//! The registry of served models: requests choose theirs by name, and it loads and unloads them.
//!
//! The default model is loaded before there is a registry, and stays. The others are loaded by a [`Loader`], one at a time,
//! when a request first wants them or when they are preloaded; a request waits for its model for a bounded time. A model is
//! in use while there is a [`Loaded`] of it. One that nothing uses is unloaded after a while, or to make room for another.
//! `table.rs` decides all that, and `loading.rs` does it.

mod config;
mod error;
mod loading;
mod names;
mod shared;
mod table;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};
use uuid::Uuid;

pub use config::Config;
pub use error::{LoadError, Unavailable};
pub use shared::{Loaded, Loader};

use crate::engine::{Engine, ModelInfo};
use crate::live::Live;
use crate::patience::{Deadline, by};
use crate::telemetry::metrics;
use crate::transcribe::Transcriber;
use names::Names;
use shared::{Models, Parts, Shared, Used};
use table::{Next, State, Table};

/// Requests that wait for models at once; further ones are refused.
const WAITING_MAX: usize = 1024;

/// The served models. Cheap to clone: clones are one.
#[derive(Clone)]
pub struct Registry {
    shared: Arc<Shared>,
    is_absent: bool,
}

/// A served model, for people and clients.
#[derive(Debug, Clone)]
pub struct Status {
    pub name: String,
    pub uuid: Uuid,
    pub is_default: bool,
    /// `loaded`, `loading`, `unloaded`, `no_room`, `failed` or `too_large`.
    pub state: &'static str,
    /// Requests and streams that use it; those of the default aren't counted.
    pub uses: usize,
    /// Its languages; empty if its files don't tell, until it has been loaded.
    pub languages: Vec<String>,
    /// Once it has been loaded.
    pub info: Option<ModelInfo>,
}

impl Registry {
    /// Serves one model, under its own name and `others`.
    pub fn of_one(transcriber: Transcriber, live: Live, others: impl IntoIterator<Item = String>) -> Self {
        let model = transcriber.model();
        let names = vec![(model.name.clone(), model.uuid)];
        let others = others.into_iter().map(|name| (name, model.name.clone())).collect();
        let names = Names::new(names, &others);
        Self::new(Parts { transcriber, live }, names, Config::default(), None)
    }

    /// Serves the loaded model as the default, and beside it those that `loader` loads. `names` has all of them in the order
    /// of their numbers, the default first; `others` further names, each with the name of a model.
    pub fn of_several(
        (transcriber, live): (Transcriber, Live),
        names: Vec<String>,
        others: &BTreeMap<String, String>,
        config: Config,
        loader: Arc<dyn Loader>,
    ) -> Self {
        let names = names.into_iter().map(|name| (name.clone(), ModelInfo::uuid_of(&name))).collect();
        Self::new(Parts { transcriber, live }, Names::new(names, others), config, Some(loader))
    }

    fn new(default: Parts, names: Names, config: Config, loader: Option<Arc<dyn Loader>>) -> Self {
        let served = names.served().map(|(name, _)| name.to_owned());
        let table = Table::new(served, config.wait, Instant::now());
        let mut parts: Vec<Option<Parts>> = table.rows().iter().map(|_| None).collect();
        let always = Loaded::new(default.clone(), None);
        let mut infos = vec![None; parts.len()];
        if let (Some(first), Some(info)) = (parts.first_mut(), infos.first_mut()) {
            *info = Some(default.transcriber.model().clone());
            *first = Some(default);
        }
        for (place, row) in table.rows().iter().enumerate() {
            let loaded = f64::from(u8::from(place == 0));
            metrics::MODEL_LOADED.with_owned(vec![metrics::model(&row.name)]).set(loaded);
        }
        let shared = Shared {
            names,
            config,
            loader,
            default: always,
            state: Mutex::new(Models { table, parts, infos }),
            changes: watch::Sender::new(()),
            loading: tokio::sync::Mutex::default(),
        };
        Self { shared: Arc::new(shared), is_absent: false }
    }

    /// As a registry whose models are elsewhere: it has their names, and no request for words may use them.
    pub fn absent(self) -> Self {
        Self { is_absent: true, ..self }
    }

    /// As by [`Self::absent`].
    pub fn is_absent(&self) -> bool {
        self.is_absent
    }

    /// The name under which the model is served that a request's `asked` means; `None` if it is not served, and the default
    /// is used instead.
    pub fn name_of(&self, asked: Option<&str>) -> Option<&str> {
        self.shared.names.find(asked).map(|place| self.shared.names.name(place))
    }

    /// All names that requests may use, those of models first.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.shared.names.all()
    }

    /// Whether a model of exactly this name is served.
    pub fn serves(&self, name: &str) -> bool {
        self.shared.names.served().any(|(served, _)| served == name)
    }

    /// The model of requests that ask for none, or for one that is not served. It is always loaded.
    pub fn default(&self) -> &Loaded {
        &self.shared.default
    }

    /// The model that a request's `asked` means, or the default if that is not served. Loads it if need be, and waits for that
    /// until `deadline`, but no longer than [`Config::wait`]. Dropping the future does not end the load.
    ///
    /// # Errors
    /// [`Unavailable`].
    pub async fn choose(
        &self,
        asked: Option<&str>,
        deadline: Option<Deadline>,
    ) -> Result<Loaded, Unavailable> {
        let place = self.shared.names.find(asked).unwrap_or(0);
        if place == 0 || self.is_absent {
            return Ok(self.shared.default.clone());
        }
        let until = Instant::now() + self.shared.config.wait;
        let mut changes = self.shared.changes.subscribe();
        loop {
            if let Some(loaded) = self.want(place)? {
                return Ok(loaded);
            }
            let is_crowded = self.shared.changes.receiver_count() > WAITING_MAX;
            let changed = by(deadline, timeout_at(until, changes.changed()));
            if is_crowded || !matches!(changed.await, Some(Ok(Ok(())))) {
                return Err(self.shared.models().table.still_loading(place, Instant::now()));
            }
        }
    }

    /// The model, if it is loaded; otherwise it is being loaded from here on.
    fn want(&self, place: usize) -> Result<Option<Loaded>, Unavailable> {
        let mut models = self.shared.models();
        match models.table.want(place, Instant::now()) {
            Next::Use => {
                let Some(Some(parts)) = models.parts.get(place).cloned() else {
                    return Ok(None);
                };
                let used = Used { shared: self.shared.clone(), place };
                Ok(Some(Loaded::new(parts, Some(used))))
            }
            Next::Wait => Ok(None),
            Next::Load => {
                drop(models);
                tokio::spawn(loading::load(self.shared.clone(), place));
                Ok(None)
            }
            Next::Refuse(unavailable) => Err(unavailable),
        }
    }

    /// Loads all models that are not loaded, one after the other. Failures are logged.
    pub async fn preload(&self) {
        let count = self.shared.models().parts.len();
        for place in 1..count {
            let next = self.shared.models().table.want(place, Instant::now());
            match next {
                Next::Load => loading::load(self.shared.clone(), place).await,
                Next::Use => self.shared.models().table.leave(place, Instant::now()),
                Next::Wait | Next::Refuse(_) => {}
            }
        }
    }

    /// Unloads models that nothing has used for [`Config::idle`]. Never ends.
    pub async fn unload_idle(&self) {
        loading::unload_idle(&self.shared).await;
    }

    /// The engines of all loaded models.
    pub fn engines(&self) -> Vec<Engine> {
        let models = self.shared.models();
        models.parts.iter().flatten().map(|parts| parts.transcriber.engine().clone()).collect()
    }

    /// The served models, the default first.
    pub fn statuses(&self) -> Vec<Status> {
        let models = self.shared.models();
        let rows = models.table.rows().iter().zip(&models.infos).zip(self.shared.names.served());
        rows.enumerate()
            .map(|(place, ((row, info), (name, uuid)))| {
                let (state, uses) = match row.state {
                    State::Unloaded => ("unloaded", 0),
                    State::Loading { .. } => ("loading", 0),
                    State::Loaded { uses, .. } => ("loaded", uses),
                    State::NoRoom { .. } => ("no_room", 0),
                    State::Failed { .. } => ("failed", 0),
                    State::TooLarge => ("too_large", 0),
                };
                let (name, info) = (name.to_owned(), info.clone());
                let told = || self.shared.loader.as_ref().and_then(|loader| loader.languages(place));
                let loaded = info.as_ref().map(|info| info.languages.clone());
                let languages = loaded.or_else(told).unwrap_or_default();
                Status { name, uuid, is_default: place == 0, state, uses, languages, info }
            })
            .collect()
    }
}
