//! The contract of every [`Store`], with a clock that the test owns; and jobs across restarts.

mod attempts;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, pending};
use reqwest::Method;
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;
use verbatim::fetch::{self, Fetcher};
use verbatim::jobs::{
    Acceptance, Bounds, Config, Error, Fault, Finished, INTERRUPTIONS_MAX, Idempotency, Input, JobId, Jobs,
    Next, Order, Refusal, Resource, SUSPECT_PATIENCE, Setback, Source, Sqlite, State, Store, Task, Usage,
    Work,
};
use verbatim::share::{Refused, Tenants};

use crate::receiver::Receiver;

fn at(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_000_000 + seconds)
}

fn order(number: u128, tenant: u64, accepted: SystemTime) -> Order {
    Order {
        id: JobId(Uuid::from_u128(number)),
        accepted,
        tenant,
        key: "key".into(),
        query: "tag=secret".into(),
        words: false,
        source: Source::Spooled { bytes: 10 },
        callback: "http://u:p@a.example/".parse().unwrap(),
        method: Method::POST,
        idempotency: None,
    }
}

fn bounds(jobs: u64, bytes: u64) -> Bounds {
    Bounds { jobs, bytes, tenants: Tenants::default() }
}

async fn accept(store: &dyn Store, order: Order) {
    assert_eq!(store.accept(order, None, bounds(1000, 1000)).await.unwrap(), Acceptance::Taken);
}

/// The number of the job that runs next.
async fn claim(store: &dyn Store, now: SystemTime) -> Option<u128> {
    store.claim(now).await.unwrap().map(|run| run.id.0.as_u128())
}

async fn set_decoding(store: &dyn Store, number: u128, is_decoding: bool) {
    store.set_decoding(JobId(Uuid::from_u128(number)), is_decoding).await.unwrap();
}

async fn finish(store: &dyn Store, number: u128, now: SystemTime) {
    let finished = Finished { body: b"result".to_vec(), media_type: None, error: None };
    store.finish(JobId(Uuid::from_u128(number)), now, finished).await.unwrap();
}

async fn state(store: &dyn Store, number: u128) -> State {
    store.job(JobId(Uuid::from_u128(number))).await.unwrap().unwrap().state
}

#[tokio::test]
async fn tenants_take_turns_and_each_ones_jobs_go_in_order() {
    let dir = TempDir::new().unwrap();
    let store = Sqlite::open(dir.path()).unwrap();
    for number in 1..=3 {
        accept(&store, order(number, 1, at(number as u64))).await;
    }
    accept(&store, order(9, 2, at(9))).await;
    assert_eq!(claim(&store, at(0)).await, None, "not due");
    let mut claimed = Vec::new();
    while let Some(number) = claim(&store, at(10)).await {
        claimed.push(number);
    }
    assert_eq!(claimed, [1, 9, 2, 3]);
}

#[tokio::test]
async fn what_was_decoded_when_the_process_died_runs_again_alone() {
    let dir = TempDir::new().unwrap();
    let store = Sqlite::open(dir.path()).unwrap();
    for number in 1..=3 {
        accept(&store, order(number, number as u64, at(0))).await;
    }
    let mut begun = [claim(&store, at(0)).await.unwrap(), claim(&store, at(0)).await.unwrap()];
    begun.sort_unstable();
    for number in begun {
        set_decoding(&store, number, true).await;
    }
    drop(store);
    let store = Sqlite::open(dir.path()).unwrap();
    store.recover(at(10)).await.unwrap();

    let innocent = claim(&store, at(10)).await.unwrap();
    assert!(!begun.contains(&innocent), "who was not there goes first");
    assert_eq!(claim(&store, at(20)).await, None, "the next one waits to be alone");
    finish(&store, innocent, at(20)).await;
    let first = claim(&store, at(20)).await.unwrap();
    assert_eq!(claim(&store, at(20)).await, None, "and is alone");
    finish(&store, first, at(20)).await;
    let second = store.claim(at(20)).await.unwrap().unwrap();
    assert_eq!(second.failures, 0, "it may have been the other's fault");
    let mut again = [first, second.id.0.as_u128()];
    again.sort_unstable();
    assert_eq!(again, begun);
    set_decoding(&store, second.id.0.as_u128(), true).await;
    store.recover(at(30)).await.unwrap();
    assert!(store.claim(at(33)).await.unwrap().is_none(), "it is left alone for longer each time");
    assert_eq!(store.claim(at(34)).await.unwrap().unwrap().failures, 1);
}

