//! The engine: windows of speech in, recognitions out, many requests in one batch.
//!
//! An [`Engine`] is a cheap handle on one thread that owns the model. Callers are admitted with the
//! length of their audio, then hand in [`Window`]s; dropping the future that waits for a
//! [`Recognition`] cancels its work.
//!
//! ```text
//! recognize ─▶ Queue (class, then fair between tenants) ─▶ encode ─▶ slot ─▶ step … ─▶ Recognition
//! ```

mod load;
mod model;
mod queue;
mod window;
mod worker;

use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

pub use load::Admission;
pub use model::{EncodeRequest, Hypothesis, ModelInfo, SlotId, SpeechModel, StepOutcome, Token};
pub use window::{
    Class, DecodingOptions, LanguageChoice, Recognition, Task, TenantId, Timings, WINDOW_SAMPLES, Window,
};

use load::Load;
use worker::{Entry, Worker};

/// How much the engine takes on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// New audio is refused while what is held would take longer than this at the measured rate.
    /// Seconds, default 30.
    pub max_wait_seconds: f64,
    /// The most audio held at once, whatever the rate; 64 kB of memory a second. Seconds, default
    /// 14400.
    pub max_held_seconds: f64,
}

impl Default for Config {
    fn default() -> Self {
        Self { max_wait_seconds: 30.0, max_held_seconds: 14_400.0 }
    }
}

impl Config {
    /// Refuses nothing: for a caller who bounds what it brings, and would rather wait.
    pub fn unbounded() -> Self {
        Self { max_wait_seconds: f64::INFINITY, max_held_seconds: f64::INFINITY }
    }
}

/// Why a window was not recognised. `Clone`, since one failed batch answers many windows.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    #[error("the engine holds as much audio as it may; retry in {} s", retry_after.as_secs())]
    Overloaded { retry_after: Duration },
    #[error("the deadline passed before the work was begun")]
    DeadlineExceeded,
    #[error("language `{0}` is not one that the model knows")]
    UnknownLanguage(String),
    #[error("the model is English-only: it cannot {0}")]
    EnglishOnly(&'static str),
    #[error("a window has at most {} samples", WINDOW_SAMPLES)]
    WindowTooLong,
    #[error("the model failed: {0}")]
    ModelFailed(String),
    #[error("the engine is shutting down")]
    ShuttingDown,
}

/// Handle on a running engine. When the last one is dropped, the engine finishes what it holds and
/// its thread ends.
#[derive(Clone)]
pub struct Engine {
    commands: Sender<Entry>,
    load: Arc<Load>,
    info: Arc<ModelInfo>,
}

impl Engine {
    /// Starts the engine's thread, which builds the model by `load_model` and keeps it.
    ///
    /// # Errors
    /// What `load_model` fails with.
    pub fn start<E: Send + 'static>(
        config: &Config,
        load_model: impl FnOnce() -> Result<Box<dyn SpeechModel>, E> + Send + 'static,
    ) -> Result<Self, StartError<E>> {
        // Admission bounds what is held, so this channel needs no bound of its own.
        let (commands, receiver) = crossbeam_channel::unbounded();
        let (ready, loaded) = std::sync::mpsc::sync_channel(1);
        let run = move || match load_model() {
            Ok(model) => {
                // Nobody is waiting only when the starting thread is gone: then nobody will ask.
                if ready.send(Ok(model.info().clone())).is_ok() {
                    Worker::new(model, receiver).run();
                }
            }
            Err(error) => drop(ready.send(Err(error))),
        };
        std::thread::Builder::new().name("engine".into()).spawn(run).map_err(StartError::Thread)?;
        let info = loaded.recv().map_err(|_| StartError::Died)?.map_err(StartError::Model)?;
        Ok(Self { commands, load: Arc::new(Load::new(config)), info: Arc::new(info) })
    }

    pub fn model(&self) -> &ModelInfo {
        &self.info
    }

    /// Leave to hand in windows of `seconds` of audio in all.
    ///
    /// # Errors
    /// [`Error::Overloaded`].
    pub fn admit(&self, seconds: f64) -> Result<Admission, Error> {
        self.load.admit(seconds)
    }

    /// Leave for a job's windows. They are not counted, as they make way for those that are: who sends
    /// them bounds how many there are at once.
    pub fn admit_job(&self) -> Admission {
        Admission::uncounted()
    }

    /// Audio seconds admitted and not done, without those of jobs.
    pub fn held_seconds(&self) -> f64 {
        self.load.held_seconds()
    }

    /// Audio seconds done in a wall second, as last measured under load.
    pub fn rate(&self) -> Option<f64> {
        self.load.rate()
    }

    /// Recognises one window. Cancel-safe: dropping the future frees the window's place.
    ///
    /// # Errors
    /// Any [`Error`] but [`Error::Overloaded`].
    pub async fn recognize(&self, _admission: &Admission, window: Window) -> Result<Recognition, Error> {
        self.info.check(&window.options)?;
        if window.pcm.len() > WINDOW_SAMPLES {
            return Err(Error::WindowTooLong);
        }
        let (reply, answer) = oneshot::channel();
        let entry = Entry { window, reply, queued_at: Instant::now() };
        self.commands.send(entry).map_err(|_| Error::ShuttingDown)?;
        answer.await.map_err(|_| Error::ModelFailed("the engine's thread ended".into()))?
    }
}

#[derive(Debug, thiserror::Error)]
pub enum StartError<E> {
    #[error("the engine's thread could not be started")]
    Thread(#[source] std::io::Error),
    #[error("the engine's thread ended while it loaded the model")]
    Died,
    #[error("the model could not be loaded")]
    Model(#[source] E),
}
