//! The whole configuration: the sum of the modules' own.
//!
//! Values come from the defaults, a TOML file, environment variables and flags, later ones winning.
//! `[models] slots = 8` in the file is `VERBATIM_MODELS__SLOTS=8` in the environment, where a list is
//! separated by commas. Unknown names are errors everywhere.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use figment::Figment;
use figment::providers::{Format, Serialized, Toml};
use figment::value::{Dict, Num, Value};
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
            fetch: fetch::Config::default(),
            jobs: jobs::Config::default(),
            sts: sts::Config::default(),
            demo: demo::Config::default(),
            log: telemetry::Config::default(),
            metrics: telemetry::metrics::Config::default(),
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

/// Settings are variables that begin so, but for [`CONFIG_FILE`].
const PREFIX: &str = "VERBATIM_";
const CONFIG_FILE: &str = "VERBATIM_CONFIG_FILE";
/// Variables of other names that are settings too: fixed ones of our own, and those by which other
/// programs of the same machine know the same thing. The setting's own variable wins over them.
const ALIASES: [(&str, &str); 15] = [
    ("VERBATIM_FETCH_ALLOW", "fetch.allow"),
    ("HF_ENDPOINT", "models.hub.address"),
    ("PIP_INDEX_URL", "models.hub.package_index"),
    ("INTERACTIVE_VOICE_VERIFY_HOOK_URL", "sts.verification.hook_url"),
    ("INTERACTIVE_VOICE_VERIFY_HOOK_API_KEY", "sts.verification.hook_api_key"),
    ("INTERACTIVE_VOICE_VERIFY_DISABLE_INLINE", "sts.verification.disable_inline"),
    ("LIVEKIT_URL", "sts.livekit.url"),
    ("LIVEKIT_API_KEY", "sts.livekit.api_key"),
    ("LIVEKIT_API_SECRET", "sts.livekit.api_secret"),
    ("STS_API_BASE_URL", "demo.sts_base_url"),
    ("DEMO_API_KEY", "demo.api_key"),
    ("DEMO_FRONTEND_BASE_URL", "demo.frontend_base_url"),
    ("DEMO_WEBSITE_URL", "demo.website_url"),
    ("DEMO_VOICE_VERIFY_ALLOWED_CATEGORIES", "demo.voice_verify_allowed_categories"),
    ("DEMO_VOICE_VERIFY_REQUIRE_PATIENT_ID", "demo.voice_verify_require_patient_id"),
];

/// Where the values come from.
pub struct Sources {
    figment: Figment,
}

/// One setting, as [`Sources::describe`] shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// With dots, as in `models.slots`.
    pub name: String,
    /// In TOML; none where it is a secret, or is not set and has no default.
    pub value: Option<String>,
    pub source: String,
}

