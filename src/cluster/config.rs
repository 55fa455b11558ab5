//! The configuration of a node of a cluster.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// How this server works with others. Without `nats` it works alone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Addresses of the broker's servers: `nats://HOST:4222`, or `tls://`. They hold no password: credentials come from
    /// files. Default none: this server works alone.
    pub nats: Vec<String>,
    /// A file of NATS credentials (`.creds`: a JWT and its key).
    pub credentials_file: Option<PathBuf>,
    /// A user of the broker; its password is in `password_file`.
    pub user: Option<String>,
    pub password_file: Option<PathBuf>,
    /// A file that holds a token.
    pub token_file: Option<PathBuf>,
    /// Certificates of authorities that the broker's certificate may come from, in PEM. Default: those of the system.
    pub ca_file: Option<PathBuf>,
    /// This node's certificate and its key, in PEM, for brokers that ask for one.
    pub certificate_file: Option<PathBuf>,
    pub key_file: Option<PathBuf>,
    /// Copies of everything that the broker stores, for a broker of several servers. Default 1.
    pub replicas: usize,
    /// The name of this node: letters, digits, `-` and `_`. No two nodes may have the same. Default: the name of the
    /// host and an id kept in the state directory.
    pub node: Option<String>,
    /// What the names of all subjects, streams and buckets begin with: letters, digits, `-` and `_`. Clusters that
    /// share a broker need different ones. Default `verbatim`.
    pub prefix: String,
    /// The address at which the other nodes and the clients of this node's sessions reach this very node, past any
    /// balancer: `https://node-1.voice.example`. Default: `listen`, if that names one machine.
    pub advertise: Option<String>,
    /// How long the first connection may take. Default 10 000.
    pub connect_timeout_ms: u64,
    /// How long the broker may take to answer. Default 5 000.
    pub timeout_ms: u64,
    /// A node that has not renewed its claim on a job for this long has lost it. Another node takes the job over
    /// after twice this time at most. Default 15 000.
    pub lease_ms: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            nats: Vec::new(),
            credentials_file: None,
            user: None,
            password_file: None,
            token_file: None,
            ca_file: None,
            certificate_file: None,
            key_file: None,
            replicas: 1,
            node: None,
            prefix: "verbatim".into(),
            advertise: None,
            connect_timeout_ms: 10_000,
            timeout_ms: 5_000,
            lease_ms: 15_000,
        }
    }
}

impl Config {
    /// Whether this server is a node of a cluster.
    pub fn is_enabled(&self) -> bool {
        !self.nats.is_empty()
    }
}

/// Whether `name` can be part of a subject and of a bucket's name.
pub(super) fn is_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    (1..=64).contains(&name.len()) && name.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_parts_of_subjects() {
        for name in ["verbatim", "node-1", "a_B9"] {
            assert!(is_name(name), "{name}");
        }
        for name in ["", "a.b", "a b", "*", ">", "ä", &"x".repeat(65)] {
            assert!(!is_name(name), "{name}");
        }
    }
}
