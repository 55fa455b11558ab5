//! All sessions. Open ones are in memory and on disk, so that they survive a restart. Of ended ones, the remains
//! are on disk and a line each is in memory.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;

use super::error::{Error, StoreError};
use super::event::EndReason;
use super::handle::Handle;
use super::held;
use super::kept::Kept;
use super::message;
use super::mirror::{Copied, Mirror};
use super::remains::{Ended, Remains};
use super::setup::Start;
use super::state::{Session, new_id};
use super::store::{Found, Opened, Store, Written};
use super::watch::{Moment, Observer, Watch};
use crate::clock::{Millis, millis, now};
use crate::knowledge::Knowledge;
use crate::share::{Refused, Tenants, may_hold};
use crate::telemetry::metrics;

/// A session that a process had before.
fn reopened(found: Found, store: &Store, limits: &Limits, watch: &Watch) -> Arc<Handle> {
    let Found { mut session, setup, passages } = found;
    message::interrupt(&mut session.messages);
    let knowledge = passages.map(|passages| Knowledge::new(passages, setup.rationed()));
    let brought = held::json(&setup);
    let handle = Handle::new(session, setup, brought, store.clone(), limits.idle).observed(watch);
    if let Some(knowledge) = knowledge {
        handle.learn(knowledge, false);
    }
    Arc::new(handle)
}

/// When to try again while talks hold all sessions: nothing tells when a talk will end.
const TALK_RETRY: Duration = Duration::from_secs(30);
const RETRY_MIN: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(120);

/// Limits on sessions.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Sessions that have not ended.
    pub open_max: usize,
    /// Memory of all open sessions together, in bytes.
    pub held_bytes_max: u64,
    /// Time without any change after which a session ends.
    pub idle: Duration,
    /// Time after which a session ends when everyone has left its room.
    pub rejoin: Duration,
    /// How long an ended session can be looked at.
    pub kept: Duration,
    /// Ended sessions that can be looked at.
    pub kept_max: usize,
}

/// Cheap handle; clones share the sessions.
#[derive(Clone)]
pub struct Sessions {
    shared: Arc<Shared>,
}

struct Shared {
    book: Mutex<Book>,
    store: Store,
    limits: Limits,
    tenants: Tenants,
    watch: Watch,
}

#[derive(Default)]
struct Book {
    /// Ended sessions stay here until their remains are on disk.
    open: HashMap<String, Arc<Handle>>,
    kept: Kept,
}

/// Open sessions, and the bytes that they hold.
#[derive(Default)]
struct Tally {
    sessions: u64,
    bytes: u64,
}

impl Book {
    fn tally(&self, of: impl Fn(&Handle) -> bool) -> Tally {
        let open = self.open.values().filter(|handle| !handle.is_over() && of(handle));
        open.fold(Tally::default(), |tally, handle| Tally {
            sessions: tally.sessions + 1,
            bytes: tally.bytes + handle.held(),
        })
    }
}

/// The session that a client asked for.
pub enum Asked {
    Open(Arc<Handle>),
    Ended,
}

