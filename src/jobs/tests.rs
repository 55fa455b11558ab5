//! States that only a test inside can bring about: a full database, a shortage of file descriptors, an hour that
//! passes in a moment. The clock is tokio's, which stands still while anything works.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use tempfile::TempDir;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::drain_rate::DrainRate;
use super::entrance::Entrance;
use super::spool::{Audio, Spool, Unread};
use super::store::{Answer, Finished};
use super::world::World;
use super::{
    Config, Error, Fault, Idempotency, Input, Job, JobId, Jobs, Order, Setback, Shared, SigningSecret,
    Source, Sqlite, Stamp, State, Store, Task, Work,
};
use crate::fetch::{self, Fetcher, Message, Reply, SendError};
use crate::share::Tenants;

/// Receivers take all that comes.
struct Still {
    began: Instant,
    received: mpsc::UnboundedSender<Vec<u8>>,
}

impl World for Still {
    fn now(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(1_800_000_000) + self.began.elapsed()
    }

    fn chance(&self) -> f64 {
        1.0
    }

    fn send(&self, message: Message, _: Duration) -> BoxFuture<'_, Result<Reply, SendError>> {
        let _ = self.received.send(message.body.to_vec());
        Box::pin(async { Ok(Reply { status: 204, retry_after: None }) })
    }
}

/// A spool whose next calls end in these errors of the system.
struct Failing {
    spool: Spool,
    writes: Mutex<VecDeque<i32>>,
    reads: Mutex<VecDeque<i32>>,
}

fn fault(codes: &Mutex<VecDeque<i32>>) -> Option<io::Error> {
    codes.lock().expect("one thread").pop_front().map(io::Error::from_raw_os_error)
}

impl Audio for Failing {
    fn has_room(&self, bytes: u64) -> bool {
        self.spool.has_room(bytes)
    }

    fn write(&self, id: JobId, bytes: Bytes) -> Answer<'_, [u8; 32]> {
        match fault(&self.writes) {
            Some(error) => Box::pin(async { Err(Error::Exhausted(Box::new(error))) }),
            None => self.spool.write(id, bytes),
        }
    }

    fn read(&self, id: JobId, stamp: Stamp) -> BoxFuture<'_, Result<Bytes, Unread>> {
        match fault(&self.reads) {
            Some(error) => Box::pin(async { Err(error.into()) }),
            None => self.spool.read(id, stamp),
        }
    }

    fn remove(&self, id: JobId) {
        self.spool.remove(id);
    }

    fn expire(&self, before: SystemTime) -> BoxFuture<'_, io::Result<usize>> {
        self.spool.expire(before)
    }
}

/// Takes its time, and answers with the audio.
struct Echo(Duration);

impl Work for Echo {
    fn run<'a>(&'a self, _: &'a Task, input: Input) -> BoxFuture<'a, Result<Vec<u8>, Setback>> {
        Box::pin(async move {
            let Input::Audio(audio) = input else { panic!("all of them have audio") };
            tokio::time::sleep(self.0).await;
            Ok(audio.to_vec())
        })
    }

    fn given_up(&self, _: &Task, fault: Fault) -> Vec<u8> {
        format!("{fault:?}").into_bytes()
    }
}

struct Fixture {
    jobs: Jobs,
    sqlite: Sqlite,
    audio: Arc<Failing>,
    received: mpsc::UnboundedReceiver<Vec<u8>>,
    _state: TempDir,
}

