//! The engine: windows of speech in, recognitions out, many requests in one batch.
//!
//! An [`Engine`] is a cheap handle on one thread that owns the model. Callers hand it
//! [`Window`]s; dropping the future that waits for a [`Recognition`] cancels its work.

mod model;
mod window;

pub use model::{EncodeRequest, Hypothesis, ModelInfo, SlotId, SpeechModel, StepOutcome};
pub use window::{
    Class, DecodingOptions, LanguageChoice, Recognition, Task, TenantId, Timings, WINDOW_SAMPLES, Window,
};

use std::time::Duration;

/// Why a window was not recognised. `Clone`, since one failed batch answers many windows.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    #[error("the engine holds as much audio as it may; retry in {} s", retry_after.as_secs())]
    Overloaded { retry_after: Duration },
    #[error("the deadline passed before the work was done")]
    DeadlineExceeded,
    #[error("language `{0}` is not one that the model knows")]
    UnknownLanguage(String),
    #[error("the model is English-only: it cannot {0}")]
    EnglishOnly(&'static str),
    #[error("the model failed: {0}")]
    ModelFailed(String),
    #[error("the engine is shutting down")]
    ShuttingDown,
}
