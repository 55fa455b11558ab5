//! Sessions on disk: `sts.sqlite3` in the state directory, readable by the owner only.
//!
//! One thread owns the database. Writes keep their order and are committed in groups, so that many callers share
//! one wait for the disk. Deleted data is overwritten with zeros, and its pages are reused or given back.

mod schema;

use std::path::Path;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use rusqlite::{Connection, params};
use tokio::sync::oneshot;

use super::error::StoreError;
use super::mirror::{Mirror, Mirrored, Part, Told};
use super::remains::{Ended, Remains};
use super::setup::Setup;
use super::state::Session;
use crate::knowledge::Passage;
use crate::state;
pub use schema::Found;
use schema::{SECRET_BYTES, json};

const DATABASE: &str = "sts.sqlite3";
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// Writes per commit.
const GROUP_MAX: usize = 256;
/// A commit that has reached this size takes no more writes: the write-ahead log grows at least as large.
const GROUP_BYTES_MAX: usize = 8 << 20;
/// A longer write-ahead log is truncated to this size.
const LOG_BYTES_MAX: i64 = 8 << 20;
/// Queued work; callers with more wait.
const WAITING_MAX: usize = 4096;
/// Delay between a write and the cleanup of the database, which frees some pages at a time so that writes do not
/// wait long.
const UNTIDY_MAX: Duration = Duration::from_secs(1);
const PAGES_AT_ONCE: i64 = 2048;
/// Pause between two such steps.
const BREATH: Duration = Duration::from_millis(10);
/// Free pages that stay, for the next writes.
const PAGES_SPARE: i64 = 1024;

/// The opened database and its sessions.
pub struct Opened {
    pub store: Store,
    pub open: Vec<Found>,
    /// The oldest first.
    pub ended: Vec<Ended>,
    /// Signs tokens.
    pub secret: [u8; SECRET_BYTES],
}

/// Handle on the thread that owns the database. It ends with the last handle.
#[derive(Clone)]
pub struct Store {
    work: mpsc::SyncSender<Work>,
    mirrored: Mirrored,
}

type Reply<T> = oneshot::Sender<Result<T, StoreError>>;

enum Work {
    Write(Row, Reply<()>),
    /// The remains of a session.
    Read(String, Reply<Option<String>>),
}

enum Row {
    New {
        id: String,
        tenant: u64,
        setup: String,
        state: String,
    },
    State {
        id: String,
        state: String,
    },
    Passages {
        id: String,
        passages: String,
    },
    /// A session has ended: replaces its row by its remains.
    End(Ended, String),
    /// The remains of an ended session have changed.
    Remains {
        ended: Ended,
        remains: String,
    },
    Forget {
        id: String,
    },
    /// Another node has the session.
    GiveUp {
        id: String,
    },
}

impl Work {
    fn bytes(&self) -> usize {
        match self {
            Self::Write(Row::New { setup, state, .. }, _) => setup.len() + state.len(),
            Self::Write(Row::State { state: text, .. } | Row::Passages { passages: text, .. }, _)
            | Self::Write(Row::End(_, text) | Row::Remains { remains: text, .. }, _) => text.len(),
            Self::Write(Row::Forget { .. } | Row::GiveUp { .. }, _) | Self::Read(..) => 0,
        }
    }
}

impl Store {
    /// Opens the sessions of `state_dir`.
    ///
    /// # Errors
    /// [`StoreError`]. A row that cannot be read is skipped with a warning in the log.
    pub fn open(state_dir: &Path) -> Result<Opened, StoreError> {
        let path = state_dir.join(DATABASE);
        state::make_directory(state_dir)
            .and_then(|()| state::make_file(&path))
            .map_err(|error| StoreError::File { path: path.clone(), problem: error.to_string() })?;
        let mut connection = Connection::open(&path)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        // Must come before the first write; later it would need a rewrite of the database.
        connection.pragma_update(None, "auto_vacuum", "incremental")?;
        state::log_ahead(&connection, BUSY_TIMEOUT)?;
        connection.pragma_update(None, "synchronous", "full")?;
        connection.pragma_update(None, "journal_size_limit", LOG_BYTES_MAX)?;
        // The database holds texts of clients and callers.
        connection.pragma_update(None, "secure_delete", true)?;
        schema::migrate(&mut connection)?;
        let (open, ended) = (schema::open_sessions(&connection)?, schema::ended_sessions(&connection)?);
        let secret = schema::secret(&connection)?;
        let (work, queue) = mpsc::sync_channel(WAITING_MAX);
        std::thread::Builder::new()
            .name("sts-store".into())
            .spawn(move || run(connection, &queue))
            .map_err(|error| StoreError::File { path, problem: error.to_string() })?;
        let store = Self { work, mirrored: Mirrored::default() };
        Ok(Opened { store, open, ended, secret })
    }

