//! Why a session refuses a request. The texts are for the client, except where the variant says otherwise.

use std::path::PathBuf;
use std::time::Duration;

use crate::fields;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Field(#[from] fields::Error),
    #[error("`documents[{index}]`: {problem}.")]
    Document { index: usize, problem: &'static str },
    #[error("`caller_number` must be a number in E.164 form, such as +14155552671.")]
    PhoneNumber,
    #[error("There is no such session.")]
    NoSession,
    #[error("The session has ended.")]
    Ended,
    #[error("as many sessions are open as may be, or they hold as much as they may")]
    Full { retry_after: Duration },
    #[error("the organisation has its share of the sessions, or of what they may hold")]
    OverShare { retry_after: Duration },
    /// For the log only.
    #[error("the session could not be written")]
    Store(#[from] StoreError),
}

/// Why the session database cannot be used. For the log.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    #[error("cannot use `{path}` to keep sessions in: {problem}")]
    File { path: PathBuf, problem: String },
    #[error("the session database failed: {0}")]
    Database(String),
    #[error("the session database is of format {found}, and this program knows formats up to {known}")]
    Newer { found: i64, known: i64 },
    #[error("the thread that writes sessions is gone")]
    Gone,
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Database(error.to_string())
    }
}
