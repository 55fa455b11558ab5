//! [`Store`] on SQLite: `jobs.sqlite3` in the state directory, readable by its owner only.

mod announcements;
mod attempts;
mod ledger;
mod line;
mod opening;
mod rows;

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use rusqlite::{Connection, ErrorCode, OptionalExtension as _, TransactionBehavior, params};

use super::capacity::{Bounds, Usage};
use super::error::Error;
use super::store::{
    Acceptance, Announcement, Answer, Attempt, Census, Delivery, Finished, Job, JobId, Next, Order, Phase,
    Run, Source, Stamp, State, Store, Submission,
};
use crate::clock::{from_unix_ms, unix_ms};
use rows::{JOB, JOB_WITHOUT_RESULT, id, parsed, phase, read_job, receiver};

/// Cheap to clone. The connection is used on the blocking pool only.
#[derive(Clone)]
pub struct Sqlite {
    connection: Arc<Mutex<Connection>>,
    is_new: bool,
}

impl Sqlite {
    /// One transaction, off the async threads.
    fn transact<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Answer<'_, T> {
        let connection = self.connection.clone();
        let work = move || -> Result<T, Error> {
            // A panic elsewhere leaves the connection usable: SQLite rolls back what was not committed.
            let mut connection = connection.lock().unwrap_or_else(PoisonError::into_inner);
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let done = work(&transaction)?;
            transaction.commit().map_err(not_committed)?;
            Ok(done)
        };
        Box::pin(async { tokio::task::spawn_blocking(work).await.map_err(|_| Error::Interrupted)? })
    }
}

impl From<rusqlite::Error> for Error {
    fn from(error: rusqlite::Error) -> Self {
        use ErrorCode::{CannotOpen, DatabaseBusy, DatabaseLocked, DiskFull, OutOfMemory};
        let is_shortage = match &error {
            rusqlite::Error::SqliteFailure(failure, _) => {
                matches!(failure.code, CannotOpen | DatabaseBusy | DatabaseLocked | DiskFull | OutOfMemory)
                    // The file that connections share in WAL mode cannot grow.
                    || failure.extended_code == rusqlite::ffi::SQLITE_IOERR_SHMSIZE
            }
            _ => false,
        };
        if is_shortage { Self::Exhausted(Box::new(error)) } else { Self::Store(Box::new(error)) }
    }
}

/// A full disk stops SQLite before the log has the frame that commits the transaction. After any other error,
/// such as one of fsync, the frame may be in the log, and the next process to read it would find it.
fn not_committed(error: rusqlite::Error) -> Error {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => error.into(),
        _ => Error::Unsure(Box::new(error)),
    }
}

