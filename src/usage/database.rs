//! `usage.sqlite3` in the state directory, readable by its owner only.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rusqlite::{Connection, Transaction, TransactionBehavior, params};

use super::Error;
use super::config::Config;
use super::entry::Entry;
use super::message::Message;
use crate::clock::unix_ms;
use crate::state;

const DATABASE: &str = "usage.sqlite3";
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
const FORMAT: i64 = 1;
const DAY: Duration = Duration::from_secs(86_400);

/// `key` and `id` are UUIDs; `tags` and `features` are lists in JSON, sorted as they came.
const TABLES: &str = "
    CREATE TABLE requests (
        id            TEXT PRIMARY KEY,
        tenant        INTEGER NOT NULL,
        key           TEXT NOT NULL,
        created_ms    INTEGER NOT NULL,
        path          TEXT NOT NULL,
        endpoint      TEXT NOT NULL,
        method        TEXT NOT NULL,
        code          INTEGER NOT NULL,
        elapsed_ms    INTEGER NOT NULL,
        audio_seconds REAL NOT NULL,
        channels      INTEGER NOT NULL,
        characters    INTEGER NOT NULL,
        model         TEXT,
        model_id      TEXT,
        tags          TEXT NOT NULL,
        features      TEXT NOT NULL
    ) STRICT;
    CREATE INDEX requests_by_tenant ON requests (tenant, created_ms);
    CREATE INDEX requests_by_time ON requests (created_ms);";

/// One connection.
pub(super) struct Database(pub(super) Connection);

impl Database {
    /// Opens the log of `state_dir`; creates directory and file if they are missing.
    pub fn open(state_dir: &Path) -> Result<Self, Error> {
        let path = state_dir.join(DATABASE);
        state::make_directory(state_dir)
            .and_then(|()| state::make_file(&path).map(drop))
            .map_err(|source| Error::File { path: path.clone(), source })?;
        let database = |source| Error::Database { path: path.clone(), source };
        let connection = Connection::open(&path).map_err(database)?;
        prepare(&connection).map_err(database)?;
        match format_of(&connection).map_err(database)? {
            FORMAT => Ok(Self(connection)),
            found => Err(Error::Newer { found, known: FORMAT }),
        }
    }

    /// Writes a batch in one transaction. Returns the amendments of requests that are not in the log.
    pub fn write(&self, batch: Vec<Message>) -> rusqlite::Result<Vec<Message>> {
        if batch.is_empty() {
            return Ok(batch);
        }
        let transaction = Transaction::new_unchecked(&self.0, TransactionBehavior::Immediate)?;
        let mut amendments = Vec::new();
        for message in batch {
            match message {
                Message::Add(entry) => add(&transaction, &entry)?,
                amendment => amendments.push(amendment),
            }
        }
        let mut unmatched = Vec::new();
        for amendment in amendments {
            if !amend(&transaction, &amendment)? {
                unmatched.push(amendment);
            }
        }
        transaction.commit()?;
        Ok(unmatched)
    }

    /// Forgets what is too old or too much.
    pub fn purge(&self, config: &Config, now: SystemTime) -> rusqlite::Result<()> {
        let oldest = now.checked_sub(DAY * config.retention_days).unwrap_or(UNIX_EPOCH);
        self.0.execute("DELETE FROM requests WHERE created_ms < ?1", [unix_ms(oldest)])?;
        let most = config.requests_max.cast_signed();
        loop {
            let count: i64 = self.0.query_row("SELECT count(*) FROM requests", [], |row| row.get(0))?;
            if count <= most {
                return Ok(());
            }
            // One organisation cannot displace the requests of the others.
            self.0.execute(
                "DELETE FROM requests WHERE id IN (
                     SELECT id FROM requests
                     WHERE tenant = (SELECT tenant FROM requests GROUP BY tenant ORDER BY count(*) DESC LIMIT 1)
                     ORDER BY created_ms LIMIT max(1, (?1 - ?2 + 1) / 2))",
                [count, most],
            )?;
        }
    }
}

fn prepare(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(BUSY_TIMEOUT)?;
    state::log_ahead(connection, BUSY_TIMEOUT)?;
    // A power cut may cost the newest entries, and nothing else.
    connection.pragma_update(None, "synchronous", "normal")?;
    if format_of(connection)? == 0 {
        // If two processes come here at once, the second one finds the work of the first.
        let transaction = Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
        if format_of(&transaction)? == 0 {
            transaction.execute_batch(TABLES)?;
            transaction.pragma_update(None, "user_version", FORMAT)?;
        }
        transaction.commit()?;
    }
    Ok(())
}

fn format_of(connection: &Connection) -> rusqlite::Result<i64> {
    connection.pragma_query_value(None, "user_version", |row| row.get(0))
}

fn add(transaction: &Transaction<'_>, entry: &Entry) -> rusqlite::Result<()> {
    let (model, model_id) =
        (entry.work.model.as_ref()).map(|model| (&model.name, model.id.to_string())).unzip();
    // Lists of texts always serialize.
    let list = |list: serde_json::Result<String>| list.unwrap_or_else(|_| "[]".to_owned());
    transaction
        .prepare_cached(
            "INSERT OR IGNORE INTO requests (id, tenant, key, created_ms, path, endpoint, method, code, elapsed_ms,
                 audio_seconds, channels, characters, model, model_id, tags, features)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)",
        )?
        .execute(params![
            entry.id.to_string(),
            entry.holder.tenant.cast_signed(),
            entry.holder.key.to_string(),
            unix_ms(entry.created),
            entry.path,
            entry.endpoint.name(),
            entry.method.name(),
            entry.code,
            i64::try_from(entry.elapsed.as_millis()).unwrap_or(i64::MAX),
            entry.work.audio_seconds,
            entry.work.channels,
            entry.work.characters.cast_signed(),
            model,
            model_id,
            list(serde_json::to_string(&entry.tags)),
            list(serde_json::to_string(&entry.features)),
        ])?;
    Ok(())
}

/// Whether there was anything to amend, or nothing to say.
fn amend(transaction: &Transaction<'_>, message: &Message) -> rusqlite::Result<bool> {
    let Message::Amend { id, code, work } = message else { return Ok(true) };
    let (model, model_id) = (work.model.as_ref()).map(|model| (&model.name, model.id.to_string())).unzip();
    let changed = transaction.execute(
        "UPDATE requests SET code = coalesce(?2, code), audio_seconds = max(audio_seconds, ?3),
                channels = max(channels, ?4), model = coalesce(?5, model), model_id = coalesce(?6, model_id)
         WHERE id = ?1",
        params![id.to_string(), code, work.audio_seconds, work.channels, model, model_id],
    )?;
    Ok(changed > 0)
}
