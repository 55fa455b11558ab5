//! [`Broker`] on NATS JetStream.
//!
//! | | |
//! |---|---|
//! | stream `PREFIX-jobs`, work queue | `PREFIX.jobs.LANE.ID`: jobs to be done, in lanes by organisation |
//! | bucket `PREFIX-jobs-records` | `ID`: the [`Record`] of each job |
//! | bucket `PREFIX-jobs-submissions` | `TENANT.HASH`: the job of an idempotency key |
//! | objects `PREFIX-jobs-audio`, `PREFIX-jobs-results` | `ID`, `ID.EPOCH` |
//! | subjects, kept by nobody | `PREFIX.events.offered`, `PREFIX.events.jobs.NODE` |

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, UNIX_EPOCH};

use async_nats::jetstream::consumer::{AckPolicy, PullConsumer, pull};
use async_nats::jetstream::kv::{self, CreateErrorKind, Operation, UpdateErrorKind};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::object_store::{self, ObjectStore};
use async_nats::jetstream::stream::{self, LastRawMessageErrorKind, RetentionPolicy, Stream};
use async_nats::jetstream::{self, AckKind, ErrorCode};
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tokio::io::AsyncReadExt as _;
use tokio::sync::{Notify, mpsc};
use uuid::Uuid;

use super::broker::{Broker, Held, Known, Offer, Place, Reply};
use super::failure::Failure;
use super::record::{Record, VERSION};
use crate::cluster::Cluster;
use crate::jobs::store::{JobId, Submission};

/// Organisations are spread over lanes, which take turns: one with many jobs delays only those in its lane.
const LANES: u64 = 8;
/// The key of the generation among the records.
const GENERATION: &str = "generation";
/// Records, audio and results of jobs that nobody asks for any more are kept for at least this long.
const AGE_MIN: Duration = Duration::from_secs(86_400);
/// Beside the time of an answer, what moving this many bytes may take a second.
const BYTES_PER_SECOND_MIN: u64 = 1 << 20;
/// Pause between two attempts to find the stores.
const OPEN_PAUSE: Duration = Duration::from_millis(500);

pub struct Nats {
    cluster: Cluster,
    max_age: Duration,
    lease: Duration,
    stores: Mutex<Option<Arc<Stores>>>,
    opening: tokio::sync::Mutex<()>,
    /// Since when nothing that was asked has been done.
    ill_since: Mutex<Option<Instant>>,
    next_lane: AtomicUsize,
}

struct Stores {
    records: kv::Store,
    submissions: kv::Store,
    audio: ObjectStore,
    results: ObjectStore,
    queue: Stream,
    lanes: Vec<PullConsumer>,
}

/// As it stands in the bucket of submissions.
#[derive(Serialize, Deserialize)]
struct Noted {
    id: Uuid,
    fingerprint: [u8; 32],
}

/// Events of other nodes.
pub struct Events {
    /// A job may be in the queue.
    pub offered: Arc<Notify>,
    /// Something has happened to a job of this node.
    pub own: mpsc::Receiver<JobId>,
}

impl Nats {
    /// `kept`: how long ended jobs are remembered.
    ///
    /// # Errors
    /// Those of the connection.
    pub async fn open(cluster: Cluster, kept: Duration) -> Result<(Self, Events), Failure> {
        let lease = Duration::from_millis(cluster.config().lease_ms);
        let nats = Self {
            max_age: kept.max(AGE_MIN),
            lease,
            stores: Mutex::default(),
            opening: tokio::sync::Mutex::default(),
            ill_since: Mutex::default(),
            next_lane: AtomicUsize::new(rand::random_range(0..LANES as usize)),
            cluster,
        };
        let events = nats.listen().await?;
        nats.stores().await?;
        Ok((nats, events))
    }