impl Fixture {
    fn new(config: Config) -> Self {
        let state = tempfile::tempdir().expect("a directory");
        let path = state.path();
        let fetcher = Fetcher::new(&fetch::Config::default()).expect("a fetcher");
        let sqlite = Sqlite::open(path).expect("a database");
        let spool = Spool::open(path, 0).expect("a spool");
        let audio = Arc::new(Failing { spool, writes: Mutex::default(), reads: Mutex::default() });
        let (sender, received) = mpsc::unbounded_channel();
        let shared = Shared {
            store: Arc::new(sqlite.clone()),
            audio: audio.clone(),
            world: Arc::new(Still { began: Instant::now(), received: sender }),
            secret: SigningSecret::of(path).expect("a secret"),
            fetcher,
            bounds: config.bounds(Tenants::default()),
            config,
            drain_rate: DrainRate::default(),
            entrance: Entrance::default(),
            queued: Notify::new(),
            finished: Notify::new(),
            nodes: None,
            _lock: File::open(path).expect("a directory"),
        };
        Self { jobs: Jobs { shared: Arc::new(shared) }, sqlite, audio, received, _state: state }
    }

    fn now(&self) -> SystemTime {
        self.jobs.shared.world.now()
    }

    fn fail_writes(&self, codes: &[i32]) {
        self.audio.writes.lock().expect("one thread").extend(codes);
    }

    fn fail_reads(&self, codes: &[i32]) {
        self.audio.reads.lock().expect("one thread").extend(codes);
    }

    /// With a query of so many characters.
    fn order(&self, number: u128, query: usize) -> Order {
        Order {
            id: id(number),
            accepted: self.now(),
            tenant: 1,
            key: "key".into(),
            query: "q".repeat(query),
            words: false,
            source: Source::Spooled { bytes: AUDIO.len() as u64 },
            callback: "http://receiver.example/".parse().expect("an address"),
            method: reqwest::Method::POST,
            idempotency: None,
        }
    }

    /// With a query of so many characters.
    async fn submit(&self, number: u128, query: usize) -> Result<JobId, Error> {
        self.jobs.submit(self.order(number, query), Some(Bytes::from_static(AUDIO))).await
    }

    /// Under an idempotency key.
    async fn submit_as(&self, number: u128, key: &str) -> Result<JobId, Error> {
        let idempotency = Some(Idempotency { key: key.into(), fingerprint: [7; 32] });
        let order = Order { idempotency, ..self.order(number, 1) };
        self.jobs.submit(order, Some(Bytes::from_static(AUDIO))).await
    }

    /// Runs jobs, each one for so long, until the test ends.
    fn run(&self, each: Duration) {
        let jobs = self.jobs.clone();
        tokio::spawn(async move { jobs.run(Arc::new(Echo(each)), CancellationToken::new()).await });
    }

    /// The next delivery that the receiver gets.
    async fn next(&mut self) -> String {
        let body = tokio::time::timeout(Duration::from_secs(86_400), self.received.recv()).await;
        String::from_utf8(body.expect("in time").expect("a body")).expect("text")
    }

    async fn job(&self, number: u128) -> Option<Job> {
        self.sqlite.job(id(number)).await.expect("readable")
    }
}

fn id(number: u128) -> JobId {
    JobId(Uuid::from_u128(number))
}

const AUDIO: &[u8] = b"what was said";
const SAID: &str = "what was said";
/// More than fits into what a small database has left.
const MUCH: usize = 200_000;