#[tokio::test]
async fn a_death_counts_only_where_it_came_while_the_job_was_decoded() {
    let dir = TempDir::new().unwrap();
    let store = Sqlite::open(dir.path()).unwrap();
    accept(&store, order(1, 1, at(0))).await;
    for life in 0..INTERRUPTIONS_MAX.into() {
        let run = store.claim(at(life)).await.unwrap().expect("at once");
        assert_eq!(run.failures, 0);
        set_decoding(&store, 1, true).await;
        set_decoding(&store, 1, false).await;
        store.recover(at(life)).await.unwrap();
    }
    assert_eq!(store.claim(at(10)).await.unwrap().expect("at once").failures, 0);
    accept(&store, order(2, 2, at(10))).await;
    assert_eq!(claim(&store, at(10)).await, Some(2), "it delays no other job");
    finish(&store, 2, at(10)).await;

    // A job that ran at every death stays under suspicion.
    store.recover(at(10)).await.unwrap();
    assert_eq!(claim(&store, at(10)).await, None);
    assert_eq!(store.claim(at(11)).await.unwrap().expect("a second later").failures, 0);
    accept(&store, order(3, 3, at(11))).await;
    assert_eq!(claim(&store, at(11)).await, None, "and is alone");
    store.recover(at(11)).await.unwrap();
    assert_eq!(claim(&store, at(11)).await, Some(3));
    finish(&store, 3, at(11)).await;
    assert_eq!(store.claim(at(15)).await.unwrap().expect("four seconds later").failures, 1);
}

#[tokio::test]
async fn audio_that_was_decoded_to_its_end_is_no_longer_suspected() {
    let dir = TempDir::new().unwrap();
    let store = Sqlite::open(dir.path()).unwrap();
    accept(&store, order(1, 1, at(0))).await;
    for life in [0, 10, 20] {
        assert_eq!(store.claim(at(life)).await.unwrap().expect("due").failures, 0);
        set_decoding(&store, 1, true).await;
        store.recover(at(life)).await.unwrap();
        // Alone it goes well.
        assert_eq!(claim(&store, at(life)).await, None);
        assert_eq!(store.claim(at(life + 1)).await.unwrap().expect("due").failures, 0);
        let other = 2 + u128::from(life);
        accept(&store, order(other, 2, at(0))).await;
        assert_eq!(claim(&store, at(life + 1)).await, None, "it is alone");
        set_decoding(&store, 1, true).await;
        set_decoding(&store, 1, false).await;
        assert_eq!(claim(&store, at(life + 1)).await, Some(other), "it need not be alone");
        finish(&store, other, at(life + 1)).await;
        store.recover(at(life + 1)).await.unwrap();
    }
}

