//! Verifies keys from memory.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use subtle::ConstantTimeEq as _;
use tokio::time::Instant;

use super::ledger::{Exceeded, Ledger, Permit};
use super::limits::Limits;
use super::scope::Scopes;
use super::secret::{self, KeyId};
use super::store::{Pepper, Record, Store};
use super::token::{Signer, TTL_MAX, Token};
use super::{Error, public_id};
use crate::jwt;
use crate::share::Tenants;

/// The longest that a key revoked or created by another process goes unnoticed.
pub const REFRESH_INTERVAL: Duration = Duration::from_millis(500);

/// The caller that presented a key, or a token that was made with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    pub key: KeyId,
    pub tenant: u64,
    /// Never with a token.
    pub is_operator: bool,
    pub scopes: Scopes,
    pub is_token: bool,
    /// When the key or the token expires.
    pub expires: Option<SystemTime>,
    pub limits: Limits,
    /// The key on whose account they are counted.
    pub account: KeyId,
}

/// A token, and how long it is valid.
#[derive(Debug)]
pub struct Granted {
    pub token: String,
    pub ttl: Duration,
}

/// A cheap handle; clones share the keys in memory.
#[derive(Clone)]
pub struct Verifier {
    shared: Arc<Shared>,
}

struct Shared {
    pepper: Pepper,
    signer: Signer,
    tenants: Tenants,
    ledger: Ledger,
    /// Locked only on the blocking pool: SQLite reads the disk.
    store: Mutex<Store>,
    /// For changes: a connection does not notice its own. Those who wait for it take up no thread of the pool.
    writer: Arc<tokio::sync::Mutex<Store>>,
    /// Held while one caller refreshes; the others wait for its result instead of reading as well.
    snapshot: tokio::sync::Mutex<Snapshot>,
}

