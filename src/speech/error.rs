//! Why a voice cannot be used.

use crate::onnx;

#[derive(Debug, thiserror::Error)]
pub enum VoiceError {
    #[error("`sts.speech.base_url` is no http or https address")]
    Address,
    #[error("`{0}` is not installed")]
    Missing(&'static str),
    #[error("the program of `sts.speech.program` is not there: `{0}`")]
    Program(String),
    #[error("the voice `{voice}` cannot speak. {reason}")]
    Language { voice: String, reason: String },
    #[error("the settings of Piper's voice cannot be used ({})", .0.display())]
    Piper(std::path::PathBuf),
    #[error("the voice `{0}` is not one of Kokoro's names, such as `af_heart`")]
    Name(String),
    #[error("the voice cannot be read ({})", path.display())]
    Unreadable {
        path: std::path::PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("the voice has not {rows} rows")]
    Malformed { rows: usize },
    #[error("the voice's model cannot be used (`./setup voice` installs it)")]
    Model(#[from] onnx::Error),
    #[error("cannot set up the HTTP client")]
    Client(#[from] reqwest::Error),
}
