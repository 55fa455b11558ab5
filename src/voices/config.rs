//! The settings of enrolled voices.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// How voices are kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Voices that one organisation may enrol. Default 1000; each takes up a kilobyte of memory.
    pub max_per_organisation: usize,
    /// File of the key that voices are encrypted with, 32 bytes; created if it is missing and no voice is enrolled. Another
    /// disk than that of `state_dir` keeps its backups unreadable. Default: `voices.key` in `state_dir`.
    pub key_file: Option<PathBuf>,
}

impl Default for Config {
    fn default() -> Self {
        Self { max_per_organisation: 1000, key_file: None }
    }
}