#[tokio::test]
async fn a_suspect_neither_holds_up_other_jobs_nor_is_held_up_by_them() {
    let dir = TempDir::new().unwrap();
    let store = Sqlite::open(dir.path()).unwrap();
    accept(&store, order(1, 1, at(0))).await;
    claim(&store, at(0)).await.unwrap();
    set_decoding(&store, 1, true).await;
    store.recover(at(0)).await.unwrap();
    for number in 2..=9 {
        accept(&store, order(number, 2, at(0))).await;
    }
    assert_eq!(claim(&store, at(0)).await, Some(2), "the suspect is not due yet");
    let due = 1;
    assert_eq!(claim(&store, at(due)).await, Some(3), "the suspect waits for its moment");
    let patience = SUSPECT_PATIENCE.as_secs();
    finish(&store, 2, at(due + patience - 1)).await;
    assert_eq!(claim(&store, at(due + patience - 1)).await, Some(4));
    // It has waited long enough: nothing is begun beside what runs.
    finish(&store, 4, at(due + patience)).await;
    assert_eq!(claim(&store, at(due + patience)).await, None);
    finish(&store, 3, at(due + patience)).await;
    assert_eq!(claim(&store, at(due + patience)).await, Some(1));
    assert_eq!(claim(&store, at(due + patience)).await, None, "it is alone");
    finish(&store, 1, at(due + patience)).await;
    assert_eq!(claim(&store, at(due + patience)).await, Some(5));
}

#[tokio::test]
async fn of_two_who_finish_a_job_the_first_one_counts() {
    let dir = TempDir::new().unwrap();
    let store = Sqlite::open(dir.path()).unwrap();
    accept(&store, order(1, 1, at(0))).await;
    finish(&store, 1, at(0)).await;
    assert_eq!(state(&store, 1).await, State::Queued, "no task runs it");
    claim(&store, at(0)).await.unwrap();
    finish(&store, 1, at(1)).await;
    let late = Finished { body: b"another".to_vec(), media_type: None, error: Some("X".into()) };
    store.finish(JobId(Uuid::from_u128(1)), at(2), late).await.unwrap();
    store.give_back(JobId(Uuid::from_u128(1)), at(2)).await.unwrap();
    let delivery = store.claim_delivery(at(2), vec![], vec![]).await.unwrap().unwrap();
    assert_eq!(delivery.body, b"result");
    assert!(store.claim_delivery(at(2), vec![], vec![]).await.unwrap().is_none(), "it is on its way");
}

#[tokio::test]
async fn busy_receivers_and_tenants_are_passed_over() {
    let dir = TempDir::new().unwrap();
    let store = Sqlite::open(dir.path()).unwrap();
    for (number, tenant, host) in [(1, 1, "a.example"), (2, 2, "b.example:8443"), (3, 3, "c.example")] {
        let callback = format!("https://{host}/").parse().unwrap();
        accept(&store, Order { callback, ..order(number, tenant, at(0)) }).await;
        claim(&store, at(0)).await.unwrap();
        finish(&store, number, at(number as u64)).await;
    }
    let next = async |receivers: &[&str], tenants: &[u64]| {
        let receivers = receivers.iter().map(|receiver| (*receiver).to_owned()).collect();
        let next = store.claim_delivery(at(9), receivers, tenants.to_vec()).await.unwrap();
        next.map(|delivery| (delivery.id.0.as_u128(), delivery.receiver))
    };
    assert_eq!(next(&["a.example:443", "b.example:8443"], &[3]).await, None);
    assert_eq!(next(&["a.example:443"], &[2]).await, Some((3, "c.example:443".into())));
    assert_eq!(next(&["a.example:443"], &[]).await, Some((2, "b.example:8443".into())));
    assert_eq!(next(&[], &[]).await, Some((1, "a.example:443".into())));
}

#[tokio::test]
async fn bounds_are_kept_and_room_comes_back() {
    let dir = TempDir::new().unwrap();
    let store = Sqlite::open(dir.path()).unwrap();
    let full = |of, short| Acceptance::Refused(Refusal { why: Refused::Full, of, short });
    let (taken, few) = (Acceptance::Taken, bounds(2, 15));
    assert_eq!(store.accept(order(1, 1, at(0)), None, few.clone()).await.unwrap(), taken);
    let refused = store.accept(order(2, 1, at(0)), None, few.clone()).await.unwrap();
    assert_eq!(refused, full(Resource::Bytes, 5));
    let by_url = Order { source: Source::Url("http://a/".into()), ..order(2, 1, at(0)) };
    assert_eq!(store.accept(by_url, None, few).await.unwrap(), taken);
    let refused = store.accept(order(3, 1, at(0)), None, bounds(2, 1000)).await.unwrap();
    assert_eq!(refused, full(Resource::Places, 1));
    claim(&store, at(0)).await.unwrap();
    finish(&store, 1, at(0)).await;
    assert_eq!(store.held(1).await.unwrap(), Usage { jobs: 2, bytes: 0, own_jobs: 2, own_bytes: 0 });
    assert!(store.with_audio().await.unwrap().is_empty());
}

