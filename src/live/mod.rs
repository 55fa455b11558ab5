//! Live streams: audio in, words out while the audio is still coming.
//!
//! ```text
//! bytes ─ audio::PcmStream ─┬─ Channel: voice activity ─ spans ─ windows ─┐
//!                           ├─ Channel …                                  ├─ engine ─ agreement ─▶ Event
//!                           └─ Labelling: the speakers of final words, where asked for ──────────────┘
//! ```
//! Time is cut into spans that follow each other without a gap. A span is closed at a pause, when it
//! gets long, or when the client says so; it is then recognised over its whole audio, so that final results
//! are those that the same audio would give in a file. While it is open it is recognised again and again
//! as it grows, and words that two recognitions agree on no longer change.
//!
//! Decisions are a function of the audio alone (`channel`, `agreement`); a [`Session`] drives them and
//! knows no sockets. There is never more than one window of a channel in the engine.
//!
//! [formats]: crate::audio
//! [callbacks]: crate::jobs
//! [speakers]: crate::api
//! [names]: crate::voices
#![doc = include_str!("README.md")]

mod activity;
mod agreement;
mod capacity;
mod channel;
mod closing;
mod config;
mod context;
mod event;
mod intake;
mod labelling;
mod lag;
mod levels;
mod options;
mod progress;
mod recording;
mod second_listening;
mod session;
mod settings;
mod shared;
mod span;
#[cfg(test)]
mod tests;
mod turns;
mod utterance;
mod voice;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;

pub use config::Config;
pub use event::{Error, Event, Results};
pub use labelling::Shortfall;
pub use options::Options;
pub use session::{Progress, Session};
pub use shared::StreamPermit;
pub use turns::{Kind as TurnKind, Thresholds, Trigger, TurnEvent, TurnProgress, TurnSession};
pub use voice::{Heard, Voice};

use capacity::{Capacity, Present};
use lag::Lag;
use shared::Shared;

use crate::engine::{self, Engine, ModelInfo, TenantId};
use crate::share::{Asker, Busy, Refused, Stay, Stays, Tenants};
use crate::speakers::Diarizer;
use crate::turn::TurnModel;
use crate::vad::Vad;

/// The mean length of an open span in speech, about half that of a sentence.
const USUAL_SPAN_SECONDS: f64 = 3.0;

/// The refusal of a stream: the most are open, or the windows of another one would wait too long.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("there is no room for another stream")]
pub struct Full {
    pub retry_after: Duration,
    /// Another organisation would get one.
    pub is_over_share: bool,
}

/// Opens streams. Cheap to clone: clones share their state.
#[derive(Clone)]
pub struct Live {
    shared: Arc<Shared>,
}

impl Live {
    /// The streams are shared between `tenants`.
    pub fn new(engine: Engine, vad: Option<Vad>, config: Config, tenants: Tenants) -> Self {
        let shared = Shared {
            streams: Stays::new(config.max_streams as u64, tenants.clone()),
            tenants,
            readers: Arc::new(Semaphore::new(config.readers.min(Semaphore::MAX_PERMITS))),
            lag: Lag::default(),
            capacity: Arc::new(Capacity::default()),
            engine,
            vad,
            diarizer: None,
            turn_model: None,
            config,
        };
        Self { shared: Arc::new(shared) }
    }

    /// With speakers of words, for streams that ask for them.
    ///
    /// # Panics
    /// If a stream has been opened.
    pub fn with_diarizer(mut self, diarizer: Option<Diarizer>) -> Self {
        let shared = Arc::get_mut(&mut self.shared).expect("nothing shares it yet; this is a bug");
        shared.diarizer = diarizer;
        self
    }

    /// With a model that judges whether turns have ended; without it, silence does.
    ///
    /// # Panics
    /// If a stream has been opened.
    pub fn with_turn_model(mut self, model: Option<TurnModel>) -> Self {
        let shared = Arc::get_mut(&mut self.shared).expect("nothing shares it yet; this is a bug");
        shared.turn_model = model;
        self
    }

    /// The model that judges whether turns have ended.
    pub fn turn_model(&self) -> Option<&TurnModel> {
        self.shared.turn_model.as_ref()
    }

