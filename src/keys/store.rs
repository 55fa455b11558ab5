//! Keys on disk: `keys.sqlite3`, `keys.pepper` and `keys.signing` in the state directory, readable by their
//! owner only. The database holds nothing else, so that its `data_version` changes only when keys do.

mod format;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use hmac::{Hmac, KeyInit as _, Mac as _};
use rusqlite::{Connection, OptionalExtension as _, Row, Transaction, TransactionBehavior, params};
use sha2::Sha256;

use super::Error;
use super::audit::{self, Actor, Change, Entry};
use super::ledger::Ledger;
use super::limits::{self, Limits};
use super::scope::Scopes;
use super::secret::{KeyId, Secret};
use super::token::{SIGNING_KEY_BYTES, Signer};
use crate::clock::{from_unix_ms, is_writable, rfc3339_seconds, unix_ms};
use crate::state;

pub const LABEL_CHARACTERS_MAX: usize = 100;
/// Tags of a key, and the characters of each.
pub const TAGS_MAX: usize = 20;
pub const TAG_CHARACTERS_MAX: usize = 128;

const DATABASE: &str = "keys.sqlite3";
const PEPPER: &str = "keys.pepper";
const PEPPER_BYTES: usize = 32;
const SIGNING_KEY: &str = "keys.signing";
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
    /// Whether it opens the console, which manages the keys, jobs and settings of all tenants. Only the command line
    /// makes such a key.
    pub is_admin: bool,
    pub scopes: Scopes,
    pub tags: Vec<String>,
    pub created: SystemTime,
    /// From then on it is refused.
    pub expires: Option<SystemTime>,
    pub revoked: Option<SystemTime>,
    pub limits: Limits,
    /// The key on whose account its limits are counted: itself, or the limited key that it was made with.
    pub account: KeyId,
}

impl Key {
    /// `admin`, `operator` or `caller`.
    pub fn role(&self) -> &'static str {
        match (self.is_admin, self.is_operator) {
            (true, _) => "admin",
            (false, true) => "operator",
            (false, false) => "caller",
        }
    }

    /// Its id and organisation, for the record of changes.
    pub(super) fn named(&self) -> (&KeyId, u64) {
        (&self.id, self.tenant)
    }

    /// Label, role, scopes, expiry and limits, for the record of changes.
    pub(super) fn about(&self) -> String {
        let scopes: Vec<&str> = self.scopes.words().collect();
        let mut about = format!("{:?} {} scopes={}", self.label, self.role(), scopes.join(","));
        if let Some(expires) = self.expires {
            about += &format!(" expires={}", rfc3339_seconds(expires));
        }
        for (name, limit) in self.limits.named() {
            if let Some(limit) = limit {
                about += &format!(" {name}={limit}");
            }
        }
        about
    }

    /// Whether it is neither revoked nor expired.
    pub fn is_active(&self, now: SystemTime) -> bool {
        self.revoked.is_none() && self.expires.is_none_or(|expires| now < expires)
    }
}

/// A key to be made.
#[derive(Debug, Clone)]
pub struct NewKey {
    /// 1 to [`LABEL_CHARACTERS_MAX`] printable characters.
    pub label: String,
    /// The organisation of other keys; a new one if it is `None`.
    pub tenant: Option<u64>,
    pub is_operator: bool,
    pub is_admin: bool,
    /// At least one.
    pub scopes: Scopes,
    /// In the future, and before the year 10000.
    pub expires: Option<SystemTime>,
    /// At most [`TAGS_MAX`], each of 1 to [`TAG_CHARACTERS_MAX`] printable characters.
    pub tags: Vec<String>,
    /// Each at most [`limits::LIMIT_MAX`].
    pub limits: Limits,
    /// The key on whose account its limits are counted; `None` for itself.
    pub account: Option<KeyId>,
}

