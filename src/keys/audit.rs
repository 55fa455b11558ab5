//! The record of changes to keys: who made, limited or revoked which one, and when. It is written in the same transaction
//! as the change, is never changed afterwards, and holds no secret.

use std::os::unix::fs::MetadataExt as _;
use std::time::SystemTime;

use rusqlite::{Connection, Row, params};

use super::Error;
use super::secret::KeyId;
use crate::clock::{from_unix_ms, unix_ms};

/// Entries of one organisation that are kept, the newest: its managers cannot push others' out.
const KEPT_MAX: i64 = 10_000;

/// Who changes a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Actor {
    /// A process on the server's machine: the command line, or the server itself.
    Machine,
    /// The holder of a key, over the management routes.
    Key(KeyId),
    /// The holder of an admin's key, in the console.
    Console(KeyId),
}

/// What was done to a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    Created,
    Limited,
    Revoked,
}

impl Change {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Limited => "limited",
            Self::Revoked => "revoked",
        }
    }
}

/// One change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub at: SystemTime,
    /// `uid 1000`, `key abcdefgh` or `console abcdefgh`.
    pub actor: String,
    /// [`Change::name`].
    pub change: String,
    pub key: KeyId,
    pub tenant: u64,
    /// The key after the change: label, role, scopes, expiry and limits.
    pub about: String,
}

impl Actor {
    fn stored(&self) -> String {
        match self {
            Self::Machine => match std::fs::metadata("/proc/self") {
                Ok(process) => format!("uid {}", process.uid()),
                Err(_) => "machine".to_owned(),
            },
            Self::Key(id) => format!("key {id}"),
            Self::Console(id) => format!("console {id}"),
        }
    }
}

/// Records a change, within the transaction that makes it.
///
/// # Errors
/// [`Error::Database`].
pub(super) fn record(
    connection: &Connection,
    actor: &Actor,
    change: Change,
    (key, tenant): (&KeyId, u64),
    about: &str,
) -> Result<(), Error> {
    connection.execute(
        "INSERT INTO audit (at_unix_ms, actor, change, key, tenant, about) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        params![
            unix_ms(SystemTime::now()),
            actor.stored(),
            change.name(),
            key.as_str(),
            tenant.cast_signed(),
            about,
        ],
    )?;
    connection.execute(
        "DELETE FROM audit WHERE id IN (
             SELECT id FROM audit WHERE tenant = ?1 ORDER BY id DESC LIMIT -1 OFFSET ?2)",
        params![tenant.cast_signed(), KEPT_MAX],
    )?;
    Ok(())
}

/// The newest `most` changes, oldest first.
///
/// # Errors
/// [`Error::Database`].
pub(super) fn newest(connection: &Connection, most: u32) -> Result<Vec<Entry>, Error> {
    let mut statement = connection.prepare(
        "SELECT at_unix_ms, actor, change, key, tenant, about FROM audit ORDER BY id DESC LIMIT ?1",
    )?;
    let entries = statement.query_map([most], read)?.collect::<Result<Vec<_>, _>>()?;
    Ok(entries.into_iter().rev().collect())
}

fn read(row: &Row<'_>) -> rusqlite::Result<Entry> {
    Ok(Entry {
        at: from_unix_ms(row.get(0)?),
        actor: row.get(1)?,
        change: row.get(2)?,
        key: KeyId::from_stored(row.get(3)?),
        tenant: row.get::<_, i64>(4)?.cast_unsigned(),
        about: row.get(5)?,
    })
}

#[cfg(test)]
mod tests {
    use super::super::{Limits, NewKey, Scopes, Store};
    use super::*;

    #[test]
    fn every_change_is_recorded_and_no_secret() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let new = NewKey { scopes: Scopes::of_an_owner(), ..NewKey::of_a_client("one") };
        let (maker, secret) = store.insert(new).unwrap();
        let limits = Limits { concurrent: Some(3), ..Limits::NONE };
        store.limit(&Actor::Machine, &maker.id, limits).unwrap().unwrap();
        let maker = store.of_organisation(maker.tenant).unwrap().remove(0);
        let (child, _) = store.insert_for(&maker, NewKey::of_a_client("two")).unwrap();
        assert_eq!((child.limits, &child.account), (limits, &maker.id), "more keys are no more requests");
        let looser = store.limit(&Actor::Machine, &child.id, Limits::NONE);
        assert!(matches!(looser, Err(Error::Shared { .. })));
        store.revoke_of(maker.tenant, &child.id, &maker.id).unwrap().unwrap();
        store.revoke(&maker.id).unwrap();
        store.revoke(&maker.id).unwrap();
        let entries = store.audit(100).unwrap();
        let told: Vec<_> = entries.iter().map(|entry| (entry.change.as_str(), entry.key.clone())).collect();
        let (one, two) = (maker.id.clone(), child.id.clone());
        assert_eq!(
            told,
            [
                ("created", one.clone()),
                ("limited", one.clone()),
                ("created", two.clone()),
                ("revoked", two),
                ("revoked", one.clone())
            ],
            "the second revocation changed nothing"
        );
        assert!(entries[0].actor.starts_with("uid "), "{}", entries[0].actor);
        assert_eq!(
            (entries[2].actor.clone(), entries[3].actor.clone()),
            (format!("key {one}"), format!("key {one}"))
        );
        assert!(entries[1].about.contains("concurrent=3"), "{}", entries[1].about);
        assert!(entries.iter().all(|entry| !entry.about.contains(&secret.expose()[12..])));
        assert_eq!(store.audit(1).unwrap(), entries[4..]);
    }
}
