//! The keys of one organisation, as its own managers see them.

use std::time::SystemTime;

use rusqlite::{OptionalExtension as _, params};

use super::Error;
use super::audit::{self, Actor, Change};
use super::scope::Permission;
use super::secret::{KeyId, Secret};
use super::store::{KEY, Key, NewKey, Store, is_printable, read_key};
use crate::clock::unix_ms;

/// Keys of an organisation that are not revoked.
pub const KEYS_MAX: usize = 1000;
/// Revoked keys of an organisation that stay listed for the operator; older ones are forgotten.
const REVOKED_MAX: usize = 1000;
pub const NAME_CHARACTERS_MAX: usize = 100;

impl Store {
    /// The keys of `tenant` that are not revoked, expired ones included; oldest first.
    ///
    /// # Errors
    /// [`Error::Database`].
    pub fn of_organisation(&self, tenant: u64) -> Result<Vec<Key>, Error> {
        let mut statement = self.connection.prepare(&format!(
            "{KEY} WHERE tenant = ?1 AND revoked_unix_ms IS NULL ORDER BY created_unix_ms, id"
        ))?;
        let keys = statement.query_map([tenant.cast_signed()], read_key)?.collect::<Result<_, _>>()?;
        Ok(keys)
    }

    /// A key that `maker` makes for its own organisation. If the maker has limits, the key has the same and counts on its
    /// account.
    ///
    /// # Errors
    /// As [`Store::insert`]; [`Error::TooMany`]; [`Error::Escalation`] if the key could do more than its maker, or
    /// would outlive it.
    pub fn insert_for(&self, maker: &Key, new: NewKey) -> Result<(Key, Secret), Error> {
        let outlives = match (maker.expires, new.expires) {
            (Some(end), Some(asked)) => asked > end,
            (Some(_), None) => true,
            (None, _) => false,
        };
        if outlives || !maker.scopes.cover(new.scopes) {
            return Err(Error::Escalation);
        }
        if self.of_organisation(maker.tenant)?.len() >= KEYS_MAX {
            return Err(Error::TooMany);
        }
        // More keys are no more requests.
        let (limits, account) = match maker.limits.are_none() {
            true => (new.limits, None),
            false => (maker.limits, Some(maker.account.clone())),
        };
        let (tenant, is_operator, is_admin) = (Some(maker.tenant), false, false);
        let new = NewKey { tenant, is_operator, is_admin, limits, account, ..new };
        self.insert_by(&Actor::Key(maker.id.clone()), new)
    }