#[tokio::test]
async fn a_tenant_holds_its_share_and_no_more() {
    let dir = TempDir::new().unwrap();
    let store = Sqlite::open(dir.path()).unwrap();
    let bounds = Bounds { jobs: 10, bytes: 1000, tenants: Tenants::default() };
    bounds.tenants.set(2);
    let next = async |number, tenant| {
        store.accept(order(number, tenant, at(0)), None, bounds.clone()).await.unwrap()
    };
    for number in 1..=8 {
        assert_eq!(next(number, 1).await, Acceptance::Taken, "{number}");
    }
    let refusal = Refusal { why: Refused::OverShare, of: Resource::Places, short: 1 };
    assert_eq!(next(9, 1).await, Acceptance::Refused(refusal));
    assert_eq!(next(9, 2).await, Acceptance::Taken);
    let held = store.held(2).await.unwrap();
    assert_eq!(held, Usage { jobs: 9, bytes: 90, own_jobs: 1, own_bytes: 10 });
}

#[tokio::test]
async fn what_is_not_needed_is_forgotten() {
    let dir = TempDir::new().unwrap();
    let store = Sqlite::open(dir.path()).unwrap();
    for number in [1, 2, 3] {
        accept(&store, order(number, 1, at(0))).await;
        claim(&store, at(0)).await.unwrap();
        finish(&store, number, at(number as u64)).await;
        let id = store.claim_delivery(at(9), vec![], vec![]).await.unwrap().unwrap().id;
        let next = if number == 3 { Next::Dead { error: "X".into() } } else { Next::Delivered };
        store.attempted(id, at(10), next, number == 2).await.unwrap();
    }
    let result = async |number| store.job(JobId(Uuid::from_u128(number))).await.unwrap().unwrap().result;
    assert_eq!(result(1).await, None);
    assert_eq!(result(2).await.as_deref(), Some(b"result".as_slice()));
    store.purge(at(11), at(10)).await.unwrap();
    assert_eq!(result(2).await, None);
    assert!(result(3).await.is_some(), "it may be sent again");
    assert!(store.redrive(JobId(Uuid::from_u128(3)), at(11)).await.unwrap());
    assert!(!store.redrive(JobId(Uuid::from_u128(1)), at(11)).await.unwrap());
    store.purge(at(11), at(11)).await.unwrap();
    assert_eq!(store.list(None, 10).await.unwrap().len(), 1, "the one that is to be sent");
    drop(store);
    let bytes: Vec<u8> = std::fs::read_dir(dir.path())
        .unwrap()
        .flat_map(|file| std::fs::read(file.unwrap().path()).unwrap())
        .collect();
    assert!(!bytes.windows(10).any(|window| window == b"tag=secret"), "the query is still on disk");
}

/// Says when it is called; then never ends, or answers with the audio.
struct Scripted {
    calls: mpsc::UnboundedSender<Uuid>,
    hangs: Hangs,
}

#[derive(PartialEq)]
enum Hangs {
    Never,
    InDecoding,
    Afterwards,
}

impl Work for Scripted {
    fn run<'a>(&'a self, task: &'a Task, input: Input) -> BoxFuture<'a, Result<Vec<u8>, Setback>> {
        async move {
            let call = || self.calls.send(task.id.0).expect("the test listens");
            if self.hangs == Hangs::InDecoding {
                let decoding = async {
                    call();
                    pending().await
                };
                return task.watch.over(decoding).await;
            }
            task.watch.over(async {}).await;
            call();
            match input {
                Input::Audio(audio) if self.hangs == Hangs::Never => Ok(audio.to_vec()),
                _ => pending().await,
            }
        }
        .boxed()
    }

