//! The formats of the database, and the changes that lead from one to the next.

use rusqlite::{Connection, Transaction, TransactionBehavior};

use crate::keys::Error;

/// Migrations, one per format. 2 adds operators; 3 adds scopes, expiry, tags, and names of organisations; 4 adds admins; 5 adds
/// limits, the account that they are counted on, and the record of changes; 6 adds the list of changes that other nodes do not
/// know yet (`shared.rs`).
const CHANGES: [&str; 6] = [
    "CREATE TABLE keys (
         id              TEXT PRIMARY KEY,
         label           TEXT NOT NULL,
         tenant          INTEGER NOT NULL,
         tag             BLOB NOT NULL CHECK (length(tag) = 32),
         created_unix_ms INTEGER NOT NULL,
         revoked_unix_ms INTEGER
     ) STRICT, WITHOUT ROWID;",
    "ALTER TABLE keys ADD COLUMN operator INTEGER NOT NULL DEFAULT 0;",
    // Older keys can go on doing what they did, and nothing more.
    "ALTER TABLE keys ADD COLUMN scopes TEXT NOT NULL DEFAULT 'project:read usage:read usage:write';
     ALTER TABLE keys ADD COLUMN expires_unix_ms INTEGER;
     ALTER TABLE keys ADD COLUMN tags TEXT NOT NULL DEFAULT '[]';
     CREATE INDEX keys_by_tenant ON keys (tenant);
     CREATE TABLE organisations (
         tenant INTEGER PRIMARY KEY,
         name   TEXT NOT NULL
     ) STRICT;",
    "ALTER TABLE keys ADD COLUMN admin INTEGER NOT NULL DEFAULT 0;",
    "ALTER TABLE keys ADD COLUMN requests_per_minute INTEGER;
     ALTER TABLE keys ADD COLUMN concurrent INTEGER;
     ALTER TABLE keys ADD COLUMN audio_seconds_per_day INTEGER;
     ALTER TABLE keys ADD COLUMN audio_seconds_per_month INTEGER;
     ALTER TABLE keys ADD COLUMN account TEXT;
     CREATE TABLE audit (
         id         INTEGER PRIMARY KEY AUTOINCREMENT,
         at_unix_ms INTEGER NOT NULL,
         actor      TEXT NOT NULL,
         change     TEXT NOT NULL,
         key        TEXT NOT NULL,
         tenant     INTEGER NOT NULL,
         about      TEXT NOT NULL
     ) STRICT;
     CREATE INDEX audit_by_tenant ON audit (tenant, id);
     CREATE TRIGGER audit_is_never_changed BEFORE UPDATE ON audit
     BEGIN
         SELECT RAISE(ABORT, 'entries of the audit log are never changed');
     END;",
    // Triggers note a change together with it, whichever process makes it, and whatever columns come later.
    "CREATE TABLE IF NOT EXISTS changes (
         number  INTEGER PRIMARY KEY AUTOINCREMENT,
         name    TEXT NOT NULL UNIQUE,
         is_copy INTEGER NOT NULL DEFAULT 0
     ) STRICT;
     CREATE TRIGGER IF NOT EXISTS key_made AFTER INSERT ON keys BEGIN
         DELETE FROM changes WHERE name = 'key.' || NEW.id;
         INSERT INTO changes (name) VALUES ('key.' || NEW.id);
     END;
     CREATE TRIGGER IF NOT EXISTS key_changed AFTER UPDATE ON keys BEGIN
         DELETE FROM changes WHERE name = 'key.' || NEW.id;
         INSERT INTO changes (name) VALUES ('key.' || NEW.id);
     END;
     CREATE TRIGGER IF NOT EXISTS key_forgotten AFTER DELETE ON keys BEGIN
         DELETE FROM changes WHERE name = 'key.' || OLD.id;
         INSERT INTO changes (name) VALUES ('key.' || OLD.id);
     END;
     CREATE TRIGGER IF NOT EXISTS organisation_named AFTER INSERT ON organisations BEGIN
         DELETE FROM changes WHERE name = 'organisation.' || NEW.tenant;
         INSERT INTO changes (name) VALUES ('organisation.' || NEW.tenant);
     END;
     CREATE TRIGGER IF NOT EXISTS organisation_renamed AFTER UPDATE ON organisations BEGIN
         DELETE FROM changes WHERE name = 'organisation.' || NEW.tenant;
         INSERT INTO changes (name) VALUES ('organisation.' || NEW.tenant);
     END;
     INSERT OR IGNORE INTO changes (name, is_copy) SELECT 'key.' || id, 1 FROM keys;
     INSERT OR IGNORE INTO changes (name, is_copy) SELECT 'organisation.' || tenant, 1 FROM organisations;",
];

/// Brings the database to the newest format.
///
/// # Errors
/// [`Error::Newer`], [`Error::Database`].
pub fn migrate(connection: &Connection) -> Result<(), Error> {
    if of(connection)? == CHANGES.len() {
        return Ok(());
    }
    // If two processes come here at once, the second one finds the work of the first.
    let transaction = Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
    for change in CHANGES.iter().skip(of(&transaction)?) {
        transaction.execute_batch(change)?;
    }
    transaction.pragma_update(None, "user_version", CHANGES.len() as i64)?;
    Ok(transaction.commit()?)
}

/// The format of the database: the number of [`CHANGES`] that were made.
fn of(connection: &Connection) -> Result<usize, Error> {
    let found: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let known = CHANGES.len();
    let newer = Error::Newer { found, known: known as i64 };
    usize::try_from(found).ok().filter(|found| *found <= known).ok_or(newer)
}
