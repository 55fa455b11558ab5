//! The job engine in a world that a seed makes: its own clock, a disk that fails and tears, receivers that
//! misbehave, and a process that dies at any moment. The database is the real one.
//!
//! `SIMULATION_SEED=N cargo test simulation` does one seed again, step for step; with
//! `SIMULATION_SEEDS=N` there are more than 2,000.

mod disk;
mod world;

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use url::Url;
use uuid::Uuid;

use self::disk::{Disk, FaultyStore, wait};
use self::world::{Received, Simulated};
use super::drain_rate::DrainRate;
use super::entrance::Entrance;
use super::reconcile::reconcile;
use super::spool::Spool;
use super::{
    Again, Config, Fault, Input, JobId, Jobs, Order, Setback, Shared, SigningSecret, Source, Sqlite, State,
    Store, Task, Work,
};
use crate::fetch::Fetcher;
use crate::share::Tenants;

const JOBS: u128 = 8;
/// Lives that end in a crash; the next one is let live.
const CRASHES_MAX: usize = 4;
/// Simulated time; the schedule below takes less.
const PATIENCE: Duration = Duration::from_secs(3600);

fn config() -> Config {
    Config {
        concurrency: 2,
        runs_max: 3,
        run_timeout_ms: 20_000,
        retry_delays_seconds: vec![1.0, 4.0, 10.0],
        delivery_timeout_ms: 3_000,
        deliveries: 4,
        deliveries_per_host: 2,
        disk_free_bytes_min: 0,
        ..Config::default()
    }
}

/// The history of one seed, kept over its lives.
struct History {
    folder: PathBuf,
    /// Given an answer that says so.
    acknowledged: Mutex<HashSet<JobId>>,
    /// How often the process died while it decoded a job's audio.
    crashes: Crashes,
    received: Arc<Mutex<Vec<Received>>>,
}

type Crashes = Arc<Mutex<HashMap<JobId, u32>>>;

/// Whatever may be decided by chance is decided here, in an order that the seed fixes.
type Dice = Arc<Mutex<SmallRng>>;

fn roll(dice: &Dice, share: f64) -> bool {
    dice.lock().expect("one thread").random_bool(share)
}

fn among(dice: &Dice, range: std::ops::Range<u64>) -> u64 {
    dice.lock().expect("one thread").random_range(range)
}

/// A transcription that takes its time, and sometimes fails.
struct Labour {
    dice: Dice,
    crashes: Crashes,
}

/// A job's audio is being decoded: where this is dropped meanwhile, the process has died of it.
struct Decoding<'a> {
    crashes: &'a Crashes,
    id: JobId,
    is_over: bool,
}

impl Drop for Decoding<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            *self.crashes.lock().expect("one thread").entry(self.id).or_default() += 1;
        }
    }
}

impl Work for Labour {
    fn run<'a>(&'a self, task: &'a Task, input: Input) -> BoxFuture<'a, Result<Vec<u8>, Setback>> {
        Box::pin(async move {
            let Input::Audio(audio) = input else { panic!("all of them have audio") };
            assert_eq!(audio, audio_of(task.id), "the audio of another job, or a torn one");
            let mut decoding = Decoding { crashes: &self.crashes, id: task.id, is_over: false };
            task.watch.over(tokio::time::sleep(Duration::from_millis(among(&self.dice, 1..1000)))).await;
            decoding.is_over = true;
            tokio::time::sleep(Duration::from_millis(among(&self.dice, 1..3000))).await;
            let again = match among(&self.dice, 0..20) {
                0 => Again::Never,
                1 | 2 => Again::Later,
                3 => Again::Busy(Duration::from_secs(2)),
                // Never twice the same, so that a second result is told from the first.
                _ => return Ok(format!("{} {}", task.id, among(&self.dice, 0..u64::MAX)).into_bytes()),
            };
            Err(Setback { error: "FAILED".into(), body: b"failed".to_vec(), again })
        })
    }

    fn given_up(&self, _: &Task, fault: Fault) -> Vec<u8> {
        format!("{fault:?}").into_bytes()
    }
}

fn audio_of(id: JobId) -> Bytes {
    Bytes::from(id.to_string().repeat(50))
}

