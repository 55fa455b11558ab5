//! The error of accepting, storing and running jobs.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use super::nodes::Failure;
use super::signature::SecretError;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The request is valid, but there is no room for its job now.
    #[error("there is no room for another job")]
    Full { retry_after: Duration },
    /// The tenant holds its share of the room; there is room for others.
    #[error("the organisation holds its share of the room for jobs")]
    OverShare { retry_after: Duration },
    #[error("something else was submitted under the same idempotency key")]
    Conflict,
    #[error("cannot use `{path}` for jobs")]
    File { path: PathBuf, source: io::Error },
    /// Too little disk space, memory or file descriptors, or no right to write. Nothing was changed.
    #[error("the machine is short of disk space, memory or file descriptors")]
    Exhausted(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error(
        "another server keeps its jobs in `{}`: give this one a state_dir of its own, or set jobs.enabled = false",
        .0.display()
    )]
    Locked(PathBuf),
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// Nothing was changed.
    #[error("the job database failed")]
    Store(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The next opening of the database will show whether the change was made.
    #[error("the job database did not confirm a change")]
    Unsure(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error(
        "the job database `{}` is damaged ({problem}): put back a copy of it; or move it away with its -wal file, \
         and the server starts without those jobs and sets their audio aside",
        path.display()
    )]
    Damaged { path: PathBuf, problem: String },
    #[error("the job database is of format {found}, and this program knows formats up to {known}")]
    Newer { found: i64, known: i64 },
    /// The broker of this node's cluster cannot be reached, or does not answer: nothing was accepted.
    #[error("the broker of the cluster is away")]
    Away { retry_after: Duration },
    #[error("the broker of the cluster failed")]
    Broker(#[from] Failure),
    #[error(
        "a cluster needs `jobs.secret`: all nodes sign results with the same; `verbatim jobs secret` prints one"
    )]
    NoSecret,
    /// It is unknown how far the thread came.
    #[error("a thread that works on jobs failed")]
    Interrupted,
}
