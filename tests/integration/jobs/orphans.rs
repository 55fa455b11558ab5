//! A state directory whose database and audio do not agree.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use reqwest::Method;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;
use verbatim::fetch::{self, Fetcher};
use verbatim::jobs::{Config, Error, Fault, Input, JobId, Jobs, Order, Setback, Source, State, Task, Work};
use verbatim::share::Tenants;

use crate::receiver::Receiver;

const DATABASE: &str = "jobs.sqlite3";
const LOG: &str = "jobs.sqlite3-wal";

/// Answers with the audio.
struct Echo;

impl Work for Echo {
    fn run<'a>(&'a self, _: &'a Task, input: Input) -> BoxFuture<'a, Result<Vec<u8>, Setback>> {
        let Input::Audio(audio) = input else { panic!("all of them have audio") };
        async move { Ok(audio.to_vec()) }.boxed()
    }

    fn given_up(&self, _: &Task, fault: Fault) -> Vec<u8> {
        format!("{fault:?}").into_bytes()
    }
}

async fn try_open(state: &Path, allow: Vec<String>) -> Result<Jobs, Error> {
    let fetcher = Fetcher::new(&fetch::Config { allow, ..fetch::Config::default() }).unwrap();
    Jobs::open(state, &Config::default(), fetcher, Tenants::default()).await
}

async fn open(state: &Path) -> Jobs {
    try_open(state, vec![]).await.unwrap()
}

fn id(number: u128) -> JobId {
    JobId(Uuid::from_u128(number))
}

fn audio(number: u128) -> Vec<u8> {
    format!("audio of {number}").into_bytes()
}

async fn submit(jobs: &Jobs, number: u128, port: u16) {
    let order = Order {
        id: id(number),
        accepted: SystemTime::now(),
        tenant: 1,
        key: "key".into(),
        query: String::new(),
        words: false,
        source: Source::Spooled { bytes: audio(number).len() as u64 },
        callback: format!("http://127.0.0.1:{port}/").parse().unwrap(),
        method: Method::POST,
        idempotency: None,
    };
    jobs.submit(order, Some(Bytes::from(audio(number)))).await.unwrap();
}

/// Jobs 1 to `count`, taken and not run.
async fn with_jobs(count: u128, port: u16) -> (TempDir, Jobs) {
    let state = TempDir::new().unwrap();
    let jobs = open(state.path()).await;
    for number in 1..=count {
        submit(&jobs, number, port).await;
    }
    (state, jobs)
}

/// The files that a kill would leave now.
fn after_a_kill(state: &Path) -> TempDir {
    let copy = TempDir::new().unwrap();
    let spool = copy.path().join("jobs-audio");
    fs::create_dir(&spool).unwrap();
    for (from, to) in [(state.to_owned(), copy.path()), (state.join("jobs-audio"), spool.as_path())] {
        for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
            // Memory that the dead process shared with others goes with it.
            if entry.file_type().unwrap().is_file() && !entry.path().ends_with("jobs.sqlite3-shm") {
                fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
            }
        }
    }
    copy
}

/// The files of a folder of `state`, by name.
fn files(state: &Path, folder: &str) -> BTreeMap<String, Vec<u8>> {
    let Ok(entries) = fs::read_dir(state.join(folder)) else { return BTreeMap::new() };
    let file =
        |entry: fs::DirEntry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap());
    entries.map(|entry| file(entry.unwrap())).collect()
}

