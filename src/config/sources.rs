//! The sources of settings (defaults, file, environment, flags) and their precedence.

use std::path::{Path, PathBuf};

use figment::providers::{Format as _, Serialized, Toml};
use figment::value::{Dict, Map, Num, Value};
use figment::{Figment, Metadata, Profile, Provider};

use super::{Config, Error, check, error, xdg};
use crate::jobs;

/// Prefix of variables that are settings.
const PREFIX: &str = "VERBATIM_";
/// Exceptions, which the repository's scripts and tests read.
const NO_SETTINGS: [&str; 2] = ["VERBATIM_CACHE", "VERBATIM_CLIPS"];
/// Variables with other names that are settings too: fixed names of this program, and names that other programs use for
/// the same thing. The setting's own variable takes precedence.
const ALIASES: [(&str, &str); 16] = [
    ("VERBATIM_FETCH_ALLOW", "fetch.allow"),
    ("OTEL_EXPORTER_OTLP_ENDPOINT", "traces.endpoint"),
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

/// Settings that are secrets: the variable of each may have `_FILE` behind its name, and then names a file that holds it.
const SECRETS: [&str; 9] = [
    "demo.api_key",
    "demo.sts_api_key",
    "demo.twilio_auth_token",
    "jobs.secret",
    "sts.chat.api_key",
    "sts.livekit.api_secret",
    "sts.speech.api_key",
    "sts.twilio.auth_token",
    "sts.verification.hook_api_key",
];

/// Everything that values are read from.
pub struct Sources {
    figment: Figment,
}

/// One setting, as [`Sources::describe`] shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// The name with dots, such as `models.slots`.
    pub name: String,
    /// In TOML; `None` for a secret, and for a setting without value and default.
    pub value: Option<String>,
    pub source: String,
}

impl Sources {
    /// `file`: a named file, which must exist; otherwise `verbatim.toml` in `$XDG_CONFIG_HOME/verbatim`, if it exists.
    /// `variables`: those of the environment, settings or not, except those that the command line reads itself.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn new(
        file: Option<&Path>,
        variables: impl IntoIterator<Item = (String, String)>,
        flags: Vec<Flag>,
    ) -> Result<Self, Error> {
        let defaults = Figment::from(Serialized::defaults(Config::default()));
        let mut figment = defaults.clone();
        let usual = || xdg("XDG_CONFIG_HOME", ".config").join("verbatim/verbatim.toml");
        if let Some(path) = file.map(Path::to_owned).or_else(|| Some(usual()).filter(|path| path.exists())) {
            figment = figment.merge(Given::from_file(path)?);
        }
        let mut named: Vec<Variable> = variables
            .into_iter()
            .filter_map(|(variable, text)| Variable::read(variable, &text, &defaults))
            .collect();
        named.sort_by_key(|variable| (!variable.is_alias, variable.setting.clone()));
        for Variable { name, setting, value, .. } in named {
            figment = figment.merge(Given::new(format!("the environment variable {name}"), &setting, value));
        }
        for Flag { flag, setting, value } in flags {
            figment = figment.merge(Given::new(format!("the flag {flag}"), setting, value));
        }
        Ok(Self { figment })
    }

    /// # Errors
    /// An unknown name, or a value of the wrong type or out of range: with its source and the allowed values.
    pub fn read(&self) -> Result<Config, Error> {
        // Variables are text. Their type is known only at the setting, so `123` is a number for a number and a name for a path.
        let config: Config =
            self.figment.extract_lossy().map_err(|error| Error::explained(&self.figment, &error))?;
        check::check(&config, &self.figment)?;
        Ok(config)
    }

    /// Every setting with its value and source, sorted by name.
    ///
    /// # Errors
    /// As [`Sources::read`].
    pub fn describe(&self) -> Result<Vec<Setting>, Error> {
        let config = self.read()?;
        let value = Value::serialize(&config).map_err(|error| Error::explained(&self.figment, &error))?;
        let mut settings = Vec::new();
        if let Value::Dict(_, dict) = value {
            flatten(&dict, "", &mut |name, value| {
                let metadata = self.figment.find_metadata(&name);
                let source = metadata.map_or_else(|| "default".into(), error::source);
                settings.push(Setting { name, value, source });
            });
        }
        Ok(settings)
    }
}

/// A setting given on the command line.
pub struct Flag {
    /// The flag: `--threads`.
    pub flag: &'static str,
    /// The setting with dots: `models.threads`.
    pub setting: &'static str,
    pub value: Value,
}

/// A setting given in the environment.
struct Variable {
    name: String,
    setting: String,
    value: Value,
    is_alias: bool,
}

