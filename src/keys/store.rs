//! Keys on disk: `keys.sqlite3` and `keys.pepper` in the state directory, both readable by their owner only.
//! The database holds nothing else, so that its `data_version` changes only when keys do.

use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hmac::{Hmac, KeyInit as _, Mac as _};
use rusqlite::{Connection, OptionalExtension as _, Row, Transaction, TransactionBehavior, params};
use sha2::Sha256;

use super::Error;
use super::secret::{KeyId, Secret};
use crate::state;

pub const LABEL_CHARACTERS_MAX: usize = 100;

const DATABASE: &str = "keys.sqlite3";
const PEPPER: &str = "keys.pepper";
const PEPPER_BYTES: usize = 32;
/// 2 since keys may belong to operators.
const FORMAT: i64 = 2;
/// How long a command waits while another process writes.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// The public facts about a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    pub id: KeyId,
    /// For people: the user of the key.
    pub label: String,
    /// The tenant whose work is done under it. Capacity is shared between tenants.
    pub tenant: u64,
    /// Whether it is an operator's: such a key also reads the metrics of all tenants.
    pub is_operator: bool,
    pub created: SystemTime,
    pub revoked: Option<SystemTime>,
}

/// HMAC-SHA256(pepper, key).
pub(super) type Tag = [u8; 32];

/// A key that is not revoked, as the verifier holds it.
#[derive(Debug, Clone)]
pub(super) struct Record {
    pub tag: Tag,
    pub tenant: u64,
    pub is_operator: bool,
}

pub struct Store {
    connection: Connection,
    pepper: Pepper,
}

impl Store {
    /// Opens the keys of `state_dir`; creates directory and files if they are missing.
    ///
    /// # Errors
    /// [`Error::File`], [`Error::Pepper`], [`Error::Database`], [`Error::Newer`].
    pub fn open(state_dir: &Path) -> Result<Self, Error> {
        state::make_directory(state_dir)
            .map_err(|source| Error::File { path: state_dir.to_owned(), source })?;
        let pepper = Pepper::open(state_dir)?;
        let path = state_dir.join(DATABASE);
        state::make_file(&path).map_err(|source| Error::File { path: path.clone(), source })?;
        let connection = Connection::open(&path)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        connection.pragma_update(None, "journal_mode", "wal")?;
        connection.pragma_update(None, "synchronous", "full")?;
        let store = Self { connection, pepper };
        store.migrate()?;
        Ok(store)
    }

