//! Where things of one node are that requests may ask any node for, and a copy of each for the time after that node.
//!
//! ```text
//! bucket nodes    NODE          → the address at which others reach it; gone when it is not renewed
//! bucket places   place.ID      → the node that has it, and its tenant; changed by compare-and-set alone
//!                 PART.ID       → a part of it as its node last wrote it, sealed
//! ```
//! A node owns what `place.ID` says it owns. Another may take it over once the owner's lease is over: of several that try, the
//! bucket lets one. A node that comes back reads all places, and gives up what others have taken.

use std::collections::{BTreeMap, HashSet};
use std::io::{Read as _, Write as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_nats::jetstream::kv::{CreateErrorKind, Operation, Store, UpdateErrorKind};
use bytes::Bytes;
use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;
use futures_util::StreamExt as _;
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, interval};
use tokio_util::sync::CancellationToken;

use super::seal::{SECRET_BYTES, Seal};
use super::{Cluster, Error};

const NODES: &str = "nodes";
const PLACES: &str = "places";
const PLACE: &str = "place";
/// Renewals of a lease within its time.
const RENEWALS: u32 = 4;
/// Before the next try, after the broker failed.
const PAUSE: Duration = Duration::from_millis(500);
const CHECK: Duration = Duration::from_secs(5);
/// The longest id, and the bytes that it may have.
const ID_BYTES_MAX: usize = 64;
/// The largest copy, unpacked, in bytes: a start may bring 4 MiB, and what was read for it more.
const PART_BYTES_MAX: u64 = 64 << 20;
/// What the broker's messages need beside their content, in bytes.
const HEAD_BYTES: usize = 1024;

/// The owner of a thing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Place {
    node: String,
    tenant: u64,
}

/// Where a thing is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Whereabouts {
    Unknown,
    /// This node is its owner.
    Here {
        tenant: u64,
    },
    /// Another node is, and can be reached at this address.
    At(String),
    /// Its node has not been heard of for longer than its lease.
    Orphaned(Orphan),
}

/// A thing that can be taken over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Orphan {
    pub tenant: u64,
    revision: u64,
}

/// What [`Places::run`] tells about the places of all nodes.
#[derive(Debug, PartialEq, Eq)]
pub enum News {
    /// Another node has it.
    Elsewhere(String),
    /// All that is known at present, after each connection.
    Known(HashSet<String>),
}

/// What is still to be written about one thing.
#[derive(Default)]
struct Waiting {
    /// Its tenant, if it may be new.
    tenant: Option<u64>,
    /// `None`: to be removed.
    parts: BTreeMap<&'static str, Option<String>>,
    is_forgotten: bool,
}

/// Cheap handle; clones share the connection.
#[derive(Clone)]
pub struct Places {
    shared: Arc<Shared>,
}

struct Shared {
    cluster: Cluster,
    seal: Seal,
    address: String,
    /// How long the bucket keeps what is not changed.
    kept: Duration,
    /// Since when this node renews its lease without a failure.
    well_since: Mutex<Option<Instant>>,
    /// The buckets, once they are opened; none after the connection was made anew.
    open: Mutex<BTreeMap<&'static str, Store>>,
    waiting: Mutex<BTreeMap<String, Waiting>>,
    wake: Notify,
    /// Held while parts are written, so that later ones come later.
    writing: tokio::sync::Mutex<()>,
}

fn broken(store: &str) -> impl Fn(Box<dyn std::error::Error + Send + Sync>) -> Error {
    move |source| Error::Broker { store: store.to_owned(), source }
}

/// Whether `id` can be part of a bucket's key.
fn is_id(id: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    (1..=ID_BYTES_MAX).contains(&id.len()) && id.bytes().all(is_allowed)
}

