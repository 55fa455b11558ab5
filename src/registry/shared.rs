//! The state that clones of the registry share, and the models in use.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::BoxFuture;
use tokio::sync::watch;
use tokio::time::Instant;

use super::config::Config;
use super::error::LoadError;
use super::names::Names;
use super::table::Table;
use crate::engine::{Engine, ModelInfo};
use crate::live::Live;
use crate::transcribe::Transcriber;

/// Loads models.
pub trait Loader: Send + Sync + 'static {
    /// Loads the model with this number and checks that it works. `beside`: the numbers of those that are loaded.
    fn load(&self, place: usize, beside: Vec<usize>) -> BoxFuture<'_, Result<Engine, LoadError>>;

    /// The languages of the model with this number, as far as they are known without loading it. Does not block.
    fn languages(&self, place: usize) -> Option<Vec<String>>;
}

/// Everything that clones of the registry share.
pub struct Shared {
    pub names: Names,
    pub config: Config,
    pub loader: Option<Arc<dyn Loader>>,
    pub default: Loaded,
    pub state: Mutex<Models>,
    /// Changes with each load and each failure to load.
    pub changes: watch::Sender<()>,
    /// Held while a model is loaded or unloaded.
    pub loading: tokio::sync::Mutex<()>,
}

impl Shared {
    pub fn models(&self) -> MutexGuard<'_, Models> {
        // A panic elsewhere leaves whole rows.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The models, each in its place.
pub struct Models {
    pub table: Table,
    /// Those that are loaded, the default included.
    pub parts: Vec<Option<Parts>>,
    /// Those that have been loaded once.
    pub infos: Vec<Option<ModelInfo>>,
}

/// A loaded model, for whole audio and for streams.
#[derive(Clone)]
pub struct Parts {
    pub transcriber: Transcriber,
    pub live: Live,
}

/// A model in use, for whole audio and for streams. It stays loaded as long as this.
#[derive(Clone)]
pub struct Loaded {
    // Private: a closure that used one field would capture only that field and release the model early.
    parts: Parts,
    /// `None` for the default, which always stays.
    _used: Option<Arc<Used>>,
}

impl Loaded {
    pub(super) fn new(parts: Parts, used: Option<Used>) -> Self {
        Self { parts, _used: used.map(Arc::new) }
    }

    pub fn transcriber(&self) -> &Transcriber {
        &self.parts.transcriber
    }

    pub fn live(&self) -> &Live {
        &self.parts.live
    }

    pub fn model(&self) -> &ModelInfo {
        self.parts.transcriber.model()
    }
}

/// The use of a model, which ends when it is dropped.
pub struct Used {
    pub shared: Arc<Shared>,
    pub place: usize,
}

impl Drop for Used {
    fn drop(&mut self) {
        self.shared.models().table.leave(self.place, Instant::now());
    }
}
