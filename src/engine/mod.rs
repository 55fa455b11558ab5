//! The engine: recognises windows of speech from many requests in one batch per device.
//!
//! An [`Engine`] is a cheap handle on worker threads, each of which owns the model on one device. A caller gets a
//! permit for the length of its audio, then hands in [`Window`]s, each of which goes to the worker that has the
//! fewest; dropping the future that waits for a [`Recognition`] cancels its work.
//!
//! ```text
//! recognize ─▶ WorkerHandle ─▶ Queue (class, then Fairness between tenants) ─▶ encode ─▶ slot ─▶ step …
//!     Recognition ◀─ Answers ◀─ Aligners (word times, on threads of their own) ◀─┘
//! ```
#![doc = include_str!("README.md")]

mod aligners;
mod answers;
mod board;
mod config;
mod device;
mod doubtful;
mod entry;
mod error;
mod fairness;
mod fallback;
mod handle;
mod load;
mod machine;
mod meters;
mod model;
mod progress;
mod queue;
mod second_listening;
mod watch;
mod window;
mod worker;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crossbeam_channel::{Receiver, Sender};

pub use board::{Condition, Counts};
pub use config::Config;
pub use doubtful::{Doubtful, doubtful_phrases, doubtful_runs};
pub use error::{Error, StartError};
pub use fallback::Quality;
pub use load::{Audio, AudioPermit, LoadSnapshot, MemoryReservation, RequestPermit, Reservation};
pub use machine::Machine;
pub use model::{
    Alignment, Attempt, EncodeRequest, Hypothesis, MODELS_MAX, ModelId, ModelInfo, SlotId, SpeechModel,
    StepOutcome, Token, TokenCount,
};
pub use progress::Progress;
pub use second_listening::{CONTEXT_SAMPLES, LISTENINGS_MAX};
pub use window::{
    Class, DecodingOptions, LanguageChoice, Recognition, TERMS_MAX, Task, TenantId, Term, Timings,
    WINDOW_SAMPLES, Window,
};

use handle::{StartingWorker, WorkerHandle};
use load::Load;
use watch::Watch;

use crate::share::{Asker, Tenants};
use crate::telemetry::metrics::REFUSED;
use crate::telemetry::traces;

/// Handle on a running engine. When the last one is dropped, the engine finishes what it holds and
/// its threads end.
#[derive(Clone)]
pub struct Engine {
    shared: Arc<Shared>,
}

/// The state behind all handles.
struct Shared {
    /// At least one, all with the same model. Watchdogs hold them weakly, so that the engine can end.
    workers: Vec<Arc<WorkerHandle>>,
    load: Arc<Load>,
    /// How long a model call may hang, or a model fail, before only a restart helps.
    give_up: Duration,
    /// The slots of all workers together.
    info: ModelInfo,
    /// Closed once the workers' threads have ended.
    lives: Receiver<()>,
    _alive: Sender<()>,
}

/// Tells when an engine has ended; holds no engine itself.
pub struct Ended(Receiver<()>);

impl Ended {
    /// Blocks until the engine's threads have ended, and its models are gone.
    pub fn wait(self) {
        // Nothing is ever sent.
        let _ = self.0.recv();
    }
}

