//! The errors of reading audio.

#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Error {
    /// Another format: its name, as far as it can be recognised.
    #[error("{0} is not read")]
    Unsupported(String),
    #[error("the audio is corrupt: {0}")]
    Corrupt(String),
    #[error("there is no audio")]
    Empty,
    #[error("the audio is longer than {limit_seconds} s")]
    TooLong { limit_seconds: f64 },
    #[error("there is no thread left to read it")]
    Busy,
    /// The caller's budget ended it.
    #[error("decoding was stopped")]
    Stopped,
}
