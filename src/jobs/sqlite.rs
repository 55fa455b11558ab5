//! [`Store`] on SQLite: `jobs.sqlite3` in the state directory, readable by its owner only.

mod rows;

use std::collections::HashSet;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use rusqlite::{Connection, OptionalExtension as _, TransactionBehavior, params};

use super::Error;
use super::store::{
    Acceptance, Answer, Census, Delivery, Finished, Job, JobId, Next, Order, Phase, Run, Source, State, Store,
};
use crate::state;
use rows::{FORMATS, JOB, JOB_WITHOUT_RESULT, id, parsed, phase, read_job, receiver, time, unix_ms};

const DATABASE: &str = "jobs.sqlite3";
/// How long one process waits for another that is writing.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Cheap to clone. The connection is used on the blocking pool only.
#[derive(Clone)]
pub struct Sqlite {
    connection: Arc<Mutex<Connection>>,
}

impl Sqlite {
    /// Opens the database of `state_dir`, making directory and file where they are missing.
    ///
    /// # Errors
    /// [`Error::File`], [`Error::Store`], [`Error::Newer`].
    pub fn open(state_dir: &Path) -> Result<Self, Error> {
        let path = state_dir.join(DATABASE);
        state::make_directory(state_dir)
            .and_then(|()| state::make_file(&path))
            .map_err(|source| Error::File { path: path.clone(), source })?;
        let mut connection = Connection::open(&path)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        connection.pragma_update(None, "journal_mode", "wal")?;
        connection.pragma_update(None, "synchronous", "full")?;
        // What is forgotten is overwritten: results are what people said.
        connection.pragma_update(None, "secure_delete", true)?;
        if format(&connection)? < FORMATS.len() {
            let change = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            // Another process may have been here meanwhile.
            for statements in FORMATS.iter().skip(format(&change)?) {
                change.execute_batch(statements)?;
            }
            change.pragma_update(None, "user_version", FORMATS.len() as i64)?;
            change.commit()?;
        }
        Ok(Self { connection: Arc::new(Mutex::new(connection)) })
    }

    /// One transaction, off the async threads.
    fn transact<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Answer<'_, T> {
        let connection = self.connection.clone();
        let work = move || -> rusqlite::Result<T> {
            // A panic elsewhere leaves the connection usable: SQLite rolls back what was not committed.
            let mut connection = connection.lock().unwrap_or_else(PoisonError::into_inner);
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let done = work(&transaction)?;
            transaction.commit()?;
            Ok(done)
        };
        Box::pin(async { Ok(tokio::task::spawn_blocking(work).await.map_err(|_| Error::Interrupted)??) })
    }
}

impl From<rusqlite::Error> for Error {
    fn from(error: rusqlite::Error) -> Self {
        Self::Store(Box::new(error))
    }
}