impl Engine {
    /// Starts one worker, whose thread builds the model by calling `load_model`.
    ///
    /// # Errors
    /// [`StartError::Model`] with the error of `load_model`.
    pub fn start<E: Send + 'static>(
        config: &Config,
        load_model: impl FnOnce() -> Result<Box<dyn SpeechModel>, E> + Send + 'static,
    ) -> Result<Self, StartError<E>> {
        Self::start_each(config, vec![load_model])
    }

    /// Starts a worker for each of `load_models`, which build the same model on a device each, all at once.
    ///
    /// # Errors
    /// [`StartError::Model`] with the error of one of them; [`StartError::Died`] if there are none.
    pub fn start_each<E: Send + 'static>(
        config: &Config,
        load_models: Vec<impl FnOnce() -> Result<Box<dyn SpeechModel>, E> + Send + 'static>,
    ) -> Result<Self, StartError<E>> {
        Self::start_on(&Machine::new(config), ModelId::FIRST, load_models)
    }

    /// As [`Self::start_each`], for one of several models on the devices of `machine`. No two engines that run have the same
    /// number.
    ///
    /// # Errors
    /// As [`Self::start_each`].
    pub fn start_on<E: Send + 'static>(
        machine: &Machine,
        model: ModelId,
        load_models: Vec<impl FnOnce() -> Result<Box<dyn SpeechModel>, E> + Send + 'static>,
    ) -> Result<Self, StartError<E>> {
        let (config, load) = (machine.config(), machine.load(model));
        let (life, lives) = crossbeam_channel::bounded(0);
        let devices = machine.devices(load_models.len());
        let starting = load_models.into_iter().zip(devices).map(|(load_model, device)| {
            StartingWorker::new(load.clone(), (device, model), life.clone(), load_model)
        });
        let starting = starting.collect::<Result<Vec<_>, _>>()?;
        drop(life);
        let started = starting.into_iter().map(StartingWorker::wait).collect::<Result<Vec<_>, _>>()?;
        let slots = started.iter().map(|(_, info)| info.slots).sum();
        let info = ModelInfo { slots, ..started.first().ok_or(StartError::Died)?.1.clone() };
        load.started(started.len(), slots);
        let workers: Vec<_> = started.into_iter().map(|(worker, _)| Arc::new(worker)).collect();
        let (_alive, alive) = crossbeam_channel::bounded(0);
        let give_up = Duration::try_from_secs_f64(config.give_up_seconds).unwrap_or(Duration::MAX);
        let shared = Arc::new(Shared { workers, load, give_up, info, lives, _alive });
        for worker in &shared.workers {
            let (watch, alive) = (Watch::new(config, Arc::downgrade(worker)), alive.clone());
            let watch = move || watch.run(&alive);
            std::thread::Builder::new()
                .name("engine-watch".into())
                .spawn(watch)
                .map_err(StartError::Thread)?;
        }
        Ok(Self { shared })
    }

    pub fn model(&self) -> &ModelInfo {
        &self.shared.info
    }

    /// Tells when the engine has ended, after its last handle is dropped.
    pub fn ended(&self) -> Ended {
        Ended(self.shared.lives.clone())
    }

    /// Shares the engine between the organisations that `tenants` counts; by default it serves one.
    pub fn share_between(&self, tenants: Tenants) {
        self.shared.load.share_between(tenants);
    }

    /// Admits a request before its audio is read. Clients that retry after `Retry-After` are admitted ahead of new ones,
    /// and wait a little for a place that is late.
    ///
    /// # Errors
    /// [`Error::Overloaded`], [`Error::OverShare`], [`Error::Unwell`].
    pub async fn enter(&self, tenant: TenantId, asker: Asker) -> Result<RequestPermit, Error> {
        self.unless_unwell()?;
        self.shared.load.enter_in_turn(tenant, asker).await.inspect_err(count_refusal)
    }

    /// Admits `audio`, to be handed in as windows.
    ///
    /// # Errors
    /// [`Error::Overloaded`], [`Error::OverShare`], [`Error::Unwell`].
    pub fn admit(&self, tenant: TenantId, audio: impl Into<Audio>) -> Result<AudioPermit, Error> {
        self.unless_unwell()?;
        self.shared.load.admit(tenant, audio.into()).inspect_err(count_refusal)
    }

    /// Admits the audio of the request that holds `permit`.
    ///
    /// # Errors
    /// As [`Self::admit`].
    pub fn admit_request(
        &self,
        permit: &RequestPermit,
        audio: impl Into<Audio>,
    ) -> Result<AudioPermit, Error> {
        self.unless_unwell()?;
        self.shared.load.admit_request(permit, audio.into()).inspect_err(count_refusal)
    }

    fn unless_unwell(&self) -> Result<(), Error> {
        if self.condition() == Condition::Working {
            return Ok(());
        }
        REFUSED.with(&[("reason", "unwell")]).increment(1);
        Err(Error::Unwell)
    }

    /// The state of the engine: working if any worker is.
    pub fn condition(&self) -> Condition {
        let mut conditions = self.shared.workers.iter().map(|worker| worker.board.condition());
        let first = conditions.next().unwrap_or(Condition::Ended);
        if conditions.any(|condition| condition == Condition::Working) { Condition::Working } else { first }
    }

    /// Whether only a restart of the process helps: the workers have ended, or none works and one has hung or failed
    /// for [`Config::give_up_seconds`]: a failed CUDA device, for one, fails every later call of the process.
    pub fn is_lost(&self) -> bool {
        let unwell = self.shared.workers.iter().map(|worker| worker.board.unwell_for()).max();
        match self.condition() {
            Condition::Working => false,
            Condition::Ended => true,
            Condition::Failing | Condition::Hung => unwell.unwrap_or_default() > self.shared.give_up,
        }
    }

    /// Checks the model on every device with half a second of silence, which takes its turn with live windows.
    ///
    /// # Errors
    /// The model's error, or [`Error::Unwell`] if it hangs.
    pub async fn probe(&self) -> Result<(), Error> {
        let probes = self.shared.workers.iter().map(|worker| worker.probe());
        futures_util::future::try_join_all(probes).await.map(drop)
    }

    /// A permit for a job, as soon as there is memory for its audio. Its work is not counted, as it gives way to all
    /// other work.
    pub async fn admit_job(&self, tenant: TenantId, audio: impl Into<Audio>) -> AudioPermit {
        self.shared.load.admit_job(tenant, audio.into().seconds).await
    }

    /// Admitted audio that is not done, in seconds, without that of jobs.
    pub fn held_seconds(&self) -> f64 {
        self.shared.load.held_seconds()
    }

    /// The current load, for monitoring.
    pub fn load(&self) -> LoadSnapshot {
        self.shared.load.snapshot()
    }

    /// Devices on which it works at present.
    pub fn devices(&self) -> usize {
        let works = |worker: &&Arc<WorkerHandle>| worker.board.condition() == Condition::Working;
        self.shared.workers.iter().filter(works).count()
    }

    /// Seconds of a device that a window of so many seconds takes, as measured; an assumption before that.
    pub fn window_cost(&self, seconds: f64) -> f64 {
        self.shared.load.window_cost(seconds)
    }

    /// Requests with audio of the usual length that it would hold at its present speed.
    pub fn requests_max(&self) -> usize {
        self.shared.load.requests_max()
    }

    /// Windows, tokens, steps and rounds since the start.
    pub fn counts(&self) -> Counts {
        let counts = self.shared.workers.iter().map(|worker| worker.board.counts());
        counts.fold(Counts::default(), |sum, one| Counts {
            windows: sum.windows + one.windows,
            tokens: sum.tokens + one.tokens,
            steps: sum.steps + one.steps,
            loops: sum.loops + one.loops,
            host_nanoseconds: sum.host_nanoseconds + one.host_nanoseconds,
        })
    }

    /// Sets the gauges of these engines of one machine to the current values; call before the metrics are read.
    pub fn set_gauges(engines: &[Self]) {
        let of_each = engines.iter().map(|engine| meters::OfEngine {
            model: &engine.shared.info,
            boards: engine.shared.workers.iter().map(|worker| worker.board.as_ref()).collect(),
            works: engine.condition() == Condition::Working,
        });
        if let Some(first) = engines.first() {
            meters::set_gauges(&of_each.collect::<Vec<_>>(), &first.shared.load);
        }
    }

    /// Recognises one window. Cancel-safe: dropping the future frees the window's slot.
    ///
    /// # Errors
    /// Any [`Error`] but [`Error::Overloaded`].
    pub async fn recognize(&self, _permit: &AudioPermit, window: Window) -> Result<Recognition, Error> {
        self.shared.info.check(&window.options)?;
        if window.pcm.len() > WINDOW_SAMPLES {
            return Err(Error::WindowTooLong);
        }
        let worker =
            self.shared.workers.iter().min_by_key(|worker| worker.burden()).ok_or(Error::ShuttingDown)?;
        let (is_live, begun) = (window.class == Class::Live, SystemTime::now());
        let recognition = worker.recognize(window).await?;
        // A stream has too many windows.
        if !is_live {
            let Timings { queued, encoded, decoded, .. } = recognition.timings;
            traces::stages(begun, &[("queue", queued), ("encode", encoded), ("decode", decoded)]);
        }
        Ok(recognition)
    }
}

fn count_refusal(error: &Error) {
    let reason = if matches!(error, Error::OverShare { .. }) { "share" } else { "busy" };
    REFUSED.with(&[("reason", reason)]).increment(1);
}
