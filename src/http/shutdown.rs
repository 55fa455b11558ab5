//! How a server stops: it leaves, then it closes.
//!
//! While it leaves, its port stays open and new requests get 503. Load balancers and orchestrators notice a
//! stop at their next probe, or a little after the signal, so they redirect requests before any connection is
//! refused.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

/// How the server stops.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// After SIGTERM, the port stays open for this long: `/readyz` and new requests get 503, and requests in
    /// progress go on. Then it closes, and `http.drain_timeout_ms` begins. Load balancers should notice
    /// within this time. Seconds, default 5; 0: closes at once, as after Ctrl-C.
    pub grace_seconds: f64,
}

impl Default for Config {
    fn default() -> Self {
        Self { grace_seconds: 5.0 }
    }
}

impl Config {
    pub fn grace(&self) -> Duration {
        Duration::try_from_secs_f64(self.grace_seconds).unwrap_or(Duration::MAX)
    }
}

/// Stops servers. All clones are one.
#[derive(Debug, Clone, Default)]
pub struct Shutdown {
    leaving: CancellationToken,
    closing: CancellationToken,
}

impl Shutdown {
    /// A signal that stops with this one, or before it.
    #[must_use]
    pub fn child(&self) -> Self {
        Self { leaving: self.leaving.child_token(), closing: self.closing.child_token() }
    }

    /// Refuses new requests from here on.
    pub fn leave(&self) {
        self.leaving.cancel();
    }

    /// Closes the port; requests in progress finish.
    pub fn close(&self) {
        self.leaving.cancel();
        self.closing.cancel();
    }

    /// Cancelled when the server leaves.
    pub fn leaving(&self) -> &CancellationToken {
        &self.leaving
    }

    /// Cancelled when the server closes.
    pub fn closing(&self) -> &CancellationToken {
        &self.closing
    }
}
