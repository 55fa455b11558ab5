//! The keys of all nodes, through one bucket.
//!
//! ```text
//! a change ─▶ keys.sqlite3 (row and `changes`, in one transaction) ─▶ bucket, by compare-and-set ─▶ the others' keys.sqlite3
//! ```
//! Requests read the local database alone, so a node without the broker goes on with the keys it knows, and its own changes
//! wait in `changes`. A node that starts or connects again reads the whole bucket, merges it ([`crate::keys`] has the rules),
//! and offers what the bucket lacks: a broker that lost its disk has everything again.

use std::collections::HashSet;
use std::time::Duration;

use async_nats::jetstream::kv::{CreateErrorKind, Operation, Store, UpdateErrorKind};
use futures_util::StreamExt as _;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::seal::Seal;
use super::{Cluster, Error};
use crate::keys::{self, Columns, Replica, Untold, Verifier};

const BUCKET: &str = "keys";
/// Its content proves that nodes have the same secrets.
const PROOF: &str = "installation";
const PURPOSE: &str = "keys in the broker";
/// Between two looks at the list of changes: other processes, such as `verbatim keys`, change keys too.
const LOOK: Duration = Duration::from_millis(100);
/// Between two looks at whether the bucket is still the same one.
const CHECK: Duration = Duration::from_secs(5);
/// Before the next try, after the broker failed.
const PAUSE: Duration = Duration::from_millis(500);
/// Changes that are published between two messages of others.
const AT_ONCE: usize = 64;
/// Tries to publish one change while other nodes change the same key.
const TRIES: usize = 8;

/// Why following the bucket ended.
#[derive(Debug, thiserror::Error)]
enum Ended {
    #[error("the bucket of keys was made anew")]
    Renewed,
    #[error(transparent)]
    Broker(#[from] Error),
    #[error("the keys cannot be read")]
    Keys(#[from] keys::Error),
}

fn broken(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Ended {
    Ended::Broker(Error::Broker { store: BUCKET.into(), source: error.into() })
}

/// The keys of this node, as one of several.
pub struct SharedKeys {
    cluster: Cluster,
    replica: Replica,
    seal: Seal,
}

impl SharedKeys {
    /// Checks that this node has the secrets of the others.
    ///
    /// # Errors
    /// [`Error::OtherSecrets`] if it has not; [`Error::Broker`].
    pub async fn join(cluster: Cluster, verifier: &Verifier) -> Result<Self, Error> {
        let seal = Seal::new(&verifier.shared_secret(PURPOSE))?;
        let replica = verifier.replica().await.map_err(|error| Error::Keys(error.into()))?;
        let shared = Self { cluster, replica, seal };
        let (bucket, _) = shared.cluster.bucket(BUCKET, Duration::ZERO).await?;
        shared.prove(&bucket).await?;
        Ok(shared)
    }

    async fn prove(&self, bucket: &Store) -> Result<(), Error> {
        let failed = |source| Error::Broker { store: BUCKET.into(), source };
        let proof = self.seal.seal(PROOF, PROOF.as_bytes())?;
        match bucket.create(PROOF, proof.into()).await {
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == CreateErrorKind::AlreadyExists => {}
            Err(error) => return Err(failed(error.into())),
        }
        let found = bucket.get(PROOF).await.map_err(|error| failed(error.into()))?;
        match found {
            Some(bytes) if self.seal.open(PROOF, &bytes).is_none() => Err(Error::OtherSecrets),
            _ => Ok(()),
        }
    }

    /// Shares keys until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        let mut was_well = true;
        while let Some(ended) = stop.run_until_cancelled(self.follow(&mut was_well)).await {
            let Err(error) = ended;
            if was_well {
                let error: &dyn std::error::Error = &error;
                tracing::warn!(
                    error,
                    "keys are not shared at present: this node goes on with those it knows"
                );
            }
            was_well = false;
            if stop.run_until_cancelled(tokio::time::sleep(PAUSE)).await.is_none() {
                return;
            }
        }
    }

    /// Reads the whole bucket, then takes the changes of others and publishes those of this node.
    async fn follow(&self, was_well: &mut bool) -> Result<std::convert::Infallible, Ended> {
        if !self.cluster.is_connected() {
            return Err(Error::Away.into());
        }
        let (bucket, _) = self.cluster.bucket(BUCKET, Duration::ZERO).await?;
        self.prove(&bucket).await?;
        let made = self.made(&bucket).await?;
        let mut news = bucket.watch_with_history(">").await.map_err(broken)?;
        // The proof is always there, so the end of what the bucket has is noticed.
        let mut known = Some(HashSet::new());
        let (mut look, mut check) = (interval(LOOK), interval(CHECK));
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        check.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                entry = news.next() => {
                    let entry = entry.ok_or(Ended::Renewed)?.map_err(broken)?;
                    if entry.operation == Operation::Put && entry.key != PROOF {
                        self.take(&entry.key, &entry.value).await?;
                    }
                    if let Some(names) = &mut known {
                        names.insert(entry.key);
                    }
                    if entry.delta == 0 && let Some(names) = known.take() {
                        let count = names.len() - 1;
                        let offered = self.replica.offer_all_but(names).await?;
                        tracing::info!(entries = count, offered, "keys are shared with the other nodes");
                        *was_well = true;
                    }
                }
                // Published after the others' accounts are read: most are known by then.
                _ = look.tick(), if known.is_none() => {
                    if !self.cluster.is_connected() {
                        return Err(Error::Away.into());
                    }
                    let changes = self.replica.changes(AT_ONCE).await?;
                    if changes.len() == AT_ONCE {
                        look.reset_immediately();
                    }
                    for change in changes {
                        self.publish(&bucket, change).await?;
                    }
                }
                _ = check.tick() => {
                    if self.made(&bucket).await? != made {
                        return Err(Ended::Renewed);
                    }
                }
            }
        }
    }