    fn migrate(&self) -> Result<(), Error> {
        if format_of(&self.connection)? == FORMAT {
            return Ok(());
        }
        // If two processes come here at once, the second one finds the work of the first.
        let transaction = Transaction::new_unchecked(&self.connection, TransactionBehavior::Immediate)?;
        match format_of(&transaction)? {
            0 => transaction.execute_batch(
                "CREATE TABLE keys (
                     id              TEXT PRIMARY KEY,
                     label           TEXT NOT NULL,
                     tenant          INTEGER NOT NULL,
                     tag             BLOB NOT NULL CHECK (length(tag) = 32),
                     created_unix_ms INTEGER NOT NULL,
                     revoked_unix_ms INTEGER,
                     operator        INTEGER NOT NULL DEFAULT 0
                 ) STRICT, WITHOUT ROWID;",
            )?,
            1 => transaction
                .execute_batch("ALTER TABLE keys ADD COLUMN operator INTEGER NOT NULL DEFAULT 0;")?,
            FORMAT => return Ok(()),
            found => return Err(Error::Newer { found, known: FORMAT }),
        }
        transaction.pragma_update(None, "user_version", FORMAT)?;
        Ok(transaction.commit()?)
    }

    /// Creates a key for a new tenant. The secret is not stored: this is the only time it is shown.
    ///
    /// # Errors
    /// [`Error::Label`], [`Error::Database`].
    pub fn create(&self, label: &str) -> Result<(Key, Secret), Error> {
        self.insert(label, false)
    }

    /// As [`Self::create`], for an operator.
    ///
    /// # Errors
    /// As [`Self::create`].
    pub fn create_operator(&self, label: &str) -> Result<(Key, Secret), Error> {
        self.insert(label, true)
    }

    fn insert(&self, label: &str, is_operator: bool) -> Result<(Key, Secret), Error> {
        let label = label.trim();
        let length = label.chars().count();
        if length == 0 || length > LABEL_CHARACTERS_MAX || label.chars().any(char::is_control) {
            return Err(Error::Label);
        }
        let secret = Secret::generate();
        // SQLite's integers are signed; 0 is the local user.
        let tenant = rand::random_range(1..=i64::MAX);
        let created_unix_ms = unix_ms(SystemTime::now());
        self.connection.execute(
            "INSERT INTO keys (id, label, tenant, tag, created_unix_ms, operator) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            params![
                secret.id().as_str(),
                label,
                tenant,
                self.pepper.tag(secret.expose()).as_slice(),
                created_unix_ms,
                is_operator
            ],
        )?;
        let key = Key {
            id: secret.id().clone(),
            label: label.to_owned(),
            tenant: tenant.unsigned_abs(),
            is_operator,
            created: from_unix_ms(created_unix_ms),
            revoked: None,
        };
        Ok((key, secret))
    }

    /// All keys, revoked ones included, oldest first.
    ///
    /// # Errors
    /// [`Error::Database`].
    pub fn list(&self) -> Result<Vec<Key>, Error> {
        let mut statement = self.connection.prepare(
            "SELECT id, label, tenant, created_unix_ms, revoked_unix_ms, operator FROM keys
             ORDER BY created_unix_ms, id",
        )?;
        let keys = statement.query_map([], read_key)?.collect::<Result<_, _>>()?;
        Ok(keys)
    }

    /// Revokes a key for good. Running servers refuse it within [`super::REFRESH_INTERVAL`].
    ///
    /// # Returns
    /// The key, or `None` if no key has that id. Revoking it again keeps the first time.
    ///
    /// # Errors
    /// [`Error::Database`].
    pub fn revoke(&self, id: &KeyId) -> Result<Option<Key>, Error> {
        self.connection.execute(
            "UPDATE keys SET revoked_unix_ms = ?2 WHERE id = ?1 AND revoked_unix_ms IS NULL",
            params![id.as_str(), unix_ms(SystemTime::now())],
        )?;
        let key = self
            .connection
            .query_row(
                "SELECT id, label, tenant, created_unix_ms, revoked_unix_ms, operator FROM keys WHERE id = ?1",
                [id.as_str()],
                read_key,
            )
            .optional()?;
        Ok(key)
    }

    /// A number that changes when another connection, in any process, has changed the keys.
    pub(super) fn version(&self) -> Result<i64, Error> {
        Ok(self.connection.pragma_query_value(None, "data_version", |row| row.get(0))?)
    }

    pub(super) fn active(&self) -> Result<HashMap<KeyId, Record>, Error> {
        let mut statement = self
            .connection
            .prepare("SELECT id, tag, tenant, operator FROM keys WHERE revoked_unix_ms IS NULL")?;
        let records = statement
            .query_map([], |row| {
                let record = Record {
                    tag: row.get(1)?,
                    tenant: row.get::<_, i64>(2)?.unsigned_abs(),
                    is_operator: row.get(3)?,
                };
                Ok((KeyId::from_stored(row.get(0)?), record))
            })?
            .collect::<Result<_, _>>()?;
        Ok(records)
    }

    pub(super) fn pepper(&self) -> &Pepper {
        &self.pepper
    }
}

fn format_of(connection: &Connection) -> Result<i64, Error> {
    Ok(connection.pragma_query_value(None, "user_version", |row| row.get(0))?)
}

fn read_key(row: &Row<'_>) -> rusqlite::Result<Key> {
    Ok(Key {
        id: KeyId::from_stored(row.get(0)?),
        label: row.get(1)?,
        tenant: row.get::<_, i64>(2)?.unsigned_abs(),
        is_operator: row.get(5)?,
        created: from_unix_ms(row.get(3)?),
        revoked: row.get::<_, Option<i64>>(4)?.map(from_unix_ms),
    })
}

/// The secret of this installation; without it, stored tags are useless.
#[derive(Clone)]
pub(super) struct Pepper([u8; PEPPER_BYTES]);

impl Pepper {
    fn open(state_dir: &Path) -> Result<Self, Error> {
        let path = state_dir.join(PEPPER);
        let random = || {
            let mut pepper = [0u8; PEPPER_BYTES];
            rand::fill(&mut pepper[..]);
            pepper.to_vec()
        };
        let bytes = state::read_or_make(&path, random)
            .map_err(|source| Error::File { path: path.clone(), source })?;
        bytes.try_into().map(Self).map_err(|_| Error::Pepper { path: path.clone(), expected: PEPPER_BYTES })
    }

