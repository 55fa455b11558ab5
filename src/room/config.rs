//! Settings of rooms on a LiveKit server.

use serde::{Deserialize, Serialize};

use crate::secret::Secret;

/// A LiveKit server whose rooms browsers join. Without one they join rooms on this server.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// For example `ws://127.0.0.1:7880` or `wss://media.example`.
    pub url: Option<String>,
    /// The address for callers, if it differs. Default: `url`.
    pub client_url: Option<String>,
    pub api_key: Option<String>,
    pub api_secret: Option<Secret>,
}