    async fn listen(&self) -> Result<Events, Failure> {
        let failed = |error: async_nats::SubscribeError| Failure::Broker(error.into());
        let client = self.cluster.client();
        let mut offers = client.subscribe(self.cluster.subject("events.offered")).await.map_err(failed)?;
        let own = self.cluster.subject(&format!("events.jobs.{}", self.cluster.node()));
        let mut events = client.subscribe(own).await.map_err(failed)?;
        let offered = Arc::new(Notify::new());
        let notify = offered.clone();
        tokio::spawn(async move {
            while offers.next().await.is_some() {
                notify.notify_one();
            }
        });
        let (sender, receiver) = mpsc::channel(1024);
        tokio::spawn(async move {
            while let Some(event) = events.next().await {
                let id = std::str::from_utf8(&event.payload).ok().and_then(|id| Uuid::parse_str(id).ok());
                // If the channel is full, the next look at all jobs finds this one.
                if let Some(id) = id
                    && let Err(mpsc::error::TrySendError::Closed(_)) = sender.try_send(JobId(id))
                {
                    return;
                }
            }
        });
        Ok(Events { offered, own: receiver })
    }

    /// The stores, which are made if they are missing: the broker may have lost its disk.
    async fn stores(&self) -> Result<Arc<Stores>, Failure> {
        let found = || lock(&self.stores).clone();
        if let Some(stores) = found() {
            return Ok(stores);
        }
        let _one_at_a_time = self.opening.lock().await;
        if let Some(stores) = found() {
            return Ok(stores);
        }
        match self.open_stores().await {
            Ok(stores) => {
                let stores = Arc::new(stores);
                *lock(&self.stores) = Some(stores.clone());
                Ok(stores)
            }
            Err(failure) => {
                self.is_ill();
                tracing::warn!(
                    error = &failure as &dyn std::error::Error,
                    "the broker's stores cannot be had"
                );
                tokio::time::sleep(OPEN_PAUSE).await;
                Err(failure)
            }
        }
    }

    async fn open_stores(&self) -> Result<Stores, Failure> {
        if !self.cluster.is_connected() {
            return Err(Failure::Away);
        }
        let (cluster, failed) = (&self.cluster, |error: crate::cluster::Error| Failure::Broker(error.into()));
        let (records, _) = cluster.bucket("jobs-records", self.max_age).await.map_err(failed)?;
        let (submissions, _) = cluster.bucket("jobs-submissions", self.max_age).await.map_err(failed)?;
        let (audio, _) = cluster.objects("jobs-audio", self.max_age).await.map_err(failed)?;
        let (results, _) = cluster.objects("jobs-results", self.max_age).await.map_err(failed)?;
        let config = stream::Config {
            name: cluster.store("jobs"),
            subjects: vec![cluster.subject("jobs.>")],
            retention: RetentionPolicy::WorkQueue,
            ..stream::Config::default()
        };
        let (queue, _) = cluster.stream(config).await.map_err(failed)?;
        let mut lanes = Vec::new();
        for lane in 0..LANES {
            let name = format!("lane-{lane}");
            let config = pull::Config {
                durable_name: Some(name.clone()),
                ack_policy: AckPolicy::Explicit,
                ack_wait: self.lease,
                filter_subject: cluster.subject(&format!("jobs.{lane}.>")),
                // Attempts are counted in the record: a message that the server gives up would vanish.
                max_deliver: -1,
                max_ack_pending: -1,
                ..pull::Config::default()
            };
            let consumer = queue.get_or_create_consumer(&name, config).await;
            lanes.push(consumer.map_err(|error| Failure::Broker(error.into()))?);
        }
        let generation = Uuid::new_v4().to_string();
        match records.create(GENERATION, generation.into()).await {
            Ok(_) => tracing::info!("the broker's stores of jobs are new"),
            Err(error) if error.kind() == CreateErrorKind::AlreadyExists => {}
            Err(error) => return Err(Failure::Broker(error.into())),
        }
        Ok(Stores { records, submissions, audio, results, queue, lanes })
    }

