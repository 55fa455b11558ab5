//! Which job runs next, and which jobs are suspected of ending the process.
//!
//! `decoding`: the job's audio is being decoded. `crashes`: how often the process died meanwhile, since the
//! audio was last decoded to its end. `interruptions`: deaths in a row during the rest of the job's runs.

use rusqlite::{Connection, OptionalExtension as _, params};

use crate::jobs::store::{INTERRUPTIONS_MAX, SUSPECT_PATIENCE};

/// As [`super::Store::recover`].
pub fn recover(db: &Connection, now: i64) -> rusqlite::Result<()> {
    // The first time, another job's audio may have been the cause; from then on the job ran alone. It waits 1
    // s, 4 s, 16 s and so on: whatever ended the process, the server gets something done in between.
    db.execute(
        "UPDATE jobs SET phase = 'queued', error = 'CRASHED',
                failures = failures + (max(crashes, interruptions - ?2) > 0),
                due_ms = ?1 + (1000 << (2 * min(max(crashes, interruptions - ?2), 5))),
                crashes = crashes + decoding, interruptions = interruptions + 1 - decoding, decoding = 0
         WHERE phase = 'running' AND (decoding OR interruptions >= ?2)",
        params![now, INTERRUPTIONS_MAX],
    )?;
    // Due since before it ran, so it goes before jobs that came later.
    db.execute(
        "UPDATE jobs SET phase = 'queued', interruptions = interruptions + 1 WHERE phase = 'running'",
        [],
    )?;
    db.execute("UPDATE jobs SET phase = 'waiting', due_ms = ?1 WHERE phase = 'sending'", [now])?;
    Ok(())
}

/// As [`super::Store::claim`]; returns the id.
pub fn next(db: &Connection, now: i64) -> rusqlite::Result<Option<String>> {
    let (running, alone): (i64, i64) = db.query_row(
        "SELECT count(*), count(*) FILTER (WHERE crashes > 0 OR interruptions > ?1) FROM jobs
         WHERE phase = 'running'",
        [INTERRUPTIONS_MAX],
        |row| Ok((row.get(0)?, row.get(1)?)),
    )?;
    if alone > 0 {
        return Ok(None);
    }
    let suspect: Option<(String, i64)> = db
        .query_row(
            "SELECT id, due_ms FROM jobs
             WHERE phase = 'queued' AND due_ms <= ?1 AND (crashes > 0 OR interruptions > ?2)
             ORDER BY due_ms LIMIT 1",
            [now, INTERRUPTIONS_MAX.into()],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
        .optional()?;
    if let Some((suspect, due)) = suspect {
        if running == 0 {
            return Ok(Some(suspect));
        }
        // A steady stream of jobs would keep the runner busy for ever. So running jobs finish, and none is
        // begun before the suspect.
        if now.saturating_sub(due) >= SUSPECT_PATIENCE.as_millis() as i64 {
            return Ok(None);
        }
    }
    db.query_row(
        "WITH busy AS (SELECT tenant, count(*) AS runs FROM jobs WHERE phase = 'running' GROUP BY tenant)
         SELECT jobs.id FROM jobs LEFT JOIN busy USING (tenant)
         WHERE phase = 'queued' AND due_ms <= ?1 AND crashes = 0 AND interruptions <= ?2
         ORDER BY coalesce(busy.runs, 0), due_ms LIMIT 1",
        [now, INTERRUPTIONS_MAX.into()],
        |row| row.get(0),
    )
    .optional()
}
