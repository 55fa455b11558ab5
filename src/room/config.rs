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
    /// Take jobs for an agent of this name: LiveKit's clients dispatch it to rooms of their own. Default: none.
    pub agent_name: Option<String>,
    /// The organisation whose sessions these are, as `verbatim keys list` shows it. Default 0, clients without a key.
    pub agent_organisation: u64,
    /// Whether the agent's media may go over the relays (TURN) that the server names. Default `auto`.
    pub relay: Relay,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Relay {
    /// If there is no direct way.
    #[default]
    Auto,
    /// Never.
    Off,
    /// Always: the agent sends nothing straight to the server's media ports.
    Only,
}