    /// Notes whether something that was asked with `used` has been done.
    fn judge<T, E>(&self, used: &Arc<Stores>, result: Result<T, E>) -> Result<T, Failure>
    where
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        match result {
            Ok(done) => {
                *lock(&self.ill_since) = None;
                Ok(done)
            }
            Err(error) => {
                self.is_ill();
                let mut stores = lock(&self.stores);
                if stores.as_ref().is_some_and(|now| Arc::ptr_eq(now, used)) {
                    // They may be gone. They are looked for, and made anew, before the next use.
                    *stores = None;
                }
                Err(Failure::Broker(error.into()))
            }
        }
    }

    fn is_ill(&self) {
        lock(&self.ill_since).get_or_insert_with(Instant::now);
    }

    fn subject_of(&self, id: JobId, tenant: u64) -> String {
        self.cluster.subject(&format!("jobs.{}.{id}", tenant % LANES))
    }

    /// The most that moving `bytes` may take.
    fn patience(&self, bytes: u64) -> Duration {
        let answer = Duration::from_millis(self.cluster.config().timeout_ms);
        answer + Duration::from_secs(bytes / BYTES_PER_SECOND_MIN)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // Every change to what is behind these is one assignment.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn key_of(tenant: u64, key: &str) -> String {
    format!("{tenant}.{}", data_encoding::HEXLOWER.encode(&Sha256::digest(key)))
}

fn read(bytes: &[u8]) -> Result<Record, Failure> {
    #[derive(Deserialize)]
    struct Versioned {
        version: u32,
    }
    let Versioned { version } = serde_json::from_slice(bytes).map_err(|_| Failure::Unreadable)?;
    if version > VERSION {
        return Err(Failure::Newer(version));
    }
    serde_json::from_slice(bytes).map_err(|_| Failure::Unreadable)
}

fn written<T: Serialize>(value: &T) -> Bytes {
    // Numbers, texts and lists always serialize.
    serde_json::to_vec(value).unwrap_or_default().into()
}

impl Stores {
    fn objects(&self, place: Place) -> &ObjectStore {
        match place {
            Place::Audio => &self.audio,
            Place::Results => &self.results,
        }
    }
}

impl Broker for Nats {
    fn is_well(&self) -> Result<(), Duration> {
        match *lock(&self.ill_since) {
            Some(since) => Err(since.elapsed()),
            None if self.cluster.is_connected() => Ok(()),
            None => Err(Duration::ZERO),
        }
    }

