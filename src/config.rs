//! The whole configuration: the sum of the modules' own.
//!
//! Values come from the defaults, a TOML file, environment variables and flags, later ones winning.
//! `[models] slots = 8` in the file is `VERBATIM_MODELS__SLOTS=8` in the environment. Unknown names
//! are errors everywhere.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use figment::Figment;
use figment::providers::{Env, Format, Serialized, Toml};
use figment::value::{Dict, Value};
use serde::{Deserialize, Serialize};

use crate::{api, audio, engine, fetch, http, models, telemetry, transcribe};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Where the server listens. Default 127.0.0.1:8000.
    pub listen: SocketAddr,
    /// Keys and other state. Default `$XDG_STATE_HOME/verbatim`, or `~/.local/state/verbatim`.
    pub state_dir: PathBuf,
    /// Model folders, one for each name. Default `$XDG_CACHE_HOME/verbatim/models`, or
    /// `~/.cache/verbatim/models`.
    pub model_dir: PathBuf,
    pub models: models::Config,
    pub engine: engine::Config,
    pub transcribe: transcribe::Config,
    pub audio: audio::Limits,
    pub api: api::Config,
    pub http: http::Config,
    pub auth: http::auth::Config,
    pub fetch: fetch::Config,
    pub log: telemetry::Config,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8000)),
            state_dir: xdg("XDG_STATE_HOME", ".local/state").join("verbatim"),
            model_dir: xdg("XDG_CACHE_HOME", ".cache").join("verbatim/models"),
            models: models::Config::default(),
            engine: engine::Config::default(),
            transcribe: transcribe::Config::default(),
            audio: audio::Limits::default(),
            api: api::Config::default(),
            http: http::Config::default(),
            auth: http::auth::Config::default(),
            fetch: fetch::Config::default(),
            log: telemetry::Config::default(),
        }
    }
}

/// A base folder of the XDG Base Directory Specification: `variable`, or `fallback` in the home folder.
fn xdg(variable: &str, fallback: &str) -> PathBuf {
    let absolute = |path: std::ffi::OsString| Some(PathBuf::from(path)).filter(|path| path.is_absolute());
    std::env::var_os(variable).and_then(absolute).unwrap_or_else(|| {
        PathBuf::from(std::env::var_os("HOME").unwrap_or_else(|| "/".into())).join(fallback)
    })
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{0}")]
    Invalid(Box<figment::Error>),
    #[error("the configuration file {} is not there", .0.display())]
    NoFile(PathBuf),
    #[error("{name} must be {bound}")]
    OutOfRange { name: &'static str, bound: &'static str },
}

/// Where the values come from.
pub struct Sources {
    figment: Figment,
}

impl Sources {
    /// `file`: a named file, which must be there; otherwise `verbatim.toml` in
    /// `$XDG_CONFIG_HOME/verbatim`, if there is one. `flags`: dotted names and values.
    ///
    /// # Errors
    /// [`Error::NoFile`].
    pub fn new(file: Option<&Path>, flags: Vec<(&'static str, Value)>) -> Result<Self, Error> {
        let mut figment = Figment::from(Serialized::defaults(Config::default()));
        let path = match file {
            Some(path) if path.is_file() => Some(path.to_owned()),
            Some(path) => return Err(Error::NoFile(path.to_owned())),
            None => {
                Some(xdg("XDG_CONFIG_HOME", ".config").join("verbatim/verbatim.toml")).filter(|p| p.is_file())
            }
        };
        if let Some(path) = path {
            figment = figment.merge(Toml::file_exact(path));
        }
        // Not settings: the name of the file, and a list, which in an environment variable is separated by
        // commas and has a name that the service's clients know.
        let variables = Env::prefixed("VERBATIM_").ignore(&["config_file", "fetch_allow"]).split("__");
        figment = figment.merge(variables);
        if let Ok(allow) = std::env::var("VERBATIM_FETCH_ALLOW") {
            let allow: Vec<&str> =
                allow.split(',').map(str::trim).filter(|entry| !entry.is_empty()).collect();
            figment = figment.merge(named(
                "the environment variable VERBATIM_FETCH_ALLOW",
                "fetch.allow",
                allow.into(),
            ));
        }
        for (name, value) in flags {
            figment = figment.merge(named("a flag", name, value));
        }
        Ok(Self { figment })
    }

    /// # Errors
    /// A name that is unknown, a value of the wrong type or out of range: which, and from where.
    pub fn read(&self) -> Result<Config, Error> {
        let config: Config = self.figment.extract().map_err(|error| Error::Invalid(Box::new(error)))?;
        config.check()?;
        Ok(config)
    }

    /// Every value with its dotted name and where it comes from, in order of names.
    ///
    /// # Errors
    /// As [`Sources::read`].
    pub fn describe(&self) -> Result<Vec<(String, String, String)>, Error> {
        let config = self.read()?;
        let value = Value::serialize(&config).map_err(|error| Error::Invalid(Box::new(error)))?;
        let mut rows = Vec::new();
        if let Value::Dict(_, dict) = value {
            flatten(&dict, "", &mut |name, value| {
                let source = self.figment.find_metadata(&name).map_or("default".into(), |metadata| {
                    let source = metadata.source.as_ref().map(ToString::to_string);
                    source.unwrap_or_else(|| metadata.name.to_string())
                });
                let source = if source.contains("config.rs") { "default".into() } else { source };
                rows.push((name, value, source));
            });
        }
        Ok(rows)
    }
}

fn named(source: &'static str, name: &'static str, value: Value) -> Figment {
    Figment::from(Named { source, name, value })
}

struct Named {
    source: &'static str,
    name: &'static str,
    value: Value,
}

impl figment::Provider for Named {
    fn metadata(&self) -> figment::Metadata {
        figment::Metadata::named(self.source)
    }

    fn data(&self) -> Result<figment::value::Map<figment::Profile, Dict>, figment::Error> {
        let mut value = self.value.clone();
        let mut names = self.name.rsplit('.');
        let last = names.next().unwrap_or_default();
        let mut dict = Dict::from([(last.to_owned(), value)]);
        for name in names {
            value = dict.into();
            dict = Dict::from([(name.to_owned(), value)]);
        }
        Ok(figment::Profile::Default.collect(dict))
    }
}

fn flatten(dict: &Dict, prefix: &str, row: &mut impl FnMut(String, String)) {
    for (key, value) in dict {
        let name = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
        match value {
            Value::Dict(_, inner) => flatten(inner, &name, row),
            Value::Empty(..) => row(name, "none".into()),
            other => row(name, serde_json::to_string(other).unwrap_or_default()),
        }
    }
}

impl Config {
    fn check(&self) -> Result<(), Error> {
        let positive = |name: &'static str, value: f64| {
            if value > 0.0 && value.is_finite() {
                Ok(())
            } else {
                Err(Error::OutOfRange { name, bound: "greater than 0" })
            }
        };
        positive("audio.max_seconds", self.audio.max_seconds)?;
        positive("engine.max_wait_seconds", self.engine.max_wait_seconds)?;
        positive("engine.max_held_seconds", self.engine.max_held_seconds)?;
        positive("models.slots", self.models.slots as f64)?;
        positive("audio.max_channels", self.audio.max_channels as f64)
    }
}