    /// A number that another bucket of the same name would not have.
    async fn made(&self, bucket: &Store) -> Result<i128, Ended> {
        let stream = self.cluster.jetstream().get_stream(&bucket.stream_name).await.map_err(broken)?;
        Ok(stream.cached_info().created.unix_timestamp_nanos())
    }

    /// Takes an entry of another node, or this one's own as it comes back.
    async fn take(&self, name: &str, sealed: &[u8]) -> Result<(), Ended> {
        let Some(entry) = self.opened(name, sealed) else { return Ok(()) };
        match self.replica.reconcile(name.to_owned(), Some(entry)).await {
            // If the others are to be told something, it is in the list of changes.
            Ok(_) => Ok(()),
            Err(keys::Error::Foreign) => {
                tracing::warn!(name, "an entry of another node cannot be kept: it may be of a newer version");
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    fn opened(&self, name: &str, sealed: &[u8]) -> Option<Columns> {
        let entry = self.seal.open(name, sealed).and_then(|plain| Columns::read(&plain));
        if entry.is_none() {
            tracing::error!(name, "an entry in the bucket of keys was not made by a node of this cluster");
        }
        entry
    }

    async fn publish(&self, bucket: &Store, change: Untold) -> Result<(), Ended> {
        let name = change.name.clone();
        for _ in 0..TRIES {
            let there = bucket.entry(name.as_str()).await.map_err(broken)?;
            let there = there.filter(|entry| entry.operation == Operation::Put);
            let (revision, theirs) = match there {
                Some(entry) => (entry.revision, self.opened(&name, &entry.value)),
                None => (0, None),
            };
            let news = match self.replica.reconcile(name.clone(), theirs).await {
                Ok(news) => news,
                Err(keys::Error::Foreign) => {
                    tracing::warn!(name, "a change of a key cannot be shared");
                    return Ok(self.replica.settle(change).await?);
                }
                Err(error) => return Err(error.into()),
            };
            let Some((change, entry)) = news else { return Ok(()) };
            let sealed = self.seal.seal(&name, &entry.to_bytes())?;
            let written = match revision {
                0 => bucket.create(name.as_str(), sealed.into()).await.map_err(|error| match error.kind() {
                    CreateErrorKind::AlreadyExists => None,
                    _ => Some(broken(error)),
                }),
                _ => bucket.update(name.as_str(), sealed.into(), revision).await.map_err(|error| match error
                    .kind()
                {
                    UpdateErrorKind::WrongLastRevision => None,
                    _ => Some(broken(error)),
                }),
            };
            match written {
                Ok(_) => return Ok(self.replica.settle(change).await?),
                // Another node was first: its account is merged, and then this one's is written.
                Err(None) => {}
                Err(Some(error)) => return Err(error),
            }
        }
        Ok(())
    }
}
