//! All sessions: in memory to be asked, on disk to outlive a restart.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::broadcast;

use super::Error;
use super::event::Event;
use super::knowledge::Knowledge;
use super::room::Room;
use super::session::{EndReason, Millis, Session, SmsStatus, Status};
use super::setup::{Setup, Start};
use super::store::{Kept, Store, StoreError, Written};

/// Events that a watcher may be behind.
const EVENTS_HELD: usize = 256;
const FULL_RETRY: Duration = Duration::from_secs(30);

/// How many sessions and for how long.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Sessions that have not ended.
    pub open_max: usize,
    /// A session in which nothing happens ends after this.
    pub idle: Duration,
    /// A session that ended is shown for so long.
    pub kept: Duration,
}

/// Cheap handle; clones share the sessions.
#[derive(Clone)]
pub struct Sessions {
    shared: Arc<Shared>,
}

struct Shared {
    by_id: Mutex<HashMap<String, Arc<Live>>>,
    store: Store,
    limits: Limits,
}

/// One session and what hangs on it while the process runs.
pub struct Live {
    pub id: String,
    pub room_name: String,
    pub tenant: u64,
    pub setup: Setup,
    pub room: Room,
    state: Mutex<Session>,
    knowledge: Mutex<Arc<Knowledge>>,
    events: broadcast::Sender<Event>,
    store: Store,
    idle: Duration,
}

