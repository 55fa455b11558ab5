//! The errors of loading the networks and of computing with them.

use std::path::PathBuf;

/// The reason why there are no speakers.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("can't read {}", path.display())]
    Unreadable {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("{} is no whole safetensors file", path.display())]
    Malformed {
        path: PathBuf,
        #[source]
        source: safetensors::SafeTensorError,
    },
    #[error("tensor `{tensor}` is missing or isn't the one that the network has")]
    Unexpected { tensor: String },
    #[error("no thread for the networks")]
    Thread(#[source] std::io::Error),
    /// The networks failed on this request's batch. The cause is in the log.
    #[error("the speakers could not be computed")]
    Failed,
}
