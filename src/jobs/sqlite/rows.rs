//! How jobs are stored in the table.

use rusqlite::Row;
use url::Url;
use uuid::Uuid;

use crate::clock::from_unix_ms;
use crate::jobs::store::{Job, JobId, Phase};

/// Statements that turn each format of the database into the next; the first starts from nothing.
///
/// `due_ms`: when the job runs or is sent next. `receiver`: host and port of `callback`, which is deleted on
/// delivery, as `query` and `url` are when the result exists. `idempotency_key`: stands for one job of its
/// tenant, as long as the job is remembered. `sha256`: the hash of the audio on disk. `media_type`: that of `body`, if
/// it is not JSON. `attempts`: deliveries that ended, by the number of the attempt. `line.rs` and `ledger.rs` document the
/// other columns.
pub const FORMATS: [&str; 6] = [
    "
    CREATE TABLE jobs (
        id          TEXT PRIMARY KEY,
        tenant      INTEGER NOT NULL,
        key         TEXT NOT NULL,
        phase       TEXT NOT NULL,
        accepted_ms INTEGER NOT NULL,
        due_ms      INTEGER NOT NULL,
        query       TEXT NOT NULL,
        words       INTEGER NOT NULL,
        url         TEXT,
        audio_bytes INTEGER NOT NULL,
        callback    TEXT NOT NULL,
        method      TEXT NOT NULL,
        receiver    TEXT NOT NULL,
        runs        INTEGER NOT NULL DEFAULT 0,
        failures    INTEGER NOT NULL DEFAULT 0,
        crashes     INTEGER NOT NULL DEFAULT 0,
        tried       INTEGER NOT NULL DEFAULT 0,
        attempts    INTEGER NOT NULL DEFAULT 0,
        error       TEXT,
        body        BLOB,
        finished_ms INTEGER,
        ended_ms    INTEGER
    ) STRICT;
    CREATE INDEX jobs_due ON jobs (phase, due_ms);
    CREATE INDEX jobs_accepted ON jobs (accepted_ms);",
    "
    ALTER TABLE jobs ADD COLUMN idempotency_key TEXT;
    ALTER TABLE jobs ADD COLUMN fingerprint BLOB;
    CREATE UNIQUE INDEX jobs_idempotency ON jobs (tenant, idempotency_key)
        WHERE idempotency_key IS NOT NULL;",
    "
    ALTER TABLE jobs ADD COLUMN sha256 BLOB;
    ALTER TABLE jobs ADD COLUMN decoding INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE jobs ADD COLUMN interruptions INTEGER NOT NULL DEFAULT 0;",
    "
    ALTER TABLE jobs ADD COLUMN media_type TEXT;",
    "
    CREATE TABLE attempts (
        job      TEXT NOT NULL,
        number   INTEGER NOT NULL,
        ended_ms INTEGER NOT NULL,
        error    TEXT,
        PRIMARY KEY (job, number)
    ) STRICT, WITHOUT ROWID;",
    "
    ALTER TABLE jobs ADD COLUMN broker INTEGER NOT NULL DEFAULT 0;
    CREATE INDEX jobs_broker ON jobs (broker, accepted_ms) WHERE broker IN (1, 2);",
];

/// The columns that [`read_job`] reads.
pub const JOB: &str =
    "SELECT id, tenant, phase, receiver, accepted_ms, due_ms, runs, attempts, error, finished_ms,
    ended_ms, body, media_type FROM jobs";
/// The same without the body, which may be large.
pub const JOB_WITHOUT_RESULT: &str =
    "SELECT id, tenant, phase, receiver, accepted_ms, due_ms, runs, attempts,
    error, finished_ms, ended_ms, NULL, media_type FROM jobs";

pub fn read_job(row: &Row<'_>) -> rusqlite::Result<Job> {
    let phase = phase(row, 2)?;
    let due = from_unix_ms(row.get(5)?);
    Ok(Job {
        id: id(row, 0)?,
        tenant: row.get::<_, i64>(1)?.cast_unsigned(),
        state: phase.state(),
        receiver: row.get(3)?,
        accepted: from_unix_ms(row.get(4)?),
        due: matches!(phase, Phase::Queued | Phase::Waiting).then_some(due),
        runs: row.get(6)?,
        attempts: row.get(7)?,
        error: row.get(8)?,
        finished: row.get::<_, Option<i64>>(9)?.map(from_unix_ms),
        ended: row.get::<_, Option<i64>>(10)?.map(from_unix_ms),
        result: row.get(11)?,
        media_type: row.get(12)?,
    })
}

pub fn phase(row: &Row<'_>, column: usize) -> rusqlite::Result<Phase> {
    let text: String = row.get(column)?;
    Phase::ALL.into_iter().find(|phase| phase.name() == text).ok_or_else(|| unreadable(column, "no phase"))
}

pub fn id(row: &Row<'_>, column: usize) -> rusqlite::Result<JobId> {
    parsed::<Uuid>(row, column).map(JobId)
}

pub fn parsed<T: std::str::FromStr>(row: &Row<'_>, column: usize) -> rusqlite::Result<T> {
    // The parser's own error would quote the value.
    row.get::<_, String>(column)?.parse().map_err(|_| unreadable(column, "a value that means nothing"))
}

fn unreadable(column: usize, problem: &'static str) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Text, problem.into())
}

/// Host and port, without the rest of the address.
pub fn receiver(callback: &Url) -> String {
    let port = callback.port_or_known_default().unwrap_or_default();
    format!("{}:{port}", callback.host_str().unwrap_or_default())
}
