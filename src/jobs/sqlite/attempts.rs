//! The attempts to deliver each result.

use rusqlite::{Connection, params};

use crate::clock::from_unix_ms;
use crate::jobs::store::{ATTEMPTS_MAX, Attempt};

/// Adds the attempt of a job that is being sent, which ended at `now`; forgets the oldest beyond [`ATTEMPTS_MAX`].
pub fn add(db: &Connection, id: &str, now_ms: i64, error: Option<&String>) -> rusqlite::Result<()> {
    let added = db.execute(
        "INSERT OR REPLACE INTO attempts (job, number, ended_ms, error)
         SELECT id, attempts + 1, ?2, ?3 FROM jobs WHERE id = ?1 AND phase = 'sending'",
        params![id, now_ms, error],
    )?;
    if added > 0 {
        db.execute(
            "DELETE FROM attempts WHERE job = ?1
                 AND number <= (SELECT max(number) FROM attempts WHERE job = ?1) - ?2",
            params![id, ATTEMPTS_MAX],
        )?;
    }
    Ok(())
}

/// Those of one job, oldest first.
pub fn list(db: &Connection, id: &str) -> rusqlite::Result<Vec<Attempt>> {
    let mut statement =
        db.prepare("SELECT number, ended_ms, error FROM attempts WHERE job = ?1 ORDER BY number")?;
    let attempts = statement.query_map([id], |row| {
        Ok(Attempt { number: row.get(0)?, ended: from_unix_ms(row.get(1)?), error: row.get(2)? })
    })?;
    attempts.collect()
}

/// Forgets those of jobs that are forgotten.
pub fn purge(db: &Connection) -> rusqlite::Result<()> {
    db.execute("DELETE FROM attempts WHERE job NOT IN (SELECT id FROM jobs)", [])?;
    Ok(())
}