impl NewKey {
    /// A key of a new organisation that uses the server.
    pub fn of_a_client(label: &str) -> Self {
        Self {
            label: label.to_owned(),
            tenant: None,
            is_operator: false,
            is_admin: false,
            scopes: Scopes::of_a_client(),
            expires: None,
            tags: Vec::new(),
            limits: Limits::NONE,
            account: None,
        }
    }

    fn check(&self, now: SystemTime) -> Result<(), Error> {
        if !is_printable(&self.label, LABEL_CHARACTERS_MAX) {
            return Err(Error::Label);
        }
        if self.tags.len() > TAGS_MAX || !self.tags.iter().all(|tag| is_printable(tag, TAG_CHARACTERS_MAX)) {
            return Err(Error::Tags);
        }
        if self.scopes.is_empty() {
            return Err(Error::NoScope);
        }
        if self.expires.is_some_and(|expires| expires <= now) {
            return Err(Error::Expired);
        }
        if self.expires.is_some_and(|expires| !is_writable(expires)) {
            return Err(Error::Endless);
        }
        if !self.limits.are_allowed() {
            return Err(Error::LimitRange);
        }
        Ok(())
    }
}

/// HMAC-SHA256(pepper, key).
pub(super) type Tag = [u8; 32];

/// A key that is not revoked, as the verifier holds it.
#[derive(Debug, Clone)]
pub(super) struct Record {
    pub tag: Tag,
    pub tenant: u64,
    pub is_operator: bool,
    pub is_admin: bool,
    pub scopes: Scopes,
    pub expires: Option<SystemTime>,
    pub limits: Limits,
    /// `None` for itself.
    pub account: Option<KeyId>,
}

pub struct Store {
    pub(super) connection: Connection,
    state_dir: PathBuf,
    pepper: Pepper,
    signer: Signer,
}

impl Store {
    /// Opens the keys of `state_dir`; creates directory and files if they are missing.
    ///
    /// # Errors
    /// [`Error::File`], [`Error::Secret`], [`Error::Database`], [`Error::Newer`].
    pub fn open(state_dir: &Path) -> Result<Self, Error> {
        state::make_directory(state_dir)
            .map_err(|source| Error::File { path: state_dir.to_owned(), source })?;
        let pepper = Pepper(random_of(state_dir.join(PEPPER))?);
        let signer = Signer::new(random_of::<SIGNING_KEY_BYTES>(state_dir.join(SIGNING_KEY))?);
        let path = state_dir.join(DATABASE);
        state::make_file(&path).map_err(|source| Error::File { path: path.clone(), source })?;
        let connection = Connection::open(&path)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        state::log_ahead(&connection, BUSY_TIMEOUT)?;
        connection.pragma_update(None, "synchronous", "full")?;
        format::migrate(&connection)?;
        Ok(Self { connection, state_dir: state_dir.to_owned(), pepper, signer })
    }

    /// The changes to keys, the newest `most` of them, oldest first.
    ///
    /// # Errors
    /// [`Error::Database`].
    pub fn audit(&self, most: u32) -> Result<Vec<Entry>, Error> {
        audit::newest(&self.connection, most)
    }

    /// The accounts of limited keys, which lie beside the keys.
    ///
    /// # Errors
    /// [`Error::File`], [`Error::Database`].
    pub(super) fn ledger(&self) -> Result<Ledger, Error> {
        Ledger::open(&self.state_dir)
    }

    /// A second connection to the same keys.
    pub(super) fn reopen(&self) -> Result<Self, Error> {
        Self::open(&self.state_dir)
    }

    /// Creates a key for a new tenant, which uses the server. The secret is not stored: this is the only time
    /// it is shown.
    ///
    /// # Errors
    /// [`Error::Label`], [`Error::Database`].
    pub fn create(&self, label: &str) -> Result<(Key, Secret), Error> {
        self.insert(NewKey::of_a_client(label))
    }

    /// As [`Self::create`], for an operator.
    ///
    /// # Errors
    /// As [`Self::create`].
    pub fn create_operator(&self, label: &str) -> Result<(Key, Secret), Error> {
        let scopes = Scopes::of_an_owner();
        self.insert(NewKey { is_operator: true, scopes, ..NewKey::of_a_client(label) })
    }