impl Sources {
    /// `file`: a named file, which must be there; otherwise `verbatim.toml` in
    /// `$XDG_CONFIG_HOME/verbatim`, if there is one. `variables`: those of the environment, settings or not.
    /// `flags`: dotted names and values.
    ///
    /// # Errors
    /// [`Error::NoFile`].
    pub fn new(
        file: Option<&Path>,
        variables: impl IntoIterator<Item = (String, String)>,
        flags: Vec<(&'static str, Value)>,
    ) -> Result<Self, Error> {
        let defaults = Figment::from(Serialized::defaults(Config::default()));
        let mut figment = defaults.clone();
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
        let mut named: Vec<Named> = variables
            .into_iter()
            .filter_map(|(variable, text)| Named::from_variable(&variable, &text, &defaults))
            .collect();
        named.sort_by_key(|named| (!named.is_alias, named.name.clone()));
        for named in named {
            figment = figment.merge(named);
        }
        for (name, value) in flags {
            let source = "a flag".to_owned();
            figment = figment.merge(Named { source, name: name.to_owned(), value, is_alias: false });
        }
        Ok(Self { figment })
    }

    /// # Errors
    /// A name that is unknown, a value of the wrong type or out of range: which, and from where.
    pub fn read(&self) -> Result<Config, Error> {
        // Variables are text: what they are to be is known where they end up, so `123` is a number for a
        // number and a name for a path.
        let config: Config = self.figment.extract_lossy().map_err(|error| Error::Invalid(Box::new(error)))?;
        config.check()?;
        Ok(config)
    }

    /// Every setting, its value and where it comes from, in order of names.
    ///
    /// # Errors
    /// As [`Sources::read`].
    pub fn describe(&self) -> Result<Vec<Setting>, Error> {
        let config = self.read()?;
        let value = Value::serialize(&config).map_err(|error| Error::Invalid(Box::new(error)))?;
        let mut settings = Vec::new();
        if let Value::Dict(_, dict) = value {
            flatten(&dict, "", &mut |name, value| {
                let source = match self.figment.find_metadata(&name) {
                    None => "default".into(),
                    Some(metadata) => match &metadata.source {
                        Some(figment::Source::Code(_)) => "default".into(),
                        Some(source) => source.to_string(),
                        None => metadata.name.to_string(),
                    },
                };
                settings.push(Setting { name, value, source });
            });
        }
        Ok(settings)
    }
}

/// One setting from one source.
struct Named {
    source: String,
    name: String,
    value: Value,
    is_alias: bool,
}

impl Named {
    /// None for what is no setting of ours.
    fn from_variable(variable: &str, text: &str, defaults: &Figment) -> Option<Self> {
        let alias = ALIASES.iter().find(|(alias, _)| *alias == variable);
        let name = match alias {
            Some((_, name)) => (*name).to_owned(),
            None if variable == CONFIG_FILE => return None,
            None => variable.strip_prefix(PREFIX)?.to_ascii_lowercase().replace("__", "."),
        };
        let is_list = matches!(defaults.find_value(&name), Ok(Value::Array(..)));
        // Other programs take an empty one for none.
        if alias.is_some() && !is_list && text.is_empty() {
            return None;
        }
        let value = if is_list {
            let text = text.trim().trim_start_matches('[').trim_end_matches(']');
            let items = text.split(',').map(|item| item.trim().trim_matches('"'));
            items.filter(|item| !item.is_empty()).collect::<Vec<_>>().into()
        } else {
            Value::from(text)
        };
        let source = format!("the environment variable {variable}");
        Some(Self { source, name, value, is_alias: alias.is_some() })
    }
}

impl figment::Provider for Named {
    fn metadata(&self) -> figment::Metadata {
        figment::Metadata::named(self.source.clone())
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

fn flatten(dict: &Dict, prefix: &str, row: &mut impl FnMut(String, Option<String>)) {
    for (key, value) in dict {
        let name = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
        match value {
            Value::Dict(_, inner) => flatten(inner, &name, row),
            Value::Empty(..) => row(name, None),
            Value::String(_, text) if text == jobs::HIDDEN => row(name, None),
            // As f64 it would show digits that nobody wrote.
            Value::Num(_, Num::F32(number)) => row(name, Some(format!("{number:?}"))),
            other => row(name, toml::Value::try_from(other).ok().map(|value| value.to_string())),
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
        positive("engine.max_requests", self.engine.max_requests as f64)?;
        positive("engine.stall_seconds", self.engine.stall_seconds)?;
        positive("engine.probe_seconds", self.engine.probe_seconds)?;
        positive("audio.max_channels", self.audio.max_channels as f64)?;
        positive("jobs.concurrency", self.jobs.concurrency as f64)?;
        positive("jobs.runs_max", f64::from(self.jobs.runs_max))?;
        positive("jobs.deliveries", self.jobs.deliveries as f64)?;
        positive("jobs.deliveries_per_host", self.jobs.deliveries_per_host as f64)?;
        for delay in &self.jobs.retry_delays_seconds {
            positive("jobs.retry_delays_seconds", *delay)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(variables: &[(&str, &str)]) -> Sources {
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Sources::new(None, variables, Vec::new()).expect("no file is named")
    }

    #[test]
    fn a_variable_is_what_its_setting_is() {
        let config = sources(&[
            ("VERBATIM_STATE_DIR", "123"),
            ("VERBATIM_MODEL_DIR", "true"),
            ("VERBATIM_MODELS__MODEL", "[1]"),
            ("VERBATIM_LOG__LEVEL", "1.5"),
            ("VERBATIM_MODELS__SLOTS", "8"),
            ("VERBATIM_AUDIO__MAX_SECONDS", "90"),
            ("VERBATIM_AUTH__ACCEPT_TOKEN_SCHEME", "false"),
            ("VERBATIM_LISTEN", "[::1]:80"),
            ("VERBATIM_HTTP__TLS__CERTIFICATE", "1"),
            ("VERBATIM_HTTP__TLS__KEY", "{a}"),
            ("VERBATIM_HTTP__CORS_ORIGINS", "[\"https://a.example\", \"https://b.example\"]"),
            ("VERBATIM_FETCH_ALLOW", "10.0.0.1, 8080 ,"),
            ("VERBATIM_CONFIG_FILE", "elsewhere"),
            ("HOME", "/"),
        ]);
        let config = config.read().expect("all make sense");
        assert_eq!((config.state_dir, config.model_dir), ("123".into(), "true".into()));
        assert_eq!((config.models.model.as_str(), config.models.slots), ("[1]", 8));
        assert_eq!((config.log.level.as_str(), config.audio.max_seconds), ("1.5", 90.0));
        assert!(!config.auth.accept_token_scheme);
        assert_eq!(config.listen.to_string(), "[::1]:80");
        let tls = config.http.tls.expect("both files");
        assert_eq!((tls.certificate, tls.key), ("1".into(), "{a}".into()));
        assert_eq!(config.http.cors_origins, ["https://a.example", "https://b.example"]);
        assert_eq!(config.fetch.allow, ["10.0.0.1", "8080"]);
    }

    #[test]
    fn what_is_unknown_or_of_another_kind_is_an_error_that_names_its_variable() {
        for (variable, value) in [
            ("VERBATIM_STATEDIR", "x"),
            ("VERBATIM_MODELS__SLOTS", "many"),
            ("VERBATIM_MODELS__SLOTS", ""),
            ("VERBATIM_AUTH__ACCEPT_TOKEN_SCHEME", "maybe"),
            ("VERBATIM_LISTEN", "here"),
        ] {
            let error = sources(&[(variable, value)]).read().expect_err(variable).to_string();
            assert!(error.contains(variable), "{error}");
        }
    }

    #[test]
    fn a_settings_own_variable_wins_over_other_names_for_it() {
        let hub = |variables: &[(&str, &str)]| sources(variables).read().expect("right").models.hub;
        assert_eq!(hub(&[("HF_ENDPOINT", "https://m")]).address, "https://m");
        let both = [("VERBATIM_MODELS__HUB__ADDRESS", "https://own"), ("HF_ENDPOINT", "https://m")];
        assert_eq!(hub(&both).address, "https://own");
        assert_eq!(hub(&[("PIP_INDEX_URL", "https://p")]).package_index, "https://p");
        assert_eq!(hub(&[("HF_ENDPOINT", "")]), Default::default());
    }

    #[test]
    fn the_hooks_variables_are_settings_and_its_key_is_shown_to_nobody() {
        let sources = sources(&[
            ("INTERACTIVE_VOICE_VERIFY_HOOK_URL", "http://localhost:9/hook"),
            ("INTERACTIVE_VOICE_VERIFY_HOOK_API_KEY", "sesame"),
            ("INTERACTIVE_VOICE_VERIFY_DISABLE_INLINE", "true"),
        ]);
        let verification = sources.read().expect("right").sts.verification;
        assert_eq!(verification.hook_url.as_deref(), Some("http://localhost:9/hook"));
        assert_eq!(verification.hook_api_key.as_ref().map(|key| key.expose()), Some("sesame"));
        assert!(verification.disable_inline);
        assert!(!format!("{verification:?}").contains("sesame"));
        let shown = sources.describe().expect("right");
        assert!(shown.iter().all(|setting| !setting.value.as_deref().unwrap_or_default().contains("sesame")));
    }

    #[test]
    fn the_media_servers_variables_are_settings_and_its_secret_is_shown_to_nobody() {
        let sources = sources(&[
            ("LIVEKIT_URL", "wss://media.example"),
            ("LIVEKIT_API_KEY", "APIabc"),
            ("LIVEKIT_API_SECRET", "sesame"),
        ]);
        let livekit = sources.read().expect("right").sts.livekit;
        assert_eq!(livekit.url.as_deref(), Some("wss://media.example"));
        assert_eq!(livekit.api_key.as_deref(), Some("APIabc"));
        assert_eq!(livekit.api_secret.as_ref().map(|secret| secret.expose()), Some("sesame"));
        let shown = sources.describe().expect("right");
        assert!(shown.iter().all(|setting| !setting.value.as_deref().unwrap_or_default().contains("sesame")));
    }

    #[test]
    fn the_demos_variables_are_settings_and_its_key_is_shown_to_nobody() {
        let sources = sources(&[
            ("STS_API_BASE_URL", "https://voice.example"),
            ("DEMO_API_KEY", "sesame"),
            ("DEMO_FRONTEND_BASE_URL", "https://pages.example"),
            ("DEMO_WEBSITE_URL", "https://clinic.example"),
            ("DEMO_VOICE_VERIFY_ALLOWED_CATEGORIES", "patient_information, form"),
            ("DEMO_VOICE_VERIFY_REQUIRE_PATIENT_ID", "true"),
        ]);
        let demo = sources.read().expect("right").demo;
        assert_eq!(demo.sts_base_url, "https://voice.example");
        assert_eq!(demo.api_key.as_ref().map(|key| key.expose()), Some("sesame"));
        assert_eq!(demo.frontend_base_url, "https://pages.example");
        assert_eq!(demo.website_url, "https://clinic.example");
        assert_eq!(demo.voice_verify_allowed_categories, ["patient_information", "form"]);
        assert!(demo.voice_verify_require_patient_id);
        assert!(!format!("{demo:?}").contains("sesame"));
        let shown = sources.describe().expect("right");
        assert!(shown.iter().all(|setting| !setting.value.as_deref().unwrap_or_default().contains("sesame")));
    }
}
