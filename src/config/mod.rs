//! The whole configuration: the sum of the modules' own `Config`s.
//!
//! `sources.rs` reads values from the defaults, a TOML file, environment variables and flags, `bounds.rs` has the allowed
//! values, `check.rs` compares, and `error.rs` says which setting has which value from which source, and what is allowed. Everything is
//! checked before anything runs.
//!
//! [admission and load]: crate::engine
//! [further models]: crate::models
//! [callbacks]: crate::jobs
//! [cluster]: crate::cluster
//! [voice agent]: crate::sts
//! [demo]: crate::demo
//! [the front door]: crate::http
//! [console]: crate::console
#![doc = include_str!("README.md")]

mod bounds;
mod check;
mod error;
mod sources;

pub use error::Error;
pub use sources::{Flag, Setting, Sources};

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::{
    api, audio, cluster, console, demo, engine, fetch, http, jobs, live, models, speakers, speech, sts,
    telemetry, transcribe, usage, voices,
};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Address and port that the server listens on. Default 127.0.0.1:8000.
    pub listen: SocketAddr,
    /// Folder of keys, jobs and other state. Default `$XDG_STATE_HOME/verbatim`, or `~/.local/state/verbatim`.
    pub state_dir: PathBuf,
    /// Folder of model folders, one per name. Default `$XDG_CACHE_HOME/verbatim/models`, or `~/.cache/verbatim/models`.
    pub model_dir: PathBuf,
    pub models: models::Config,
    pub engine: engine::Config,
    pub transcribe: transcribe::Config,
    pub speakers: speakers::Config,
    pub live: live::Config,
    pub voices: voices::Config,
    pub audio: audio::Limits,
    pub api: api::Config,
    pub http: http::Config,
    pub auth: http::auth::Config,
    pub shutdown: http::shutdown::Config,
    pub fetch: fetch::Config,
    pub jobs: jobs::Config,
    pub cluster: cluster::Config,
    pub speak: speech::Limits,
    pub usage: usage::Config,
    pub sts: sts::Config,
    pub demo: demo::Config,
    pub log: telemetry::Config,
    pub metrics: telemetry::metrics::Config,
    pub console: console::Config,
    pub traces: telemetry::traces::Config,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8000)),
            state_dir: xdg("XDG_STATE_HOME", ".local/state").join("verbatim"),
            model_dir: xdg("XDG_CACHE_HOME", ".cache").join("verbatim/models"),
            models: models::Config {
                kernel_dir: xdg("XDG_CACHE_HOME", ".cache").join("verbatim/kernels"),
                ..models::Config::default()
            },
            engine: engine::Config::default(),
            transcribe: transcribe::Config::default(),
            speakers: speakers::Config::default(),
            live: live::Config::default(),
            voices: voices::Config::default(),
            audio: audio::Limits::default(),
            api: api::Config::default(),
            http: http::Config::default(),
            auth: http::auth::Config::default(),
            shutdown: http::shutdown::Config::default(),
            fetch: fetch::Config::default(),
            jobs: jobs::Config::default(),
            cluster: cluster::Config::default(),
            speak: speech::Limits::default(),
            usage: usage::Config::default(),
            sts: sts::Config::default(),
            demo: demo::Config::default(),
            log: telemetry::Config::default(),
            metrics: telemetry::metrics::Config::default(),
            console: console::Config::default(),
            traces: telemetry::traces::Config::default(),
        }
    }
}

/// A base folder of the XDG Base Directory Specification: `variable`, or `fallback` in the home folder. The user database
/// gives the home folder if the environment doesn't.
fn xdg(variable: &str, fallback: &str) -> PathBuf {
    let absolute = |path: std::ffi::OsString| Some(PathBuf::from(path)).filter(|path| path.is_absolute());
    std::env::var_os(variable).and_then(absolute).unwrap_or_else(|| {
        let home = std::env::home_dir().filter(|home| !home.as_os_str().is_empty());
        home.unwrap_or_else(|| "/".into()).join(fallback)
    })
}

#[cfg(test)]
mod tests;