#[derive(Clone)]
struct Snapshot {
    records: Arc<HashMap<KeyId, Record>>,
    version: i64,
    checked: Instant,
    /// This process has changed the keys since.
    is_stale: bool,
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
            is_stale: false,
        };
        let tenants = Tenants::default();
        tenants.set(count(&snapshot.records));
        let shared = Shared {
            pepper: store.pepper().clone(),
            signer: store.signer().clone(),
            tenants,
            ledger: store.ledger()?,
            writer: Arc::new(tokio::sync::Mutex::new(store.reopen()?)),
            store: Mutex::new(store),
            snapshot: tokio::sync::Mutex::new(snapshot),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// A secret for `purpose` that all nodes with the same `keys.pepper` and `keys.signing` have, and no one else.
    pub fn shared_secret(&self, purpose: &str) -> [u8; 32] {
        self.shared.pepper.secret_for(&self.shared.signer, purpose)
    }

    /// The next request looks at the disk, as another connection has changed the keys.
    pub(super) async fn look_again(&self) {
        self.shared.snapshot.lock().await.is_stale = true;
    }

    /// The number of organisations with keys, kept up to date.
    pub fn tenants(&self) -> Tenants {
        self.shared.tenants.clone()
    }

    /// What the holders of limited keys use.
    pub fn ledger(&self) -> &Ledger {
        &self.shared.ledger
    }

    /// Begins a request of `caller`; `None` if its key has no limits. `is_held`: it counts as one of the concurrent ones until
    /// the permit is dropped.
    ///
    /// # Errors
    /// [`Exceeded`].
    pub fn begin(&self, caller: &Identity, is_held: bool) -> Result<Option<Permit>, Exceeded> {
        let now = (std::time::Instant::now(), SystemTime::now());
        self.shared.ledger.begin((&caller.key, &caller.account), caller.limits, is_held, now)
    }

    /// The holder of `key`, which may be a token; `None` if it is not valid, for any reason.
    ///
    /// # Errors
    /// If the keys cannot be read: then every caller is refused.
    pub async fn verify(&self, key: &str) -> Result<Option<Identity>, Error> {
        let now = SystemTime::now();
        if jwt::is_token(key) {
            let Some(token) = self.shared.signer.check(key, now) else { return Ok(None) };
            return Ok(identity_of(token, &*self.records().await?, now));
        }
        // The form of a key reveals nothing that the documentation does not.
        let Some(id) = secret::parse(key) else { return Ok(None) };
        let records = self.records().await?;
        // An unknown id takes the same steps as a known one with a wrong secret.
        static NOBODY: Record = Record {
            tag: [0; 32],
            tenant: 0,
            is_operator: false,
            is_admin: false,
            scopes: Scopes::NONE,
            expires: None,
            limits: Limits::NONE,
            account: None,
        };
        let record = records.get(&id);
        let known = subtle::Choice::from(u8::from(record.is_some()));
        let expected = record.unwrap_or(&NOBODY);
        let same = self.shared.pepper.tag(key).ct_eq(&expected.tag);
        let is_valid = bool::from(known & same) && is_live(expected, now);
        let identity = expected.holder(id);
        Ok(is_valid.then_some(identity))
    }

    /// As [`Self::verify`], of a key that opens the console; a token never does.
    ///
    /// # Errors
    /// As [`Self::verify`].
    pub async fn verify_admin(&self, key: &str) -> Result<Option<Identity>, Error> {
        match self.verify(key).await? {
            Some(identity) if !identity.is_token => self.admin(&identity.key).await,
            _ => Ok(None),
        }
    }

    /// The holder of the key `id`, if it is valid at present and opens the console.
    ///
    /// # Errors
    /// As [`Self::verify`].
    pub async fn admin(&self, id: &KeyId) -> Result<Option<Identity>, Error> {
        let records = self.records().await?;
        let record = records.get(id).filter(|record| record.is_admin && is_live(record, SystemTime::now()));
        Ok(record.map(|record| record.holder(id.clone())))
    }

    /// A token for the holder of a key, valid for `ttl`, [`TTL_MAX`] or until the key expires, whichever is
    /// least.
    pub fn grant(&self, holder: &Identity, ttl: Duration) -> Granted {
        let now = SystemTime::now();
        let left = holder.expires.map(|expires| expires.duration_since(now).unwrap_or_default());
        let ttl = ttl.min(TTL_MAX).min(left.unwrap_or(TTL_MAX));
        let organisation = public_id::of_organisation(holder.tenant);
        Granted { token: self.shared.signer.sign(&holder.key, organisation, now, ttl), ttl }
    }

    /// Reads or changes the keys. This process notices a change at once, others within [`REFRESH_INTERVAL`].
    ///
    /// # Errors
    /// Those of `work`; [`Error::Interrupted`].
    pub async fn with_store<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Store) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let writer = self.shared.writer.clone().lock_owned().await;
        let done = tokio::task::spawn_blocking(move || work(&writer));
        let done = done.await.map_err(|_| Error::Interrupted)?;
        self.shared.snapshot.lock().await.is_stale = true;
        done
    }

    async fn records(&self) -> Result<Arc<HashMap<KeyId, Record>>, Error> {
        let mut snapshot = self.shared.snapshot.lock().await;
        if snapshot.is_stale || snapshot.checked.elapsed() >= REFRESH_INTERVAL {
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

/// The holder of a token, if its key is still valid and allows it.
fn identity_of(token: Token, records: &HashMap<KeyId, Record>, now: SystemTime) -> Option<Identity> {
    let record = records.get(&token.key)?;
    let is_own = public_id::of_organisation(record.tenant) == token.organisation;
    (is_own && is_live(record, now)).then(|| Identity {
        is_operator: false,
        scopes: record.scopes.and(token.scopes),
        is_token: true,
        expires: Some(token.expires),
        ..record.holder(token.key)
    })
}

impl Record {
    /// The holder of this key, whose id is `key`.
    fn holder(&self, key: KeyId) -> Identity {
        Identity {
            tenant: self.tenant,
            is_operator: self.is_operator,
            scopes: self.scopes,
            is_token: false,
            expires: self.expires,
            limits: self.limits,
            account: self.account.clone().unwrap_or_else(|| key.clone()),
            key,
        }
    }
}

fn is_live(record: &Record, now: SystemTime) -> bool {
    record.expires.is_none_or(|expires| now < expires)
}

/// Operators and admins bring no work of their own.
fn count(records: &HashMap<KeyId, Record>) -> usize {
    let clients = records.values().filter(|record| !record.is_operator && !record.is_admin);
    clients.map(|record| record.tenant).collect::<HashSet<_>>().len()
}

fn refresh(store: &Mutex<Store>, seen: Snapshot) -> Result<Snapshot, Error> {
    // A panic elsewhere leaves the connection usable: SQLite rolls back what was not committed.
    let store = store.lock().unwrap_or_else(PoisonError::into_inner);
    // Read before the rows: a change in between is seen again next time, never missed.
    let (version, checked) = (store.version()?, Instant::now());
    let records = if version == seen.version { seen.records } else { Arc::new(store.active()?) };
    Ok(Snapshot { records, version, checked, is_stale: false })
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
        let scopes = Scopes::of_a_client();
        let expected = Identity {
            limits: Limits::NONE,
            account: key.id.clone(),
            key: key.id,
            tenant: key.tenant,
            is_operator: false,
            scopes,
            is_token: false,
            expires: None,
        };
        assert_eq!(identity, Some(expected));
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
        let identity = identity.unwrap();
        assert_eq!((identity.key, identity.tenant, identity.is_operator), (key.id, key.tenant, true));
    }

    #[tokio::test(start_paused = true)]
    async fn an_admin_is_known_while_the_key_is_valid() {
        let dir = tempfile::tempdir().unwrap();
        let other = Store::open(dir.path()).unwrap();
        let (key, secret) = other.create_admin("one").unwrap();
        let (_, client) = other.create("two").unwrap();
        let (_, operator) = other.create_operator("three").unwrap();
        let verifier = Verifier::new(Store::open(dir.path()).unwrap()).unwrap();
        let identity = verifier.verify_admin(secret.expose()).await.unwrap().unwrap();
        assert_eq!((&identity.key, identity.is_operator), (&key.id, false));
        let token = verifier.grant(&identity, Duration::from_secs(30)).token;
        for other in [client.expose(), operator.expose(), &token, "org_", ""] {
            assert_eq!(verifier.verify_admin(other).await.unwrap(), None, "{other}");
        }
        assert!(verifier.admin(&key.id).await.unwrap().is_some());
        other.revoke(&key.id).unwrap();
        tokio::time::advance(REFRESH_INTERVAL).await;
        assert_eq!(verifier.admin(&key.id).await.unwrap(), None);
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

    async fn holder(verifier: &Verifier, secret: &Secret) -> Identity {
        verifier.verify(secret.expose()).await.unwrap().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_ends_with_its_key() {
        let dir = tempfile::tempdir().unwrap();
        let other = Store::open(dir.path()).unwrap();
        let (key, secret) = other.create_operator("one").unwrap();
        let verifier = Verifier::new(Store::open(dir.path()).unwrap()).unwrap();
        let granted = verifier.grant(&holder(&verifier, &secret).await, Duration::from_secs(30));
        let identity = verifier.verify(&granted.token).await.unwrap().unwrap();
        assert_eq!((identity.key, identity.tenant), (key.id.clone(), key.tenant));
        assert!(identity.is_token && !identity.is_operator);
        assert_eq!((identity.scopes, granted.ttl), (Scopes::of_a_token(), Duration::from_secs(30)));

        other.revoke(&key.id).unwrap();
        tokio::time::advance(REFRESH_INTERVAL).await;
        assert_eq!(verifier.verify(&granted.token).await.unwrap(), None);
    }

    #[tokio::test]
    async fn a_token_of_another_organisation_or_installation_is_unknown() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let (key, secret) = store.create("one").unwrap();
        let (reader, no_use) = {
            let scopes = Scopes::parse(["usage:read"]).unwrap();
            store.insert(super::super::NewKey { scopes, ..super::super::NewKey::of_a_client("two") }).unwrap()
        };
        let verifier = Verifier::new(store).unwrap();
        let ttl = Duration::from_secs(30);
        let own = holder(&verifier, &secret).await;
        let forged = verifier.grant(&Identity { tenant: key.tenant ^ 1, ..own.clone() }, ttl);
        assert_eq!(verifier.verify(&forged.token).await.unwrap(), None);
        let beyond = verifier.grant(&holder(&verifier, &no_use).await, ttl);
        assert_eq!(verifier.verify(&beyond.token).await.unwrap().unwrap().scopes, Scopes::NONE);
        assert!(!reader.scopes.is_empty());

        // The key is the same there; the signing key is not.
        let there = tempfile::tempdir().unwrap();
        for file in ["keys.sqlite3", "keys.sqlite3-wal", "keys.pepper"] {
            let _ = std::fs::copy(dir.path().join(file), there.path().join(file));
        }
        let elsewhere = Verifier::new(Store::open(there.path()).unwrap()).unwrap();
        assert!(elsewhere.verify(secret.expose()).await.unwrap().is_some());
        let granted = verifier.grant(&own, ttl);
        assert!(verifier.verify(&granted.token).await.unwrap().is_some());
        assert_eq!(elsewhere.verify(&granted.token).await.unwrap(), None);
    }

    #[tokio::test]
    async fn a_change_of_this_process_counts_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let verifier = Verifier::new(Store::open(dir.path()).unwrap()).unwrap();
        let (key, secret) = verifier.with_store(|store| store.create("one")).await.unwrap();
        assert!(verifier.verify(secret.expose()).await.unwrap().is_some());
        verifier.with_store(move |store| store.revoke(&key.id)).await.unwrap();
        assert!(verifier.verify(secret.expose()).await.unwrap().is_none());
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
