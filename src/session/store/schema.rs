//! The database's schema and the rows read back at the start.
//!
//! `sessions` holds the open sessions with everything they need; `ended` holds the remains of the others, of
//! which a start reads only a line each.

use rusqlite::{Connection, OptionalExtension as _, Row, TransactionBehavior, params};

use crate::knowledge::Passage;
use crate::session::error::StoreError;
use crate::session::held;
use crate::session::message;
use crate::session::presence::{AgentState, Media};
use crate::session::remains::{Ended, Remains};
use crate::session::setup::Setup;
use crate::session::state::Session;

pub const SECRET_BYTES: usize = 32;
const FORMAT: i64 = 2;

const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS sessions (
        id       TEXT PRIMARY KEY,
        setup    TEXT NOT NULL,
        state    TEXT NOT NULL,
        passages TEXT
    ) STRICT;
    CREATE TABLE IF NOT EXISTS ended (
        id            TEXT PRIMARY KEY,
        tenant        INTEGER NOT NULL,
        at            INTEGER NOT NULL,
        caller_number TEXT,
        wrong_answers INTEGER NOT NULL,
        is_sending    INTEGER NOT NULL,
        remains       TEXT NOT NULL
    ) STRICT;
    CREATE TABLE IF NOT EXISTS secrets (name TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT;";

/// A session that was open when the process ended.
pub struct Found {
    pub session: Session,
    pub setup: Setup,
    /// None if documents and website had not been read completely.
    pub passages: Option<Vec<Passage>>,
}

pub fn json<T: serde::Serialize + ?Sized>(value: &T) -> String {
    serde_json::to_string(value).expect("names are strings and numbers finite; this is a bug")
}

/// Brings the database to its present form.
///
/// # Errors
/// [`StoreError`].
pub fn migrate(connection: &mut Connection) -> Result<(), StoreError> {
    let found: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if !(0..=FORMAT).contains(&found) {
        return Err(StoreError::Newer { found, known: FORMAT });
    }
    if found < FORMAT {
        let change = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        change.execute_batch(TABLES)?;
        part(&change)?;
        change.pragma_update(None, "user_version", FORMAT)?;
        change.commit()?;
    }
    if found == 1 {
        // Only a rewritten database can give pages back.
        if let Err(error) = connection.execute_batch("VACUUM") {
            tracing::warn!(%error, "the session database keeps its size");
        }
    }
    Ok(())
}

/// Reduces ended sessions to their remains: format 1 kept everything.
fn part(connection: &Connection) -> Result<(), StoreError> {
    let over = "SELECT id FROM sessions WHERE json_extract(state, '$.status') = 'ended'";
    for id in texts(connection, over)? {
        let (setup, state): (String, String) =
            connection.query_row("SELECT setup, state FROM sessions WHERE id = ?1", [&id], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })?;
        let read = || {
            let (session, setup): (Session, Setup) =
                (serde_json::from_str(&state)?, serde_json::from_str(&setup)?);
            Ok::<_, serde_json::Error>(Remains::of(
                &session,
                &setup,
                Media::Embedded.status(),
                AgentState::Left,
            ))
        };
        match read() {
            Ok(remains) => keep(connection, &remains.ended(0), &json(&remains))?,
            Err(error) => tracing::warn!(%error, "a session that had ended cannot be read"),
        }
        connection.execute("DELETE FROM sessions WHERE id = ?1", [&id])?;
    }
    Ok(())
}

fn texts(connection: &Connection, query: &str) -> Result<Vec<String>, StoreError> {
    let mut statement = connection.prepare(query)?;
    let rows = statement.query_map([], |row| row.get(0))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Writes the remains of a session.
pub fn keep(connection: &Connection, ended: &Ended, remains: &str) -> Result<(), rusqlite::Error> {
    connection
        .prepare_cached(
            "INSERT OR REPLACE INTO ended (id, tenant, at, caller_number, wrong_answers, is_sending, remains)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        )?
        .execute(params![
            ended.id,
            ended.tenant.cast_signed(),
            ended.at.cast_signed(),
            ended.caller_number,
            ended.wrong_answers,
            ended.is_sending,
            remains,
        ])?;
    Ok(())
}

/// The open sessions. A row that cannot be read is skipped with a warning in the log.
///
/// # Errors
/// [`StoreError::Database`].
pub fn open_sessions(connection: &Connection) -> Result<Vec<Found>, StoreError> {
    let mut statement = connection.prepare("SELECT setup, state, passages FROM sessions")?;
    let mut rows = statement.query([])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let (setup, state): (String, String) = (row.get(0)?, row.get(1)?);
        let passages: Option<String> = row.get(2)?;
        let read = || {
            Ok::<_, serde_json::Error>(Found {
                session: serde_json::from_str(&state)?,
                setup: serde_json::from_str(&setup)?,
                passages: passages.as_deref().map(serde_json::from_str).transpose()?,
            })
        };
        match read() {
            Ok(session) => found.push(session),
            Err(error) => tracing::warn!(%error, "a session cannot be read"),
        }
    }
    Ok(found)
}

/// A line for each ended session, the oldest first.
///
/// # Errors
/// [`StoreError::Database`].
pub fn ended_sessions(connection: &Connection) -> Result<Vec<Ended>, StoreError> {
    interrupt(connection)?;
    let mut statement = connection.prepare(
        "SELECT id, tenant, at, caller_number, wrong_answers, is_sending, octet_length(remains)
         FROM ended ORDER BY at",
    )?;
    let read = |row: &Row<'_>| {
        Ok(Ended {
            id: row.get(0)?,
            tenant: row.get::<_, i64>(1)?.cast_unsigned(),
            at: row.get::<_, i64>(2)?.cast_unsigned(),
            caller_number: row.get(3)?,
            wrong_answers: row.get(4)?,
            is_sending: row.get(5)?,
            bytes: row.get::<_, i64>(6)?.cast_unsigned(),
        })
    };
    let rows = statement.query_map([], read)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Marks messages that were being sent when the process ended as failed.
fn interrupt(connection: &Connection) -> Result<(), StoreError> {
    for id in texts(connection, "SELECT id FROM ended WHERE is_sending")? {
        let Some(text) = remains(connection, &id)? else { continue };
        let Ok(mut remains) = serde_json::from_str::<Remains>(&text) else { continue };
        if message::interrupt(&mut remains.session.messages) {
            keep(connection, &remains.ended(held::json(&remains)), &json(&remains))?;
        }
    }
    Ok(())
}

/// The remains of the session `id`, as JSON.
///
/// # Errors
/// [`StoreError::Database`].
pub fn remains(connection: &Connection, id: &str) -> Result<Option<String>, StoreError> {
    let mut statement = connection.prepare_cached("SELECT remains FROM ended WHERE id = ?1")?;
    Ok(statement.query_row([id], |row| row.get(0)).optional()?)
}

/// The secret that signs tokens: created once, and the same after every restart.
///
/// # Errors
/// [`StoreError::Database`].
pub fn secret(connection: &Connection) -> Result<[u8; SECRET_BYTES], StoreError> {
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