fn audio_of(numbers: std::ops::RangeInclusive<u128>) -> BTreeMap<String, Vec<u8>> {
    numbers.map(|number| (id(number).to_string(), audio(number))).collect()
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The log lines while `state` is opened.
async fn log_of_opening(state: &Path) -> String {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
    let guard = tracing::subscriber::set_default(subscriber);
    drop(open(state).await);
    drop(guard);
    let bytes = log.0.lock().unwrap().clone();
    String::from_utf8(bytes).unwrap()
}

#[tokio::test]
async fn audio_outlives_a_database_that_is_gone_and_runs_when_it_is_back() {
    let mut receiver = Receiver::start(&[]).await;
    let (state, jobs) = with_jobs(3, receiver.port).await;
    let state = state.path();
    drop(jobs);
    fs::rename(state.join(DATABASE), state.join("copy")).unwrap();
    let log = log_of_opening(state).await;
    assert!(log.contains("ERROR") && log.contains("count=3") && log.contains("jobs-quarantine"), "{log}");
    assert_eq!(files(state, "jobs-quarantine"), audio_of(1..=3));
    assert_eq!(files(state, "jobs-audio"), BTreeMap::new());

    fs::rename(state.join("copy"), state.join(DATABASE)).unwrap();
    let jobs = try_open(state, vec![receiver.allowed()]).await.unwrap();
    assert_eq!(files(state, "jobs-quarantine"), BTreeMap::new());
    assert_eq!(files(state, "jobs-audio"), audio_of(1..=3));
    let run = jobs.run(Arc::new(Echo), CancellationToken::new());
    let delivered = async {
        let mut bodies = [receiver.next().await.body, receiver.next().await.body, receiver.next().await.body];
        bodies.sort_unstable();
        bodies
    };
    let delivered = tokio::select! {
        () = run => panic!("nothing stopped it"),
        delivered = delivered => delivered,
    };
    assert_eq!(delivered, [audio(1), audio(2), audio(3)]);
}

#[tokio::test]
async fn audio_outlives_a_log_that_is_ruined() {
    let (running, _jobs) = with_jobs(4, 80).await;
    // Everything written to the database is still in its log, and SQLite can't use a log without its database.
    for (case, ruin) in [("begins with nothing", true), ("is left alone", false)] {
        let killed = after_a_kill(running.path());
        let state = killed.path();
        let mut log = fs::read(state.join(LOG)).unwrap();
        assert!(log.len() > 10_000);
        if ruin {
            log[..32].fill(0);
            fs::write(state.join(LOG), &log).unwrap();
        } else {
            fs::remove_file(state.join(DATABASE)).unwrap();
        }
        drop(open(state).await);
        let mut kept = files(state, "jobs-quarantine");
        let kept_log = kept.iter().find(|(name, _)| name.starts_with(LOG)).map(|(name, _)| name.clone());
        assert_eq!(kept.remove(&kept_log.expect(case)).as_ref(), Some(&log), "{case}");
        assert_eq!(kept, audio_of(1..=4), "{case}");
        assert_eq!(files(state, "jobs-audio"), BTreeMap::new(), "{case}");
    }
    // A log with a torn end, as a power cut leaves it: the part before counts.
    let killed = after_a_kill(running.path());
    let state = killed.path();
    let log = fs::read(state.join(LOG)).unwrap();
    fs::write(state.join(LOG), &log[..log.len() - 1000]).unwrap();
    let log = log_of_opening(state).await;
    assert!(log.contains("WARN") && !log.contains("ERROR") && log.contains("count=1"), "{log}");
    assert_eq!(files(state, "jobs-audio"), audio_of(1..=3));
    assert_eq!(files(state, "jobs-quarantine"), audio_of(4..=4));
}

#[tokio::test]
async fn what_an_ordinary_crash_leaves_is_tidied_up() {
    let mut receiver = Receiver::start(&[]).await;
    let (state, jobs) = with_jobs(1, receiver.port).await;
    let state = state.path();
    drop(jobs);
    let jobs = try_open(state, vec![receiver.allowed()]).await.unwrap();
    let delivered = async {
        receiver.next().await;
        while jobs.job(id(1), 1).await.unwrap().unwrap().state != State::Delivered {}
    };
    tokio::select! {
        () = jobs.run(Arc::new(Echo), CancellationToken::new()) => panic!("nothing stopped it"),
        () = delivered => {}
    }
    submit(&jobs, 2, receiver.port).await;
    drop(jobs);
    // A file that could not be removed, one half written, and one that was written and never taken.
    let spool = state.join("jobs-audio");
    fs::write(spool.join(id(1).to_string()), audio(1)).unwrap();
    fs::write(spool.join(format!("{}.part", id(3))), b"half").unwrap();
    fs::write(spool.join(id(4).to_string()), audio(4)).unwrap();
    let log = log_of_opening(state).await;
    assert!(log.contains("WARN") && !log.contains("ERROR") && log.contains("count=1"), "{log}");
    assert_eq!(files(state, "jobs-audio"), audio_of(2..=2));
    assert_eq!(files(state, "jobs-quarantine"), audio_of(4..=4));
}

#[tokio::test]
async fn a_database_that_is_damaged_is_refused_in_clear_words_and_nothing_is_touched() {
    let (state, jobs) = with_jobs(60, 80).await;
    drop(jobs);
    let whole = fs::read(state.path().join(DATABASE)).unwrap();
    assert!(whole.len() > 5 * 4096);
    let page = 4096;
    for (case, from, to) in [
        ("no database at all", 0, 100),
        ("a page of an index", 3 * page, 4 * page),
        ("all but the first page", page, whole.len()),
    ] {
        for log in [None, Some(vec![0xA5; 5000])] {
            let mut damaged = whole.clone();
            damaged[from..to].fill(0xA5);
            fs::write(state.path().join(DATABASE), &damaged).unwrap();
            if let Some(log) = &log {
                fs::write(state.path().join(LOG), log).unwrap();
            }
            let Err(error) = try_open(state.path(), vec![]).await else { panic!("{case}") };
            assert!(matches!(error, Error::Damaged { .. }), "{case}: {error:?}");
            let words = error.to_string();
            assert!(words.contains(DATABASE) && words.contains("put back a copy"), "{words}");
            assert_eq!(files(state.path(), "jobs-audio"), audio_of(1..=60), "{case}");
        }
    }
    fs::write(state.path().join(DATABASE), &whole[..2 * page]).unwrap();
    let cut = try_open(state.path(), vec![]).await;
    assert!(matches!(cut, Err(Error::Damaged { .. })), "cut short");
    fs::write(state.path().join(DATABASE), &whole).unwrap();
    assert!(try_open(state.path(), vec![]).await.is_ok());
    assert_eq!(files(state.path(), "jobs-audio"), audio_of(1..=60));
}

#[tokio::test]
async fn a_job_of_a_format_without_hashes_runs() {
    let mut receiver = Receiver::start(&[]).await;
    let (state, jobs) = with_jobs(1, receiver.port).await;
    drop(jobs);
    let database = rusqlite::Connection::open(state.path().join(DATABASE)).unwrap();
    database
        .execute_batch(
            "ALTER TABLE jobs DROP COLUMN sha256; ALTER TABLE jobs DROP COLUMN decoding;
             ALTER TABLE jobs DROP COLUMN interruptions; ALTER TABLE jobs DROP COLUMN media_type;
             DROP INDEX jobs_broker; ALTER TABLE jobs DROP COLUMN broker;
             DROP TABLE attempts; PRAGMA user_version = 2;",
        )
        .unwrap();
    drop(database);
    let jobs = try_open(state.path(), vec![receiver.allowed()]).await.unwrap();
    let delivered = tokio::select! {
        () = jobs.run(Arc::new(Echo), CancellationToken::new()) => panic!("nothing stopped it"),
        delivered = receiver.next() => delivered,
    };
    assert_eq!(delivered.body, audio(1));
}
