//! One session, and what hangs on it while the process runs.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::broadcast;
use tokio_util::sync::{CancellationToken, WaitForCancellationFuture};

use crate::knowledge::Knowledge;
use crate::sts::Error;
use crate::sts::event::Event;
use crate::sts::held;
use crate::sts::remains::{Ended, Remains};
use crate::sts::room::Room;
use crate::sts::session::{EndReason, Millis, Session, Status};
use crate::sts::setup::Setup;
use crate::sts::store::{Store, Written};

/// Events that a watcher may be behind.
const EVENTS_HELD: usize = 256;

/// A session. When it ends, what it was started with and what was read for it go at once; the rest goes with the
/// last task that has to do with it.
pub struct Live {
    pub id: String,
    pub room_name: String,
    pub tenant: u64,
    pub room: Room,
    state: Mutex<Session>,
    setup: Mutex<Arc<Setup>>,
    knowledge: Mutex<Arc<Knowledge>>,
    /// Bytes of the setup.
    brought: u64,
    /// Bytes of setup and knowledge.
    held: AtomicU64,
    over: CancellationToken,
    events: broadcast::Sender<Event>,
    store: Store,
    idle: Duration,
}

pub fn now() -> Millis {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)
}

pub fn millis(duration: Duration) -> Millis {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Live {
    /// A session that is open. `brought`: the bytes of its setup, by [`held::json`].
    pub(super) fn new(session: Session, setup: Setup, brought: u64, store: Store, idle: Duration) -> Self {
        let held = AtomicU64::new(brought + held::by_texts(&setup));
        Self { brought, held, ..Self::of(session, setup, store, idle, EVENTS_HELD) }
    }

    /// A session that has ended, for what is still to be done for it.
    pub(super) fn ended(remains: Remains, store: Store) -> Self {
        let live = Self::of(remains.session, remains.setup, store, Duration::ZERO, 1);
        live.over.cancel();
        live
    }

    fn of(session: Session, setup: Setup, store: Store, idle: Duration, events: usize) -> Self {
        Self {
            id: session.id.clone(),
            room_name: session.room.clone(),
            tenant: session.tenant,
            room: Room::default(),
            state: Mutex::new(session),
            setup: Mutex::new(Arc::new(setup)),
            knowledge: Mutex::default(),
            brought: 0,
            held: AtomicU64::new(0),
            over: CancellationToken::new(),
            events: broadcast::channel(events).0,
            store,
            idle,
        }
    }

    pub fn read<R>(&self, look: impl FnOnce(&Session) -> R) -> R {
        look(&lock(&self.state))
    }

    /// Its setup; when it is over, as much of that as its remains need.
    pub fn setup(&self) -> Arc<Setup> {
        lock(&self.setup).clone()
    }

    pub fn knowledge(&self) -> Arc<Knowledge> {
        lock(&self.knowledge).clone()
    }

    /// Every change from here on.
    pub fn watch(&self) -> broadcast::Receiver<Event> {
        self.events.subscribe()
    }

    pub fn is_over(&self) -> bool {
        self.over.is_cancelled()
    }

    /// Waits until the session is over. Cancel-safe.
    pub fn over(&self) -> WaitForCancellationFuture<'_> {
        self.over.cancelled()
    }

    /// Bytes that setup and knowledge take up, or soon will.
    pub fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    pub(super) fn hold_more(&self, bytes: u64) {
        self.held.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Takes what was read so far; `is_whole` keeps it.
    pub fn learn(&self, knowledge: Knowledge, is_whole: bool) {
        if is_whole && !self.is_over() {
            // Read again after a restart where this fails.
            drop(self.store.keep_passages(&self.id, knowledge.passages()));
        }
        let mut known = lock(&self.knowledge);
        // Asked under the lock that the end takes too.
        if !self.is_over() {
            self.held.store(self.brought + knowledge.bytes() as u64, Ordering::Relaxed);
            *known = Arc::new(knowledge);
        }
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
        let written = if state.status == Status::Ended {
            self.store.update_remains(&self.shrink(&mut state))
        } else {
            state.expires = now.saturating_add(millis(self.idle));
            self.store.update(&state)
        };
        self.publish(events);
        Ok((result, written))
    }

    /// Ends the session and frees what only an open one needs. None where it has ended before.
    pub(super) fn close(&self, reason: EndReason) -> Option<(Ended, Written)> {
        let (mut events, now) = (Vec::new(), now());
        let mut state = lock(&self.state);
        if state.status == Status::Ended {
            return None;
        }
        state.end(reason, now, &mut events);
        state.revision += 1;
        state.updated = now;
        self.over.cancel();
        let mut known = lock(&self.knowledge);
        *known = Arc::default();
        self.held.store(0, Ordering::Relaxed);
        drop(known);
        let written = self.store.end(&self.shrink(&mut state));
        self.publish(events);
        Some(written)
    }

    /// Writes the remains once more, where they did not get to the disk. None where the session is open.
    pub(super) fn end_again(&self) -> Option<(Ended, Written)> {
        let mut state = lock(&self.state);
        (state.status == Status::Ended).then(|| self.store.end(&self.shrink(&mut state)))
    }

    /// Leaves of a session that is over what is kept, and returns it.
    fn shrink(&self, state: &mut Session) -> Remains {
        let mut setup = lock(&self.setup);
        let remains = Remains::of(state, &setup, self.room.media_after_all(), self.room.agent_after_all());
        *state = remains.session.clone();
        *setup = Arc::new(remains.setup.clone());
        remains
    }

    /// To be called under the lock of the state, so that watchers see changes in their order.
    fn publish(&self, events: Vec<Event>) {
        for event in events {
            tracing::info!(session = self.id, event = event.name(), "session changed");
            // There may be no watcher.
            let _ = self.events.send(event);
        }
    }
}