    fn given_up(&self, task: &Task, fault: Fault) -> Vec<u8> {
        format!("{fault:?} {}", task.id).into_bytes()
    }
}

async fn open(state: &Path, config: &Config, allow: Vec<String>) -> Jobs {
    let fetcher = Fetcher::new(&fetch::Config { allow, ..fetch::Config::default() }).unwrap();
    Jobs::open(state, config, fetcher, Tenants::default()).await.unwrap()
}

fn quick() -> Config {
    Config { retry_delays_seconds: vec![0.01; 3], ..Config::default() }
}

fn now_order(receiver: &Receiver) -> Order {
    let callback = format!("http://127.0.0.1:{}/", receiver.port).parse().unwrap();
    Order { callback, ..order(7, 1, SystemTime::now()) }
}

/// A process that ends as soon as a job has been begun.
async fn life_until_a_call(
    state: &Path,
    config: &Config,
    work: Arc<dyn Work>,
    mut called: mpsc::UnboundedReceiver<Uuid>,
) -> mpsc::UnboundedReceiver<Uuid> {
    let (state, config) = (state.to_owned(), config.clone());
    // Dropping a runtime ends everything that runs in it, like a dying process.
    let life = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let jobs = open(&state, &config, vec![]).await;
            tokio::select! {
                () = jobs.run(work, CancellationToken::new()) => panic!("nothing stopped it"),
                _ = called.recv() => called,
            }
        })
    };
    tokio::task::spawn_blocking(life).await.unwrap()
}

#[tokio::test]
async fn a_job_that_kills_the_process_does_not_do_so_for_ever() {
    let state = TempDir::new().unwrap();
    let mut receiver = Receiver::start(&[]).await;
    let config = Config { runs_max: 1, ..quick() };
    let (calls, mut called) = mpsc::unbounded_channel();
    let work: Arc<dyn Work> = Arc::new(Scripted { calls, hangs: Hangs::InDecoding });

    let jobs = open(state.path(), &config, vec![receiver.allowed()]).await;
    jobs.submit(now_order(&receiver), Some(Bytes::from_static(b"0123456789"))).await.unwrap();
    drop(jobs);
    // The first time there might have been others.
    for _ in 0..2 {
        called = life_until_a_call(state.path(), &config, work.clone(), called).await;
    }
    let jobs = open(state.path(), &config, vec![receiver.allowed()]).await;
    let given_up = tokio::select! {
        () = jobs.run(work, CancellationToken::new()) => panic!("it ended by itself"),
        given_up = receiver.next() => given_up,
    };
    assert_eq!(given_up.body, format!("Crashed {}", Uuid::from_u128(7)).as_bytes());
    assert!(called.try_recv().is_err(), "it was not begun again");
}

#[tokio::test]
async fn a_job_that_runs_at_five_kills_has_not_failed_once() {
    let state = TempDir::new().unwrap();
    let mut receiver = Receiver::start(&[]).await;
    let config = Config { runs_max: 1, ..quick() };
    let (calls, mut called) = mpsc::unbounded_channel();
    let hangs = Arc::new(Scripted { calls: calls.clone(), hangs: Hangs::Afterwards });
    let jobs = open(state.path(), &config, vec![]).await;
    jobs.submit(now_order(&receiver), Some(Bytes::from_static(b"0123456789"))).await.unwrap();
    drop(jobs);
    for _ in 0..5 {
        called = life_until_a_call(state.path(), &config, hangs.clone(), called).await;
    }
    let jobs = open(state.path(), &config, vec![receiver.allowed()]).await;
    let job = jobs.job(JobId(Uuid::from_u128(7)), 1).await.unwrap().unwrap();
    assert!(job.due.unwrap() <= SystemTime::now() && job.error.is_none(), "it waits for nothing");
    let work = Arc::new(Scripted { calls, hangs: Hangs::Never });
    let delivered = tokio::select! {
        () = jobs.run(work, CancellationToken::new()) => panic!("nothing stopped it"),
        delivered = receiver.next() => delivered,
    };
    assert_eq!(delivered.body, b"0123456789");
}