    /// The same for the engine of another model. Its streams count as those of this one.
    pub fn with_engine(&self, engine: Engine) -> Self {
        let Shared { vad, diarizer, turn_model, config, streams, tenants, readers, capacity, .. } =
            &*self.shared;
        let shared = Shared {
            engine,
            vad: vad.clone(),
            diarizer: diarizer.clone(),
            turn_model: turn_model.clone(),
            config: config.clone(),
            streams: streams.clone(),
            tenants: tenants.clone(),
            readers: readers.clone(),
            lag: Lag::default(),
            capacity: capacity.clone(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Whether streams may ask for speakers.
    pub fn can_diarize(&self) -> bool {
        self.shared.diarizer.is_some()
    }

    pub fn config(&self) -> &Config {
        &self.shared.config
    }

    pub fn model(&self) -> &ModelInfo {
        self.shared.engine.model()
    }

    /// The number of open streams.
    pub fn streams(&self) -> usize {
        usize::try_from(self.shared.streams.total()).unwrap_or(usize::MAX)
    }

    /// The number of streams that the engine can serve in time, as measured; 0 while it does not work.
    pub fn capacity(&self) -> usize {
        let Shared { config, lag, engine, capacity, .. } = &*self.shared;
        // A stream in which there is speech hands in its open span at each hop.
        let windows = 1000.0 / f64::from(config.hop_ms.max(1));
        capacity.streams(&Present {
            devices: engine.devices(),
            expected: windows * engine.window_cost(USUAL_SPAN_SECONDS),
            streams: self.streams(),
            streams_max: config.max_streams,
            lag: lag.worst(Instant::now()),
            lag_max: config.max_lag_seconds,
        })
    }

    /// A permit for one stream of `tenant`, now or never.
    ///
    /// # Errors
    /// [`Full`].
    pub fn admit(&self, tenant: TenantId) -> Result<StreamPermit, Full> {
        let stream = self.shared.streams.begin(tenant.0);
        let stream = stream.map_err(|refused| self.full(tenant, refused == Refused::OverShare))?;
        self.admit_to(tenant, stream)
    }

    /// A permit for one stream of `tenant`: clients that retry after `Retry-After` are admitted ahead of new ones.
    ///
    /// # Errors
    /// [`Full`].
    pub async fn admit_in_turn(&self, tenant: TenantId, asker: Asker) -> Result<StreamPermit, Full> {
        let stream = self.shared.streams.begin_in_turn(tenant.0, asker).await;
        let stream = stream.map_err(|Busy { refused, retry_after }| Full {
            retry_after,
            is_over_share: refused == Refused::OverShare,
        })?;
        self.admit_to(tenant, stream)
    }

    fn full(&self, tenant: TenantId, is_over_share: bool) -> Full {
        let refused = if is_over_share { Refused::OverShare } else { Refused::Full };
        Full { retry_after: self.shared.streams.next_end(tenant.0, refused), is_over_share }
    }

    fn admit_to(&self, tenant: TenantId, stream: Stay) -> Result<StreamPermit, Full> {
        let full = |is_over_share| self.full(tenant, is_over_share);
        let admit = || {
            self.shared.engine.admit(tenant, 0.0).map_err(|error| match error {
                engine::Error::Overloaded { retry_after } => Full { retry_after, is_over_share: false },
                engine::Error::OverShare { retry_after } => Full { retry_after, is_over_share: true },
                _ => full(false),
            })
        };
        match self.check_lag(tenant).map_err(full).and_then(|()| admit()) {
            Ok(admission) => Ok(StreamPermit::new(stream, admission)),
            Err(full) => {
                stream.withdraw();
                Err(full)
            }
        }
    }

    /// Checks that the windows of one more stream of `tenant`, which is counted already, would come in time.
    ///
    /// # Errors
    /// Whether those of another organisation would.
    fn check_lag(&self, tenant: TenantId) -> Result<(), bool> {
        let Shared { config, lag, engine, streams, tenants, .. } = &*self.shared;
        let now = Instant::now();
        let in_time = |seconds: f64| seconds <= config.max_lag_seconds;
        let newcomer = in_time(lag.of_newcomer(tenant, engine.model().slots, now));
        if streams.held_by(tenant.0) > 1 {
            let is_over_share = newcomer && !tenants.are_alone();
            return if in_time(lag.own(tenant, now)) { Ok(()) } else { Err(is_over_share) };
        }
        // The only stream is let in, however slow the engine is.
        if newcomer || streams.total() <= 1 { Ok(()) } else { Err(false) }
    }

    /// Begins a stream.
    pub fn open(&self, permit: StreamPermit, options: Options) -> Session {
        Session::new(self.shared.clone(), permit, options)
    }

    /// Begins a conversational stream, of one channel. Of `options`, those of results don't matter.
    pub fn open_turns(&self, permit: StreamPermit, options: Options, thresholds: Thresholds) -> TurnSession {
        let options = Options {
            multichannel: false,
            interim_results: true,
            endpointing: Some(Duration::ZERO),
            utterance_end: None,
            speech_started: false,
            voice: true,
            ..options
        };
        TurnSession::new(self.open(permit, options), thresholds, self.shared.turn_model.clone())
    }
}