    /// As [`Self::create`], for an admin: the key of a new organisation that opens the console.
    ///
    /// # Errors
    /// As [`Self::create`].
    pub fn create_admin(&self, label: &str) -> Result<(Key, Secret), Error> {
        let scopes = Scopes::of_an_owner();
        self.insert(NewKey { is_admin: true, scopes, ..NewKey::of_a_client(label) })
    }

    /// As [`Self::create`], with all that can be said about a key.
    ///
    /// # Errors
    /// [`Error::Label`], [`Error::Tags`], [`Error::NoScope`], [`Error::Expired`], [`Error::Endless`],
    /// [`Error::LimitRange`], [`Error::Organisation`], [`Error::Database`].
    pub fn insert(&self, new: NewKey) -> Result<(Key, Secret), Error> {
        self.insert_by(&Actor::Machine, new)
    }

    /// As [`Self::insert`], by someone else than a command on this machine.
    ///
    /// # Errors
    /// As [`Self::insert`].
    pub fn insert_by(&self, actor: &Actor, new: NewKey) -> Result<(Key, Secret), Error> {
        let now = SystemTime::now();
        let new = NewKey { label: new.label.trim().to_owned(), ..new };
        new.check(now)?;
        let tenant = match new.tenant {
            Some(tenant) if self.has_organisation(tenant)? => tenant,
            Some(_) => return Err(Error::Organisation),
            // SQLite's integers are signed; 0 is the local user.
            None => rand::random_range(1..=i64::MAX).unsigned_abs(),
        };
        let secret = Secret::generate();
        let (created, expires) = (unix_ms(now), new.expires.map(unix_ms));
        let [per_minute, concurrent, per_day, per_month] = new.limits.stored();
        let change = self.change()?;
        change.execute(
            &format!(
                "INSERT INTO keys (id, label, tenant, tag, created_unix_ms, operator, scopes, expires_unix_ms, tags,
                     admin, {})
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)",
                limits::COLUMNS
            ),
            params![
                secret.id().as_str(),
                new.label,
                tenant.cast_signed(),
                self.pepper.tag(secret.expose()).as_slice(),
                created,
                new.is_operator,
                new.scopes.stored(),
                expires,
                // A list of texts always serializes.
                serde_json::to_string(&new.tags).unwrap_or_default(),
                new.is_admin,
                per_minute,
                concurrent,
                per_day,
                per_month,
                new.account.as_ref().map(KeyId::as_str),
            ],
        )?;
        let key = Key {
            id: secret.id().clone(),
            label: new.label,
            tenant,
            is_operator: new.is_operator,
            is_admin: new.is_admin,
            scopes: new.scopes,
            tags: new.tags,
            created: from_unix_ms(created),
            expires: expires.map(from_unix_ms),
            revoked: None,
            limits: new.limits,
            account: new.account.unwrap_or_else(|| secret.id().clone()),
        };
        audit::record(&change, actor, Change::Created, key.named(), &key.about())?;
        change.commit()?;
        Ok((key, secret))
    }

    fn has_organisation(&self, tenant: u64) -> Result<bool, Error> {
        let found = self.connection.query_row(
            "SELECT 1 FROM keys WHERE tenant = ?1 LIMIT 1",
            [tenant.cast_signed()],
            |_| Ok(()),
        );
        Ok(found.optional()?.is_some())
    }

    /// All keys, revoked ones included, oldest first.
    ///
    /// # Errors
    /// [`Error::Database`].
    pub fn list(&self) -> Result<Vec<Key>, Error> {
        let mut statement = self.connection.prepare(&format!("{KEY} ORDER BY created_unix_ms, id"))?;
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
        self.revoke_by(&Actor::Machine, id)
    }

    /// As [`Self::revoke`], by someone else than a command on this machine.
    ///
    /// # Errors
    /// As [`Self::revoke`].
    pub fn revoke_by(&self, actor: &Actor, id: &KeyId) -> Result<Option<Key>, Error> {
        let change = self.change()?;
        let changed = change.execute(
            "UPDATE keys SET revoked_unix_ms = ?2 WHERE id = ?1 AND revoked_unix_ms IS NULL",
            params![id.as_str(), unix_ms(SystemTime::now())],
        )?;
        let key = self.key(id)?;
        if let (Some(key), 1..) = (&key, changed) {
            audit::record(&change, actor, Change::Revoked, key.named(), &key.about())?;
        }
        change.commit()?;
        Ok(key)
    }

    /// Gives a key these limits, in the place of all that it had, and so the keys on its account. Running servers keep them
    /// within [`super::REFRESH_INTERVAL`].
    ///
    /// # Returns
    /// The key, or `None` if no key has that id.
    ///
    /// # Errors
    /// [`Error::LimitRange`]; [`Error::Shared`] if they are counted on another key's account; [`Error::Database`].
    pub fn limit(&self, actor: &Actor, id: &KeyId, limits: Limits) -> Result<Option<Key>, Error> {
        if !limits.are_allowed() {
            return Err(Error::LimitRange);
        }
        let change = self.change()?;
        let Some(key) = self.key(id)? else { return Ok(None) };
        if key.account != *id {
            return Err(Error::Shared { account: key.account });
        }
        let [per_minute, concurrent, per_day, per_month] = limits.stored();
        change.execute(
            "UPDATE keys SET requests_per_minute = ?2, concurrent = ?3, audio_seconds_per_day = ?4,
                 audio_seconds_per_month = ?5 WHERE id = ?1 OR account = ?1",
            params![id.as_str(), per_minute, concurrent, per_day, per_month],
        )?;
        let key = Key { limits, ..key };
        audit::record(&change, actor, Change::Limited, key.named(), &key.about())?;
        change.commit()?;
        Ok(Some(key))
    }

    /// The key `id`, if there is one.
    fn key(&self, id: &KeyId) -> Result<Option<Key>, Error> {
        let key = self.connection.query_row(&format!("{KEY} WHERE id = ?1"), [id.as_str()], read_key);
        Ok(key.optional()?)
    }

    /// Begins a change. The immediate lock makes concurrent ones see each other.
    pub(super) fn change(&self) -> Result<Transaction<'_>, Error> {
        Ok(Transaction::new_unchecked(&self.connection, TransactionBehavior::Immediate)?)
    }

    /// A number that changes when another connection, in any process, has changed the keys.
    pub(super) fn version(&self) -> Result<i64, Error> {
        Ok(self.connection.pragma_query_value(None, "data_version", |row| row.get(0))?)
    }

    pub(super) fn active(&self) -> Result<HashMap<KeyId, Record>, Error> {
        let mut statement = self.connection.prepare(&format!(
            "SELECT id, tag, tenant, operator, scopes, expires_unix_ms, admin, {} FROM keys
             WHERE revoked_unix_ms IS NULL",
            limits::COLUMNS
        ))?;
        let records = statement
            .query_map([], |row| {
                let is_operator = row.get(3)?;
                let record = Record {
                    tag: row.get(1)?,
                    tenant: row.get::<_, i64>(2)?.cast_unsigned(),
                    is_operator,
                    is_admin: row.get(6)?,
                    scopes: scopes(row, 4, is_operator)?,
                    expires: row.get::<_, Option<i64>>(5)?.map(from_unix_ms),
                    limits: Limits::read(row, 7)?,
                    account: row.get::<_, Option<String>>(11)?.map(KeyId::from_stored),
                };
                Ok((KeyId::from_stored(row.get(0)?), record))
            })?
            .collect::<Result<_, _>>()?;
        Ok(records)
    }

    pub(super) fn pepper(&self) -> &Pepper {
        &self.pepper
    }

    pub(super) fn signer(&self) -> &Signer {
        &self.signer
    }
}

