//! The whole configuration: the sum of the modules' own.
//!
//! Values come from the defaults, a TOML file, environment variables and flags, later ones winning.
//! `[models] slots = 8` in the file is `VERBATIM_MODELS__SLOTS=8` in the environment, where a list is
//! separated by commas. Unknown names are errors everywhere, and so are values outside the bounds of
//! `bounds.rs`: both are found before anything is done, and say which setting, which value, where it comes
//! from and what may stand there.
//!
//! [callbacks]: crate::jobs
//! [voice agent]: crate::sts
//! [demo]: crate::demo
//! [the front door]: crate::http
#![doc = include_str!("README.md")]

mod bounds;
mod error;
mod sources;

pub use error::Error;
pub use sources::{Flag, Setting, Sources};

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::{api, audio, demo, engine, fetch, http, jobs, live, models, sts, telemetry, transcribe};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Where the server listens. Default 127.0.0.1:8000.
    pub listen: SocketAddr,
    /// Keys, jobs and other state. Default `$XDG_STATE_HOME/verbatim`, or `~/.local/state/verbatim`.
    pub state_dir: PathBuf,
    /// Model folders, one for each name. Default `$XDG_CACHE_HOME/verbatim/models`, or
    /// `~/.cache/verbatim/models`.
    pub model_dir: PathBuf,
    pub models: models::Config,
    pub engine: engine::Config,
    pub transcribe: transcribe::Config,
    pub live: live::Config,
    pub audio: audio::Limits,
    pub api: api::Config,
    pub http: http::Config,
    pub auth: http::auth::Config,
    pub shutdown: http::shutdown::Config,
    pub fetch: fetch::Config,
    pub jobs: jobs::Config,
    pub sts: sts::Config,
    pub demo: demo::Config,
    pub log: telemetry::Config,
    pub metrics: telemetry::metrics::Config,
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
            live: live::Config::default(),
            audio: audio::Limits::default(),
            api: api::Config::default(),
            http: http::Config::default(),
            auth: http::auth::Config::default(),
            shutdown: http::shutdown::Config::default(),
            fetch: fetch::Config::default(),
            jobs: jobs::Config::default(),
            sts: sts::Config::default(),
            demo: demo::Config::default(),
            log: telemetry::Config::default(),
            metrics: telemetry::metrics::Config::default(),
        }
    }
}

/// A base folder of the XDG Base Directory Specification: `variable`, or `fallback` in the home folder, which
/// the user database knows where the environment does not.
fn xdg(variable: &str, fallback: &str) -> PathBuf {
    let absolute = |path: std::ffi::OsString| Some(PathBuf::from(path)).filter(|path| path.is_absolute());
    std::env::var_os(variable).and_then(absolute).unwrap_or_else(|| {
        let home = std::env::home_dir().filter(|home| !home.as_os_str().is_empty());
        home.unwrap_or_else(|| "/".into()).join(fallback)
    })
}

#[cfg(test)]
mod tests;
