//! A disk that fails, tears what it was writing, and takes the process with it. Underneath are a real
//! database and real files.
//!
//! Calls go to the pool of threads and are waited for here, one by one: so a seed's steps have one order.

use std::collections::HashSet;
use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::SystemTime;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use super::{Dice, among, roll};
use crate::jobs::capacity::{Bounds, Usage};
use crate::jobs::spool::{Audio, Spool, Unread};
use crate::jobs::store::{Acceptance, Announcement, Answer, Attempt, Census, Stamp, Submission};
use crate::jobs::{Delivery, Error, Finished, Job, JobId, Next, Order, Phase, Run, Sqlite, State, Store};

/// The part of all calls that fail without effect, and the part that fail after taking effect.
const FAILS: f64 = 0.01;
const FAILS_LATE: f64 = 0.005;
const LOG: &str = "jobs.sqlite3-wal";
const SPOOL: &str = "jobs-audio";
/// Beside the database, which is still open: it is a copy that is read next.
const TORN_LOG: &str = "torn-log";

pub struct Disk {
    dice: Dice,
    forgetful: bool,
    inside: Mutex<Inside>,
    crash: CancellationToken,
}

struct Inside {
    parts: Option<(Sqlite, Spool)>,
    /// Calls until the process dies.
    steps: u64,
    /// The database's log when the last call was answered: so much of it is on the disk for sure.
    safe: u64,
    /// The audio that was being written when the process died.
    torn: Option<JobId>,
    log: Option<PathBuf>,
}

/// How a call goes.
#[derive(PartialEq)]
enum Fate {
    Well,
    Fails,
    /// It is done, and said to have failed.
    FailsLate,
    /// The process dies before it, or after it.
    Dies,
    DiesLate,
}

impl Disk {
    pub fn new(dice: Dice, steps: u64, forgetful: bool) -> Self {
        let inside = Inside { parts: None, steps, safe: 0, torn: None, log: None };
        Self { dice, forgetful, inside: Mutex::new(inside), crash: CancellationToken::new() }
    }

    /// A process begins to work on `folder`.
    pub fn starts(&self, sqlite: Sqlite, spool: Spool, folder: &Path) {
        let mut inside = self.inside.lock().expect("one thread");
        inside.parts = Some((sqlite, spool));
        inside.log = Some(folder.join(LOG));
        drop(inside);
        self.answered();
    }

    pub async fn crashed(&self) {
        self.crash.cancelled().await;
    }

    fn fate(&self) -> Fate {
        let mut inside = self.inside.lock().expect("one thread");
        if self.crash.is_cancelled() {
            return Fate::Dies;
        }
        inside.steps -= 1;
        if inside.steps == 0 {
            self.crash.cancel();
            return if roll(&self.dice, 0.5) { Fate::Dies } else { Fate::DiesLate };
        }
        if roll(&self.dice, FAILS) {
            Fate::Fails
        } else if roll(&self.dice, FAILS_LATE) {
            Fate::FailsLate
        } else {
            Fate::Well
        }
    }

    fn parts(&self) -> (Sqlite, Spool) {
        self.inside.lock().expect("one thread").parts.clone().expect("it has started")
    }

    /// A call of the database. A claim that fails has claimed nothing: the store promises it.
    fn call<'a, T: Send + 'a>(
        &'a self,
        is_claim: bool,
        call: impl FnOnce(Sqlite) -> BoxFuture<'static, Result<T, Error>> + Send + 'a,
    ) -> Answer<'a, T> {
        Box::pin(async move {
            let fate = self.fate();
            match fate {
                Fate::Fails => return Err(Error::Store("the disk fails".into())),
                Fate::Dies => std::future::pending().await,
                Fate::Well | Fate::FailsLate | Fate::DiesLate => {}
            }
            let done = wait(call(self.parts().0));
            if fate == Fate::DiesLate {
                std::future::pending::<()>().await;
            }
            self.answered();
            if fate == Fate::FailsLate && !is_claim {
                return Err(Error::Unsure("the disk fails to say that it is done".into()));
            }
            done
        })
    }

    fn answered(&self) {
        let mut inside = self.inside.lock().expect("one thread");
        let length = inside.log.as_ref().and_then(|log| std::fs::metadata(log).ok()).map(|file| file.len());
        inside.safe = inside.safe.max(length.unwrap_or_default());
    }

    /// The process has died: unacknowledged writes are cut short or spoiled, or have reached the disk.
    pub fn tear(&self, folder: &Path) {
        let inside = self.inside.lock().expect("one thread");
        if let Ok(content) = std::fs::read(folder.join(LOG)) {
            let length = content.len() as u64;
            if length > inside.safe && self.crash.is_cancelled() && roll(&self.dice, 0.8) {
                let keep = among(&self.dice, inside.safe..length + 1) as usize;
                let mut left = content[..keep].to_vec();
                if roll(&self.dice, 0.5) {
                    left.resize(content.len(), among(&self.dice, 0..256) as u8);
                }
                std::fs::write(folder.join(TORN_LOG), left).expect("written");
            }
        }
        if let Some(id) = inside.torn {
            let whole = super::audio_of(id);
            let part = among(&self.dice, 0..whole.len() as u64) as usize;
            let name = if roll(&self.dice, 0.5) { format!("{id}.part") } else { id.to_string() };
            std::fs::write(folder.join(SPOOL).join(name), &whole[..part]).expect("written");
        }
    }

    /// The process is gone, and its files are at `folder` now.
    pub fn ends(&self, folder: &Path) {
        if folder.join(TORN_LOG).exists() {
            std::fs::rename(folder.join(TORN_LOG), folder.join(LOG)).expect("renamed");
        }
    }
}

