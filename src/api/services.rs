//! The services that the endpoints work with, and their configuration.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::error;
use super::forward::{self, Forward};
use super::openai::names;
use super::readiness::{Activity, Readiness, State};
use crate::asyncapi::Socket;
use crate::audio;
use crate::fetch::Fetcher;
use crate::http::{Authenticator, Failure};
use crate::jobs::Jobs;
use crate::registry::Registry;
use crate::share::{Tenants, Turns};
use crate::speakers::Diarizer;
use crate::speech::Speech;
use crate::usage::Log;
use crate::voices::Voices;

/// How requests are processed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Time limit for a request, after which it gets 504. Time in which the process stood still does not
    /// count. Default 600 000.
    pub processing_timeout_ms: u64,
    /// Files decoded at once, each on a thread. Default: twice the number of processors, so that the next one
    /// is ready when one is done.
    pub decoders: usize,
    /// URLs fetched at once; others wait their turn. Each may take up `fetch.max_bytes` of memory. Default 8.
    pub downloads: usize,
    /// Names of models in requests of OpenAI's clients.
    pub openai: names::Config,
    /// Other servers, for requests without room here.
    pub forward: forward::Config,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            processing_timeout_ms: 600_000,
            decoders: 2 * std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            downloads: 8,
            openai: names::Config::default(),
            forward: forward::Config::default(),
        }
    }
}

/// Everything that the endpoints work with.
pub struct Services {
    pub(super) models: Registry,
    pub(super) diarizer: Option<Diarizer>,
    pub(super) voices: Voices,
    pub(super) speech: Speech,
    pub(super) authenticator: Authenticator,
    pub(super) fetcher: Fetcher,
    pub(super) jobs: Option<Jobs>,
    pub(super) readiness: Readiness,
    pub(super) audio: audio::Limits,
    pub(super) processing_timeout: Duration,
    pub(super) decoders: Turns,
    pub(super) downloads: Turns,
    pub(super) activity: Activity,
    pub(super) usage: Log,
    pub(super) model_names: names::Config,
    pub(super) forward: Option<Forward>,
    /// When the model was loaded.
    pub(super) started: SystemTime,
    /// For `/openapi.json`.
    pub(super) other_paths: serde_json::Map<String, serde_json::Value>,
    /// For `/asyncapi.json`.
    pub(super) other_sockets: Vec<Socket>,
}

/// The parts of [`Services`].
pub struct Parts {
    pub models: Registry,
    /// `None` without the models: requests for speakers are refused.
    pub diarizer: Option<Diarizer>,
    /// The enrolled voices of all organisations.
    pub voices: Voices,
    /// Speaks texts, if there is a voice.
    pub speech: Speech,
    pub authenticator: Authenticator,
    pub fetcher: Fetcher,
    /// `None` if callbacks are not served.
    pub jobs: Option<Jobs>,
    pub readiness: Readiness,
    /// The organisations that share the server.
    pub tenants: Tenants,
    /// Of requests, whoever serves them.
    pub usage: Log,
    /// How much audio one request may hold.
    pub audio: audio::Limits,
    /// The paths of other services on the same port, in OpenAPI's form.
    pub other_paths: serde_json::Map<String, serde_json::Value>,
    /// The WebSockets of other services on the same port.
    pub other_sockets: Vec<Socket>,
}

impl Services {
    pub fn new(parts: Parts, config: &Config) -> Self {
        Self {
            models: parts.models,
            diarizer: parts.diarizer,
            voices: parts.voices,
            speech: parts.speech,
            authenticator: parts.authenticator,
            fetcher: parts.fetcher,
            jobs: parts.jobs,
            readiness: parts.readiness,
            audio: parts.audio,
            processing_timeout: Duration::from_millis(config.processing_timeout_ms),
            decoders: Turns::new(config.decoders, parts.tenants.clone()),
            downloads: Turns::new(config.downloads, parts.tenants),
            activity: Activity::default(),
            usage: parts.usage,
            model_names: config.openai.clone(),
            forward: Forward::new(&config.forward),
            started: SystemTime::now(),
            other_paths: parts.other_paths,
            other_sockets: parts.other_sockets,
        }
    }

    /// # Errors
    /// 503 if this node has no model.
    pub(super) fn refuse_without_model(&self) -> Result<(), Failure> {
        if self.models.is_absent() { Err(error::no_model()) } else { Ok(()) }
    }

    /// # Errors
    /// 503 once the server stops: a stream that began now would be cut soon.
    pub(super) fn refuse_while_draining(&self) -> Result<(), Failure> {
        if self.readiness.state() == State::Draining { Err(error::stopping()) } else { Ok(()) }
    }
}
