//! The configuration of the console.

use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The pages in the browser.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Serve the console at `/`, to whoever signs in with an admin key. Default true.
    pub enabled: bool,
    /// Address and port of a listener for the console, with all other paths beside it, because its pages are clients
    /// of the API. If set, the server's main address serves no console. Default: none.
    pub listen: Option<SocketAddr>,
    /// Whether the server prints a link that opens the console without a key, once. Default `auto`.
    pub link: Link,
    /// Addresses and networks of proxies whose `X-Forwarded-For` says who signs in, so that wrong keys of one client do
    /// not make all wait. Default: this machine.
    pub trusted_proxies: Vec<String>,
    /// A session without requests ends after this time. Default 3600.
    pub session_idle_seconds: u64,
    /// A session ends after this time at the latest. Default 43 200, half a day.
    pub session_max_seconds: u64,
}

/// When the server prints a link that opens the console.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Link {
    /// When it listens on loopback, and its standard output is a terminal.
    #[default]
    Auto,
    /// When it listens on loopback.
    Always,
    Never,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            enabled: true,
            listen: None,
            link: Link::Auto,
            trusted_proxies: vec!["127.0.0.0/8".into(), "::1".into()],
            session_idle_seconds: 3600,
            session_max_seconds: 43_200,
        }
    }
}

impl Config {
    pub(super) fn session_idle(&self) -> Duration {
        Duration::from_secs(self.session_idle_seconds)
    }

    pub(super) fn session_max(&self) -> Duration {
        Duration::from_secs(self.session_max_seconds)
    }

    /// Whether to print a link for a console at `address`. Elsewhere than on this machine, the link would cross a
    /// network.
    pub fn prints_link(&self, address: SocketAddr, is_terminal: bool) -> bool {
        let is_wanted = match self.link {
            Link::Auto => is_terminal,
            Link::Always => true,
            Link::Never => false,
        };
        self.enabled && is_wanted && address.ip().is_loopback()
    }
}