    fn generation(&self) -> Reply<'_, Uuid> {
        Box::pin(async {
            let stores = self.stores().await?;
            let found = self.judge(&stores, stores.records.get(GENERATION).await)?;
            let id = found.as_deref().and_then(|text| Uuid::try_parse_ascii(text).ok());
            // It is made with the stores: they are about to be made anew.
            let lost = || std::io::Error::other("the stores have no generation");
            self.judge(&stores, id.ok_or_else(lost))
        })
    }

    fn record(&self, id: JobId) -> Reply<'_, Option<Held>> {
        Box::pin(async move {
            let stores = self.stores().await?;
            let entry = self.judge(&stores, stores.records.entry(id.to_string()).await)?;
            let Some(entry) = entry.filter(|entry| entry.operation == Operation::Put) else {
                return Ok(None);
            };
            Ok(Some(Held { record: read(&entry.value)?, revision: entry.revision }))
        })
    }

    fn create<'a>(&'a self, id: JobId, record: &Record) -> Reply<'a, Option<u64>> {
        let bytes = written(record);
        Box::pin(async move {
            let stores = self.stores().await?;
            let created = match stores.records.create(id.to_string(), bytes).await {
                Err(error) if error.kind() == CreateErrorKind::AlreadyExists => Ok(None),
                created => created.map(Some),
            };
            self.judge(&stores, created)
        })
    }

    fn update<'a>(&'a self, id: JobId, record: &Record, revision: u64) -> Reply<'a, Option<u64>> {
        let bytes = written(record);
        Box::pin(async move {
            let stores = self.stores().await?;
            let updated = match stores.records.update(id.to_string(), bytes, revision).await {
                Err(error) if error.kind() == UpdateErrorKind::WrongLastRevision => Ok(None),
                updated => updated.map(Some),
            };
            self.judge(&stores, updated)
        })
    }

    fn remove(&self, id: JobId) -> Reply<'_, ()> {
        Box::pin(async move {
            let stores = self.stores().await?;
            self.judge(&stores, stores.records.purge(id.to_string()).await)
        })
    }

    fn submitted(&self, tenant: u64, key: String) -> Reply<'_, Option<Known>> {
        Box::pin(async move {
            let stores = self.stores().await?;
            let entry = self.judge(&stores, stores.submissions.entry(key_of(tenant, &key)).await)?;
            let Some(entry) = entry.filter(|entry| entry.operation == Operation::Put) else {
                return Ok(None);
            };
            let Noted { id, fingerprint } =
                serde_json::from_slice(&entry.value).map_err(|_| Failure::Unreadable)?;
            let seconds = u64::try_from(entry.created.unix_timestamp()).unwrap_or_default();
            let since = UNIX_EPOCH + Duration::from_secs(seconds);
            let submission = Submission { id: JobId(id), fingerprint };
            Ok(Some(Known { submission, since, revision: entry.revision }))
        })
    }

    fn note(
        &self,
        tenant: u64,
        key: String,
        submission: Submission,
        instead_of: Option<u64>,
    ) -> Reply<'_, bool> {
        let Submission { id: JobId(id), fingerprint } = submission;
        let bytes = written(&Noted { id, fingerprint });
        Box::pin(async move {
            let stores = self.stores().await?;
            let key = key_of(tenant, &key);
            match instead_of {
                None => {
                    let created = match stores.submissions.create(key, bytes).await {
                        Err(error) if error.kind() == CreateErrorKind::AlreadyExists => Ok(false),
                        created => created.map(|_| true),
                    };
                    self.judge(&stores, created)
                }
                Some(revision) => {
                    let updated = match stores.submissions.update(key, bytes, revision).await {
                        Err(error) if error.kind() == UpdateErrorKind::WrongLastRevision => Ok(false),
                        updated => updated.map(|_| true),
                    };
                    self.judge(&stores, updated)
                }
            }
        })
    }

    fn forget(&self, tenant: u64, key: String, revision: u64) -> Reply<'_, ()> {
        Box::pin(async move {
            let stores = self.stores().await?;
            let deleted =
                stores.submissions.delete_expect_revision(key_of(tenant, &key), Some(revision)).await;
            self.judge(&stores, deleted)
        })
    }

    fn put(&self, place: Place, name: String, bytes: Bytes) -> Reply<'_, ()> {
        Box::pin(async move {
            let stores = self.stores().await?;
            let (limit, mut source) = (self.patience(bytes.len() as u64), bytes.as_ref());
            let put = stores.objects(place).put(name.as_str(), &mut source);
            let put = match tokio::time::timeout(limit, put).await {
                Ok(put) => put.map(|_| ()).map_err(Into::into),
                Err(elapsed) => Err(elapsed.into()),
            };
            self.judge::<_, Box<dyn std::error::Error + Send + Sync>>(&stores, put)
        })
    }

    fn get(&self, place: Place, name: String) -> Reply<'_, Option<Bytes>> {
        Box::pin(async move {
            let stores = self.stores().await?;
            let object = match stores.objects(place).get(&name).await {
                Err(error) if error.kind() == object_store::GetErrorKind::NotFound => Ok(None),
                object => object.map(Some),
            };
            let Some(mut object) = self.judge(&stores, object)? else { return Ok(None) };
            let size = object.info().size;
            let mut bytes = Vec::with_capacity(size);
            let read = tokio::time::timeout(self.patience(size as u64), object.read_to_end(&mut bytes)).await;
            let read = read.map_err(std::io::Error::from).and_then(|read| read);
            self.judge(&stores, read)?;
            Ok(Some(bytes.into()))
        })
    }

    fn delete(&self, place: Place, name: String) -> Reply<'_, ()> {
        Box::pin(async move {
            let stores = self.stores().await?;
            let deleted = match stores.objects(place).delete(&name).await {
                Err(error) if error.kind() == object_store::DeleteErrorKind::NotFound => Ok(()),
                deleted => deleted,
            };
            self.judge(&stores, deleted)
        })
    }

    fn offer(&self, id: JobId, tenant: u64, anew: bool) -> Reply<'_, ()> {
        Box::pin(async move {
            let stores = self.stores().await?;
            // The server drops a repetition within two minutes, even of a message that has left the queue.
            let message_id = match anew {
                false => id.to_string(),
                true => format!("{id}.{}", Uuid::new_v4()),
            };
            let message = PublishMessage::build().message_id(message_id);
            let subject = self.subject_of(id, tenant);
            let published = match self.cluster.jetstream().send_publish(subject, message).await {
                Ok(acknowledged) => acknowledged.await.map(|_| ()),
                Err(error) => Err(error),
            };
            self.judge(&stores, published)?;
            let event = self.cluster.client().publish(self.cluster.subject("events.offered"), Bytes::new());
            if let Err(error) = event.await {
                tracing::debug!(%error, "other nodes are not told of a job");
            }
            Ok(())
        })
    }

    fn is_offered(&self, id: JobId, tenant: u64) -> Reply<'_, bool> {
        Box::pin(async move {
            let stores = self.stores().await?;
            let found = stores.queue.get_last_raw_message_by_subject(&self.subject_of(id, tenant)).await;
            let found = match found {
                Ok(_) => Ok(true),
                Err(error) => match error.kind() {
                    LastRawMessageErrorKind::NoMessageFound => Ok(false),
                    LastRawMessageErrorKind::JetStream(cause)
                        if cause.error_code() == ErrorCode::NO_MESSAGE_FOUND =>
                    {
                        Ok(false)
                    }
                    _ => Err(error),
                },
            };
            self.judge(&stores, found)
        })
    }

    fn take(&self) -> Reply<'_, Option<Box<dyn Offer>>> {
        Box::pin(async move {
            let stores = self.stores().await?;
            for _ in 0..LANES {
                let lane = self.next_lane.fetch_add(1, Ordering::Relaxed) % stores.lanes.len().max(1);
                let Some(consumer) = stores.lanes.get(lane) else { return Ok(None) };
                let taken = tokio::time::timeout(self.patience(0), one_of(consumer)).await;
                let taken = taken.unwrap_or_else(|elapsed| Err(elapsed.into()));
                if let Some(message) = self.judge(&stores, taken)? {
                    let id = message.subject.rsplit('.').next().and_then(|id| Uuid::parse_str(id).ok());
                    match id {
                        Some(id) => {
                            let offer: Box<dyn Offer> = Box::new(Taken { id: JobId(id), message });
                            return Ok(Some(offer));
                        }
                        None => {
                            let ended = message.double_ack_with(AckKind::Term).await;
                            self.judge(&stores, ended)?;
                        }
                    }
                }
            }
            Ok(None)
        })
    }

    fn tell(&self, node: String, id: JobId) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let subject = self.cluster.subject(&format!("events.jobs.{node}"));
            if let Err(error) = self.cluster.client().publish(subject, id.to_string().into()).await {
                tracing::debug!(%error, "a node is not told of its job");
            }
        })
    }
}

