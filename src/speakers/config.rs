//! The settings of diarization.

use serde::{Deserialize, Serialize};

/// The architecture of the models, of which there is one of each: the network that finds local speakers, and the one
/// that knows voices again.
pub const MODEL: &str = "pyannote-segmentation-3.0+campplus";

/// Whether and how speakers are told apart.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Default `auto`.
    pub models: Models,
    /// Threads for the networks. Default 0: one per core. They give way to the threads that recognise words.
    pub threads: usize,
}

/// The models of diarization to load.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Models {
    /// Those in the folder `speakers` of the model folder. Without that folder, requests for speakers are refused.
    #[default]
    Auto,
    /// None: requests for speakers are refused.
    Off,
}
