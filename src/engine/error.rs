//! The errors of a window, and of the start.

use std::time::Duration;

use super::window::WINDOW_SAMPLES;

/// Why a window was not recognised. `Clone`, since one failed batch answers many windows.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    #[error("the engine holds as much audio as it may; retry in {} s", retry_after.as_secs())]
    Overloaded { retry_after: Duration },
    #[error("the organisation holds its share of the engine; retry in {} s", retry_after.as_secs())]
    OverShare { retry_after: Duration },
    #[error("the deadline passed before the work was begun")]
    DeadlineExceeded,
    #[error("language `{0}` is not one that the model knows")]
    UnknownLanguage(String),
    #[error("the model is English-only: it cannot {0}")]
    EnglishOnly(&'static str),
    #[error("a window has at most {} samples", WINDOW_SAMPLES)]
    WindowTooLong,
    #[error("the model failed: {0}")]
    ModelFailed(String),
    #[error("the engine hangs or fails; what waits for it would wait in vain")]
    Unwell,
    #[error("the engine is shutting down")]
    ShuttingDown,
}

/// Why the engine did not start; `E` is the error of the function that loads the model.
#[derive(Debug, thiserror::Error)]
pub enum StartError<E> {
    #[error("the engine's thread could not be started")]
    Thread(#[source] std::io::Error),
    #[error("the engine's thread ended while it loaded the model")]
    Died,
    #[error("the model could not be loaded")]
    Model(#[source] E),
}
