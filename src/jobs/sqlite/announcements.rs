//! Events that are stored as results which wait for their delivery.

use rusqlite::{Connection, params};

use super::rows::receiver;
use crate::jobs::store::Announcement;

pub fn add(db: &Connection, announcement: &Announcement, now_ms: i64) -> rusqlite::Result<()> {
    let Announcement { id, tenant, key, callback, body } = announcement;
    db.execute(
        "INSERT INTO jobs (id, tenant, key, phase, accepted_ms, due_ms, finished_ms, query, words, audio_bytes,
                           callback, method, receiver, body)
         VALUES (?1, ?2, ?3, 'waiting', ?4, ?4, ?4, '', 0, 0, ?5, 'POST', ?6, ?7)",
        params![
            id.to_string(),
            tenant.cast_signed(),
            key,
            now_ms,
            callback.as_str(),
            receiver(callback),
            body
        ],
    )?;
    Ok(())
}
