//! The errors of loading the model.

use std::path::PathBuf;

/// The reason why the model can't be loaded.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("can't read {}", path.display())]
    Unreadable {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("the voice activity model is no whole ONNX file")]
    Malformed,
    #[error("tensor `{tensor}` isn't the one that Silero VAD has at 16 kHz")]
    Unexpected { tensor: String },
}