impl Variable {
    /// `None` if the variable is no setting.
    fn read(name: String, text: &str, defaults: &Figment) -> Option<Self> {
        let alias = ALIASES.iter().find(|(alias, _)| *alias == name);
        if let Some(setting) = alias.is_none().then(|| secret_of_file(&name)).flatten() {
            let value = Value::from(format!("file:{text}"));
            return (!text.is_empty()).then_some(Self { name, setting, value, is_alias: true });
        }
        let setting = match alias {
            Some((_, setting)) => (*setting).to_owned(),
            None if NO_SETTINGS.contains(&name.as_str()) || is_service_link(&name) => return None,
            None => setting_of(&name)?,
        };
        let default = defaults.find_value(&setting);
        let is_list = matches!(default, Ok(Value::Array(..)));
        // Other programs treat an empty variable as unset.
        if alias.is_some() && !is_list && text.is_empty() {
            return None;
        }
        let value = if is_list {
            let text = text.trim().trim_start_matches('[').trim_end_matches(']');
            let items = text.split(',').map(|item| item.trim().trim_matches('"'));
            items.filter(|item| !item.is_empty()).collect::<Vec<_>>().into()
        } else if let (Ok(Value::Dict(..)), Ok(table)) =
            (default, Toml::from_str::<Dict>(&format!("table = {text}")))
        {
            table.into_values().next().unwrap_or_else(|| Value::from(text))
        } else {
            Value::from(text)
        };
        Some(Self { name, setting, value, is_alias: alias.is_some() })
    }
}

/// The secret whose file a variable names.
fn secret_of_file(name: &str) -> Option<String> {
    let name = name.strip_suffix("_FILE")?;
    let alias = ALIASES.iter().find(|(alias, _)| *alias == name).map(|(_, setting)| (*setting).to_owned());
    let setting = alias.or_else(|| setting_of(name))?;
    SECRETS.contains(&setting.as_str()).then_some(setting)
}

/// The setting that a variable names by the prefix.
fn setting_of(name: &str) -> Option<String> {
    Some(name.strip_prefix(PREFIX)?.to_ascii_lowercase().replace("__", "."))
}

/// Whether Kubernetes sets `name` for a service called `verbatim` or `verbatim-…`: `VERBATIM_SERVICE_HOST`,
/// `VERBATIM_PORT`, `VERBATIM_PORT_8000_TCP_ADDR`.
fn is_service_link(name: &str) -> bool {
    let port = |rest: &str| {
        let number = rest.strip_prefix('_').and_then(|rest| rest.split('_').next()).unwrap_or_default();
        rest.is_empty() || (!number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
    };
    name.ends_with("_SERVICE_HOST")
        || name.contains("_SERVICE_PORT")
        || name.rsplit_once("_PORT").is_some_and(|(_, rest)| port(rest))
}

/// The settings from one source.
struct Given {
    metadata: Metadata,
    dict: Dict,
}

impl Given {
    fn new(source: String, setting: &str, value: Value) -> Self {
        let mut names = setting.rsplit('.');
        let last = names.next().unwrap_or_default();
        let mut dict = Dict::from([(last.to_owned(), value)]);
        for name in names {
            dict = Dict::from([(name.to_owned(), dict.into())]);
        }
        Self { metadata: Metadata::named(source), dict }
    }

    /// # Errors
    /// [`Error::File`], which quotes nothing because a file may hold secrets.
    fn from_file(path: PathBuf) -> Result<Self, Error> {
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) => return Err(Error::File { path, problem: error.to_string() }),
        };
        match Toml::from_str::<Dict>(&text) {
            Ok(dict) => Ok(Self { metadata: Metadata::from("a file", path.as_path()), dict }),
            Err(error) => {
                let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
                let line = before.matches('\n').count() + 1;
                let message = error.message().lines().next().unwrap_or("no TOML");
                Err(Error::File { path, problem: format!("line {line}: {message}") })
            }
        }
    }
}

impl Provider for Given {
    fn metadata(&self) -> Metadata {
        self.metadata.clone()
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        Ok(Profile::Default.collect(self.dict.clone()))
    }
}

fn flatten(dict: &Dict, prefix: &str, row: &mut impl FnMut(String, Option<String>)) {
    for (key, value) in dict {
        let is_bare = key.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
        let key = if is_bare && !key.is_empty() {
            key.clone()
        } else {
            toml::Value::from(key.as_str()).to_string()
        };
        let name = if prefix.is_empty() { key } else { format!("{prefix}.{key}") };
        match value {
            Value::Dict(_, inner) => flatten(inner, &name, row),
            Value::Empty(..) => row(name, None),
            Value::String(_, text) if text == jobs::HIDDEN => row(name, None),
            // As an f64 it would show digits that the source doesn't have.
            Value::Num(_, Num::F32(number)) => row(name, Some(format!("{number:?}"))),
            other => row(name, toml::Value::try_from(other).ok().map(|value| value.to_string())),
        }
    }
}