impl Places {
    /// `address`: at which others reach this node. `secret`: that of all nodes. `kept`: after which time without a change the
    /// bucket forgets.
    ///
    /// # Errors
    /// [`Error::Seal`].
    pub fn new(
        cluster: Cluster,
        secret: &[u8; SECRET_BYTES],
        address: String,
        kept: Duration,
    ) -> Result<Self, Error> {
        let shared = Shared {
            cluster,
            seal: Seal::new(secret)?,
            address: address.trim_end_matches('/').to_owned(),
            kept,
            well_since: Mutex::default(),
            open: Mutex::default(),
            waiting: Mutex::default(),
            wake: Notify::new(),
            writing: tokio::sync::Mutex::default(),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// The address at which others reach this node.
    pub fn address(&self) -> &str {
        &self.shared.address
    }

    /// How long a node that is not heard of keeps what it owns.
    pub fn lease(&self) -> Duration {
        Duration::from_millis(self.shared.cluster.config().lease_ms)
    }

    pub(super) fn node(&self) -> &str {
        self.shared.cluster.node()
    }

    pub(super) fn cluster(&self) -> &Cluster {
        &self.shared.cluster
    }

    pub(super) fn seal(&self) -> &Seal {
        &self.shared.seal
    }

    fn waiting(&self) -> MutexGuard<'_, BTreeMap<String, Waiting>> {
        self.shared.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self) -> MutexGuard<'_, BTreeMap<&'static str, Store>> {
        self.shared.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn bucket(&self, name: &'static str, max_age: Duration) -> Result<Store, Error> {
        // Requests would wait for their time to run out.
        if !self.shared.cluster.is_connected() {
            return Err(Error::Away);
        }
        if let Some(store) = self.open().get(name) {
            return Ok(store.clone());
        }
        let (store, _) = self.shared.cluster.bucket(name, max_age).await?;
        self.open().insert(name, store.clone());
        Ok(store)
    }

    async fn nodes(&self) -> Result<Store, Error> {
        self.bucket(NODES, self.lease()).await
    }

    async fn places(&self) -> Result<Store, Error> {
        self.bucket(PLACES, self.shared.kept).await
    }

    /// Where `id` is.
    ///
    /// # Errors
    /// [`Error::Broker`].
    pub async fn find(&self, id: &str) -> Result<Whereabouts, Error> {
        if !is_id(id) {
            return Ok(Whereabouts::Unknown);
        }
        let Some((place, revision)) = self.place(&self.places().await?, id).await? else {
            return Ok(Whereabouts::Unknown);
        };
        if place.node == self.node() {
            return Ok(Whereabouts::Here { tenant: place.tenant });
        }
        let address = self.nodes().await?.get(place.node.as_str()).await;
        let address = address.map_err(|error| broken(NODES)(error.into()))?;
        let address = address.and_then(|sealed| self.shared.seal.open(&place.node, &sealed));
        Ok(match address.and_then(|address| String::from_utf8(address).ok()) {
            Some(address) => Whereabouts::At(address),
            // After the broker was away, all nodes look dead until they have renewed their leases.
            None if !self.was_well_for_a_lease() => return Err(Error::Away),
            None => Whereabouts::Orphaned(Orphan { tenant: place.tenant, revision }),
        })
    }

    fn well_since(&self) -> MutexGuard<'_, Option<Instant>> {
        self.shared.well_since.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn was_well_for_a_lease(&self) -> bool {
        self.well_since().is_some_and(|since| since.elapsed() >= self.lease())
    }

    async fn place(&self, places: &Store, id: &str) -> Result<Option<(Place, u64)>, Error> {
        let name = format!("{PLACE}.{id}");
        let entry = places.entry(name.as_str()).await.map_err(|error| broken(PLACES)(error.into()))?;
        let entry = entry.filter(|entry| entry.operation == Operation::Put);
        Ok(entry.and_then(|entry| Some((self.opened(&name, &entry.value)?, entry.revision))))
    }

    fn opened(&self, name: &str, sealed: &[u8]) -> Option<Place> {
        serde_json::from_slice(&self.shared.seal.open(name, sealed)?).ok()
    }

    fn sealed(&self, name: &str, place: &Place) -> Result<Bytes, Error> {
        let plain = serde_json::to_vec(place).unwrap_or_default();
        Ok(self.shared.seal.seal(name, &plain)?.into())
    }

    /// Makes this node the owner of `id`.
    ///
    /// # Returns
    /// Whether it is: another node may have been first.
    ///
    /// # Errors
    /// [`Error::Broker`].
    pub async fn take_over(&self, id: &str, orphan: &Orphan) -> Result<bool, Error> {
        let (places, name) = (self.places().await?, format!("{PLACE}.{id}"));
        let place = Place { node: self.node().to_owned(), tenant: orphan.tenant };
        let sealed = self.sealed(&name, &place)?;
        match places.update(name.as_str(), sealed, orphan.revision).await {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == UpdateErrorKind::WrongLastRevision => Ok(false),
            Err(error) => Err(broken(PLACES)(error.into())),
        }
    }

    /// A part of `id` as its node last wrote it.
    ///
    /// # Errors
    /// [`Error::Broker`].
    pub async fn part(&self, id: &str, part: &'static str) -> Result<Option<String>, Error> {
        let name = format!("{part}.{id}");
        let found = self.places().await?.get(name.as_str()).await;
        let found = found.map_err(|error| broken(PLACES)(error.into()))?;
        Ok(found.and_then(|sealed| unpacked(&self.shared.seal.open(&name, &sealed)?)))
    }

    /// `id` of `tenant` is here: others learn it a little later.
    pub fn own(&self, id: &str, tenant: u64) {
        self.wait(id, |waiting| (waiting.tenant, waiting.is_forgotten) = (Some(tenant), false));
    }

    /// Writes a part of `id` a little later, or removes it; a later call for the same part replaces an earlier one.
    pub fn keep(&self, id: &str, part: &'static str, text: Option<String>) {
        self.wait(id, |waiting| drop(waiting.parts.insert(part, text)));
    }

    /// Removes `id` with these parts a little later.
    pub fn forget(&self, id: &str, parts: &[&'static str]) {
        self.wait(id, |waiting| {
            waiting.is_forgotten = true;
            waiting.parts.extend(parts.iter().map(|part| (*part, None)));
        });
    }

    fn wait(&self, id: &str, change: impl FnOnce(&mut Waiting)) {
        if !is_id(id) {
            return;
        }
        change(self.waiting().entry(id.to_owned()).or_default());
        self.shared.wake.notify_one();
    }

    /// Writes what waits for `id`. If this node is not its owner any more, nothing is written.
    ///
    /// # Errors
    /// [`Error::Broker`]; then it still waits.
    pub async fn write(&self, id: &str) -> Result<(), Error> {
        let _writing = self.shared.writing.lock().await;
        let Some(due) = self.waiting().remove(id) else { return Ok(()) };
        let written = self.put(id, &due).await;
        if written.is_err() {
            let mut waiting = self.waiting();
            let newer = waiting.entry(id.to_owned()).or_default();
            newer.tenant = newer.tenant.or(due.tenant);
            newer.is_forgotten |= due.is_forgotten;
            for (part, text) in due.parts {
                newer.parts.entry(part).or_insert(text);
            }
        }
        written
    }

    async fn put(&self, id: &str, due: &Waiting) -> Result<(), Error> {
        let places = self.places().await?;
        let failed = broken(PLACES);
        let owner = self.place(&places, id).await?.map(|(place, _)| place.node);
        if owner.as_ref().is_some_and(|owner| owner != self.node()) {
            return Ok(());
        }
        let most = self.shared.cluster.client().server_info().max_payload.saturating_sub(HEAD_BYTES);
        for (part, text) in &due.parts {
            let name = format!("{part}.{id}");
            let sealed = match text.as_ref().filter(|_| !due.is_forgotten) {
                Some(text) => Some(self.shared.seal.seal(&name, &packed(text)?)?),
                None => None,
            };
            match sealed {
                Some(sealed) if sealed.len() > most => {
                    tracing::debug!(
                        id,
                        part,
                        bytes = sealed.len(),
                        "too large for the broker: only this node has it"
                    );
                }
                Some(sealed) => {
                    places.put(name.as_str(), sealed.into()).await.map_err(|error| failed(error.into()))?;
                }
                None => places.purge(name.as_str()).await.map_err(|error| failed(error.into()))?,
            }
        }
        // The parts first: a thing that can be found can be taken over.
        if due.is_forgotten {
            places.purge(format!("{PLACE}.{id}")).await.map_err(|error| failed(error.into()))?;
        } else if let (None, Some(tenant)) = (owner, due.tenant) {
            let name = format!("{PLACE}.{id}");
            let place = Place { node: self.node().to_owned(), tenant };
            match places.create(name.as_str(), self.sealed(&name, &place)?).await {
                Ok(_) => {}
                Err(error) if error.kind() == CreateErrorKind::AlreadyExists => {}
                Err(error) => return Err(failed(error.into())),
            }
        }
        Ok(())
    }

    /// Renews the lease, writes what waits, and tells the news, until `stop`. Then others may take over at once.
    pub async fn run(self, news: mpsc::Sender<News>, stop: CancellationToken) {
        let renewing = async {
            let mut renew = interval(self.lease() / RENEWALS);
            let mut was_well = true;
            loop {
                renew.tick().await;
                let renewed = self.renew().await;
                note(&mut was_well, renewed.as_ref().err(), "the lease of this node is not renewed");
            }
        };
        let writing = async {
            let mut was_well = true;
            loop {
                self.shared.wake.notified().await;
                let ids: Vec<String> = self.waiting().keys().cloned().collect();
                for id in ids {
                    let written = self.write(&id).await;
                    note(&mut was_well, written.as_ref().err(), "sessions are not shared at present");
                    if written.is_err() {
                        self.shared.wake.notify_one();
                        tokio::time::sleep(PAUSE).await;
                    }
                }
            }
        };
        let following = async {
            let mut was_well = true;
            loop {
                let ended = self.follow(&news).await;
                note(
                    &mut was_well,
                    ended.as_ref().err(),
                    "the places of sessions are not followed at present",
                );
                tokio::time::sleep(PAUSE).await;
            }
        };
        stop.run_until_cancelled(async { tokio::join!(renewing, writing, following) }).await;
        let ids: Vec<String> = self.waiting().keys().cloned().collect();
        for id in ids {
            if self.write(&id).await.is_err() {
                break;
            }
        }
        if let Ok(nodes) = self.nodes().await {
            // If this fails, the lease ends by itself.
            let _ = nodes.delete(self.node()).await;
        }
    }

    async fn renew(&self) -> Result<(), Error> {
        let put = async {
            let sealed = self.shared.seal.seal(self.node(), self.shared.address.as_bytes())?;
            let renewed = self.nodes().await?.put(self.node(), sealed.into()).await;
            renewed.map(drop).map_err(|error| broken(NODES)(error.into()))
        };
        let renewed = put.await;
        let mut since = self.well_since();
        *since = renewed.is_ok().then(|| since.unwrap_or_else(Instant::now));
        renewed
    }

    /// Tells the news until the connection breaks.
    async fn follow(&self, news: &mpsc::Sender<News>) -> Result<(), Error> {
        self.open().clear();
        // Before the others hear of this node's sessions, which they would take for orphans.
        self.renew().await?;
        let places = self.places().await?;
        let failed = broken(PLACES);
        let made = async || {
            let stream = self.shared.cluster.jetstream().get_stream(&places.stream_name).await;
            stream.map(|stream| stream.cached_info().created).map_err(|error| failed(error.into()))
        };
        let this = made().await?;
        let mut entries =
            places.watch_with_history(format!("{PLACE}.>")).await.map_err(|error| failed(error.into()))?;
        // Entries may be there that this watch does not tell, so their end is not told either: what comes within a moment
        // is what was there.
        let mut known = Some(HashSet::new());
        let mut settled = Box::pin(tokio::time::sleep(PAUSE));
        let mut check = interval(CHECK);
        loop {
            tokio::select! {
                entry = entries.next() => {
                    let Some(entry) = entry else { return Ok(()) };
                    let entry = entry.map_err(|error| failed(error.into()))?;
                    let Some(id) = entry.key.strip_prefix(PLACE).and_then(|rest| rest.strip_prefix('.')) else {
                        continue;
                    };
                    if entry.operation != Operation::Put {
                        continue;
                    }
                    if let Some(known) = &mut known {
                        known.insert(id.to_owned());
                        settled.as_mut().reset(Instant::now() + PAUSE);
                    }
                    let place = self.opened(&entry.key, &entry.value);
                    if place.is_some_and(|place| place.node != self.node()) {
                        let _ = news.send(News::Elsewhere(id.to_owned())).await;
                    }
                }
                () = &mut settled, if known.is_some() => {
                    if let Some(known) = known.take() {
                        let _ = news.send(News::Known(known)).await;
                    }
                }
                _ = check.tick() => {
                    if !self.shared.cluster.is_connected() || made().await? != this {
                        return Ok(());
                    }
                }
            }
        }
    }
}

/// Logs the first failure after a success.
fn note(was_well: &mut bool, error: Option<&Error>, problem: &'static str) {
    if let (true, Some(error)) = (*was_well, error) {
        let error: &dyn std::error::Error = error;
        tracing::warn!(error, "{problem}");
    }
    *was_well = error.is_none();
}

fn packed(text: &str) -> Result<Vec<u8>, Error> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text.as_bytes()).and_then(|()| encoder.finish()).map_err(|_| Error::Seal)
}

fn unpacked(bytes: &[u8]) -> Option<String> {
    let mut text = String::new();
    DeflateDecoder::new(bytes).take(PART_BYTES_MAX).read_to_string(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_comes_out_again() {
        let text = "{\"a\": \"ä\"}".repeat(1000);
        let bytes = packed(&text).unwrap();
        assert!(bytes.len() < text.len() / 10, "{}", bytes.len());
        assert_eq!(unpacked(&bytes).as_deref(), Some(text.as_str()));
        assert_eq!(unpacked(b"\xff\xff"), None);
    }

    #[test]
    fn ids_of_clients_are_no_wildcards() {
        assert!(is_id("sess_0123456789ab"));
        for id in ["", "a.b", "*", ">", "a b", "é", &"a".repeat(65)] {
            assert!(!is_id(id), "{id}");
        }
    }
}
