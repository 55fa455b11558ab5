//! The state behind all streams, and the permit of one.

use std::sync::Arc;

use tokio::sync::Semaphore;

use super::capacity::Capacity;
use super::config::Config;
use super::lag::Lag;
use crate::engine::{AudioPermit, Engine};
use crate::share::{Stay, Stays, Tenants};
use crate::speakers::Diarizer;
use crate::turn::TurnModel;
use crate::vad::Vad;

/// The parts that all streams share.
pub(super) struct Shared {
    pub engine: Engine,
    /// `None`: voice is detected by loudness.
    pub vad: Option<Vad>,
    /// `None`: words have no speakers.
    pub diarizer: Option<Diarizer>,
    /// `None`: silence alone ends turns.
    pub turn_model: Option<TurnModel>,
    pub config: Config,
    pub streams: Stays,
    pub tenants: Tenants,
    pub readers: Arc<Semaphore>,
    pub lag: Lag,
    pub capacity: Arc<Capacity>,
}

/// One stream's permit; dropping it makes room for the next.
pub struct StreamPermit {
    _stream: Stay,
    pub(super) admission: AudioPermit,
}

impl StreamPermit {
    pub(super) fn new(stream: Stay, admission: AudioPermit) -> Self {
        Self { _stream: stream, admission }
    }
}