impl Store for Sqlite {
    fn submitted(&self, tenant: u64, idempotency_key: String) -> Answer<'_, Option<Submission>> {
        self.transact(move |db| submitted(db, tenant, &idempotency_key))
    }

    fn accept(&self, order: Order, sha256: Option<[u8; 32]>, bounds: Bounds) -> Answer<'_, Acceptance> {
        self.transact(move |db| accept(db, order, sha256, &bounds, ALONE))
    }

    fn announce(
        &self,
        announcement: Announcement,
        now: SystemTime,
        bounds: Bounds,
    ) -> Answer<'_, Acceptance> {
        self.transact(move |db| {
            if let Err(refusal) = bounds.may_take(held(db, announcement.tenant)?, 0) {
                return Ok(Acceptance::Refused(refusal));
            }
            announcements::add(db, &announcement, unix_ms(now)).map(|()| Acceptance::Taken)
        })
    }

    fn held(&self, tenant: u64) -> Answer<'_, Usage> {
        self.transact(move |db| held(db, tenant))
    }

    fn recover(&self, now: SystemTime) -> Answer<'_, ()> {
        self.transact(move |db| line::recover(db, unix_ms(now)))
    }

    fn set_decoding(&self, id: JobId, is_decoding: bool) -> Answer<'_, ()> {
        self.transact(move |db| {
            // Audio that was decoded to its end did not end the process.
            db.execute(
                "UPDATE jobs SET decoding = ?2, crashes = iif(?2, crashes, 0)
                 WHERE id = ?1 AND phase = 'running'",
                params![id.to_string(), is_decoding],
            )?;
            Ok(())
        })
    }

    fn with_audio(&self) -> Answer<'_, HashSet<JobId>> {
        self.transact(|db| {
            let mut statement =
                db.prepare("SELECT id FROM jobs WHERE phase IN ('queued', 'running') AND url IS NULL")?;
            statement.query_map([], |row| id(row, 0))?.collect()
        })
    }

    fn claim(&self, now: SystemTime) -> Answer<'_, Option<Run>> {
        self.transact(move |db| {
            let Some(id) = line::next(db, unix_ms(now))? else { return Ok(None) };
            db.query_row(
                "UPDATE jobs SET phase = 'running', runs = runs + 1 WHERE id = ?1
                 RETURNING id, accepted_ms, tenant, query, words, url, audio_bytes, sha256, failures",
                [id],
                |row| {
                    Ok(Run {
                        id: self::id(row, 0)?,
                        accepted: from_unix_ms(row.get(1)?),
                        tenant: row.get::<_, i64>(2)?.cast_unsigned(),
                        query: row.get(3)?,
                        words: row.get(4)?,
                        url: row.get(5)?,
                        stamp: Stamp { bytes: row.get::<_, i64>(6)?.cast_unsigned(), sha256: row.get(7)? },
                        failures: row.get(8)?,
                    })
                },
            )
            .map(Some)
        })
    }

    fn give_back(&self, id: JobId, due: SystemTime) -> Answer<'_, ()> {
        self.transact(move |db| {
            db.execute(
                "UPDATE jobs SET phase = 'queued', runs = runs - 1, due_ms = ?2, decoding = 0, interruptions = 0
                 WHERE id = ?1 AND phase = 'running'",
                params![id.to_string(), unix_ms(due)],
            )?;
            Ok(())
        })
    }

    fn run_again(&self, id: JobId, due: SystemTime, error: String) -> Answer<'_, ()> {
        self.transact(move |db| {
            db.execute(
                "UPDATE jobs SET phase = 'queued', failures = failures + 1, due_ms = ?2, error = ?3,
                        decoding = 0, interruptions = 0
                 WHERE id = ?1 AND phase = 'running'",
                params![id.to_string(), unix_ms(due), error],
            )?;
            Ok(())
        })
    }

    fn finish(&self, id: JobId, now: SystemTime, finished: Finished) -> Answer<'_, ()> {
        self.transact(move |db| {
            db.execute(
                "UPDATE jobs SET phase = 'waiting', due_ms = ?2, finished_ms = ?2, body = ?3, error = ?4,
                        media_type = ?5, query = '', url = NULL, audio_bytes = 0
                 WHERE id = ?1 AND phase = 'running'",
                params![id.to_string(), unix_ms(now), finished.body, finished.error, finished.media_type],
            )?;
            Ok(())
        })
    }

    fn claim_delivery(
        &self,
        now: SystemTime,
        busy_receivers: Vec<String>,
        busy_tenants: Vec<u64>,
    ) -> Answer<'_, Option<Delivery>> {
        self.transact(move |db| {
            let tenants: Vec<i64> = busy_tenants.into_iter().map(u64::cast_signed).collect();
            let list = |list: Result<String, serde_json::Error>| list.unwrap_or_else(|_| "[]".into());
            db.query_row(
                "UPDATE jobs SET phase = 'sending' WHERE id = (
                     SELECT id FROM jobs WHERE phase = 'waiting' AND due_ms <= ?1
                         AND receiver NOT IN (SELECT value FROM json_each(?2))
                         AND tenant NOT IN (SELECT value FROM json_each(?3))
                     ORDER BY due_ms LIMIT 1)
                 RETURNING id, tenant, key, callback, method, receiver, body, tried, attempts, finished_ms,
                     media_type",
                params![
                    unix_ms(now),
                    list(serde_json::to_string(&busy_receivers)),
                    list(serde_json::to_string(&tenants))
                ],
                |row| {
                    Ok(Delivery {
                        id: id(row, 0)?,
                        tenant: row.get::<_, i64>(1)?.cast_unsigned(),
                        key: row.get(2)?,
                        callback: parsed(row, 3)?,
                        method: parsed(row, 4)?,
                        receiver: row.get(5)?,
                        body: row.get(6)?,
                        tried: row.get(7)?,
                        attempts: row.get(8)?,
                        finished: from_unix_ms(row.get(9)?),
                        media_type: row.get(10)?,
                    })
                },
            )
            .optional()
        })
    }

    fn attempted(&self, id: JobId, now: SystemTime, next: Next, keep_result: bool) -> Answer<'_, ()> {
        self.transact(move |db| {
            let (id, now) = (id.to_string(), unix_ms(now));
            let error = match &next {
                Next::Delivered => None,
                Next::Again { error, .. } | Next::Dead { error } => Some(error),
            };
            attempts::add(db, &id, now, error)?;
            match next {
                // If the result is an error, that error stays.
                Next::Delivered => db.execute(
                    "UPDATE jobs SET phase = 'delivered', attempts = attempts + 1, ended_ms = ?2, callback = '',
                            body = iif(?3, body, NULL) WHERE id = ?1 AND phase = 'sending'",
                    params![id, now, keep_result],
                ),
                Next::Again { at, error } => db.execute(
                    "UPDATE jobs SET phase = 'waiting', attempts = attempts + 1, tried = tried + 1, due_ms = ?2,
                            error = ?3 WHERE id = ?1 AND phase = 'sending'",
                    params![id, unix_ms(at), error],
                ),
                Next::Dead { error } => db.execute(
                    "UPDATE jobs SET phase = 'dead', attempts = attempts + 1, tried = tried + 1, ended_ms = ?2,
                            error = ?3 WHERE id = ?1 AND phase = 'sending'",
                    params![id, now, error],
                ),
            }?;
            Ok(())
        })
    }

    fn unsent(&self, id: JobId, now: SystemTime) -> Answer<'_, ()> {
        self.transact(move |db| {
            db.execute(
                "UPDATE jobs SET phase = 'waiting', due_ms = ?2 WHERE id = ?1 AND phase = 'sending'",
                params![id.to_string(), unix_ms(now)],
            )?;
            Ok(())
        })
    }

    fn next_due(&self, phase: Phase, now: SystemTime) -> Answer<'_, Option<SystemTime>> {
        self.transact(move |db| {
            let due: Option<i64> = db.query_row(
                "SELECT min(due_ms) FROM jobs WHERE phase = ?1 AND due_ms > ?2",
                params![phase.name(), unix_ms(now)],
                |row| row.get(0),
            )?;
            Ok(due.map(from_unix_ms))
        })
    }

    fn job(&self, id: JobId) -> Answer<'_, Option<Job>> {
        self.transact(move |db| {
            db.query_row(&format!("{JOB} WHERE id = ?1"), [id.to_string()], read_job).optional()
        })
    }

    fn attempts(&self, id: JobId) -> Answer<'_, Vec<Attempt>> {
        self.transact(move |db| attempts::list(db, &id.to_string()))
    }

    fn list(&self, state: Option<State>, limit: u32) -> Answer<'_, Vec<Job>> {
        self.transact(move |db| {
            let phases =
                Phase::ALL.into_iter().filter(|phase| state.is_none_or(|state| phase.state() == state));
            let phases: Vec<String> = phases.map(|phase| format!("'{}'", phase.name())).collect();
            let mut statement = db.prepare(&format!(
                "{JOB_WITHOUT_RESULT} WHERE phase IN ({}) ORDER BY accepted_ms DESC LIMIT ?1",
                phases.join(", ")
            ))?;
            statement.query_map([limit], read_job)?.collect()
        })
    }

    fn redrive(&self, id: JobId, now: SystemTime) -> Answer<'_, bool> {
        self.transact(move |db| {
            let changed = db.execute(
                "UPDATE jobs SET tried = iif(phase = 'dead', 0, tried), phase = 'waiting', due_ms = ?2,
                        ended_ms = NULL, broker = iif(broker = 3, 2, broker)
                 WHERE id = ?1 AND phase IN ('dead', 'waiting') AND body IS NOT NULL",
                params![id.to_string(), unix_ms(now)],
            )?;
            Ok(changed > 0)
        })
    }

    fn purge(&self, results: SystemTime, jobs: SystemTime) -> Answer<'_, ()> {
        self.transact(move |db| {
            db.execute(
                "UPDATE jobs SET body = NULL WHERE phase = 'delivered' AND body IS NOT NULL AND ended_ms < ?1",
                [unix_ms(results)],
            )?;
            db.execute(
                "DELETE FROM jobs WHERE phase IN ('delivered', 'dead') AND ended_ms < ?1",
                [unix_ms(jobs)],
            )?;
            attempts::purge(db)?;
            Ok(())
        })
    }

    fn census(&self) -> Answer<'_, Census> {
        self.transact(|db| {
            let mut statement = db.prepare("SELECT phase, count(*) FROM jobs GROUP BY phase")?;
            let phases = statement
                .query_map([], |row| Ok((phase(row, 0)?, row.get::<_, i64>(1)?.cast_unsigned())))?
                .collect::<Result<_, _>>()?;
            let oldest: Option<i64> = db.query_row(
                "SELECT min(accepted_ms) FROM jobs WHERE phase IN ('queued', 'running', 'waiting', 'sending')",
                [],
                |row| row.get(0),
            )?;
            let audio_bytes = held(db, 0)?.bytes;
            Ok(Census { phases, oldest: oldest.map(from_unix_ms), audio_bytes })
        })
    }
}

