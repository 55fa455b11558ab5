//! The engine: windows of speech in, recognitions out, many requests in one batch.
//!
//! An [`Engine`] is a cheap handle on the threads that own the model, one for each device. Callers are
//! admitted with the length of their audio, then hand in [`Window`]s, each of which goes to the device that
//! has the fewest; dropping the future that waits for a [`Recognition`] cancels its work.
//!
//! ```text
//! recognize ─▶ lane ─▶ Queue (class, then Fairness between tenants) ─▶ encode ─▶ slot ─▶ step … ─▶ Recognition
//! ```
#![doc = include_str!("README.md")]

mod board;
mod fairness;
mod lane;
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

pub use board::{Condition, Counts};
pub use load::{Admission, Audio, Expected, Held, Place};
pub use model::{EncodeRequest, Hypothesis, ModelInfo, SlotId, SpeechModel, StepOutcome, Token};
pub use window::{
    Class, DecodingOptions, LanguageChoice, Recognition, TERMS_MAX, Task, TenantId, Term, Timings,
    WINDOW_SAMPLES, Window,
};

use lane::{Lane, Starting};
use load::Load;
use watch::Watch;

use crate::share::Tenants;
use crate::telemetry::metrics::REFUSED;

/// How much the engine takes on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// New audio is refused while what is held would take longer than this at the measured rate.
    /// Seconds, default 30.
    pub max_wait_seconds: f64,
    /// The most audio held at once, whatever the rate; 32 kB of memory a second, and 64 kB more while its window is
    /// in the engine. Seconds, default 14400.
    pub max_held_seconds: f64,
    /// Requests let in and not yet answered. Default 1024.
    pub max_requests: usize,
    /// A call into the model that takes longer hangs: what waits is answered with an error, and new work is
    /// refused until it is back. Raise it where one window takes that long. Seconds, default 15.
    pub stall_seconds: f64,
    /// When such a call has hung for so long, `/livez` fails, so that what watches the process restarts it: nothing
    /// else ends the call. Seconds, default 180.
    pub give_up_seconds: f64,
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
            give_up_seconds: 180.0,
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
    #[error("the organisation holds its share of the engine; retry in {} s", retry_after.as_secs())]
    OverShare { retry_after: Duration },
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
/// its threads end.
#[derive(Clone)]
pub struct Engine {
    shared: Arc<Shared>,
}

