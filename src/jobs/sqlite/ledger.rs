//! [`Ledger`] on SQLite.
//!
//! `broker`: 0 for jobs of a server that works alone, 1 if the broker has not acknowledged the job, 2 if it has, 3 once it
//! knows that the job has ended.

use std::time::SystemTime;

use rusqlite::{OptionalExtension as _, params};

use super::rows::{id, phase};
use super::{Sqlite, accept};
use crate::clock::{from_unix_ms, unix_ms};
use crate::jobs::capacity::Bounds;
use crate::jobs::ledger::{Entry, Ledger, Open};
use crate::jobs::store::{Acceptance, Answer, Finished, Idempotency, JobId, Order, Source, Submission};

const UNCONFIRMED: i64 = 1;

impl Ledger for Sqlite {
    fn accept_unconfirmed(
        &self,
        order: Order,
        sha256: Option<[u8; 32]>,
        bounds: Bounds,
    ) -> Answer<'_, Acceptance> {
        self.transact(move |db| accept(db, order, sha256, &bounds, UNCONFIRMED))
    }

    fn confirm(&self, id: JobId) -> Answer<'_, ()> {
        self.transact(move |db| {
            db.execute("UPDATE jobs SET broker = 2 WHERE id = ?1 AND broker = 1", [id.to_string()])?;
            Ok(())
        })
    }

    fn withdraw(&self, id: JobId) -> Answer<'_, bool> {
        self.transact(move |db| {
            let deleted = db.execute("DELETE FROM jobs WHERE id = ?1 AND broker = 1", [id.to_string()])?;
            Ok(deleted > 0)
        })
    }

    fn enrol(&self) -> Answer<'_, ()> {
        self.transact(|db| {
            db.execute("UPDATE jobs SET broker = 2 WHERE broker = 0 AND phase = 'queued'", [])?;
            Ok(())
        })
    }

    fn open_jobs(&self) -> Answer<'_, Vec<Open>> {
        self.transact(|db| {
            let mut statement = db.prepare_cached(
                "SELECT id, phase, broker FROM jobs WHERE broker IN (1, 2) ORDER BY accepted_ms",
            )?;
            let rows = statement.query_map([], |row| {
                Ok(Open { id: id(row, 0)?, phase: phase(row, 1)?, is_confirmed: row.get::<_, i64>(2)? > 1 })
            })?;
            rows.collect()
        })
    }

    fn entry(&self, id: JobId) -> Answer<'_, Option<Entry>> {
        self.transact(move |db| {
            db.query_row(
                "SELECT phase, accepted_ms, due_ms, tenant, key, query, words, url, audio_bytes, sha256, callback,
                        method, receiver, idempotency_key, fingerprint, broker, runs, failures, attempts, error,
                        finished_ms, ended_ms
                 FROM jobs WHERE id = ?1 AND broker > 0",
                [id.to_string()],
                |row| {
                    let time = |column| Ok::<_, rusqlite::Error>(row.get::<_, Option<i64>>(column)?.map(from_unix_ms));
                    let key: Option<String> = row.get(13)?;
                    let fingerprint: Option<[u8; 32]> = row.get(14)?;
                    Ok(Entry {
                        id,
                        phase: phase(row, 0)?,
                        accepted: from_unix_ms(row.get(1)?),
                        due: from_unix_ms(row.get(2)?),
                        tenant: row.get::<_, i64>(3)?.cast_unsigned(),
                        key: row.get(4)?,
                        query: row.get(5)?,
                        words: row.get(6)?,
                        source: match row.get::<_, Option<String>>(7)? {
                            Some(url) => Source::Url(url),
                            None => Source::Spooled { bytes: row.get::<_, i64>(8)?.cast_unsigned() },
                        },
                        sha256: row.get(9)?,
                        callback: row.get(10)?,
                        method: row.get(11)?,
                        receiver: row.get(12)?,
                        idempotency: key
                            .zip(fingerprint)
                            .map(|(key, fingerprint)| Idempotency { key, fingerprint }),
                        is_confirmed: row.get::<_, i64>(15)? > UNCONFIRMED,
                        runs: row.get(16)?,
                        failures: row.get(17)?,
                        attempts: row.get(18)?,
                        error: row.get(19)?,
                        finished: time(20)?,
                        ended: time(21)?,
                    })
                },
            )
            .optional()
        })
    }

    fn settle(&self, id: JobId, now: SystemTime, finished: Finished, runs: u32) -> Answer<'_, bool> {
        self.transact(move |db| {
            let changed = db.execute(
                "UPDATE jobs SET phase = 'waiting', due_ms = ?2, finished_ms = ?2, body = ?3, error = ?4,
                        media_type = ?5, runs = ?6, query = '', url = NULL, audio_bytes = 0
                 WHERE id = ?1 AND phase IN ('queued', 'running')",
                params![
                    id.to_string(),
                    unix_ms(now),
                    finished.body,
                    finished.error,
                    finished.media_type,
                    runs
                ],
            )?;
            Ok(changed > 0)
        })
    }

    fn close(&self, id: JobId) -> Answer<'_, ()> {
        self.transact(move |db| {
            db.execute(
                "UPDATE jobs SET broker = 3 WHERE id = ?1 AND phase IN ('delivered', 'dead')",
                [id.to_string()],
            )?;
            Ok(())
        })
    }

    fn submissions(&self) -> Answer<'_, Vec<(u64, String, Submission)>> {
        self.transact(|db| {
            let mut statement = db.prepare(
                "SELECT tenant, idempotency_key, id, fingerprint FROM jobs
                 WHERE idempotency_key IS NOT NULL AND broker > 1",
            )?;
            let rows = statement.query_map([], |row| {
                let tenant = row.get::<_, i64>(0)?.cast_unsigned();
                Ok((tenant, row.get(1)?, Submission { id: id(row, 2)?, fingerprint: row.get(3)? }))
            })?;
            rows.collect()
        })
    }
}
