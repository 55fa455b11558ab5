//! Opens the database, whatever state a crash, a broken disk or an operator has left it in.

use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use rusqlite::{Connection, ErrorCode, TransactionBehavior};

use super::Sqlite;
use super::rows::FORMATS;
use crate::clock::unix_ms;
use crate::jobs::Error;
use crate::jobs::quarantine::Quarantine;
use crate::state;

const DATABASE: &str = "jobs.sqlite3";
const LOG: &str = "jobs.sqlite3-wal";
/// A log begins with one of these; the last bit is the byte order of its checksums
/// (<https://www.sqlite.org/fileformat2.html#the_write_ahead_log>).
const LOG_MAGIC: u32 = 0x377f_0682;
/// How long one process waits for another that is writing.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

impl Sqlite {
    /// Opens the database of `state_dir`; creates directory and file if they are missing.
    ///
    /// # Errors
    /// [`Error::File`], [`Error::Damaged`], [`Error::Exhausted`], [`Error::Store`], [`Error::Newer`].
    pub fn open(state_dir: &Path) -> Result<Self, Error> {
        let path = state_dir.join(DATABASE);
        state::make_directory(state_dir)
            .and_then(|()| keep_stray_log(state_dir))
            .and_then(|()| state::make_file(&path))
            .map_err(|source| Error::File { path: path.clone(), source })?;
        prepare(&path).map_err(|error| damaged(error, &path))
    }

    /// Reads the whole database to see whether it is intact. A damaged one may work for long, with jobs
    /// missing.
    ///
    /// # Errors
    /// [`Error::Damaged`], or the error of reading it.
    pub fn check(&self, state_dir: &Path) -> Result<(), Error> {
        let path = state_dir.join(DATABASE);
        let connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let found = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get::<_, String>(0));
        match found {
            Ok(found) if found == "ok" => Ok(()),
            Ok(problem) => Err(Error::Damaged { path, problem: problem.replace('\n', " ") }),
            Err(error) => Err(damaged(error.into(), &path)),
        }
    }

    /// Whether the database was empty or missing before this opened it.
    pub fn is_new(&self) -> bool {
        self.is_new
    }
}

fn prepare(path: &Path) -> Result<Sqlite, Error> {
    let mut connection = Connection::open(path)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    state::log_ahead(&connection, BUSY_TIMEOUT)?;
    connection.pragma_update(None, "synchronous", "full")?;
    // Deleted rows are overwritten: results hold people's words.
    connection.pragma_update(None, "secure_delete", true)?;
    let found = format(&connection)?;
    if found < FORMATS.len() {
        let change = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        // Another process may have been here meanwhile.
        for statements in FORMATS.iter().skip(format(&change)?) {
            change.execute_batch(statements)?;
        }
        change.pragma_update(None, "user_version", FORMATS.len() as i64)?;
        change.commit()?;
    }
    Ok(Sqlite { connection: Arc::new(Mutex::new(connection)), is_new: found == 0 })
}

/// The format of the database: how many of [`FORMATS`] have been applied.
fn format(db: &Connection) -> Result<usize, Error> {
    let found: i64 = db.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let known = FORMATS.len();
    let newer = Error::Newer { found, known: known as i64 };
    usize::try_from(found).ok().filter(|found| *found <= known).ok_or(newer)
}

/// `error` as [`Error::Damaged`], if it is about the content of the database.
fn damaged(error: Error, path: &Path) -> Error {
    let Error::Store(source) = &error else { return error };
    let code = source.downcast_ref::<rusqlite::Error>().and_then(rusqlite::Error::sqlite_error_code);
    match code {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            Error::Damaged { path: path.to_owned(), problem: source.to_string() }
        }
        _ => error,
    }
}

/// SQLite deletes a log whose database is missing or empty, and overwrites one that does not begin like a
/// log. It may hold acknowledged jobs that exist nowhere else, so it is set aside.
fn keep_stray_log(state_dir: &Path) -> std::io::Result<()> {
    let log = state_dir.join(LOG);
    let mut magic = [0; 4];
    // Too short, or missing: then nothing was written to it.
    if fs::File::open(&log).and_then(|mut log| log.read_exact(&mut magic)).is_err() {
        return Ok(());
    }
    let has_database = fs::metadata(state_dir.join(DATABASE)).is_ok_and(|database| database.len() > 0);
    if has_database && u32::from_be_bytes(magic) | 1 == LOG_MAGIC | 1 {
        return Ok(());
    }
    let (now, quarantine) = (SystemTime::now(), Quarantine::of(state_dir));
    quarantine.set_aside(&log, format!("{LOG}-{}", unix_ms(now)).as_ref(), now)?;
    tracing::error!(
        folder = %quarantine.folder().display(),
        "a log of the job database without its database, or damaged, is set aside"
    );
    Ok(())
}

#[cfg(test)]
impl Sqlite {
    /// Simulates a full disk: the database gets no further page; or lifts that limit.
    pub fn set_full(&self, is_full: bool) {
        let connection = self.connection.lock().expect("no panic");
        let count = |row: &rusqlite::Row<'_>| row.get::<_, i64>(0);
        let now = connection.pragma_query_value(None, "page_count", count).expect("a number");
        let most = if is_full { now } else { i64::from(u32::MAX) - 1 };
        connection.pragma_update(None, "max_page_count", most).expect("set");
    }
}
