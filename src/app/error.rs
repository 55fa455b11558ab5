//! The reasons for which a server does not start, or ends.

use std::net::SocketAddr;

use super::memory;
use crate::speech::VoiceError;
use crate::{
    api, cluster, demo, engine, fetch, http, hub, jobs, keys, models, onnx, speakers, sts, usage, vad, voices,
};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the model `{name}` cannot be had")]
    Model { name: String, source: hub::Error },
    #[error("the engine did not start")]
    Engine(#[from] engine::StartError<models::Error>),
    #[error(
        "voice activity detection did not start: run ./setup, or set transcribe.windows = \"sequential\""
    )]
    Vad(#[from] vad::Error),
    #[error("the speaker models can't be loaded: run ./setup speakers, or set speakers.models = \"off\"")]
    Speakers(#[from] speakers::Error),
    #[error("the setting `speakers.device` names a device that can't be used")]
    SpeakersDevice(#[source] models::Error),
    #[error(
        "the model is loaded and recognises nothing; if it only takes longer than engine.stall_seconds, raise that"
    )]
    Probe(#[source] engine::Error),
    #[error(transparent)]
    Memory(#[from] memory::Error),
    #[error("the keys cannot be read")]
    Keys(#[from] keys::Error),
    #[error("URL input did not start")]
    Fetch(#[from] fetch::SetupError),
    #[error("this node cannot join its cluster")]
    Cluster(#[from] cluster::Error),
    #[error("jobs did not start")]
    Jobs(#[from] jobs::Error),
    #[error("the enrolled voices cannot be read")]
    Voices(#[from] voices::Error),
    #[error("text cannot be spoken")]
    Voice(#[from] VoiceError),
    #[error("the model of turns can't be loaded: run ./setup smart-turn, or set live.end_of_turn = \"auto\"")]
    Turns(#[source] onnx::Error),
    #[error(transparent)]
    Usage(#[from] usage::Error),
    #[error("the voice agent did not start")]
    Sts(#[from] sts::StartError),
    #[error("the setting `sts.language` names none of the model's languages")]
    Language(#[from] api::language::UnknownLanguage),
    #[error(
        "`sts.auth` = \"loopback\" (`serve --dev`) lets callers of the voice agent in without a key, so `listen` \
         must be an address of loopback, such as 127.0.0.1:8000, and not {0}"
    )]
    Open(SocketAddr),
    #[error(
        "the setting `cluster.advertise` is missing: other nodes cannot tell from `listen` = {0} where this one is"
    )]
    Advertise(SocketAddr),
    #[error("cannot listen on {address}")]
    Listen { address: SocketAddr, source: std::io::Error },
    #[error("the demo did not start")]
    Demo(#[from] demo::Error),
    #[error("the server failed")]
    Http(#[from] http::Error),
    #[error("stopped before it served anything")]
    Stopped,
}

impl Error {
    /// Whether different settings would help, rather than another attempt.
    pub fn is_configuration(&self) -> bool {
        match self {
            Self::Fetch(_) | Self::Language(_) | Self::Open(_) | Self::Advertise(_) | Self::Voice(_) => true,
            Self::Cluster(error) => error.is_configuration(),
            Self::Model { source, .. } => matches!(source, hub::Error::Unknown(_) | hub::Error::Address(_)),
            Self::Http(error) => !matches!(error, http::Error::Listener(_)),
            Self::Demo(error) => !matches!(error, demo::Error::Client(_)),
            Self::Sts(error) => error.is_configuration(),
            _ => false,
        }
    }
}