/// The value of `broker` for jobs of a server that works alone.
const ALONE: i64 = 0;

/// As [`Store::accept`]; `broker` as in `ledger.rs`.
fn accept(
    db: &Connection,
    order: Order,
    sha256: Option<[u8; 32]>,
    bounds: &Bounds,
    broker: i64,
) -> rusqlite::Result<Acceptance> {
    let (bytes, url) = match order.source {
        Source::Spooled { bytes } => (bytes, None),
        Source::Url(url) => (0, Some(url)),
    };
    if let Some(idempotency) = &order.idempotency
        && let Some(known) = submitted(db, order.tenant, &idempotency.key)?
    {
        return Ok(known.again(idempotency.fingerprint));
    }
    if let Err(refusal) = bounds.may_take(held(db, order.tenant)?, bytes) {
        return Ok(Acceptance::Refused(refusal));
    }
    let receiver = receiver(&order.callback);
    let accepted_ms = unix_ms(order.accepted);
    db.execute(
        "INSERT INTO jobs (id, tenant, key, phase, accepted_ms, due_ms, query, words, url, audio_bytes,
                           callback, method, receiver, idempotency_key, fingerprint, sha256, broker)
         VALUES (?1, ?2, ?3, 'queued', ?4, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)",
        params![
            order.id.to_string(),
            order.tenant.cast_signed(),
            order.key,
            accepted_ms,
            order.query,
            order.words,
            url,
            bytes.cast_signed(),
            order.callback.as_str(),
            order.method.as_str(),
            receiver,
            order.idempotency.as_ref().map(|idempotency| &idempotency.key),
            order.idempotency.as_ref().map(|idempotency| idempotency.fingerprint),
            sha256,
            broker
        ],
    )?;
    Ok(Acceptance::Taken)
}

fn held(db: &Connection, tenant: u64) -> rusqlite::Result<Usage> {
    db.query_row(
        "SELECT count(*), coalesce(sum(audio_bytes), 0), count(*) FILTER (WHERE tenant = ?1),
                coalesce(sum(audio_bytes) FILTER (WHERE tenant = ?1), 0) FROM jobs
         WHERE phase IN ('queued', 'running', 'waiting', 'sending')",
        [tenant.cast_signed()],
        |row| {
            let number = |column| Ok::<_, rusqlite::Error>(row.get::<_, i64>(column)?.cast_unsigned());
            Ok(Usage { jobs: number(0)?, bytes: number(1)?, own_jobs: number(2)?, own_bytes: number(3)? })
        },
    )
}

fn submitted(db: &Connection, tenant: u64, idempotency_key: &str) -> rusqlite::Result<Option<Submission>> {
    db.query_row(
        "SELECT id, fingerprint FROM jobs WHERE tenant = ?1 AND idempotency_key = ?2",
        params![tenant.cast_signed(), idempotency_key],
        |row| Ok(Submission { id: id(row, 0)?, fingerprint: row.get(1)? }),
    )
    .optional()
}