/// Selects what [`read_key`] reads.
pub(super) const KEY: &str = "SELECT id, label, tenant, created_unix_ms, revoked_unix_ms, operator, scopes,
    expires_unix_ms, tags, admin, requests_per_minute, concurrent, audio_seconds_per_day, audio_seconds_per_month,
    account FROM keys";

pub(super) fn read_key(row: &Row<'_>) -> rusqlite::Result<Key> {
    let is_operator = row.get(5)?;
    let id = KeyId::from_stored(row.get(0)?);
    let account = row.get::<_, Option<String>>(14)?.map_or_else(|| id.clone(), KeyId::from_stored);
    Ok(Key {
        id,
        label: row.get(1)?,
        tenant: row.get::<_, i64>(2)?.cast_unsigned(),
        is_operator,
        is_admin: row.get(9)?,
        scopes: scopes(row, 6, is_operator)?,
        tags: serde_json::from_str(&row.get::<_, String>(8)?).unwrap_or_default(),
        created: from_unix_ms(row.get(3)?),
        expires: row.get::<_, Option<i64>>(7)?.map(from_unix_ms),
        revoked: row.get::<_, Option<i64>>(4)?.map(from_unix_ms),
        limits: Limits::read(row, 10)?,
        account,
    })
}

/// An operator's key has no bounds within its organisation.
fn scopes(row: &Row<'_>, column: usize, is_operator: bool) -> rusqlite::Result<Scopes> {
    let stored: String = row.get(column)?;
    Ok(if is_operator { Scopes::of_an_owner() } else { Scopes::from_stored(&stored) })
}

