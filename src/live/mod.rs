//! Speech as it is spoken: audio in, words out while it still comes.
//!
//! ```text
//! bytes ─ audio::PcmStream ─┬─ Channel: voice activity ─ spans ─ windows ─┐
//!                           └─ Channel …                                  ├─ engine ─ agreement ─▶ Event
//! ```
//! Time is cut into spans that follow each other without a gap. A span is closed at a pause, when it
//! gets long, or when the client says so; it is then recognised over its whole audio, so that what is
//! final is what the same audio would give in a file. While it is open it is recognised again and again
//! as it grows, and words that two recognitions agree on no longer change.
//!
//! Decisions are a function of the audio alone (`channel`, `agreement`); a [`Session`] drives them and
//! knows no sockets. There is never more than one window of a channel in the engine.

mod agreement;
mod channel;
mod context;
mod lag;
mod recording;
mod session;
mod span;
#[cfg(test)]
mod tests;
mod utterance;
mod voice;

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;

pub use session::{Progress, Session};

use lag::Lag;

use crate::audio::{self, StreamFormat};
use crate::engine::{self, AudioPermit, Engine, LanguageChoice, ModelInfo, TenantId, Term};
use crate::share::{Part, Refused, Share, Tenants};
use crate::transcript::Word;
use crate::vad::Vad;

/// How streams are served.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Streams at once; more are refused. One organisation may hold four fifths of them while others have keys.
    /// Default 1000; an idle one costs some kilobytes.
    pub max_streams: usize,
    /// A new stream is refused where its windows would take longer than this: while those of the organisation's other
    /// streams do, or, where it has none, while too many other organisations are late. Seconds, default 5.
    pub max_lag_seconds: f64,
    /// New audio before a span is recognised again; more while recognising takes longer. Milliseconds,
    /// default 500.
    pub hop_ms: u32,
    /// A pause that ends a span is at least so long, however short an `endpointing` is asked for: less
    /// is found within words. Milliseconds, default 300.
    pub min_pause_ms: u32,
    /// Audio that a client may send ahead of what is recognised; then it is read from no further.
    /// Seconds, default 60, at least 35; 32 kB of memory each.
    pub ahead_seconds: f64,
    /// Encoded streams read at once, each on a thread. Default 256.
    pub readers: usize,
    /// A client that sends nothing for so long is closed. Milliseconds, default 10 000.
    pub idle_timeout_ms: u64,
    /// A client that takes in nothing for so long is closed. Milliseconds, default 10 000.
    pub write_timeout_ms: u64,
    /// A larger message is refused. Default 1 MiB: half a minute of 16-bit samples.
    pub message_bytes_max: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            max_streams: 1000,
            max_lag_seconds: 5.0,
            hop_ms: 500,
            min_pause_ms: 300,
            ahead_seconds: 60.0,
            readers: 256,
            idle_timeout_ms: 10_000,
            write_timeout_ms: 10_000,
            message_bytes_max: 1 << 20,
        }
    }
}

/// What a client wants of a stream.
#[derive(Debug, Clone)]
pub struct Options {
    pub format: StreamFormat,
    /// Channels are heard apart; otherwise their mean is.
    pub multichannel: bool,
    pub language: LanguageChoice,
    pub interim_results: bool,
    /// The pause that ends a span; `None`: none does.
    pub endpointing: Option<Duration>,
    /// The gap after a word that ends an utterance; `None`: not told.
    pub utterance_end: Option<Duration>,
    /// Tell where speech begins.
    pub speech_started: bool,
    /// The text before.
    pub prompt: Option<String>,
    /// Names and terms to expect.
    pub bias: Arc<[Term]>,
    pub tenant: TenantId,
}

/// What there is to tell. Times are seconds of audio from the start of the stream.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    Results(Results),
    SpeechStarted { channel: usize, at: f64 },
    UtteranceEnd { channel: usize, last_word_end: f64 },
}

/// What was said in a span, or has been so far.
#[derive(Debug, Clone, PartialEq)]
pub struct Results {
    pub channel: usize,
    /// Where the span begins: where the one before ended.
    pub start: f64,
    pub duration: f64,
    pub words: Vec<Word>,
    /// The span is closed: what it says no longer changes.
    pub is_final: bool,
    /// It was closed at a pause.
    pub speech_final: bool,
    /// It was closed because the client asked.
    pub from_finalize: bool,
    /// As the model heard it; `None` before it heard any.
    pub language: Option<String>,
}

impl Results {
    /// The answer to a client that asks for the end of a span before there is any audio.
    fn nothing_finalized() -> Self {
        Self {
            channel: 0,
            start: 0.0,
            duration: 0.0,
            words: Vec::new(),
            is_final: true,
            speech_final: false,
            from_finalize: true,
            language: None,
        }
    }
}

/// Why a stream cannot go on.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    #[error("the audio cannot be read")]
    Audio(#[from] audio::Error),
    #[error("the audio is not recognised")]
    Engine(#[from] engine::Error),
}

/// As many streams are open as may be, or the windows of another one would wait too long.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("there is no room for another stream")]
pub struct Full {
    pub retry_after: Duration,
    /// There would be for another organisation.
    pub is_over_share: bool,
}

/// After how long a place may be free, where nothing tells.
const FULL_RETRY: Duration = Duration::from_secs(5);

/// Opens streams. Cheap to clone: all clones are one.
#[derive(Clone)]
pub struct Live {
    shared: Arc<Shared>,
}

struct Shared {
    engine: Engine,
    /// `None`: loudness tells voice from silence.
    vad: Option<Vad>,
    config: Config,
    streams: Share,
    tenants: Tenants,
    readers: Arc<Semaphore>,
    lag: Lag,
}

/// One stream's permit; dropping it makes room for the next.
pub struct StreamPermit {
    _stream: Part,
    admission: AudioPermit,
}

impl Live {
    /// `tenants`: between whom the streams are shared.
    pub fn new(engine: Engine, vad: Option<Vad>, config: Config, tenants: Tenants) -> Self {
        let shared = Shared {
            streams: Share::new(config.max_streams as u64, tenants.clone()),
            tenants,
            readers: Arc::new(Semaphore::new(config.readers.min(Semaphore::MAX_PERMITS))),
            lag: Lag::default(),
            engine,
            vad,
            config,
        };
        Self { shared: Arc::new(shared) }
    }

    pub fn config(&self) -> &Config {
        &self.shared.config
    }

    pub fn model(&self) -> &ModelInfo {
        self.shared.engine.model()
    }

    /// How many streams are open.
    pub fn streams(&self) -> usize {
        usize::try_from(self.shared.streams.total()).unwrap_or(usize::MAX)
    }

    /// A permit for one stream of `tenant`.
    ///
    /// # Errors
    /// [`Full`].
    pub fn admit(&self, tenant: TenantId) -> Result<StreamPermit, Full> {
        let full = |is_over_share| Full { retry_after: FULL_RETRY, is_over_share };
        let stream = self.shared.streams.take(tenant.0, 1);
        let stream = stream.map_err(|refused| full(refused == Refused::OverShare))?;
        self.check_lag(tenant).map_err(full)?;
        let admission = self.shared.engine.admit(tenant, 0.0).map_err(|error| match error {
            engine::Error::Overloaded { retry_after } => Full { retry_after, is_over_share: false },
            engine::Error::OverShare { retry_after } => Full { retry_after, is_over_share: true },
            _ => full(false),
        })?;
        Ok(StreamPermit { _stream: stream, admission })
    }

    /// Whether the windows of one more stream of `tenant`, which is counted already, would come in time.
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
}