    /// `mirror` is told of all writes from now on. Only the first one counts.
    pub fn mirror(&self, mirror: Mirror) {
        self.mirrored.set(mirror);
    }

    fn put(&self, row: Row) -> Written {
        self.tell(&row);
        let (reply, answer) = oneshot::channel();
        // If the thread is gone the reply is dropped, and the answer says so.
        let _ = self.work.send(Work::Write(row, reply));
        Written(answer)
    }

    fn tell(&self, row: &Row) {
        let part = |id: &str, part, text| self.mirrored.tell(id, Told::Part(part, text));
        match row {
            Row::New { id, tenant, setup, state } => {
                self.mirrored.tell(id, Told::Here { tenant: *tenant });
                part(id, Part::Setup, Some(setup));
                part(id, Part::State, Some(state));
            }
            Row::State { id, state } => part(id, Part::State, Some(state)),
            Row::Passages { id, passages } => part(id, Part::Passages, Some(passages)),
            Row::End(ended, remains) => {
                part(&ended.id, Part::Ended, Some(remains));
                for gone in [Part::Setup, Part::State, Part::Passages] {
                    part(&ended.id, gone, None);
                }
            }
            Row::Remains { ended, remains } => part(&ended.id, Part::Ended, Some(remains)),
            Row::Forget { id } => self.mirrored.tell(id, Told::Forgotten),
            Row::GiveUp { .. } => {}
        }
    }

    /// Queued when this returns, so that the order of calls is the order on disk.
    pub fn add(&self, session: &Session, setup: &Setup) -> Written {
        self.put(Row::New {
            id: session.id.clone(),
            tenant: session.tenant,
            setup: json(setup),
            state: json(session),
        })
    }

    /// Queued like [`Self::add`].
    pub fn update(&self, session: &Session) -> Written {
        self.put(Row::State { id: session.id.clone(), state: json(session) })
    }

    /// Queued like [`Self::add`].
    pub fn keep_passages(&self, id: &str, passages: &[Passage]) -> Written {
        self.put(Row::Passages { id: id.to_owned(), passages: json(passages) })
    }

    /// Replaces an ended session by its `remains`. Queued like [`Self::add`].
    pub fn end(&self, remains: &Remains) -> (Ended, Written) {
        let text = json(remains);
        let ended = remains.ended(text.len() as u64);
        (ended.clone(), self.put(Row::End(ended, text)))
    }

    /// Updates the remains of an ended session. Queued like [`Self::add`].
    pub fn update_remains(&self, remains: &Remains) -> Written {
        let text = json(remains);
        self.put(Row::Remains { ended: remains.ended(text.len() as u64), remains: text })
    }

    /// Queued like [`Self::add`].
    pub fn forget(&self, id: &str) -> Written {
        self.put(Row::Forget { id: id.to_owned() })
    }

    /// Forgets a session that another node has. Queued like [`Self::add`].
    pub fn give_up(&self, id: &str) -> Written {
        self.put(Row::GiveUp { id: id.to_owned() })
    }

    /// The remains of an ended session; none if it has been forgotten.
    ///
    /// # Errors
    /// [`StoreError::Database`], [`StoreError::Gone`].
    pub async fn remains(&self, id: &str) -> Result<Option<Remains>, StoreError> {
        let (reply, answer) = oneshot::channel();
        let _ = self.work.send(Work::Read(id.to_owned(), reply));
        let Some(text) = answer.await.unwrap_or(Err(StoreError::Gone))? else { return Ok(None) };
        let remains = serde_json::from_str(&text);
        remains.map(Some).map_err(|error| StoreError::Database(error.to_string()))
    }
}

/// A write on its way.
#[must_use]
pub struct Written(oneshot::Receiver<Result<(), StoreError>>);

impl Written {
    /// Waits until it is on disk.
    ///
    /// # Errors
    /// [`StoreError::Database`], [`StoreError::Gone`].
    pub async fn wait(self) -> Result<(), StoreError> {
        self.0.await.unwrap_or(Err(StoreError::Gone))
    }
}

