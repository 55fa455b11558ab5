//! The log of requests, and the sums of use that are made from it.
//!
//! ```text
//! request → Ticket (http makes it, whoever does the work adds to it) → queue → writer → usage.sqlite3 → queries
//! ```
//! One row for each request that did work: when, whose key, which endpoint, how it ended, how much audio or text,
//! which model, its tags and the names of its features. No audio, no words, no addresses, no other values of
//! parameters. The log is bounded in time and size, and written off the path of requests.

mod config;
mod database;
mod entry;
mod query;
mod ticket;
mod writer;

pub use config::Config;
pub use entry::{CLIENT_LEFT, Endpoint, Entry, FEATURES, Holder, Method, Model, Work};
pub use query::{Fields, Filter, Grouping, Row, SUMS_MAX, Sum};
pub use ticket::{Route, Ticket, current, ended, held_by, is_async, within, worked};

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::timeout;
use uuid::Uuid;

use database::Database;
use writer::Queue;

/// How long a reader waits for the requests before it to be written.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot use `{path}` to keep the log of requests in")]
    File { path: PathBuf, source: std::io::Error },
    #[error("the log of requests `{path}` cannot be opened; a damaged one may be deleted")]
    Database { path: PathBuf, source: rusqlite::Error },
    #[error("the log of requests is of format {found}, and this program knows formats up to {known}")]
    Newer { found: i64, known: i64 },
    #[error("the log of requests cannot be read")]
    Read(#[from] rusqlite::Error),
    #[error("the thread of the log did not start, or failed")]
    Thread,
}

/// The log. Cheap to clone: clones share it.
#[derive(Clone, Default)]
pub struct Log(Option<Arc<Open>>);

struct Open {
    queue: Queue,
    /// Used on the blocking pool only.
    reader: Mutex<Database>,
}

impl Log {
    /// Opens the log of `state_dir`; creates it if it is missing.
    ///
    /// # Errors
    /// [`Error`].
    pub fn open(state_dir: &Path, config: &Config) -> Result<Self, Error> {
        if !config.enabled {
            return Ok(Self::default());
        }
        let queue = writer::start(Database::open(state_dir)?, config).map_err(|_| Error::Thread)?;
        let reader = Mutex::new(Database::open(state_dir)?);
        Ok(Self(Some(Arc::new(Open { queue, reader }))))
    }

    /// Follows a request of this route, whose entry is written when all of its tickets are gone; `None` if it is
    /// not logged.
    pub fn ticket(&self, id: Uuid, pattern: &str, query: Option<&str>) -> Option<Ticket> {
        let open = self.0.as_ref()?;
        let endpoint = Endpoint::of_route(pattern)?;
        let query = query.unwrap_or_default().to_owned();
        Some(Ticket::new(open.queue.clone(), id, Route { path: pattern.to_owned(), endpoint, query }))
    }

    /// Follows work on a request that is logged already.
    pub fn ticket_of_job(&self, id: Uuid) -> Option<Ticket> {
        self.0.as_ref().map(|open| Ticket::later(open.queue.clone(), id))
    }

    /// Returns when all entries so far are written, or after two seconds.
    pub async fn flush(&self) {
        if let Some(open) = &self.0 {
            // The reader then sees the log a little late.
            let _ = timeout(FLUSH_TIMEOUT, open.queue.flush()).await;
        }
    }

    /// The requests of a filter, newest first: those after the first `skip`, at most `limit`.
    ///
    /// # Errors
    /// [`Error::Read`], [`Error::Thread`].
    pub async fn requests(&self, filter: Filter, skip: u64, limit: u32) -> Result<Vec<Row>, Error> {
        self.read(move |database| query::requests(database, &filter, skip, limit)).await
    }

    /// Sums by day, of groups if there is a grouping; at most [`SUMS_MAX`] and one more, which says that there
    /// are too many.
    ///
    /// # Errors
    /// As [`Self::requests`].
    pub async fn sums(&self, filter: Filter, grouping: Option<Grouping>) -> Result<Vec<Sum>, Error> {
        self.read(move |database| query::sums(database, &filter, grouping)).await
    }

    /// The values that occur in the requests of a filter.
    ///
    /// # Errors
    /// As [`Self::requests`].
    pub async fn fields(&self, filter: Filter) -> Result<Fields, Error> {
        self.read(move |database| query::fields(database, &filter)).await
    }

    /// After a flush, so that clients see the requests that they made before. Nothing, if nothing is logged.
    async fn read<T: Default + Send + 'static>(
        &self,
        read: impl FnOnce(&Database) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, Error> {
        let Some(open) = self.0.clone() else { return Ok(T::default()) };
        self.flush().await;
        let read = move || read(&open.reader.lock().unwrap_or_else(PoisonError::into_inner));
        Ok(tokio::task::spawn_blocking(read).await.map_err(|_| Error::Thread)??)
    }
}

#[cfg(test)]
mod tests;