fn order(number: u128, world: &Simulated) -> Order {
    let audio = audio_of(JobId(Uuid::from_u128(number)));
    let callback = Url::parse(&format!("http://receiver{}.example/", number % 3)).expect("an address");
    Order {
        id: JobId(Uuid::from_u128(number)),
        accepted: super::world::World::now(world),
        tenant: (number % 2) as u64,
        key: "key".into(),
        query: String::new(),
        words: false,
        source: Source::Spooled { bytes: audio.len() as u64 },
        callback,
        method: reqwest::Method::POST,
        idempotency: None,
    }
}

/// A process from its start to its crash, or until all is done.
async fn live(
    history: &History,
    world: Arc<Simulated>,
    disk: Arc<Disk>,
    fetcher: Fetcher,
) -> Result<(), String> {
    let failed = |what: &str| {
        let what = what.to_owned();
        move |error: super::Error| format!("{what}: {error:?}")
    };
    let sqlite = Sqlite::open(&history.folder).map_err(failed("the database does not open"))?;
    sqlite.check(&history.folder).map_err(failed("the check"))?;
    let spool = Spool::open(&history.folder, 0).map_err(failed("the spool"))?;
    let now = super::world::World::now(&*world);
    wait(sqlite.recover(now)).map_err(failed("recovery"))?;
    let findings = wait(reconcile(&sqlite, &spool, now)).map_err(failed("recovery"))?;
    let acknowledged: HashSet<String> =
        history.acknowledged.lock().expect("one thread").iter().map(ToString::to_string).collect();
    if let Some(name) = findings.set_aside.iter().find(|name| acknowledged.contains(*name)) {
        return Err(format!("{name} was acknowledged, and its row is lost"));
    }
    disk.starts(sqlite.clone(), spool, &history.folder);
    let jobs = Jobs {
        shared: Arc::new(Shared {
            store: Arc::new(FaultyStore(disk.clone())),
            audio: disk.clone(),
            world: world.clone(),
            secret: SigningSecret::of(&history.folder).map_err(|error| error.to_string())?,
            fetcher,
            bounds: config().bounds(Tenants::default()),
            config: config(),
            drain_rate: DrainRate::default(),
            entrance: Entrance::default(),
            queued: Notify::new(),
            finished: Notify::new(),
            nodes: None,
            _lock: std::fs::File::open(&history.folder).map_err(|error| error.to_string())?,
        }),
    };
    let stop = CancellationToken::new();
    let labour = Labour { dice: world.dice.clone(), crashes: history.crashes.clone() };
    let client = async {
        for number in 1..=JOBS {
            let order = order(number, &world);
            let id = order.id;
            if wait(sqlite.job(id)).is_ok_and(|job| job.is_some()) {
                continue;
            }
            tokio::time::sleep(Duration::from_millis(among(&world.dice, 0..2000))).await;
            if jobs.submit(order, Some(audio_of(id))).await.is_ok() {
                history.acknowledged.lock().expect("one thread").insert(id);
            }
        }
        // Until all of them have ended.
        while wait(sqlite.held(0)).map_err(failed("held"))?.jobs > 0 {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        Ok(())
    };
    let done = tokio::select! {
        biased;
        () = jobs.run(Arc::new(labour), stop.clone()) => Ok(()),
        done = tokio::time::timeout(PATIENCE, client) => done.unwrap_or_else(|_| Err("jobs never end".into())),
        () = disk.crashed() => Ok(()),
    };
    disk.tear(&history.folder);
    done
}

/// One seed. `forgetful`: the store says that it has taken jobs which it has not.
fn simulate(seed: u64, forgetful: bool, fetcher: &Fetcher) -> Result<(), String> {
    let folder =
        shared_memory().map_or_else(tempfile::tempdir, tempfile::tempdir_in).map_err(|e| e.to_string())?;
    let dice: Dice = Arc::new(Mutex::new(SmallRng::seed_from_u64(seed)));
    let received = Arc::new(Mutex::new(Vec::new()));
    let mut history = History {
        folder: folder.path().join("0"),
        acknowledged: Mutex::default(),
        crashes: Crashes::default(),
        received: received.clone(),
    };
    let mut elapsed = Duration::ZERO;
    let lives = among(&dice, 0..CRASHES_MAX as u64 + 1) as usize + 1;
    for life in 1..=lives {
        // Nothing is left of a process but its files: its tasks end with its runtime.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .map_err(|error| error.to_string())?;
        let steps = if life < lives { among(&dice, 1..250) } else { u64::MAX };
        let entered = runtime.enter();
        let world = Arc::new(Simulated::new(dice.clone(), elapsed, received.clone()));
        let disk = Arc::new(Disk::new(dice.clone(), steps, forgetful));
        runtime.block_on(live(&history, world.clone(), disk.clone(), fetcher.clone()))?;
        elapsed = world.elapsed() + Duration::from_millis(among(&dice, 0..5000));
        // A crash leaves the files as they are; an orderly end would tidy them up.
        history.folder = folder.path().join(life.to_string());
        copy(&folder.path().join((life - 1).to_string()), &history.folder).map_err(|e| e.to_string())?;
        disk.ends(&history.folder);
        drop(entered);
    }
    check(&history)
}

fn shared_memory() -> Option<&'static Path> {
    Some(Path::new("/dev/shm")).filter(|path| path.is_dir())
}

fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => copy(&entry.path(), &target)?,
            // Memory that the dead process shared with others.
            false if entry.path().to_string_lossy().ends_with("-shm") => {}
            false => drop(std::fs::copy(entry.path(), target)?),
        }
    }
    Ok(())
}

/// Checks what must hold in the end, whatever happened.
fn check(history: &History) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().map_err(|error| error.to_string())?;
    let sqlite = Sqlite::open(&history.folder).map_err(|error| error.to_string())?;
    let received = history.received.lock().expect("one thread");
    let mut bodies: HashMap<&str, &[u8]> = HashMap::new();
    for Received { id, body, .. } in received.iter() {
        let first = bodies.entry(id).or_insert(body);
        if *first != body.as_slice() {
            return Err(format!("{id} was sent as {first:?} and as {body:?}"));
        }
        let crashes = history.crashes.lock().expect("one thread");
        let crashed = Uuid::parse_str(id).ok().and_then(|id| crashes.get(&JobId(id)).copied());
        if body == b"Crashed" && crashed.unwrap_or_default() < 2 {
            return Err(format!("{id} was given up for crashes that it had no part in"));
        }
        if body == b"AudioLost" {
            return Err(format!("the audio of {id} is lost"));
        }
    }
    for &id in history.acknowledged.lock().expect("one thread").iter() {
        let job = runtime.block_on(sqlite.job(id)).map_err(|error| error.to_string())?;
        let Some(job) = job else { return Err(format!("{id} was acknowledged and is lost")) };
        let name = id.to_string();
        let taken = received.iter().any(|received| received.id == name && received.was_taken);
        match job.state {
            State::Delivered if !taken => return Err(format!("{id} is delivered, and nobody has it")),
            State::Delivered => {}
            State::Dead if job.error.is_none() => return Err(format!("{id} is dead without a reason")),
            State::Dead => {}
            other => return Err(format!("{id} is {} for ever", other.name())),
        }
    }
    let kept = runtime.block_on(sqlite.with_audio()).map_err(|error| error.to_string())?;
    if !kept.is_empty() {
        return Err(format!("{} jobs that have ended keep their audio", kept.len()));
    }
    Ok(())
}

/// The first seed of `seeds` that goes wrong, and how.
fn search(seeds: std::ops::Range<u64>, forgetful: bool) -> Option<(u64, String)> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let fetcher = Fetcher::new(&crate::fetch::Config::default()).expect("a fetcher");
    let next = AtomicU64::new(seeds.start);
    let found: Mutex<Option<(u64, String)>> = Mutex::new(None);
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end || found.lock().expect("no panic").is_some() {
                return;
            }
            if let Err(problem) = simulate(seed, forgetful, &fetcher) {
                *found.lock().expect("no panic") = Some((seed, problem));
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, std::num::NonZero::get) {
            scope.spawn(work);
        }
    });
    found.into_inner().expect("no panic")
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

#[test]
fn no_seed_loses_a_job() {
    let seeds = match number("SIMULATION_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("SIMULATION_SEEDS").unwrap_or(2000),
    };
    if let Some((seed, problem)) = search(seeds, false) {
        panic!("{problem}; again with SIMULATION_SEED={seed}");
    }
}

/// The simulator finds what it is there to find.
#[test]
fn a_store_that_forgets_is_found_out() {
    let (_, problem) = search(0..100, true).expect("a violation");
    assert!(problem.ends_with("is lost"), "{problem}");
}

#[test]
fn a_seed_goes_the_same_way_again() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let fetcher = Fetcher::new(&crate::fetch::Config::default()).expect("a fetcher");
    let told = |seed| world::told(|| simulate(seed, false, &fetcher).expect("no violation"));
    for seed in 0..5 {
        assert_eq!(told(seed), told(seed), "seed {seed}");
    }
}