/// Whether `text` has 1 to `most` characters, none of which controls a terminal or the order in which text is shown.
pub(super) fn is_printable(text: &str, most: usize) -> bool {
    (1..=most).contains(&text.chars().count()) && !text.chars().any(|c| c.is_control() || is_format(c))
}

/// Unicode's general categories Cf, Zl and Zp (version 16): such characters hide, reorder or break what is beside them.
fn is_format(character: char) -> bool {
    matches!(
        u32::from(character),
        0xAD | 0x600..=0x605 | 0x61C | 0x6DD | 0x70F | 0x890..=0x891 | 0x8E2 | 0x180E | 0x200B..=0x200F
            | 0x2028..=0x202E | 0x2060..=0x2064 | 0x2066..=0x206F | 0xFEFF | 0xFFF9..=0xFFFB | 0x110BD | 0x110CD
            | 0x13430..=0x1343F | 0x1BCA0..=0x1BCA3 | 0x1D173..=0x1D17A | 0xE0001 | 0xE0020..=0xE007F
    )
}

/// The random bytes in the file at `path`, which is made if it is missing.
fn random_of<const BYTES: usize>(path: PathBuf) -> Result<[u8; BYTES], Error> {
    let random = || {
        let mut bytes = [0u8; BYTES];
        rand::fill(&mut bytes[..]);
        bytes.to_vec()
    };
    let bytes =
        state::read_or_make(&path, random).map_err(|source| Error::File { path: path.clone(), source })?;
    bytes.try_into().map_err(|_| Error::Secret { path, expected: BYTES })
}

/// The secret of this installation; without it, stored tags are useless.
#[derive(Clone)]
pub(super) struct Pepper([u8; PEPPER_BYTES]);

impl Pepper {
    /// A secret for `purpose` that all nodes with this pepper and this `signer` have, and no one else.
    pub(super) fn secret_for(&self, signer: &Signer, purpose: &str) -> [u8; 32] {
        let mut mac =
            Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes a key of any length; this is a bug");
        // No key of a client begins so.
        mac.update(b"shared\0");
        mac.update(signer.key());
        mac.update(purpose.as_bytes());
        mac.finalize().into_bytes().into()
    }

    pub(super) fn tag(&self, key: &str) -> Tag {
        let mut mac =
            Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes a key of any length; this is a bug");
        mac.update(key.as_bytes());
        mac.finalize().into_bytes().into()
    }
}

#[cfg(test)]
mod tests;