    /// Revokes a key of `tenant`, in the name of the key `by`.
    ///
    /// # Returns
    /// `None` if the organisation has no such key.
    ///
    /// # Errors
    /// [`Error::LastManager`] if no other key could make keys; [`Error::Database`].
    pub fn revoke_of(&self, tenant: u64, id: &KeyId, by: &KeyId) -> Result<Option<()>, Error> {
        let change = self.change()?;
        let (now, keys) = (SystemTime::now(), self.of_organisation(tenant)?);
        let manages = |key: &&Key| key.is_active(now) && key.scopes.allow(Permission::KeysWrite);
        let Some(doomed) = keys.iter().find(|key| key.id == *id) else { return Ok(None) };
        if manages(&doomed) && keys.iter().filter(manages).count() == 1 {
            return Err(Error::LastManager);
        }
        change.execute(
            "UPDATE keys SET revoked_unix_ms = ?2 WHERE id = ?1",
            params![id.as_str(), unix_ms(now)],
        )?;
        audit::record(&change, &Actor::Key(by.clone()), Change::Revoked, doomed.named(), &doomed.about())?;
        change.execute(
            "DELETE FROM keys WHERE id IN (
                 SELECT id FROM keys WHERE tenant = ?1 AND revoked_unix_ms IS NOT NULL
                 ORDER BY revoked_unix_ms DESC LIMIT -1 OFFSET ?2)",
            params![tenant.cast_signed(), REVOKED_MAX as i64],
        )?;
        change.commit()?;
        Ok(Some(()))
    }

    /// The name of an organisation: the one it was given, or the label of its first key.
    ///
    /// # Errors
    /// [`Error::Database`].
    pub fn organisation_name(&self, tenant: u64) -> Result<String, Error> {
        let name = self.connection.query_row(
            "SELECT coalesce(
                 (SELECT name FROM organisations WHERE tenant = ?1),
                 (SELECT label FROM keys WHERE tenant = ?1 ORDER BY created_unix_ms, id LIMIT 1),
                 '')",
            [tenant.cast_signed()],
            |row| row.get(0),
        );
        Ok(name.optional()?.unwrap_or_default())
    }

    /// # Errors
    /// [`Error::Name`] unless it has 1 to [`NAME_CHARACTERS_MAX`] printable characters; [`Error::Database`].
    pub fn rename_organisation(&self, tenant: u64, name: &str) -> Result<(), Error> {
        let name = name.trim();
        if !is_printable(name, NAME_CHARACTERS_MAX) {
            return Err(Error::Name);
        }
        self.connection.execute(
            "INSERT INTO organisations (tenant, name) VALUES (?1, ?2)
             ON CONFLICT (tenant) DO UPDATE SET name = excluded.name",
            params![tenant.cast_signed(), name],
        )?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::Scopes;
    use super::*;

    fn store() -> (tempfile::TempDir, Store) {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        (dir, store)
    }

    fn with(scopes: &str) -> NewKey {
        NewKey { scopes: Scopes::parse(scopes.split(' ')).unwrap(), ..NewKey::of_a_client("one") }
    }

    #[test]
    fn a_key_makes_no_key_that_can_do_more_or_lasts_longer() {
        let (_dir, store) = store();
        let (maker, _) = store.insert(with("keys:write usage:write")).unwrap();
        for scopes in ["usage:read", "member", "usage:write keys:read"] {
            assert!(matches!(store.insert_for(&maker, with(scopes)), Err(Error::Escalation)), "{scopes}");
        }
        let (made, _) = store
            .insert_for(&maker, NewKey { is_operator: true, is_admin: true, ..with("usage:write") })
            .unwrap();
        assert_eq!((made.tenant, made.is_operator, made.is_admin), (maker.tenant, false, false));

        let end = SystemTime::now() + Duration::from_secs(60);
        let (passing, _) = store.insert(NewKey { expires: Some(end), ..with("member") }).unwrap();
        let later = NewKey { expires: Some(end + Duration::from_secs(1)), ..with("usage:write") };
        for new in [with("usage:write"), later] {
            assert!(matches!(store.insert_for(&passing, new), Err(Error::Escalation)));
        }
        let same = NewKey { expires: passing.expires, ..with("usage:write") };
        assert!(store.insert_for(&passing, same).is_ok());
    }

    #[test]
    fn the_last_key_that_manages_stays() {
        let (_dir, store) = store();
        let (first, _) = store.insert(with("member")).unwrap();
        let (client, _) = store.insert_for(&first, with("usage:write")).unwrap();
        let (other, _) = store.create("other organisation").unwrap();
        assert!(matches!(store.revoke_of(first.tenant, &first.id, &first.id), Err(Error::LastManager)));
        assert!(store.revoke_of(first.tenant, &other.id, &first.id).unwrap().is_none());
        assert!(store.revoke_of(first.tenant, &client.id, &first.id).unwrap().is_some());
        assert!(store.revoke_of(first.tenant, &client.id, &first.id).unwrap().is_none());
        let (second, _) = store.insert_for(&first, with("keys:write")).unwrap();
        assert!(store.revoke_of(first.tenant, &first.id, &first.id).unwrap().is_some());
        assert_eq!(store.of_organisation(first.tenant).unwrap(), [second]);
        assert_eq!(store.list().unwrap().len(), 4);
    }

    #[test]
    fn an_organisation_has_a_name() {
        let (_dir, store) = store();
        let (key, _) = store.create("field team").unwrap();
        assert_eq!(store.organisation_name(key.tenant).unwrap(), "field team");
        store.rename_organisation(key.tenant, " Acme ").unwrap();
        store.rename_organisation(key.tenant, "Acme GmbH").unwrap();
        assert_eq!(store.organisation_name(key.tenant).unwrap(), "Acme GmbH");
        assert!(matches!(store.rename_organisation(key.tenant, "\u{7}"), Err(Error::Name)));
    }
}