#[tokio::test(start_paused = true)]
async fn a_full_disk_refuses_for_now_leaves_nothing_behind_and_loses_nothing() {
    let mut fixture = Fixture::new(Config::default());
    fixture.submit(1, 1).await.expect("taken");
    fixture.sqlite.set_full(true);
    for number in 2..5 {
        let refused = fixture.submit(number, MUCH).await;
        assert!(matches!(refused, Err(Error::Full { .. })), "{refused:?}");
        assert!(fixture.job(number).await.is_none());
    }
    assert_eq!(
        fixture.audio.spool.names().expect("readable").len(),
        1,
        "the audio of the one that was taken"
    );

    // A result that there is no room for is lost no more than its job is.
    let claimed = fixture.sqlite.claim(fixture.now()).await.expect("claimed").expect("a job");
    let finish = || {
        let finished = Finished { body: vec![b'r'; MUCH], media_type: None, error: None };
        fixture.sqlite.finish(claimed.id, fixture.now(), finished)
    };
    let failed = finish().await;
    assert!(matches!(failed, Err(Error::Exhausted(_))), "{failed:?}");
    assert_eq!(fixture.job(1).await.map(|job| job.state), Some(State::Running));

    fixture.sqlite.set_full(false);
    finish().await.expect("room");
    fixture.submit(5, MUCH).await.expect("taken");
    fixture.run(Duration::ZERO);
    let mut bodies = [fixture.next().await.len(), fixture.next().await.len()];
    bodies.sort_unstable();
    assert_eq!(bodies, [AUDIO.len(), MUCH]);
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_refuses_no_submission_that_is_sent_again() {
    let fixture = Fixture::new(Config::default());
    let first = fixture.submit_as(1, "order").await.expect("taken");
    fixture.fail_writes(&[libc::ENOSPC]);
    assert_eq!(fixture.submit_as(2, "order").await.expect("known"), first);
    assert!(matches!(fixture.submit_as(3, "another").await, Err(Error::Full { .. })));
    assert!(fixture.job(2).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_shortage_of_file_descriptors_refuses_for_now_and_fails_no_job() {
    let mut fixture = Fixture::new(Config { runs_max: 2, ..Config::default() });
    fixture.fail_writes(&[libc::EMFILE, libc::ENFILE]);
    for _ in 0..2 {
        let refused = fixture.submit(1, 1).await;
        assert!(matches!(refused, Err(Error::Full { .. })), "{refused:?}");
    }
    fixture.submit(1, 1).await.expect("taken");
    // More often than a job may fail.
    fixture.fail_reads(&[libc::EMFILE; 10]);
    fixture.run(Duration::ZERO);
    assert_eq!(fixture.next().await, SAID);
}

#[tokio::test(start_paused = true)]
async fn audio_that_cannot_be_read_is_tried_again_and_audio_that_is_lost_is_not() {
    let mut fixture = Fixture::new(Config { runs_max: 3, ..Config::default() });
    fixture.run(Duration::ZERO);
    fixture.fail_reads(&[libc::EIO; 2]);
    fixture.submit(1, 1).await.expect("taken");
    assert_eq!(fixture.next().await, SAID);
    fixture.fail_reads(&[libc::EIO; 3]);
    fixture.submit(2, 1).await.expect("taken");
    assert_eq!(fixture.next().await, "Failed");

    let mut fixture = Fixture::new(Config::default());
    fixture.submit(3, 1).await.expect("taken");
    fixture.audio.remove(id(3));
    fixture.run(Duration::ZERO);
    assert_eq!(fixture.next().await, "AudioLost");
    let job = fixture.job(3).await.expect("a job");
    assert_eq!((job.runs, job.error.as_deref()), (1, Some("AUDIO_LOST")));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_is_refused_comes_back_when_there_is_room() {
    let config = Config { pending_max: 4, concurrency: 1, ..Config::default() };
    let mut fixture = Fixture::new(config);
    fixture.run(Duration::from_secs(10));
    let mut number = 0;
    let mut refused = async |fixture: &Fixture| loop {
        number += 1;
        match fixture.submit(number, 1).await {
            Ok(_) => {}
            Err(Error::Full { retry_after }) => return retry_after,
            Err(other) => panic!("{other:?}"),
        }
    };
    for _ in 0..6 {
        let told = refused(&fixture).await;
        assert!((Duration::from_secs(1)..=Duration::from_secs(120)).contains(&told), "{told:?}");
        fixture.next().await;
    }
    let until_there_is_room = async |fixture: &Fixture| {
        let began = Instant::now();
        while fixture.jobs.has_room(1, 1).await.is_err() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        began.elapsed().as_secs_f64()
    };
    until_there_is_room(&fixture).await;
    let told = refused(&fixture).await.as_secs_f64();
    let took = until_there_is_room(&fixture).await;
    assert!((told - took).abs() <= 0.3 * took, "told to wait {told} s, and it took {took} s");
}
