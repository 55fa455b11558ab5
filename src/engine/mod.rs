//! The engine: windows of speech in, recognitions out, many requests in one batch.
//!
//! An [`Engine`] is a cheap handle on one thread that owns the model. Callers are admitted with the
//! length of their audio, then hand in [`Window`]s; dropping the future that waits for a
//! [`Recognition`] cancels its work.
//!
//! ```text
//! recognize ─▶ Queue (class, then fair between tenants) ─▶ encode ─▶ slot ─▶ step … ─▶ Recognition
//! ```

mod board;
mod load;
mod meters;
mod model;
mod queue;
mod watch;
mod window;
mod worker;

use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;
use serde::{Deserialize, Serialize};
use tokio::sync::{oneshot, watch as channel};

pub use board::{Condition, Counts};
pub use load::{Admission, Expected, Held, Place};
pub use model::{EncodeRequest, Hypothesis, ModelInfo, SlotId, SpeechModel, StepOutcome, Token};
pub use window::{
    Class, DecodingOptions, LanguageChoice, Recognition, Task, TenantId, Term, Timings, WINDOW_SAMPLES,
    Window,
};

use board::Board;
use load::Load;
use watch::Watch;
use worker::{Entry, Worker};

use crate::telemetry::metrics::REFUSED;

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
    /// Requests let in and not yet answered. Default 1024.
    pub max_requests: usize,
    /// A call into the model that takes longer hangs: what waits is answered with an error, and new work is
    /// refused until it is back. Raise it where one window takes that long. Seconds, default 15.
    pub stall_seconds: f64,
    /// After so long without a recognised window a short silence is sent through the model, to see that it
    /// works. Seconds, default 60.
    pub probe_seconds: f64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            max_wait_seconds: 30.0,
            max_held_seconds: 14_400.0,
            max_requests: 1024,
            stall_seconds: 15.0,
            probe_seconds: 60.0,
        }
    }
}

