//! The errors of a model that a request cannot have.

use std::time::Duration;

/// Why a served model is not at hand.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unavailable {
    #[error("the model `{name}` is still being loaded; retry in {} s", retry_after.as_secs())]
    Loading { name: String, retry_after: Duration },
    #[error("there is no memory for the model `{name}` beside those in use; retry in {} s", retry_after.as_secs())]
    NoRoom { name: String, retry_after: Duration },
    /// Doesn't fit even when only the default model is loaded.
    #[error("the model `{name}` needs more memory than this server has")]
    TooLarge { name: String },
    #[error("the model `{name}` could not be loaded; retry in {} s", retry_after.as_secs())]
    Failed { name: String, retry_after: Duration },
}

/// Why a model was not loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// Too little memory at the moment. The text is for the log.
    #[error("{0}")]
    NoRoom(String),
    /// More memory than there can be for it. The text is for the log.
    #[error("{0}")]
    TooLarge(String),
    /// Anything else. The text is for the log.
    #[error("{0}")]
    Failed(String),
}