fn run(mut connection: Connection, queue: &Receiver<Work>) {
    // When the next cleanup is due; none while nothing was written.
    let mut due = Some(Instant::now());
    loop {
        if due.is_some_and(|due| due <= Instant::now()) {
            let is_tidy = tidy(&connection).unwrap_or_else(|error| {
                tracing::warn!(%error, "the session database is not tidied up");
                true
            });
            due = if is_tidy { None } else { Some(Instant::now() + BREATH) };
        }
        let first = match due {
            Some(due) => queue.recv_timeout(due.saturating_duration_since(Instant::now())),
            None => queue.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match first {
            Ok(first) => {
                if serve(&mut connection, group(queue, first)) {
                    due.get_or_insert_with(|| Instant::now() + UNTIDY_MAX);
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

fn group(queue: &Receiver<Work>, first: Work) -> Vec<Work> {
    let mut bytes = first.bytes();
    let mut group = vec![first];
    while group.len() < GROUP_MAX
        && bytes < GROUP_BYTES_MAX
        && let Ok(work) = queue.try_recv()
    {
        bytes += work.bytes();
        group.push(work);
    }
    group
}

/// Gives free pages back to the disk and empties the write-ahead log. Returns whether nothing is left to do.
fn tidy(connection: &Connection) -> Result<bool, rusqlite::Error> {
    let free = || connection.pragma_query_value(None, "freelist_count", |row| row.get::<_, i64>(0));
    let before = free()?;
    let surplus = (before - PAGES_SPARE).min(PAGES_AT_ONCE);
    if surplus > 0 {
        // A step gives back one page.
        let mut statement = connection.prepare(&format!("PRAGMA incremental_vacuum({surplus})"))?;
        let mut pages = statement.query([])?;
        while pages.next()?.is_some() {}
    }
    let after = free()?;
    let is_all = after <= PAGES_SPARE || after == before;
    if is_all {
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
    }
    Ok(is_all)
}

/// Does the work of one commit, and returns whether anything was written.
fn serve(connection: &mut Connection, group: Vec<Work>) -> bool {
    let (mut rows, mut waiting, mut reads) = (Vec::new(), Vec::new(), Vec::new());
    for work in group {
        match work {
            Work::Write(row, reply) => {
                rows.push(row);
                waiting.push(reply);
            }
            Work::Read(id, reply) => reads.push((id, reply)),
        }
    }
    let has_rows = !rows.is_empty();
    if has_rows {
        let written = commit(connection, &rows).map_err(StoreError::from);
        if let Err(error) = &written {
            tracing::error!(%error, "sessions were not written");
        }
        for reply in waiting {
            // The caller may not wait for it.
            let _ = reply.send(written.clone());
        }
    }
    for (id, reply) in reads {
        let _ = reply.send(schema::remains(connection, &id));
    }
    has_rows
}

fn commit(connection: &mut Connection, rows: &[Row]) -> Result<(), rusqlite::Error> {
    let transaction = connection.transaction()?;
    for row in rows {
        match row {
            Row::New { id, setup, state, .. } => transaction
                .prepare_cached("INSERT OR REPLACE INTO sessions (id, setup, state) VALUES (?1, ?2, ?3)")?
                .execute(params![id, setup, state])?,
            Row::State { id, state } => transaction
                .prepare_cached("UPDATE sessions SET state = ?2 WHERE id = ?1")?
                .execute(params![id, state])?,
            Row::Passages { id, passages } => transaction
                .prepare_cached("UPDATE sessions SET passages = ?2 WHERE id = ?1")?
                .execute(params![id, passages])?,
            Row::End(ended, remains) => {
                schema::keep(&transaction, ended, remains)?;
                transaction.prepare_cached("DELETE FROM sessions WHERE id = ?1")?.execute([&ended.id])?
            }
            // It may have been forgotten.
            Row::Remains { ended, remains } => transaction
                .prepare_cached("UPDATE ended SET remains = ?2, is_sending = ?3 WHERE id = ?1")?
                .execute(params![ended.id, remains, ended.is_sending])?,
            Row::Forget { id } => {
                transaction.prepare_cached("DELETE FROM ended WHERE id = ?1")?.execute([id])?
            }
            Row::GiveUp { id } => {
                transaction.prepare_cached("DELETE FROM sessions WHERE id = ?1")?.execute([id])?
            }
        };
    }
    transaction.commit()
}

#[cfg(test)]
mod tests;