async fn one_of(consumer: &PullConsumer) -> Result<Option<jetstream::Message>, async_nats::Error> {
    let mut batch = consumer.fetch().max_messages(1).messages().await?;
    batch.next().await.transpose()
}

struct Taken {
    id: JobId,
    message: jetstream::Message,
}

impl Taken {
    async fn answer(&self, kind: AckKind) {
        if let Err(error) = self.message.ack_with(kind).await {
            tracing::debug!(%error, id = %self.id, "the queue is not told of a job");
        }
    }
}

impl Offer for Taken {
    fn id(&self) -> JobId {
        self.id
    }

    fn progress(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.answer(AckKind::Progress))
    }

    fn done(&self) -> Reply<'_, ()> {
        Box::pin(async { self.message.double_ack().await.map_err(Failure::Broker) })
    }

    fn again(&self, after: Duration) -> BoxFuture<'_, ()> {
        Box::pin(self.answer(AckKind::Nak(Some(after).filter(|after| !after.is_zero()))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_of_a_newer_program_is_left_alone() {
        assert!(matches!(read(b"{\"version\": 2, \"what\": 1}"), Err(Failure::Newer(2))));
        for text in ["", "{}", "{\"version\": 1}", "[]"] {
            assert!(matches!(read(text.as_bytes()), Err(Failure::Unreadable)), "{text}");
        }
    }

    #[test]
    fn keys_of_organisations_differ_and_are_no_subjects() {
        let key = key_of(7, "a.b >*");
        assert_eq!(key.len(), 66, "{key}");
        assert_ne!(key, key_of(8, "a.b >*"));
        assert_ne!(key, key_of(7, "a.b"));
    }
}