/// Waits on this thread, and lets nothing else happen meanwhile.
pub fn wait<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(done) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return done;
        }
        std::thread::park();
    }
}

impl Audio for Disk {
    fn has_room(&self, _: u64) -> bool {
        true
    }

    fn write(&self, id: JobId, bytes: Bytes) -> Answer<'_, [u8; 32]> {
        Box::pin(async move {
            match self.fate() {
                Fate::Well => wait(self.parts().1.write(id, bytes)),
                Fate::Fails | Fate::FailsLate => {
                    Err(Error::File { path: "audio".into(), source: io::ErrorKind::Other.into() })
                }
                Fate::Dies | Fate::DiesLate => {
                    self.inside.lock().expect("one thread").torn.get_or_insert(id);
                    std::future::pending().await
                }
            }
        })
    }

    fn read(&self, id: JobId, stamp: Stamp) -> BoxFuture<'_, Result<Bytes, Unread>> {
        Box::pin(async move {
            match self.fate() {
                Fate::Fails | Fate::FailsLate => Err(Unread::Failed(io::ErrorKind::Other.into())),
                Fate::Dies | Fate::DiesLate => std::future::pending().await,
                Fate::Well => wait(self.parts().1.read(id, stamp)),
            }
        })
    }

    fn remove(&self, id: JobId) {
        if self.fate() == Fate::Well {
            self.parts().1.remove(id);
        }
    }

    fn expire(&self, before: SystemTime) -> BoxFuture<'_, io::Result<usize>> {
        Box::pin(async move { wait(self.parts().1.expire(before)) })
    }
}

pub struct FaultyStore(pub Arc<Disk>);

/// A method of the store, on the disk's terms.
macro_rules! call {
    ($self:ident, $method:ident($($argument:expr),*)) => {
        $self.0.call(stringify!($method).starts_with("claim"), move |store| Box::pin(async move { store.$method($($argument),*).await }))
    };
}

impl Store for FaultyStore {
    fn submitted(&self, tenant: u64, idempotency_key: String) -> Answer<'_, Option<Submission>> {
        call!(self, submitted(tenant, idempotency_key))
    }

    fn accept(&self, order: Order, sha256: Option<[u8; 32]>, bounds: Bounds) -> Answer<'_, Acceptance> {
        if self.0.forgetful && roll(&self.0.dice, 0.1) {
            return Box::pin(async { Ok(Acceptance::Taken) });
        }
        call!(self, accept(order, sha256, bounds))
    }

    fn announce(
        &self,
        announcement: Announcement,
        now: SystemTime,
        bounds: Bounds,
    ) -> Answer<'_, Acceptance> {
        call!(self, announce(announcement, now, bounds))
    }

    fn held(&self, tenant: u64) -> Answer<'_, Usage> {
        call!(self, held(tenant))
    }

    fn recover(&self, now: SystemTime) -> Answer<'_, ()> {
        call!(self, recover(now))
    }

    fn set_decoding(&self, id: JobId, is_decoding: bool) -> Answer<'_, ()> {
        call!(self, set_decoding(id, is_decoding))
    }

    fn with_audio(&self) -> Answer<'_, HashSet<JobId>> {
        call!(self, with_audio())
    }

    fn claim(&self, now: SystemTime) -> Answer<'_, Option<Run>> {
        call!(self, claim(now))
    }

    fn give_back(&self, id: JobId, due: SystemTime) -> Answer<'_, ()> {
        call!(self, give_back(id, due))
    }

    fn run_again(&self, id: JobId, due: SystemTime, error: String) -> Answer<'_, ()> {
        call!(self, run_again(id, due, error))
    }

    fn finish(&self, id: JobId, now: SystemTime, finished: Finished) -> Answer<'_, ()> {
        call!(self, finish(id, now, finished))
    }

    fn claim_delivery(
        &self,
        now: SystemTime,
        busy_receivers: Vec<String>,
        busy_tenants: Vec<u64>,
    ) -> Answer<'_, Option<Delivery>> {
        call!(self, claim_delivery(now, busy_receivers, busy_tenants))
    }

    fn attempted(&self, id: JobId, now: SystemTime, next: Next, keep_result: bool) -> Answer<'_, ()> {
        call!(self, attempted(id, now, next, keep_result))
    }

    fn unsent(&self, id: JobId, now: SystemTime) -> Answer<'_, ()> {
        call!(self, unsent(id, now))
    }

    fn next_due(&self, phase: Phase, now: SystemTime) -> Answer<'_, Option<SystemTime>> {
        call!(self, next_due(phase, now))
    }

    fn job(&self, id: JobId) -> Answer<'_, Option<Job>> {
        call!(self, job(id))
    }

    fn attempts(&self, id: JobId) -> Answer<'_, Vec<Attempt>> {
        call!(self, attempts(id))
    }

    fn list(&self, state: Option<State>, limit: u32) -> Answer<'_, Vec<Job>> {
        call!(self, list(state, limit))
    }

    fn redrive(&self, id: JobId, now: SystemTime) -> Answer<'_, bool> {
        call!(self, redrive(id, now))
    }

    fn purge(&self, results: SystemTime, jobs: SystemTime) -> Answer<'_, ()> {
        call!(self, purge(results, jobs))
    }

    fn census(&self) -> Answer<'_, Census> {
        call!(self, census())
    }
}