pub fn now() -> Millis {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn millis(duration: Duration) -> Millis {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl Sessions {
    /// Opens what `state_dir` keeps; returns the secret for tokens as well.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn open(state_dir: &Path, limits: Limits) -> Result<(Self, [u8; 32]), StoreError> {
        let (store, kept, secret) = Store::open(state_dir)?;
        let by_id = kept
            .into_iter()
            .map(|Kept { mut session, setup, passages }| {
                for message in &mut session.messages {
                    // Whether the provider got it nobody knows: twice is worse than never.
                    if message.status == SmsStatus::Sending {
                        message.status = SmsStatus::Failed;
                        message.error = Some("interrupted: it may have been sent".into());
                    }
                }
                let knowledge = passages.map(|passages| Arc::new(Knowledge::new(passages, setup.rationed())));
                let live = Live::new(session, setup, store.clone(), limits.idle);
                *lock(&live.knowledge) = knowledge.unwrap_or_default();
                (live.id.clone(), Arc::new(live))
            })
            .collect();
        Ok((Self { shared: Arc::new(Shared { by_id: Mutex::new(by_id), store, limits }) }, secret))
    }

    /// A new session, on disk when this returns.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::Store`].
    pub async fn create(&self, tenant: u64, start: Start) -> Result<Arc<Live>, Error> {
        let (live, written) = {
            let mut by_id = lock(&self.shared.by_id);
            let open = by_id.values().filter(|live| live.read(|s| s.status != Status::Ended)).count();
            if open >= self.shared.limits.open_max {
                return Err(Error::Full { retry_after: FULL_RETRY });
            }
            let mut session = Session::new(tenant, &start, now(), millis(self.shared.limits.idle));
            // 48 bits do collide some day.
            while by_id.contains_key(&session.id) {
                session.id = super::session::new_id();
            }
            let written = self.shared.store.add(&session, &start.setup);
            let live =
                Arc::new(Live::new(session, start.setup, self.shared.store.clone(), self.shared.limits.idle));
            by_id.insert(live.id.clone(), live.clone());
            metrics::gauge!("sts_sessions").set(open as f64 + 1.0);
            (live, written)
        };
        written.wait().await?;
        tracing::info!(session = live.id, "session started");
        Ok(live)
    }

    /// # Errors
    /// [`Error::NoSession`], also where it belongs to another organisation.
    pub fn find(&self, id: &str, tenant: u64) -> Result<Arc<Live>, Error> {
        self.get(id).filter(|live| live.tenant == tenant).ok_or(Error::NoSession)
    }

    /// Whoever it belongs to: for those who hold a token for it.
    pub fn get(&self, id: &str) -> Option<Arc<Live>> {
        lock(&self.shared.by_id).get(id).cloned()
    }

    /// Wrong answers that `number` gave in all sessions of a tenant that are kept, since it was last right.
    pub fn wrong_answers(&self, tenant: u64, number: &str) -> u32 {
        let of_number = |session: &Session| {
            let is_theirs = session.tenant == tenant && session.caller_number.as_deref() == Some(number);
            is_theirs.then(|| session.verifications.values().map(|state| state.attempts).sum::<u32>())
        };
        self.all().iter().filter_map(|live| live.read(of_number)).sum()
    }

    pub fn all(&self) -> Vec<Arc<Live>> {
        lock(&self.shared.by_id).values().cloned().collect()
    }

    /// Ends what nobody used for too long, and forgets what ended long ago. A session with somebody in
    /// its room is in use.
    pub async fn sweep(&self, now: Millis) {
        let mut open = 0;
        for live in self.all() {
            let (status, expires, ended) = live.read(|s| (s.status, s.expires, s.ended));
            match ended {
                Some((at, _)) if now >= at.saturating_add(millis(self.shared.limits.kept)) => {
                    lock(&self.shared.by_id).remove(&live.id);
                    // It is found again, and removed again, after a restart.
                    let _ = self.shared.store.remove(&live.id).wait().await;
                }
                None if now >= expires && !live.room.is_occupied() => {
                    let _ = live.end(EndReason::Expired).await;
                }
                _ => open += usize::from(status != Status::Ended),
            }
        }
        metrics::gauge!("sts_sessions").set(open as f64);
    }
}

impl Live {
    fn new(session: Session, setup: Setup, store: Store, idle: Duration) -> Self {
        Self {
            id: session.id.clone(),
            room_name: session.room.clone(),
            tenant: session.tenant,
            setup,
            room: Room::default(),
            state: Mutex::new(session),
            knowledge: Mutex::default(),
            events: broadcast::channel(EVENTS_HELD).0,
            store,
            idle,
        }
    }

    pub fn read<R>(&self, look: impl FnOnce(&Session) -> R) -> R {
        look(&lock(&self.state))
    }

    /// Every change from here on.
    pub fn watch(&self) -> broadcast::Receiver<Event> {
        self.events.subscribe()
    }

    /// Changes the session: `change` looks, refuses or changes, and says what happened. It is on disk
    /// when this returns, and has been published before.
    ///
    /// # Errors
    /// Those of `change`, which then has changed nothing; [`Error::Store`].
    pub async fn change<R>(
        &self,
        change: impl FnOnce(&mut Session, Millis, &mut Vec<Event>) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let (result, written) = self.apply(change)?;
        written.wait().await?;
        Ok(result)
    }

    fn apply<R>(
        &self,
        change: impl FnOnce(&mut Session, Millis, &mut Vec<Event>) -> Result<R, Error>,
    ) -> Result<(R, Written), Error> {
        let (mut events, now) = (Vec::new(), now());
        let mut state = lock(&self.state);
        let result = change(&mut state, now, &mut events)?;
        state.revision += 1;
        state.updated = now;
        if state.status != Status::Ended {
            state.expires = now.saturating_add(millis(self.idle));
        }
        let written = self.store.update(&state);
        // Under the lock, so that watchers see changes in their order.
        for event in events {
            tracing::info!(session = self.id, event = event.name(), "session changed");
            // Nobody may be watching.
            let _ = self.events.send(event);
        }
        Ok((result, written))
    }

    /// # Errors
    /// [`Error::Store`].
    pub async fn end(&self, reason: EndReason) -> Result<(), Error> {
        self.change(|session, now, events| {
            session.end(reason, now, events);
            Ok(())
        })
        .await
    }

    pub fn knowledge(&self) -> Arc<Knowledge> {
        lock(&self.knowledge).clone()
    }

    /// Takes what was read so far; `is_whole` keeps it.
    pub fn learn(&self, knowledge: Knowledge, is_whole: bool) {
        if is_whole {
            // Read again after a restart where this fails.
            drop(self.store.keep_passages(&self.id, knowledge.passages()));
        }
        *lock(&self.knowledge) = Arc::new(knowledge);
    }
}
