//! The handle on one session: its state with everything it has while the process runs.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::broadcast;
use tokio_util::sync::{CancellationToken, WaitForCancellationFuture};

use super::error::Error;
use super::event::{EndReason, Event};
use super::held;
use super::presence::{AgentState, Attendee, Media, Presence, RoomStatus};
use super::remains::{Ended, Remains};
use super::review::review;
use super::setup::Setup;
use super::state::{Session, Status};
use super::store::{Store, Written};
use super::watch::{Moment, Watch};
use crate::clock::{Millis, millis, now};
use crate::knowledge::Knowledge;

/// Events by which a watcher may lag behind.
const EVENTS_HELD: usize = 256;

/// A session while the process runs. Its end frees setup and knowledge at once; the rest is freed with the last
/// task that uses it.
pub struct Handle {
    pub id: String,
    pub room_name: String,
    pub tenant: u64,
    presence: Mutex<Presence>,
    state: Mutex<Session>,
    setup: Mutex<Arc<Setup>>,
    knowledge: Mutex<Arc<Knowledge>>,
    /// Memory of the setup, in bytes.
    brought: u64,
    /// Memory of setup and knowledge, in bytes.
    held: AtomicU64,
    over: CancellationToken,
    events: broadcast::Sender<Event>,
    store: Store,
    idle: Duration,
    watch: Watch,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Handle {
    /// An open session. `brought`: the bytes of its setup, by [`held::json`].
    pub(super) fn new(session: Session, setup: Setup, brought: u64, store: Store, idle: Duration) -> Self {
        let held = AtomicU64::new(brought + held::by_texts(&setup));
        Self { brought, held, ..Self::of(session, setup, store, idle, EVENTS_HELD) }
    }

    /// A session that has ended, for work that is still due.
    pub(super) fn ended(remains: Remains, store: Store) -> Self {
        let handle = Self::of(remains.session, remains.setup, store, Duration::ZERO, 1);
        handle.over.cancel();
        handle
    }

    fn of(session: Session, setup: Setup, store: Store, idle: Duration, events: usize) -> Self {
        Self {
            id: session.id.clone(),
            room_name: session.room.clone(),
            tenant: session.tenant,
            presence: Mutex::default(),
            state: Mutex::new(session),
            setup: Mutex::new(Arc::new(setup)),
            knowledge: Mutex::default(),
            brought: 0,
            held: AtomicU64::new(0),
            over: CancellationToken::new(),
            events: broadcast::channel(events).0,
            store,
            idle,
            watch: Watch::default(),
        }
    }

    /// The observer hears of its changes.
    pub(super) fn observed(self, watch: &Watch) -> Self {
        Self { watch: watch.clone(), ..self }
    }

    /// Takes a seat in the session's room and returns its number.
    ///
    /// # Errors
    /// [`Error::Ended`]; [`crate::fields::Error::TooMany`] participants.
    pub fn enter(&self, identity: &str, kind: &'static str) -> Result<u64, Error> {
        self.read(Session::check_open)?;
        lock(&self.presence).enter(identity, kind, now())
    }

    /// Publishes that a participant has joined, which makes a new session active.
    ///
    /// # Errors
    /// [`Error::Ended`], [`Error::Store`].
    pub async fn joined(&self, identity: &str, kind: &'static str) -> Result<(), Error> {
        self.change(|session, _, events| {
            session.check_open()?;
            if session.status == Status::Created {
                session.status = Status::Active;
            }
            events.push(Event::ParticipantJoined { identity: identity.to_owned(), kind });
            Ok(())
        })
        .await
    }

    /// Gives a seat up.
    pub fn leave(&self, seat: u64) {
        lock(&self.presence).leave(seat, now());
    }

    /// Publishes that a participant has left.
    pub async fn left(&self, identity: String, kind: &'static str) {
        let left = self.change(|_, _, events| {
            events.push(Event::ParticipantLeft { identity, kind });
            Ok(())
        });
        if let Err(error) = left.await {
            tracing::error!(session = self.id, %error, "that a participant left is not noted");
        }
    }

    pub fn participants(&self) -> Vec<Attendee> {
        lock(&self.presence).participants().to_vec()
    }

    pub fn is_occupied(&self) -> bool {
        lock(&self.presence).is_occupied()
    }

    /// When the last participant left; none while one is there, or if none ever came.
    pub fn empty_since(&self) -> Option<Millis> {
        lock(&self.presence).empty_since()
    }

    /// Whether a participant ever joined while the process runs.
    pub fn was_joined(&self) -> bool {
        lock(&self.presence).was_joined()
    }

    pub fn agent_state(&self) -> AgentState {
        lock(&self.presence).agent
    }

    pub fn set_agent_state(&self, state: AgentState) {
        lock(&self.presence).agent = state;
    }

    pub fn room_status(&self) -> RoomStatus {
        lock(&self.presence).media.status()
    }

    pub fn set_media(&self, media: Media) {
        lock(&self.presence).media = media;
    }

    /// Looks at the state.
    pub fn read<R>(&self, look: impl FnOnce(&Session) -> R) -> R {
        look(&lock(&self.state))
    }

    /// Its setup; after the end, the part that the remains need.
    pub fn setup(&self) -> Arc<Setup> {
        lock(&self.setup).clone()
    }

    pub fn knowledge(&self) -> Arc<Knowledge> {
        lock(&self.knowledge).clone()
    }

    /// Subscribes to all further changes.
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

    /// Memory of setup and knowledge, including reservations, in bytes.
    pub fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    pub(super) fn hold_more(&self, bytes: u64) {
        self.held.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Replaces the knowledge. `is_whole`: reading is complete, so it is kept on disk too.
    pub fn learn(&self, knowledge: Knowledge, is_whole: bool) {
        if is_whole && !self.is_over() {
            // If this fails, it is read again after a restart.
            drop(self.store.keep_passages(&self.id, knowledge.passages()));
        }
        let mut known = lock(&self.knowledge);
        // Checked under the lock that the end takes too.
        if !self.is_over() {
            self.held.store(self.brought + knowledge.bytes() as u64, Ordering::Relaxed);
            *known = Arc::new(knowledge);
        }
    }

    /// Changes the session: `change` looks, then refuses or changes, and adds events. The events are published
    /// at once, and the new state is on disk when this returns.
    ///
    /// # Errors
    /// The errors of `change`, which then must not have changed anything; [`Error::Store`].
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
        self.notice(&state, &events);
        let written = if state.status == Status::Ended {
            self.store.update_remains(&self.shrink(&mut state))
        } else {
            state.expires = now.saturating_add(millis(self.idle));
            self.store.update(&state)
        };
        self.publish(events);
        Ok((result, written))
    }

    /// Ends the session and frees everything that only an open one needs. None if it had ended before.
    pub(super) fn close(&self, reason: EndReason) -> Option<(Ended, Written)> {
        let (mut events, now) = (Vec::new(), now());
        let mut state = lock(&self.state);
        if state.status == Status::Ended {
            return None;
        }
        state.end(reason, now, &mut events);
        state.summary = review(&state);
        state.revision += 1;
        state.updated = now;
        self.over.cancel();
        // As it is before it is reduced, for the observer.
        let whole = state.clone();
        let setup = self.setup();
        let mut known = lock(&self.knowledge);
        *known = Arc::default();
        self.held.store(0, Ordering::Relaxed);
        drop(known);
        let written = self.store.end(&self.shrink(&mut state));
        events.iter().for_each(|event| self.watch.notice(&whole, &setup, Moment::Changed(event)));
        self.publish(events);
        Some(written)
    }

    /// Another node has the session: frees everything and tells nobody but those who are here. None if it had ended before.
    pub(super) fn give_up(&self) -> Option<Written> {
        let mut state = lock(&self.state);
        if state.status == Status::Ended {
            return None;
        }
        // Nothing more is written by those who still hold the handle.
        state.status = Status::Ended;
        self.over.cancel();
        *lock(&self.knowledge) = Arc::default();
        self.held.store(0, Ordering::Relaxed);
        Some(self.store.give_up(&self.id))
    }

    /// Tells the store's mirror everything once more.
    pub(super) fn tell_all(&self) {
        let state = lock(&self.state);
        if state.status != Status::Ended {
            drop(self.store.add(&state, &self.setup()));
            let knowledge = lock(&self.knowledge).clone();
            if state.knowledge.is_ready {
                drop(self.store.keep_passages(&self.id, knowledge.passages()));
            }
        }
    }

    /// Writes the remains once more, in case they did not reach the disk. None if the session is open.
    pub(super) fn end_again(&self) -> Option<(Ended, Written)> {
        let mut state = lock(&self.state);
        (state.status == Status::Ended).then(|| self.store.end(&self.shrink(&mut state)))
    }

    /// Reduces an ended session to its remains, and returns them.
    fn shrink(&self, state: &mut Session) -> Remains {
        let mut setup = lock(&self.setup);
        let presence = lock(&self.presence);
        let remains = Remains::of(state, &setup, presence.final_room(), presence.final_agent());
        drop(presence);
        *state = remains.session.clone();
        *setup = Arc::new(remains.setup.clone());
        remains
    }

    /// Call it as [`Self::publish`].
    fn notice(&self, state: &Session, events: &[Event]) {
        let setup = lock(&self.setup).clone();
        events.iter().for_each(|event| self.watch.notice(state, &setup, Moment::Changed(event)));
    }

    /// Call it under the lock of the state, so that watchers see changes in order.
    fn publish(&self, events: Vec<Event>) {
        for event in events {
            tracing::info!(session = self.id, event = event.name(), "session changed");
            // An error means that there is no watcher.
            let _ = self.events.send(event);
        }
    }
}
