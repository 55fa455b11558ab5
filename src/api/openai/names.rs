//! The names of models that OpenAI's clients may use.

use serde::{Deserialize, Serialize};

/// The meanings of `model` in requests. Clients name models of the hosted service, such as `whisper-1`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Whether a name that no served model has, and that `models.names` lacks, means the default model. Default true; with
    /// false it is answered with 404.
    pub any_model: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self { any_model: true }
    }
}