    pub(super) fn tag(&self, key: &str) -> Tag {
        let mut mac =
            Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes a key of any length; this is a bug");
        mac.update(key.as_bytes());
        mac.finalize().into_bytes().into()
    }
}

fn unix_ms(time: SystemTime) -> i64 {
    let elapsed = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(elapsed.as_millis()).unwrap_or(i64::MAX)
}

fn from_unix_ms(ms: i64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(ms.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn keys_outlive_the_store() {
        let dir = tempfile::tempdir().unwrap();
        let (key, _) = Store::open(dir.path()).unwrap().create("  field team ").unwrap();
        assert_eq!(key.label, "field team");
        assert_eq!(Store::open(dir.path()).unwrap().list().unwrap(), [key]);
    }

    #[test]
    fn a_revoked_key_stays_listed_with_the_first_time() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let (key, _) = store.create("one").unwrap();
        let revoked = store.revoke(&key.id).unwrap().unwrap();
        assert!(revoked.revoked.is_some());
        assert_eq!(store.revoke(&key.id).unwrap(), Some(revoked.clone()));
        assert_eq!(store.list().unwrap(), [revoked]);
        assert!(store.active().unwrap().is_empty());
        assert_eq!(store.revoke(Secret::generate().id()).unwrap(), None);
    }

    #[test]
    fn files_are_private_and_hold_no_key() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("a").join("b");
        let store = Store::open(&state).unwrap();
        let (_, secret) = store.create("one").unwrap();
        assert_eq!(mode(&state), 0o700);
        let mut files = 0;
        for entry in fs::read_dir(&state).unwrap() {
            let path = entry.unwrap().path();
            assert_eq!(mode(&path), 0o600, "{}", path.display());
            let bytes = fs::read(&path).unwrap();
            let needle = &secret.expose().as_bytes()[12..];
            assert!(!bytes.windows(needle.len()).any(|window| window == needle), "{}", path.display());
            files += 1;
        }
        assert!(files >= 2, "database and pepper");
    }

    #[test]
    fn a_database_that_others_could_read_is_made_private() {
        let dir = tempfile::tempdir().unwrap();
        drop(Store::open(dir.path()).unwrap());
        let path = dir.path().join(DATABASE);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        drop(Store::open(dir.path()).unwrap());
        assert_eq!(mode(&path), 0o600);
    }

    #[test]
    fn a_damaged_pepper_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        drop(Store::open(dir.path()).unwrap());
        fs::write(dir.path().join(PEPPER), b"short").unwrap();
        assert!(matches!(Store::open(dir.path()), Err(Error::Pepper { .. })));
    }

    #[test]
    fn a_newer_format_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        store.connection.pragma_update(None, "user_version", 99).unwrap();
        drop(store);
        assert!(matches!(Store::open(dir.path()), Err(Error::Newer { found: 99, .. })));
    }

    #[test]
    fn keys_of_before_there_were_operators_are_taken_over() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let (old, _) = store.create("old").unwrap();
        store
            .connection
            .execute_batch("ALTER TABLE keys DROP COLUMN operator; PRAGMA user_version = 1;")
            .unwrap();
        drop(store);
        let store = Store::open(dir.path()).unwrap();
        assert_eq!(store.list().unwrap(), std::slice::from_ref(&old));
        let (operator, _) = store.create_operator("scraper").unwrap();
        assert!(operator.is_operator && !old.is_operator);
        let known = store.active().unwrap();
        assert!(known[&operator.id].is_operator && !known[&old.id].is_operator);
        assert_eq!(format_of(&store.connection).unwrap(), FORMAT);
    }

    #[test]
    fn labels_are_checked() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        for label in ["", "   ", "a\nb", "\u{7}", &"x".repeat(LABEL_CHARACTERS_MAX + 1)] {
            assert!(matches!(store.create(label), Err(Error::Label)), "{label:?}");
        }
        assert!(store.create(&"é".repeat(LABEL_CHARACTERS_MAX)).is_ok());
    }

    #[test]
    fn stores_opened_at_once_share_one_pepper() {
        let dir = tempfile::tempdir().unwrap();
        let tags: Vec<Tag> = std::thread::scope(|scope| {
            let openers: Vec<_> =
                (0..8).map(|_| scope.spawn(|| Store::open(dir.path()).unwrap().pepper().tag("x"))).collect();
            openers.into_iter().map(|opener| opener.join().unwrap()).collect()
        });
        assert!(tags.windows(2).all(|pair| pair[0] == pair[1]));
    }
}