impl Config {
    /// Refuses nothing: for a caller who bounds what it brings, and would rather wait.
    pub fn unbounded() -> Self {
        Self {
            max_wait_seconds: f64::INFINITY,
            max_held_seconds: f64::INFINITY,
            max_requests: usize::MAX,
            ..Self::default()
        }
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
    #[error("the engine hangs or fails; what waits for it would wait in vain")]
    Unwell,
    #[error("the engine is shutting down")]
    ShuttingDown,
}

/// Handle on a running engine. When the last one is dropped, the engine finishes what it holds and
/// its thread ends.
#[derive(Clone)]
pub struct Engine {
    shared: Arc<Shared>,
}

/// What all handles share. The thread that watches has no part in it, lest the engine never end.
struct Shared {
    commands: Sender<Entry>,
    load: Arc<Load>,
    board: Arc<Board>,
    info: ModelInfo,
    /// Whether a call into the model hangs.
    hung: channel::Sender<bool>,
    _alive: Sender<()>,
}

/// Tells the engine's thread when whoever waits for a window leaves before the answer.
struct Waiting<'a> {
    board: &'a Board,
    answered: bool,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if !self.answered {
            self.board.somebody_left();
        }
    }
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
        let (load, board) = (Arc::new(Load::new(config)), Arc::new(Board::new()));
        let (its_load, its_board) = (load.clone(), board.clone());
        let run = move || match load_model() {
            Ok(model) => {
                // Nobody is waiting only when the starting thread is gone: then nobody will ask.
                if ready.send(Ok(model.info().clone())).is_ok() {
                    Worker::new(model, receiver, its_load, its_board).run();
                }
            }
            Err(error) => drop(ready.send(Err(error))),
        };
        std::thread::Builder::new().name("engine".into()).spawn(run).map_err(StartError::Thread)?;
        let info = loaded.recv().map_err(|_| StartError::Died)?.map_err(StartError::Model)?;
        let (_alive, alive) = crossbeam_channel::bounded(0);
        let hung = channel::Sender::new(false);
        let shared = Arc::new(Shared { commands, load, board, info, hung, _alive });
        let watch = Watch::new(config, Arc::downgrade(&shared));
        let watch = move || watch.run(&alive);
        std::thread::Builder::new().name("engine-watch".into()).spawn(watch).map_err(StartError::Thread)?;
        Ok(Self { shared })
    }

    pub fn model(&self) -> &ModelInfo {
        &self.shared.info
    }

    /// Lets a request in before its audio is read. `caller` is the same number whenever the same caller asks
    /// for the same thing: who comes back when told to is let in before newcomers.
    ///
    /// # Errors
    /// [`Error::Overloaded`], [`Error::Unwell`].
    pub fn enter(&self, caller: u64) -> Result<Place, Error> {
        self.unless_unwell()?;
        let entered = self.shared.load.enter(caller, Instant::now());
        entered.inspect_err(|_| REFUSED.with(&[("reason", "busy")]).increment(1))
    }

    /// Leave to hand in windows of `seconds` of audio in all.
    ///
    /// # Errors
    /// [`Error::Overloaded`], [`Error::Unwell`].
    pub fn admit(&self, seconds: f64) -> Result<Admission, Error> {
        self.unless_unwell()?;
        let admitted = self.shared.load.admit(seconds);
        admitted.inspect_err(|_| REFUSED.with(&[("reason", "busy")]).increment(1))
    }

    fn unless_unwell(&self) -> Result<(), Error> {
        if self.condition() == Condition::Working {
            return Ok(());
        }
        REFUSED.with(&[("reason", "unwell")]).increment(1);
        Err(Error::Unwell)
    }

    /// Whether windows are recognised.
    pub fn condition(&self) -> Condition {
        self.shared.board.condition()
    }

    /// Recognises half a second of silence: whether the model works. Takes its turn with live windows.
    ///
    /// # Errors
    /// Those of the model, [`Error::Unwell`] where it hangs.
    pub async fn probe(&self) -> Result<(), Error> {
        let answer = self.shared.probe().ok_or(Error::ShuttingDown)?;
        self.unless_hung(answer).await.map(drop)
    }

    /// Leave for a job's windows. They are not counted, as they make way for those that are: who sends
    /// them bounds how many there are at once.
    pub fn admit_job(&self) -> Admission {
        Admission::uncounted()
    }

    /// Audio seconds admitted and not done, without those of jobs.
    pub fn held_seconds(&self) -> f64 {
        self.shared.load.held_seconds()
    }

    pub fn held(&self) -> Held {
        self.shared.load.held()
    }

    /// Windows, tokens and steps since the start.
    pub fn counts(&self) -> Counts {
        self.shared.board.counts()
    }

    /// Sets the metrics of this moment: for whoever is about to read them.
    pub fn set_gauges(&self) {
        meters::set_gauges(&self.shared.board, &self.shared.load, self.shared.info.slots);
    }

    /// Recognises one window. Cancel-safe: dropping the future frees the window's place.
    ///
    /// # Errors
    /// Any [`Error`] but [`Error::Overloaded`].
    pub async fn recognize(&self, _admission: &Admission, window: Window) -> Result<Recognition, Error> {
        self.shared.info.check(&window.options)?;
        if window.pcm.len() > WINDOW_SAMPLES {
            return Err(Error::WindowTooLong);
        }
        let (reply, answer) = oneshot::channel();
        let entry = Entry { window, reply, queued_at: Instant::now(), is_probe: false };
        self.shared.commands.send(entry).map_err(|_| Error::ShuttingDown)?;
        self.unless_hung(answer).await
    }

    async fn unless_hung(
        &self,
        answer: oneshot::Receiver<Result<Recognition, Error>>,
    ) -> Result<Recognition, Error> {
        let mut waiting = Waiting { board: &self.shared.board, answered: false };
        // Dropped before `waiting`, so that the thread, once told, finds the channel closed.
        let mut answer = answer;
        let mut hung = self.shared.hung.subscribe();
        tokio::select! {
            biased;
            answer = &mut answer => {
                waiting.answered = true;
                answer.map_err(|_| Error::ModelFailed("the engine's thread ended".into()))?
            }
            _ = hung.wait_for(|&hung| hung) => Err(Error::Unwell),
        }
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
