//! The log, for those who write to it and those who read it.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::Error;
use super::active::{Active, Kind};
use super::config::Config;
use super::database::Database;
use super::entry::Endpoint;
use super::query::{self, Fields, Filter, Grouping, Row, Sum};
use super::ticket::{Route, Ticket};
use super::writer::{self, Queue};
use crate::share::{Tenants, Turns};

/// How long a reader waits for the requests before it to be written.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);
/// Readers of one organisation that wait for their turn; further ones are refused.
pub(super) const WAITING_MAX: usize = 16;
/// The tenant in whose line those wait who read for all organisations.
const OPERATORS: u64 = 0;
/// Steps of SQLite's virtual machine between two looks at whether the reader still waits: less than a millisecond.
const STEPS: i32 = 10_000;

/// The log. Cheap to clone: clones share it. One that is switched off keeps nothing, and still counts the requests in
/// progress.
#[derive(Clone, Default)]
pub struct Log {
    open: Option<Arc<Open>>,
    active: Active,
}

struct Open {
    queue: Queue,
    /// Used on the blocking pool only, by the one that has the turn.
    reader: Mutex<Database>,
    /// Readers wait here and not on the pool, whose threads others need.
    turns: Turns,
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
        let turns = Turns::new(1, Tenants::default());
        Ok(Self { open: Some(Arc::new(Open { queue, reader, turns })), active: Active::default() })
    }

    /// Follows a request of this route, whose entry is written when all of its tickets are gone; `None` if it does no
    /// work. `is_stream`: the answer is a stream, if there is one.
    pub fn ticket(&self, id: Uuid, pattern: &str, query: Option<&str>, is_stream: bool) -> Option<Ticket> {
        let endpoint = Endpoint::of_route(pattern)?;
        let query = query.unwrap_or_default().to_owned();
        let progress = self.active.begin(Kind::of(endpoint, is_stream));
        Some(Ticket::new(self.queue(), id, Route { path: pattern.to_owned(), endpoint, query }, progress))
    }

    /// Follows work on a request that is logged already.
    pub fn ticket_of_job(&self, id: Uuid) -> Ticket {
        Ticket::later(self.queue(), id, self.active.begin(Kind::Batch))
    }

    fn queue(&self) -> Option<Queue> {
        self.open.as_ref().map(|open| open.queue.clone())
    }

    /// Sets the gauges of requests in progress to the current values; call before the metrics are read.
    pub fn set_gauges(&self) {
        self.active.set_gauges();
    }

    /// Whether requests are logged.
    pub fn is_on(&self) -> bool {
        self.open.is_some()
    }

    /// Returns when all entries so far are written, or after two seconds.
    pub async fn flush(&self) {
        if let Some(open) = &self.open {
            // The reader then sees the log a little late.
            let _ = timeout(FLUSH_TIMEOUT, open.queue.flush()).await;
        }
    }

    /// The requests of a filter, newest first: those after the first `skip`, at most `limit`.
    ///
    /// # Errors
    /// [`Error::Busy`], [`Error::Read`], [`Error::Thread`].
    pub async fn requests(&self, filter: Filter, skip: u64, limit: u32) -> Result<Vec<Row>, Error> {
        self.read(filter.tenant, move |database| query::requests(database, &filter, skip, limit)).await
    }

    /// Sums by day, of groups if there is a grouping; at most [`super::SUMS_MAX`] and one more, which says that there
    /// are too many.
    ///
    /// # Errors
    /// As [`Self::requests`].
    pub async fn sums(&self, filter: Filter, grouping: Option<Grouping>) -> Result<Vec<Sum>, Error> {
        self.read(filter.tenant, move |database| query::sums(database, &filter, grouping)).await
    }

    /// When each key of all organisations was last used, of the newest [`super::LAST_USES_MAX`] requests. The reader's
    /// turn is one of `tenant`.
    ///
    /// # Errors
    /// As [`Self::requests`].
    pub async fn last_uses(&self) -> Result<HashMap<Uuid, SystemTime>, Error> {
        self.read(OPERATORS, query::last_uses).await
    }

    /// The values that occur in the requests of a filter.
    ///
    /// # Errors
    /// As [`Self::requests`].
    pub async fn fields(&self, filter: Filter) -> Result<Fields, Error> {
        self.read(filter.tenant, move |database| query::fields(database, &filter)).await
    }

    /// Reads in turn, after a flush, so that clients see the requests that they made before. Nothing, if nothing is
    /// logged. Dropping the future ends the reading.
    pub(super) async fn read<T: Default + Send + 'static>(
        &self,
        tenant: u64,
        read: impl FnOnce(&Database) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, Error> {
        let Some(open) = self.open.clone() else { return Ok(T::default()) };
        let turn = open.turns.take_within(tenant, WAITING_MAX).await.ok_or(Error::Busy)?;
        self.flush().await;
        let left = CancellationToken::new();
        let _leaves = left.clone().drop_guard();
        let read = move || {
            let _turn = turn;
            let mut reader = open.reader.lock().unwrap_or_else(PoisonError::into_inner);
            reader.0.progress_handler(STEPS, Some(move || left.is_cancelled()))?;
            read(&reader)
        };
        Ok(tokio::task::spawn_blocking(read).await.map_err(|_| Error::Thread)??)
    }
}
