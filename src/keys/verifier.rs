//! Verifies keys from memory.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use subtle::ConstantTimeEq as _;
use tokio::time::Instant;

use super::Error;
use super::secret::{self, KeyId};
use super::store::{Pepper, Record, Store};
use crate::share::Tenants;

/// The longest that a key revoked or created by another process goes unnoticed.
pub const REFRESH_INTERVAL: Duration = Duration::from_millis(500);

/// The caller that presented a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    pub key: KeyId,
    pub tenant: u64,
    pub is_operator: bool,
}

/// A cheap handle; clones share the keys in memory.
#[derive(Clone)]
pub struct Verifier {
    shared: Arc<Shared>,
}

struct Shared {
    pepper: Pepper,
    tenants: Tenants,
    /// Locked only on the blocking pool: SQLite reads the disk.
    store: Mutex<Store>,
    /// Held while one caller refreshes; the others wait for its result instead of reading as well.
    snapshot: tokio::sync::Mutex<Snapshot>,
}

#[derive(Clone)]
struct Snapshot {
    records: Arc<HashMap<KeyId, Record>>,
    version: i64,
    checked: Instant,
}

impl Verifier {
    /// Needs a store of its own: changes made through the same store would go unnoticed.
    ///
    /// # Errors
    /// [`Error::Database`].
    pub fn new(store: Store) -> Result<Self, Error> {
        let snapshot = Snapshot {
            version: store.version()?,
            records: Arc::new(store.active()?),
            checked: Instant::now(),
        };
        let tenants = Tenants::default();
        tenants.set(count(&snapshot.records));
        let shared = Shared {
            pepper: store.pepper().clone(),
            tenants,
            store: Mutex::new(store),
            snapshot: tokio::sync::Mutex::new(snapshot),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// The number of organisations with keys, kept up to date.
    pub fn tenants(&self) -> Tenants {
        self.shared.tenants.clone()
    }

    /// The holder of `key`; `None` if it is not valid, for any reason.
    ///
    /// # Errors
    /// If the keys cannot be read: then every caller is refused.
    pub async fn verify(&self, key: &str) -> Result<Option<Identity>, Error> {
        // The form of a key reveals nothing that the documentation does not.
        let Some(id) = secret::parse(key) else { return Ok(None) };
        let records = self.records().await?;
        // An unknown id takes the same steps as a known one with a wrong secret.
        const NOBODY: Record = Record { tag: [0; 32], tenant: 0, is_operator: false };
        let record = records.get(&id);
        let known = subtle::Choice::from(u8::from(record.is_some()));
        let expected = record.unwrap_or(&NOBODY);
        let same = self.shared.pepper.tag(key).ct_eq(&expected.tag);
        let Record { tenant, is_operator, .. } = *expected;
        Ok(bool::from(known & same).then_some(Identity { key: id, tenant, is_operator }))
    }

    async fn records(&self) -> Result<Arc<HashMap<KeyId, Record>>, Error> {
        let mut snapshot = self.shared.snapshot.lock().await;
        if snapshot.checked.elapsed() >= REFRESH_INTERVAL {
            let shared = self.shared.clone();
            let seen = snapshot.clone();
            *snapshot = tokio::task::spawn_blocking(move || refresh(&shared.store, seen))
                .await
                .map_err(|_| Error::Interrupted)??;
            self.shared.tenants.set(count(&snapshot.records));
        }
        Ok(snapshot.records.clone())
    }
}

/// Operators bring no work of their own.
fn count(records: &HashMap<KeyId, Record>) -> usize {
    let clients = records.values().filter(|record| !record.is_operator);
    clients.map(|record| record.tenant).collect::<HashSet<_>>().len()
}

fn refresh(store: &Mutex<Store>, seen: Snapshot) -> Result<Snapshot, Error> {
    // A panic elsewhere leaves the connection usable: SQLite rolls back what was not committed.
    let store = store.lock().unwrap_or_else(PoisonError::into_inner);
    // Read before the rows: a change in between is seen again next time, never missed.
    let (version, checked) = (store.version()?, Instant::now());
    let records = if version == seen.version { seen.records } else { Arc::new(store.active()?) };
    Ok(Snapshot { records, version, checked })
}

#[cfg(test)]
mod tests {
    use super::super::Secret;
    use super::*;

    #[tokio::test]
    async fn a_key_is_known_and_others_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let (key, secret) = Store::open(dir.path()).unwrap().create("one").unwrap();
        let verifier = Verifier::new(Store::open(dir.path()).unwrap()).unwrap();
        let identity = verifier.verify(secret.expose()).await.unwrap();
        assert_eq!(identity, Some(Identity { key: key.id, tenant: key.tenant, is_operator: false }));
        for stranger in [Secret::generate().expose(), "", "org_", "nonsense"] {
            assert_eq!(verifier.verify(stranger).await.unwrap(), None, "{stranger:?}");
        }
    }

    #[tokio::test]
    async fn an_operator_is_known_as_one() {
        let dir = tempfile::tempdir().unwrap();
        let (key, secret) = Store::open(dir.path()).unwrap().create_operator("scraper").unwrap();
        let verifier = Verifier::new(Store::open(dir.path()).unwrap()).unwrap();
        let identity = verifier.verify(secret.expose()).await.unwrap();
        assert_eq!(identity, Some(Identity { key: key.id, tenant: key.tenant, is_operator: true }));
    }

    #[tokio::test(start_paused = true)]
    async fn another_process_makes_and_revokes_keys() {
        let dir = tempfile::tempdir().unwrap();
        let verifier = Verifier::new(Store::open(dir.path()).unwrap()).unwrap();
        let other = Store::open(dir.path()).unwrap();

        let (key, secret) = other.create("late").unwrap();
        tokio::time::advance(REFRESH_INTERVAL).await;
        assert!(verifier.verify(secret.expose()).await.unwrap().is_some());

        other.revoke(&key.id).unwrap();
        tokio::time::advance(REFRESH_INTERVAL).await;
        assert_eq!(verifier.verify(secret.expose()).await.unwrap(), None);
    }

    #[tokio::test]
    async fn a_key_of_another_installation_is_unknown() {
        let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (_, secret) = Store::open(there.path()).unwrap().create("one").unwrap();
        let stolen = Store::open(there.path()).unwrap();
        drop(stolen);
        // A row alone, without the pepper it was made with, is no valid key.
        std::fs::copy(there.path().join("keys.sqlite3"), here.path().join("keys.sqlite3")).unwrap();
        let store = Store::open(here.path()).unwrap();
        assert_eq!(store.list().unwrap().len(), 1);
        let verifier = Verifier::new(store).unwrap();
        assert_eq!(verifier.verify(secret.expose()).await.unwrap(), None);
    }
}