#[tokio::test]
async fn an_address_is_judged_again_when_it_is_used() {
    let state = TempDir::new().unwrap();
    let mut receiver = Receiver::start(&[]).await;
    let (calls, _called) = mpsc::unbounded_channel();
    // Taken when it was allowed, which it no longer is.
    let jobs = open(state.path(), &quick(), vec![]).await;
    jobs.submit(now_order(&receiver), Some(Bytes::from_static(b"0123456789"))).await.unwrap();
    let dead = async {
        loop {
            let job = jobs.job(JobId(Uuid::from_u128(7)), 1).await.unwrap().unwrap();
            if job.state == State::Dead {
                return job;
            }
        }
    };
    let job = tokio::select! {
        () = jobs.run(Arc::new(Scripted { calls, hangs: Hangs::Never }), CancellationToken::new()) => panic!("it stopped"),
        job = tokio::time::timeout(Duration::from_secs(60), dead) => job.unwrap(),
    };
    // As for a receiver that is not there: clients must not learn which names lead inside.
    assert_eq!((job.error.as_deref(), job.attempts), (Some("UNREACHABLE"), 4));
    assert!(receiver.is_done());
}

#[tokio::test]
async fn a_state_directory_has_one_server() {
    let state = TempDir::new().unwrap();
    let jobs = open(state.path(), &quick(), vec![]).await;
    let fetcher = Fetcher::new(&fetch::Config::default()).unwrap();
    let second = Jobs::open(state.path(), &quick(), fetcher.clone(), Tenants::default()).await;
    assert!(matches!(second, Err(Error::Locked(_))));
    drop(jobs);
    assert!(Jobs::open(state.path(), &quick(), fetcher, Tenants::default()).await.is_ok());
}

#[tokio::test]
async fn jobs_of_the_first_format_are_read_and_keys_are_their_tenants_own() {
    let dir = TempDir::new().unwrap();
    let store = Sqlite::open(dir.path()).unwrap();
    accept(&store, order(1, 1, at(0))).await;
    drop(store);
    let database = rusqlite::Connection::open(dir.path().join("jobs.sqlite3")).unwrap();
    database
        .execute_batch(
            "DROP INDEX jobs_idempotency; ALTER TABLE jobs DROP COLUMN idempotency_key;
             ALTER TABLE jobs DROP COLUMN fingerprint; ALTER TABLE jobs DROP COLUMN sha256;
             ALTER TABLE jobs DROP COLUMN decoding; ALTER TABLE jobs DROP COLUMN interruptions;
             ALTER TABLE jobs DROP COLUMN media_type; DROP INDEX jobs_broker;
             ALTER TABLE jobs DROP COLUMN broker; DROP TABLE attempts; PRAGMA user_version = 1;",
        )
        .unwrap();
    drop(database);

    let store = Sqlite::open(dir.path()).unwrap();
    assert!(store.job(JobId(Uuid::from_u128(1))).await.unwrap().is_some());
    let named = |number, tenant, fingerprint| {
        let idempotency = Some(Idempotency { key: "same".into(), fingerprint: [fingerprint; 32] });
        store.accept(Order { idempotency, ..order(number, tenant, at(0)) }, None, bounds(1000, 1000))
    };
    assert_eq!(named(2, 1, 1).await.unwrap(), Acceptance::Taken);
    assert_eq!(named(3, 1, 1).await.unwrap(), Acceptance::Known(JobId(Uuid::from_u128(2))));
    assert_eq!(named(4, 1, 2).await.unwrap(), Acceptance::Conflict);
    assert_eq!(named(5, 2, 2).await.unwrap(), Acceptance::Taken);
}
