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
    /// The interface's voice.
    pub voice: String,
    /// Further voices of the interface that a session or a request may choose.
    pub voices: Vec<String>,
    /// The embedded voice. Default `auto`.
    pub embedded: EmbeddedVoice,
    /// Kokoro's voice: `./setup voice` installs `af_heart`, the default, and `am_michael`. Its first letter is the
    /// language. For Piper, the name of its file without `.onnx`.
    pub embedded_voice: String,
    /// A program that speaks, and its arguments: it reads a text from its standard input and writes a WAV file to its
    /// standard output. `{speed}` in an argument stands for the pace. Default: none.
    pub program: Vec<String>,
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
            voices: Vec::new(),
            embedded: EmbeddedVoice::Auto,
            embedded_voice: "af_heart".into(),
            program: Vec::new(),
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
    /// Piper, of the folder `piper` in the models.
    Piper,
    /// The `flite` program.
    Flite,
    /// The `espeak-ng` program.
    EspeakNg,
    /// Text only.
    None,
}