impl Sessions {
    /// Opens what `state_dir` keeps; returns the secret for tokens as well.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn open(state_dir: &Path, limits: Limits, tenants: Tenants) -> Result<(Self, [u8; 32]), StoreError> {
        let Opened { store, open, ended, secret } = Store::open(state_dir)?;
        let (mut book, watch) = (Book::default(), Watch::default());
        for found in open {
            let handle = reopened(found, &store, &limits, &watch);
            book.open.insert(handle.id.clone(), handle);
        }
        ended.into_iter().for_each(|ended| book.kept.add(ended));
        let shared = Shared { book: Mutex::new(book), store, limits, tenants, watch };
        Ok((Self { shared: Arc::new(shared) }, secret))
    }

    /// `observer` hears of all starts and changes from now on. Only the first observer counts.
    pub fn observe(&self, observer: Observer) {
        self.shared.watch.set(observer);
    }

    /// `mirror` is told of all writes from now on. Only the first mirror counts.
    pub fn mirror(&self, mirror: Mirror) {
        self.shared.store.mirror(mirror);
    }

    /// Takes a session over from its `copy`, which another node had written. It is on disk when this returns.
    ///
    /// # Returns
    /// An open session; `None` if it has ended.
    ///
    /// # Errors
    /// [`Error::NoSession`] if the copy is not whole; [`Error::Store`].
    pub async fn adopt(&self, copy: Copied) -> Result<Option<Arc<Handle>>, Error> {
        fn read<T: serde::de::DeserializeOwned>(text: Option<&String>) -> Result<T, Error> {
            let read = text.and_then(|text| serde_json::from_str(text).ok());
            read.ok_or(Error::NoSession)
        }
        if copy.ended.is_some() {
            let remains: Remains = read(copy.ended.as_ref())?;
            let (ended, written) = self.shared.store.end(&remains);
            written.wait().await?;
            self.book().kept.add(ended);
            self.show();
            return Ok(None);
        }
        let session: Session = read(copy.state.as_ref())?;
        let setup = read(copy.setup.as_ref())?;
        let passages = copy.passages.as_ref().map(|text| read(Some(text))).transpose()?;
        let Shared { store, limits, watch, .. } = &*self.shared;
        let handle = reopened(Found { session, setup, passages }, store, limits, watch);
        let written = {
            let mut book = self.book();
            if let Some(handle) = book.open.get(&handle.id) {
                return Ok(Some(handle.clone()));
            }
            let written = handle.read(|session| store.add(session, &handle.setup()));
            book.open.insert(handle.id.clone(), handle.clone());
            written
        };
        if handle.read(|session| session.knowledge.is_ready) {
            drop(store.keep_passages(&handle.id, handle.knowledge().passages()));
        }
        written.wait().await?;
        self.show();
        tracing::info!(session = handle.id, "session taken over from another node");
        Ok(Some(handle))
    }

    /// Forgets a session that another node has taken over. Those who are in its room here are sent away.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub async fn give_up(&self, handle: &Handle) -> Result<(), Error> {
        let Some(written) = handle.give_up() else { return Ok(()) };
        self.book().open.remove(&handle.id);
        self.show();
        tracing::warn!(session = handle.id, "another node has taken this session over");
        Ok(written.wait().await?)
    }

    /// Tells the mirror everything about an open session.
    pub fn tell_all(&self, handle: &Handle) {
        handle.tell_all();
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.shared.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new session, on disk when this returns.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::OverShare`], [`Error::Store`].
    pub async fn create(&self, tenant: u64, start: Start) -> Result<Arc<Handle>, Error> {
        let limits = &self.shared.limits;
        let mut session = Session::new(tenant, &start, now(), millis(limits.idle));
        let brought = held::json(&start.setup);
        let bytes = brought + held::by_texts(&start.setup);
        let is_full = self.room_for(&self.book(), tenant, bytes).is_err();
        if is_full {
            // Make room by ending sessions whose time is over.
            self.sweep(now()).await;
        }
        let (handle, written) = {
            let mut book = self.book();
            self.room_for(&book, tenant, bytes)?;
            // 48 bits can collide.
            while book.open.contains_key(&session.id) || book.kept.get(&session.id).is_some() {
                session.id = new_id();
            }
            let written = self.shared.store.add(&session, &start.setup);
            let handle = Handle::new(session, start.setup, brought, self.shared.store.clone(), limits.idle);
            let handle = Arc::new(handle.observed(&self.shared.watch));
            book.open.insert(handle.id.clone(), handle.clone());
            (handle, written)
        };
        if let Err(error) = written.wait().await {
            self.book().open.remove(&handle.id);
            return Err(error.into());
        }
        self.show();
        tracing::info!(session = handle.id, "session started");
        let setup = handle.setup();
        handle.read(|session| self.shared.watch.notice(session, &setup, Moment::Started));
        Ok(handle)
    }

    /// Whether `tenant` may have one more session now.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::OverShare`].
    pub fn has_room(&self, tenant: u64) -> Result<(), Error> {
        self.room_for(&self.book(), tenant, 0)
    }

    /// How full the server is for `tenant`: from 1 on it may have no more sessions.
    pub fn load(&self, tenant: u64) -> f32 {
        if self.has_room(tenant).is_err() {
            return 1.0;
        }
        let open = self.book().tally(|_| true).sessions;
        (open as f32 / self.shared.limits.open_max.max(1) as f32).min(0.99)
    }

    /// Whether `tenant` may have one more session, which holds `bytes`.
    fn room_for(&self, book: &Book, tenant: u64, bytes: u64) -> Result<(), Error> {
        let Limits { open_max, held_bytes_max, .. } = self.shared.limits;
        let (all, own) = (book.tally(|_| true), book.tally(|handle| handle.tenant == tenant));
        let tenants = &self.shared.tenants;
        let room = may_hold(own.sessions, all.sessions, 1, open_max as u64, tenants)
            .and_then(|()| may_hold(own.bytes, all.bytes, bytes, held_bytes_max, tenants));
        room.map_err(|refused| match refused {
            Refused::Full => Error::Full { retry_after: self.retry_after(book, |_| true) },
            Refused::OverShare => {
                Error::OverShare { retry_after: self.retry_after(book, |handle| handle.tenant == tenant) }
            }
        })
    }

    /// The time until the first of those sessions ends, as far as it is known.
    fn retry_after(&self, book: &Book, of: impl Fn(&Handle) -> bool) -> Duration {
        let now = now();
        let until = |handle: &Arc<Handle>| match self.ends_by(handle) {
            Some(at) => Duration::from_millis(at.saturating_sub(now)),
            None => TALK_RETRY,
        };
        let open = book.open.values().filter(|handle| of(handle) && !handle.is_over());
        open.map(until).min().unwrap_or(TALK_RETRY).clamp(RETRY_MIN, RETRY_MAX)
    }

    /// When the session will end if nothing happens; none while a participant is in its room.
    fn ends_by(&self, handle: &Handle) -> Option<Millis> {
        if handle.is_occupied() {
            return None;
        }
        let expires = handle.read(|session| session.expires);
        let left = handle.empty_since().map(|since| since + millis(self.shared.limits.rejoin));
        Some(left.map_or(expires, |left| left.min(expires)))
    }

    /// Reserves `bytes` more for an open session; false if the limits forbid it.
    pub fn may_hold_more(&self, handle: &Handle, bytes: u64) -> bool {
        let book = self.book();
        let (all, own) = (book.tally(|_| true), book.tally(|other| other.tenant == handle.tenant));
        let Shared { limits, tenants, .. } = &*self.shared;
        let may = may_hold(own.bytes, all.bytes, bytes, limits.held_bytes_max, tenants).is_ok();
        if may {
            handle.hold_more(bytes);
        }
        may
    }

    /// # Errors
    /// [`Error::NoSession`], also if it belongs to another tenant.
    pub fn find(&self, id: &str, tenant: u64) -> Result<Asked, Error> {
        let book = self.book();
        if let Some(handle) = book.open.get(id).filter(|handle| handle.tenant == tenant) {
            return Ok(Asked::Open(handle.clone()));
        }
        let is_kept = book.kept.get(id).is_some_and(|ended| ended.tenant == tenant);
        if is_kept { Ok(Asked::Ended) } else { Err(Error::NoSession) }
    }

    /// An open session of any tenant, for callers that hold a token for it.
    pub fn get(&self, id: &str) -> Option<Arc<Handle>> {
        self.book().open.get(id).cloned()
    }

    /// Like [`Self::get`], with the reason if there is none.
    ///
    /// # Errors
    /// [`Error::NoSession`], [`Error::Ended`].
    pub fn enter(&self, id: &str) -> Result<Arc<Handle>, Error> {
        let book = self.book();
        let ended = || if book.kept.get(id).is_some() { Error::Ended } else { Error::NoSession };
        book.open.get(id).cloned().ok_or_else(ended)
    }

    /// The remains of a session that has ended.
    ///
    /// # Errors
    /// [`Error::NoSession`], [`Error::Store`].
    pub async fn remains(&self, id: &str) -> Result<Remains, Error> {
        self.shared.store.remains(id).await?.ok_or(Error::NoSession)
    }

    /// Ended sessions whose messages are still to be sent.
    pub fn sending(&self) -> Vec<String> {
        let book = self.book();
        book.kept.iter().filter(|ended| ended.is_sending).map(|ended| ended.id.clone()).collect()
    }

    /// A session that has ended, for work that is still due.
    ///
    /// # Errors
    /// As [`Self::remains`].
    pub async fn revive(&self, id: &str) -> Result<Handle, Error> {
        let handle = Handle::ended(self.remains(id).await?, self.shared.store.clone());
        Ok(handle.observed(&self.shared.watch))
    }

    /// Wrong answers that `number` has given since its last right one, in all kept sessions of a tenant.
    pub fn wrong_answers(&self, tenant: u64, number: &str) -> u32 {
        let is_theirs = |of: u64, number_: Option<&str>| of == tenant && number_ == Some(number);
        let book = self.book();
        let open = book.open.values().map(|handle| {
            handle.read(|session| {
                let is_theirs = is_theirs(session.tenant, session.caller_number.as_deref());
                if is_theirs { session.wrong_answers() } else { 0 }
            })
        });
        let ended = book.kept.iter().filter(|ended| is_theirs(ended.tenant, ended.caller_number.as_deref()));
        open.chain(ended.map(|ended| ended.wrong_answers)).fold(0, u32::saturating_add)
    }

    /// All open sessions.
    pub fn all(&self) -> Vec<Arc<Handle>> {
        self.book().open.values().cloned().collect()
    }

    /// Ends a session if it is open. The first poll frees everything it held; its remains are on disk when this
    /// returns.
    ///
    /// # Errors
    /// [`Error::Store`]; the next sweep tries again.
    pub async fn end(&self, handle: &Handle, reason: EndReason) -> Result<(), Error> {
        let Some((ended, written)) = handle.close(reason) else { return Ok(()) };
        self.show();
        self.lay_by(ended, written).await
    }

    /// Moves an ended session to the kept ones as soon as its remains are on disk.
    async fn lay_by(&self, ended: Ended, written: Written) -> Result<(), Error> {
        written.wait().await?;
        let forgotten = {
            let mut book = self.book();
            // The sweep may have come first.
            if book.open.remove(&ended.id).is_none() {
                return Ok(());
            }
            book.kept.add(ended);
            book.kept.forget_beyond(self.shared.limits.kept_max)
        };
        self.show();
        self.forget(forgotten).await;
        Ok(())
    }

    async fn forget(&self, ids: Vec<String>) {
        for written in ids.iter().map(|id| self.shared.store.forget(id)).collect::<Vec<_>>() {
            // After a failure they are found and forgotten again at the next start.
            let _ = written.wait().await;
        }
    }

    /// Ends sessions without a change for too long, and forgets those that ended long ago. A session with
    /// participants in its room counts as in use.
    pub async fn sweep(&self, now: Millis) {
        let sessions = self.all();
        join_all(sessions.iter().map(|handle| self.look_after(handle, now))).await;
        let kept = millis(self.shared.limits.kept);
        let forgotten = {
            let mut book = self.book();
            let mut forgotten =
                now.checked_sub(kept).map_or(Vec::new(), |until| book.kept.forget_until(until));
            forgotten.extend(book.kept.forget_beyond(self.shared.limits.kept_max));
            forgotten
        };
        self.forget(forgotten).await;
        self.show();
    }

    async fn look_after(&self, handle: &Handle, now: Millis) {
        let done = if let Some((ended, written)) = handle.end_again() {
            self.lay_by(ended, written).await
        } else if now >= handle.read(|session| session.expires) && !handle.is_occupied() {
            self.end(handle, EndReason::Expired).await
        } else {
            return;
        };
        if let Err(error) = done {
            tracing::error!(session = handle.id, %error, "the end is not noted");
        }
    }

    /// Updates the metrics.
    pub fn show(&self) {
        let book = self.book();
        let open = book.tally(|_| true);
        metrics::SESSIONS.with(&[]).set(open.sessions as f64);
        metrics::SESSIONS_HELD.with(&[]).set(open.bytes as f64);
        metrics::SESSIONS_KEPT.with(&[]).set(book.kept.count() as f64);
        metrics::SESSIONS_KEPT_BYTES.with(&[]).set(book.kept.bytes() as f64);
    }
}