impl Store for Sqlite {
    fn accept(&self, order: Order, pending_max: u64, bytes_max: u64) -> Answer<'_, Acceptance> {
        self.transact(move |db| {
            let (bytes, url) = match order.source {
                Source::Spooled { bytes } => (bytes, None),
                Source::Url(url) => (0, Some(url)),
            };
            if let Some(idempotency) = &order.idempotency
                && let Some((known, fingerprint)) = submitted(db, order.tenant, &idempotency.key)?
            {
                let same = fingerprint == idempotency.fingerprint;
                return Ok(if same { Acceptance::Known(known) } else { Acceptance::Conflict });
            }
            let (pending, held) = pending(db)?;
            if pending >= pending_max || !super::fits(held, bytes, bytes_max) {
                return Ok(Acceptance::Full);
            }
            let receiver = receiver(&order.callback);
            let accepted_ms = unix_ms(order.accepted);
            db.execute(
                "INSERT INTO jobs (id, tenant, key, phase, accepted_ms, due_ms, query, words, url, audio_bytes,
                                   callback, method, receiver, idempotency_key, fingerprint)
                 VALUES (?1, ?2, ?3, 'queued', ?4, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
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
                    order.idempotency.as_ref().map(|idempotency| idempotency.fingerprint)
                ],
            )?;
            Ok(Acceptance::Taken)
        })
    }

    fn pending(&self) -> Answer<'_, (u64, u64)> {
        self.transact(pending)
    }

    fn recover(&self, now: SystemTime) -> Answer<'_, ()> {
        self.transact(move |db| {
            // The first time it may have been another's fault; from then on it ran alone. After 1 s, 4 s, 16 s
            // and so on: whatever killed the process, it gets something done in between.
            db.execute(
                "UPDATE jobs SET phase = 'queued', failures = failures + (crashes > 0), crashes = crashes + 1,
                        error = 'CRASHED', due_ms = ?1 + (1000 << (2 * min(crashes, 5))) WHERE phase = 'running'",
                [unix_ms(now)],
            )?;
            db.execute(
                "UPDATE jobs SET phase = 'waiting', due_ms = ?1 WHERE phase = 'sending'",
                [unix_ms(now)],
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
            let Some(id) = next_to_run(db, unix_ms(now))? else { return Ok(None) };
            db.query_row(
                "UPDATE jobs SET phase = 'running', runs = runs + 1 WHERE id = ?1
                 RETURNING id, accepted_ms, tenant, query, words, url, failures",
                [id],
                |row| {
                    Ok(Run {
                        id: self::id(row, 0)?,
                        accepted: time(row.get(1)?),
                        tenant: row.get::<_, i64>(2)?.cast_unsigned(),
                        query: row.get(3)?,
                        words: row.get(4)?,
                        url: row.get(5)?,
                        failures: row.get(6)?,
                    })
                },
            )
            .map(Some)
        })
    }

    fn give_back(&self, id: JobId, due: SystemTime) -> Answer<'_, ()> {
        self.transact(move |db| {
            db.execute(
                "UPDATE jobs SET phase = 'queued', runs = runs - 1, due_ms = ?2
                 WHERE id = ?1 AND phase = 'running'",
                params![id.to_string(), unix_ms(due)],
            )?;
            Ok(())
        })
    }

    fn run_again(&self, id: JobId, due: SystemTime, error: String) -> Answer<'_, ()> {
        self.transact(move |db| {
            db.execute(
                "UPDATE jobs SET phase = 'queued', failures = failures + 1, due_ms = ?2, error = ?3
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
                        query = '', url = NULL, audio_bytes = 0
                 WHERE id = ?1 AND phase = 'running'",
                params![id.to_string(), unix_ms(now), finished.body, finished.error],
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
                 RETURNING id, tenant, key, callback, method, receiver, body, tried, attempts, finished_ms",
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
                        finished: time(row.get(9)?),
                    })
                },
            )
            .optional()
        })
    }

    fn attempted(&self, id: JobId, now: SystemTime, next: Next, keep_result: bool) -> Answer<'_, ()> {
        self.transact(move |db| {
            let (id, now) = (id.to_string(), unix_ms(now));
            match next {
                // The error of the transcription, if its result was one, stays.
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
            Ok(due.map(time))
        })
    }

    fn job(&self, id: JobId) -> Answer<'_, Option<Job>> {
        self.transact(move |db| {
            db.query_row(&format!("{JOB} WHERE id = ?1"), [id.to_string()], read_job).optional()
        })
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
                        ended_ms = NULL
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
            let (_, audio_bytes) = pending(db)?;
            Ok(Census { phases, oldest: oldest.map(time), audio_bytes })
        })
    }
}

/// Of how many formats the database has been made.
fn format(db: &Connection) -> Result<usize, Error> {
    let found: i64 = db.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let known = FORMATS.len();
    let newer = Error::Newer { found, known: known as i64 };
    usize::try_from(found).ok().filter(|found| *found <= known).ok_or(newer)
}

fn pending(db: &Connection) -> rusqlite::Result<(u64, u64)> {
    db.query_row(
        "SELECT count(*), coalesce(sum(audio_bytes), 0) FROM jobs
         WHERE phase IN ('queued', 'running', 'waiting', 'sending')",
        [],
        |row| Ok((row.get::<_, i64>(0)?.cast_unsigned(), row.get::<_, i64>(1)?.cast_unsigned())),
    )
}

/// The job that a tenant made under an idempotency key, and what it asked for.
fn submitted(db: &Connection, tenant: u64, key: &str) -> rusqlite::Result<Option<(JobId, [u8; 32])>> {
    db.query_row(
        "SELECT id, fingerprint FROM jobs WHERE tenant = ?1 AND idempotency_key = ?2",
        params![tenant.cast_signed(), key],
        |row| Ok((id(row, 0)?, row.get(1)?)),
    )
    .optional()
}

fn next_to_run(db: &Connection, now: i64) -> rusqlite::Result<Option<String>> {
    let (running, alone): (i64, i64) = db.query_row(
        "SELECT count(*), count(*) FILTER (WHERE crashes > 0) FROM jobs WHERE phase = 'running'",
        [],
        |row| Ok((row.get(0)?, row.get(1)?)),
    )?;
    if alone > 0 {
        return Ok(None);
    }
    let suspect = db
        .query_row(
            "SELECT id FROM jobs WHERE phase = 'queued' AND due_ms <= ?1 AND crashes > 0 ORDER BY due_ms LIMIT 1",
            [now],
            |row| row.get(0),
        )
        .optional()?;
    if suspect.is_some() {
        // Nothing else is begun until it has run.
        return Ok(suspect.filter(|_| running == 0));
    }
    db.query_row(
        "WITH busy AS (SELECT tenant, count(*) AS runs FROM jobs WHERE phase = 'running' GROUP BY tenant)
         SELECT jobs.id FROM jobs LEFT JOIN busy USING (tenant)
         WHERE phase = 'queued' AND due_ms <= ?1
         ORDER BY coalesce(busy.runs, 0), due_ms LIMIT 1",
        [now],
        |row| row.get(0),
    )
    .optional()
}
