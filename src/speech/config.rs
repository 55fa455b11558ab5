//! Settings of the voice.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::secret::Secret;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Base address of a speech interface like OpenAI's; `/audio/speech` is appended. Default: none, and the
    /// embedded voice speaks.
    pub base_url: Option<String>,
    pub api_key: Option<Secret>,
    pub model: String,
    pub voice: String,
    /// The embedded voice. Default `auto`.
    pub embedded: EmbeddedVoice,
    /// Kokoro's voice: `./setup voice` installs `af_heart`, the default, and `am_michael`. Voices that begin with
    /// `b` are British.
    pub embedded_voice: String,
    /// How the embedded voice says names: `Siobhan = "Shivawn"`.
    pub say_as: BTreeMap<String, String>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            base_url: None,
            api_key: None,
            model: String::new(),
            voice: String::new(),
            embedded: EmbeddedVoice::Auto,
            embedded_voice: "af_heart".into(),
            say_as: BTreeMap::new(),
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EmbeddedVoice {
    /// The first of the following that is installed.
    #[default]
    Auto,
    /// Kokoro: `./setup voice`.
    Kokoro,
    /// The `flite` program.
    Flite,
    /// The `espeak-ng` program.
    EspeakNg,
    /// Text only.
    None,
}