/// What all handles share. The threads that watch have no part in it, lest the engine never end.
struct Shared {
    /// At least one, and all of the same model.
    lanes: Vec<Lane>,
    load: Arc<Load>,
    /// How long a call into the model may hang before only a restart helps.
    give_up: Duration,
    /// Its slots are those of all lanes.
    info: ModelInfo,
    _alive: Sender<()>,
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
        Self::start_each(config, vec![load_model])
    }

    /// Starts a thread for each of `load_models`, which build the same model on a device each, all at once.
    ///
    /// # Errors
    /// What one of them fails with; [`StartError::Died`] where there are none.
    pub fn start_each<E: Send + 'static>(
        config: &Config,
        load_models: Vec<impl FnOnce() -> Result<Box<dyn SpeechModel>, E> + Send + 'static>,
    ) -> Result<Self, StartError<E>> {
        let load = Arc::new(Load::new(config));
        let starting = load_models.into_iter().map(|load_model| Starting::new(load.clone(), load_model));
        let starting = starting.collect::<Result<Vec<_>, _>>()?;
        let started = starting.into_iter().map(Starting::wait).collect::<Result<Vec<_>, _>>()?;
        let slots = started.iter().map(|(_, info)| info.slots).sum();
        let info = ModelInfo { slots, ..started.first().ok_or(StartError::Died)?.1.clone() };
        load.started(started.len(), slots);
        let lanes: Vec<Lane> = started.into_iter().map(|(lane, _)| lane).collect();
        let (_alive, alive) = crossbeam_channel::bounded(0);
        let give_up = Duration::try_from_secs_f64(config.give_up_seconds).unwrap_or(Duration::MAX);
        let shared = Arc::new(Shared { lanes, load, give_up, info, _alive });
        for lane in 0..shared.lanes.len() {
            let (watch, alive) = (Watch::new(config, Arc::downgrade(&shared), lane), alive.clone());
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

    /// Shares the engine between the organisations that `tenants` counts; without this it serves one.
    pub fn share_between(&self, tenants: Tenants) {
        self.shared.load.share_between(tenants);
    }

    /// Lets a request in before its audio is read. `caller` is the same number whenever the same caller asks
    /// for the same thing: clients that retry after `Retry-After` are let in ahead of new ones.
    ///
    /// # Errors
    /// [`Error::Overloaded`], [`Error::OverShare`], [`Error::Unwell`].
    pub fn enter(&self, tenant: TenantId, caller: u64) -> Result<Place, Error> {
        self.unless_unwell()?;
        self.shared.load.enter(tenant, caller, Instant::now()).inspect_err(count_refusal)
    }

    /// Leave to hand in windows of so much audio in all.
    ///
    /// # Errors
    /// [`Error::Overloaded`], [`Error::OverShare`], [`Error::Unwell`].
    pub fn admit(&self, tenant: TenantId, audio: impl Into<Audio>) -> Result<Admission, Error> {
        self.unless_unwell()?;
        self.shared.load.admit(tenant, audio.into()).inspect_err(count_refusal)
    }

    fn unless_unwell(&self) -> Result<(), Error> {
        if self.condition() == Condition::Working {
            return Ok(());
        }
        REFUSED.with(&[("reason", "unwell")]).increment(1);
        Err(Error::Unwell)
    }

    /// Whether windows are recognised: on some device at least.
    pub fn condition(&self) -> Condition {
        let mut conditions = self.shared.lanes.iter().map(|lane| lane.board.condition());
        let first = conditions.next().unwrap_or(Condition::Ended);
        if conditions.any(|condition| condition == Condition::Working) { Condition::Working } else { first }
    }

    /// Whether only a restart of the process helps: its thread is gone, or no device works and a call into the model
    /// has hung for [`Config::give_up_seconds`].
    pub fn is_lost(&self) -> bool {
        let hung = self.shared.lanes.iter().map(|lane| lane.board.hung_for()).max().unwrap_or_default();
        match self.condition() {
            Condition::Working => false,
            Condition::Ended => true,
            Condition::Failing | Condition::Hung => hung > self.shared.give_up,
        }
    }

    /// Recognises half a second of silence on every device: whether the model works. Takes its turn with live
    /// windows.
    ///
    /// # Errors
    /// Those of the model, [`Error::Unwell`] where it hangs.
    pub async fn probe(&self) -> Result<(), Error> {
        let probes = self.shared.lanes.iter().map(Lane::probe);
        futures_util::future::try_join_all(probes).await.map(drop)
    }

    /// Leave for a job's windows. They are not counted, as they make way for those that are: their
    /// sender bounds how many there are at once.
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
        let counts = self.shared.lanes.iter().map(|lane| lane.board.counts());
        counts.fold(Counts::default(), |sum, lane| Counts {
            windows: sum.windows + lane.windows,
            tokens: sum.tokens + lane.tokens,
            steps: sum.steps + lane.steps,
        })
    }

    /// Sets the metrics of this moment: for whoever is about to read them.
    pub fn set_gauges(&self) {
        let boards = self.shared.lanes.iter().map(|lane| lane.board.as_ref()).collect::<Vec<_>>();
        meters::set_gauges(&boards, &self.shared.load, self.shared.info.slots);
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
        let lane = self.shared.lanes.iter().min_by_key(|lane| lane.burden()).ok_or(Error::ShuttingDown)?;
        lane.recognize(window).await
    }
}

fn count_refusal(error: &Error) {
    let reason = if matches!(error, Error::OverShare { .. }) { "share" } else { "busy" };
    REFUSED.with(&[("reason", reason)]).increment(1);
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
