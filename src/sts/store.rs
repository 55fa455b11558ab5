//! Sessions on disk: `sts.sqlite3` in the state directory, readable by the owner only.
//!
//! One thread owns the database. Writes come in order and are committed in groups: who waits for one
//! waits for the disk once, however many wait beside.

use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension as _, params};
use tokio::sync::oneshot;

use super::knowledge::Passage;
use super::session::Session;
use super::setup::Setup;
use crate::state;

const DATABASE: &str = "sts.sqlite3";
const FORMAT: i64 = 1;
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// Writes of one commit.
const GROUP_MAX: usize = 256;
pub const SECRET_BYTES: usize = 32;

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

/// A session as it was kept.
pub struct Kept {
    pub session: Session,
    pub setup: Setup,
    /// None where documents and website had not been read to the end.
    pub passages: Option<Vec<Passage>>,
}

/// Handle on the thread that writes. It ends with the last handle.
#[derive(Clone)]
pub struct Store {
    writes: mpsc::SyncSender<Write>,
}

/// Writes that may wait for the disk before those who write wait too.
const WRITES_WAITING_MAX: usize = 4096;

struct Write {
    row: Row,
    reply: oneshot::Sender<Result<(), StoreError>>,
}

enum Row {
    New { id: String, setup: String, state: String },
    State { id: String, state: String },
    Passages { id: String, passages: String },
    Remove { id: String },
}

impl Store {
    /// Opens the sessions of `state_dir`. Returns all that are kept, and the secret that tokens are
    /// signed with.
    ///
    /// # Errors
    /// [`StoreError`]. A row that cannot be read is left out with a warning in the log.
    pub fn open(state_dir: &Path) -> Result<(Self, Vec<Kept>, [u8; SECRET_BYTES]), StoreError> {
        let path = state_dir.join(DATABASE);
        state::make_directory(state_dir)
            .and_then(|()| state::make_file(&path))
            .map_err(|error| StoreError::File { path: path.clone(), problem: error.to_string() })?;
        let mut connection = Connection::open(&path)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        connection.pragma_update(None, "journal_mode", "wal")?;
        connection.pragma_update(None, "synchronous", "full")?;
        migrate(&connection)?;
        let kept = read(&connection)?;
        let secret = secret(&connection)?;
        let (writes, queue) = mpsc::sync_channel::<Write>(WRITES_WAITING_MAX);
        let run = move || {
            while let Ok(first) = queue.recv() {
                let group = std::iter::once(first).chain(queue.try_iter()).take(GROUP_MAX).collect();
                commit(&mut connection, group);
            }
        };
        std::thread::Builder::new()
            .name("sts-store".into())
            .spawn(run)
            .map_err(|error| StoreError::File { path, problem: error.to_string() })?;
        Ok((Self { writes }, kept, secret))
    }

    fn put(&self, row: Row) -> Written {
        let (reply, answer) = oneshot::channel();
        // Dropped with the write where the thread is gone: the answer says so.
        let _ = self.writes.send(Write { row, reply });
        Written(answer)
    }

    /// Queued when this returns, so that the order of calls is the order on disk.
    pub fn add(&self, session: &Session, setup: &Setup) -> Written {
        self.put(Row::New { id: session.id.clone(), setup: json(setup), state: json(session) })
    }

    /// As [`Self::add`].
    pub fn update(&self, session: &Session) -> Written {
        self.put(Row::State { id: session.id.clone(), state: json(session) })
    }

    /// As [`Self::add`].
    pub fn keep_passages(&self, id: &str, passages: &[Passage]) -> Written {
        self.put(Row::Passages { id: id.to_owned(), passages: json(passages) })
    }

    /// As [`Self::add`].
    pub fn remove(&self, id: &str) -> Written {
        self.put(Row::Remove { id: id.to_owned() })
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

fn json<T: serde::Serialize + ?Sized>(value: &T) -> String {
    serde_json::to_string(value).expect("names are strings and numbers finite; this is a bug")
}

fn commit(connection: &mut Connection, group: Vec<Write>) {
    let written = (|| {
        let transaction = connection.transaction()?;
        for write in &group {
            match &write.row {
                Row::New { id, setup, state } => transaction
                    .prepare_cached("INSERT OR REPLACE INTO sessions (id, setup, state) VALUES (?1, ?2, ?3)")?
                    .execute(params![id, setup, state])?,
                Row::State { id, state } => transaction
                    .prepare_cached("UPDATE sessions SET state = ?2 WHERE id = ?1")?
                    .execute(params![id, state])?,
                Row::Passages { id, passages } => transaction
                    .prepare_cached("UPDATE sessions SET passages = ?2 WHERE id = ?1")?
                    .execute(params![id, passages])?,
                Row::Remove { id } => {
                    transaction.prepare_cached("DELETE FROM sessions WHERE id = ?1")?.execute([id])?
                }
            };
        }
        transaction.commit()
    })();
    let written = written.map_err(StoreError::from);
    if let Err(error) = &written {
        tracing::error!(%error, "sessions were not written");
    }
    for write in group {
        // Nobody waits for every write.
        let _ = write.reply.send(written.clone());
    }
}

fn migrate(connection: &Connection) -> Result<(), StoreError> {
    let found: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    match found {
        0 => connection.execute_batch(&format!(
            "BEGIN IMMEDIATE;
             CREATE TABLE IF NOT EXISTS sessions (
                 id       TEXT PRIMARY KEY,
                 setup    TEXT NOT NULL,
                 state    TEXT NOT NULL,
                 passages TEXT
             ) STRICT;
             CREATE TABLE IF NOT EXISTS secrets (name TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT;
             PRAGMA user_version = {FORMAT};
             COMMIT;"
        ))?,
        FORMAT => {}
        found => return Err(StoreError::Newer { found, known: FORMAT }),
    }
    Ok(())
}

fn read(connection: &Connection) -> Result<Vec<Kept>, StoreError> {
    let mut statement = connection.prepare("SELECT setup, state, passages FROM sessions")?;
    let mut rows = statement.query([])?;
    let mut kept = Vec::new();
    while let Some(row) = rows.next()? {
        let (setup, state): (String, String) = (row.get(0)?, row.get(1)?);
        let passages: Option<String> = row.get(2)?;
        let read = (|| {
            Ok::<_, serde_json::Error>(Kept {
                session: serde_json::from_str(&state)?,
                setup: serde_json::from_str(&setup)?,
                passages: passages.as_deref().map(serde_json::from_str).transpose()?,
            })
        })();
        match read {
            Ok(session) => kept.push(session),
            Err(error) => tracing::warn!(%error, "a session that was kept cannot be read"),
        }
    }
    Ok(kept)
}

/// Made once, and the same after each restart.
fn secret(connection: &Connection) -> Result<[u8; SECRET_BYTES], StoreError> {
    let mut fresh = [0u8; SECRET_BYTES];
    rand::fill(&mut fresh[..]);
    connection
        .execute("INSERT OR IGNORE INTO secrets (name, value) VALUES ('room', ?1)", [fresh.as_slice()])?;
    let kept: Option<Vec<u8>> = connection
        .query_row("SELECT value FROM secrets WHERE name = 'room'", [], |row| row.get(0))
        .optional()?;
    kept.and_then(|bytes| bytes.try_into().ok())
        .ok_or_else(|| StoreError::Database("the secret for tokens is damaged".into()))
}
