//! The parts of the server that the console shows and changes.

use std::sync::Mutex;
use std::time::Instant;

use tokio::sync::Semaphore;

use super::attempts::Attempts;
use super::config::Config;
use super::links::{Links, key_of_links};
use super::proxies::Proxies;
use super::ring::Ring;
use super::sessions::Sessions;
use crate::fetch::Fetcher;
use crate::http::Failure;
use crate::jobs::Jobs;
use crate::keys::{Error, Verifier};
use crate::registry::Registry;
use crate::usage::Log;

/// Downloads of audio at once; each may take up `fetch.max_bytes`.
const DOWNLOADS_MAX: usize = 2;

/// One setting of the server, as `verbatim config` shows it.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Setting {
    /// With dots, such as `models.slots`.
    pub name: String,
    /// In TOML; `None` for a secret, and for a setting without value and default.
    pub value: Option<String>,
    /// Where it comes from: `default`, a file, a variable, a flag.
    pub source: String,
}

impl Setting {
    /// A setting without the user and the password that an address in it may have.
    pub fn new(name: String, value: Option<String>, source: String) -> Self {
        Self { name, value: value.map(|value| without_users(&value)), source }
    }
}

fn without_users(text: &str) -> String {
    let mut parts = text.split("://");
    let mut shown = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(['/', '?', '#', '"', '\'', ',', ' ']).unwrap_or(part.len());
        let (authority, rest) = part.split_at(end);
        let host = authority.rsplit_once('@').map_or(authority.to_owned(), |(_, host)| format!("…@{host}"));
        shown += &format!("://{host}{rest}");
    }
    shown
}

/// The parts that the composition root hands over.
pub struct Parts {
    pub verifier: Verifier,
    pub models: Registry,
    /// `None` if callbacks are not served.
    pub jobs: Option<Jobs>,
    pub usage: Log,
    pub settings: Vec<Setting>,
    pub fetcher: Fetcher,
    /// Whether the server itself speaks TLS.
    pub is_tls: bool,
}

pub struct Services {
    pub parts: Parts,
    pub sessions: Sessions,
    pub attempts: Attempts,
    pub proxies: Proxies,
    pub links: Links,
    pub ring: Mutex<Ring>,
    pub downloads: Semaphore,
    /// When the server became ready.
    pub started: Instant,
}

impl Services {
    pub fn new(parts: Parts, config: &Config) -> Self {
        Self {
            parts,
            sessions: Sessions::new(config.session_idle(), config.session_max()),
            attempts: Attempts::default(),
            // Checked with the other settings.
            proxies: Proxies::parse(&config.trusted_proxies).unwrap_or_default(),
            links: Links::default(),
            ring: Mutex::default(),
            downloads: Semaphore::new(DOWNLOADS_MAX),
            started: Instant::now(),
        }
    }

    /// The secret of a one-time link.
    ///
    /// # Errors
    /// If the keys cannot be read or changed.
    pub async fn make_link(&self) -> Result<String, Error> {
        let key = self.parts.verifier.with_store(key_of_links).await?;
        Ok(self.links.make(key, Instant::now()))
    }

    /// # Errors
    /// 404 where jobs are switched off.
    pub fn jobs(&self) -> Result<&Jobs, Failure> {
        let missing = || {
            let message = "Jobs are switched off: `jobs.enabled` is false.";
            Failure::new(hyper::StatusCode::NOT_FOUND, "JOBS_DISABLED", message)
        };
        self.parts.jobs.as_ref().ok_or_else(missing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_shows_no_password() {
        for (value, expected) in [
            ("\"https://pypi.org/simple\"", "\"https://pypi.org/simple\""),
            ("\"https://me:pa@ss@pypi.org/simple@1\"", "\"https://…@pypi.org/simple@1\""),
            ("[\"http://a:b@c\", \"http://d@e:1/f\"]", "[\"http://…@c\", \"http://…@e:1/f\"]"),
            ("8", "8"),
        ] {
            let setting = Setting::new("a".into(), Some(value.into()), "default".into());
            assert_eq!(setting.value.as_deref(), Some(expected));
        }
    }
}
