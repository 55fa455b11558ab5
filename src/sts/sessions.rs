//! All sessions: those that are open in memory and on disk, to outlive a restart; of those that have ended, their
//! remains on disk and a line each in memory.

mod kept;
mod live;

pub use live::{Live, now};

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;

use super::Error;
use super::held;
use super::knowledge::Knowledge;
use super::remains::{Ended, Remains};
use super::session::{EndReason, Millis, Session, new_id};
use super::setup::Start;
use super::sms;
use super::store::{Found, Opened, Store, StoreError, Written};
use crate::share::{Refused, Tenants, may_hold};
use crate::telemetry::metrics;
use kept::Kept;
use live::millis;

/// How soon a place may come free where a talk holds it: when a talk ends is not known.
const TALK_RETRY: Duration = Duration::from_secs(30);
const RETRY_MIN: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(120);

/// How many sessions and for how long.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Sessions that have not ended.
    pub open_max: usize,
    /// Bytes that they hold together.
    pub held_bytes_max: u64,
    /// A session in which nothing happens ends after this.
    pub idle: Duration,
    /// A session whose room is empty again ends after this.
    pub rejoin: Duration,
    /// A session that ended is shown for so long.
    pub kept: Duration,
    /// Sessions that ended and are shown.
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
}

#[derive(Default)]
struct Book {
    /// Those that have ended are here until their remains are on disk.
    open: HashMap<String, Arc<Live>>,
    kept: Kept,
}

/// How many sessions are open, and the bytes that they hold.
#[derive(Default)]
struct Tally {
    sessions: u64,
    bytes: u64,
}

impl Book {
    fn tally(&self, of: impl Fn(&Live) -> bool) -> Tally {
        let open = self.open.values().filter(|live| !live.is_over() && of(live));
        open.fold(Tally::default(), |tally, live| Tally {
            sessions: tally.sessions + 1,
            bytes: tally.bytes + live.held(),
        })
    }
}

/// A session as a client asks for it.
pub enum Asked {
    Open(Arc<Live>),
    Ended,
}

impl Sessions {
    /// Opens what `state_dir` keeps; returns the secret for tokens as well.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn open(state_dir: &Path, limits: Limits, tenants: Tenants) -> Result<(Self, [u8; 32]), StoreError> {
        let Opened { store, open, ended, secret } = Store::open(state_dir)?;
        let mut book = Book::default();
        for Found { mut session, setup, passages } in open {
            sms::interrupt(&mut session.messages);
            let knowledge = passages.map(|passages| Knowledge::new(passages, setup.rationed()));
            let brought = held::json(&setup);
            let live = Live::new(session, setup, brought, store.clone(), limits.idle);
            if let Some(knowledge) = knowledge {
                live.learn(knowledge, false);
            }
            book.open.insert(live.id.clone(), Arc::new(live));
        }
        ended.into_iter().for_each(|ended| book.kept.add(ended));
        let shared = Shared { book: Mutex::new(book), store, limits, tenants };
        Ok((Self { shared: Arc::new(shared) }, secret))
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.shared.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new session, on disk when this returns.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::OverShare`], [`Error::Store`].
    pub async fn create(&self, tenant: u64, start: Start) -> Result<Arc<Live>, Error> {
        let limits = &self.shared.limits;
        let mut session = Session::new(tenant, &start, now(), millis(limits.idle));
        let brought = held::json(&start.setup);
        let bytes = brought + held::by_texts(&start.setup);
        let is_full = self.room_for(&self.book(), tenant, bytes).is_err();
        if is_full {
            // Sessions whose time is over make room at once.
            self.sweep(now()).await;
        }
        let (live, written) = {
            let mut book = self.book();
            self.room_for(&book, tenant, bytes)?;
            // 48 bits do collide some day.
            while book.open.contains_key(&session.id) || book.kept.get(&session.id).is_some() {
                session.id = new_id();
            }
            let written = self.shared.store.add(&session, &start.setup);
            let live = Live::new(session, start.setup, brought, self.shared.store.clone(), limits.idle);
            let live = Arc::new(live);
            book.open.insert(live.id.clone(), live.clone());
            (live, written)
        };
        if let Err(error) = written.wait().await {
            self.book().open.remove(&live.id);
            return Err(error.into());
        }
        self.show();
        tracing::info!(session = live.id, "session started");
        Ok(live)
    }

    /// Whether `tenant` may have one more session, which holds `bytes`.
    fn room_for(&self, book: &Book, tenant: u64, bytes: u64) -> Result<(), Error> {
        let Limits { open_max, held_bytes_max, .. } = self.shared.limits;
        let (all, own) = (book.tally(|_| true), book.tally(|live| live.tenant == tenant));
        let tenants = &self.shared.tenants;
        let room = may_hold(own.sessions, all.sessions, 1, open_max as u64, tenants)
            .and_then(|()| may_hold(own.bytes, all.bytes, bytes, held_bytes_max, tenants));
        room.map_err(|refused| match refused {
            Refused::Full => Error::Full { retry_after: self.retry_after(book, |_| true) },
            Refused::OverShare => {
                Error::OverShare { retry_after: self.retry_after(book, |live| live.tenant == tenant) }
            }
        })
    }

    /// Until the first of those sessions ends, as far as that is known.
    fn retry_after(&self, book: &Book, of: impl Fn(&Live) -> bool) -> Duration {
        let now = now();
        let until = |live: &Arc<Live>| match self.ends_by(live) {
            Some(at) => Duration::from_millis(at.saturating_sub(now)),
            None => TALK_RETRY,
        };
        let open = book.open.values().filter(|live| of(live) && !live.is_over());
        open.map(until).min().unwrap_or(TALK_RETRY).clamp(RETRY_MIN, RETRY_MAX)
    }

    /// When the session ends if nothing happens; none while its room is not empty.
    fn ends_by(&self, live: &Live) -> Option<Millis> {
        if live.room.is_occupied() {
            return None;
        }
        let expires = live.read(|session| session.expires);
        let left = live.room.empty_since().map(|since| since + millis(self.shared.limits.rejoin));
        Some(left.map_or(expires, |left| left.min(expires)))
    }

    /// Whether an open session may hold so many bytes more; then it does.
    pub fn may_hold_more(&self, live: &Live, bytes: u64) -> bool {
        let book = self.book();
        let (all, own) = (book.tally(|_| true), book.tally(|other| other.tenant == live.tenant));
        let Shared { limits, tenants, .. } = &*self.shared;
        let may = may_hold(own.bytes, all.bytes, bytes, limits.held_bytes_max, tenants).is_ok();
        if may {
            live.hold_more(bytes);
        }
        may
    }

    /// # Errors
    /// [`Error::NoSession`], also where it belongs to another organisation.
    pub fn find(&self, id: &str, tenant: u64) -> Result<Asked, Error> {
        let book = self.book();
        if let Some(live) = book.open.get(id).filter(|live| live.tenant == tenant) {
            return Ok(Asked::Open(live.clone()));
        }
        let is_kept = book.kept.get(id).is_some_and(|ended| ended.tenant == tenant);
        if is_kept { Ok(Asked::Ended) } else { Err(Error::NoSession) }
    }

    /// An open session of any organisation: for callers that hold a token for it.
    pub fn get(&self, id: &str) -> Option<Arc<Live>> {
        self.book().open.get(id).cloned()
    }

    /// As [`Self::get`], with the reason where there is none.
    ///
    /// # Errors
    /// [`Error::NoSession`], [`Error::Ended`].
    pub fn enter(&self, id: &str) -> Result<Arc<Live>, Error> {
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

    /// A session that has ended, for what is still to be done for it.
    ///
    /// # Errors
    /// As [`Self::remains`].
    pub async fn revive(&self, id: &str) -> Result<Live, Error> {
        Ok(Live::ended(self.remains(id).await?, self.shared.store.clone()))
    }

    /// Wrong answers that `number` gave in all sessions of a tenant that are kept, since it was last right.
    pub fn wrong_answers(&self, tenant: u64, number: &str) -> u32 {
        let is_theirs = |of: u64, number_: Option<&str>| of == tenant && number_ == Some(number);
        let book = self.book();
        let open = book.open.values().map(|live| {
            live.read(|session| {
                let is_theirs = is_theirs(session.tenant, session.caller_number.as_deref());
                if is_theirs { session.wrong_answers() } else { 0 }
            })
        });
        let ended = book.kept.iter().filter(|ended| is_theirs(ended.tenant, ended.caller_number.as_deref()));
        open.chain(ended.map(|ended| ended.wrong_answers)).fold(0, u32::saturating_add)
    }

    /// Those that are open.
    pub fn all(&self) -> Vec<Arc<Live>> {
        self.book().open.values().cloned().collect()
    }

    /// Ends a session, unless it has ended: what it held is free when this is first polled, and its remains are on
    /// disk when it returns.
    ///
    /// # Errors
    /// [`Error::Store`]: the next sweep tries again.
    pub async fn end(&self, live: &Live, reason: EndReason) -> Result<(), Error> {
        let Some((ended, written)) = live.close(reason) else { return Ok(()) };
        self.show();
        self.lay_by(ended, written).await
    }

    /// Keeps a session that has ended, as soon as its remains are on disk.
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
            // They are found again, and forgotten again, after a restart.
            let _ = written.wait().await;
        }
    }

    /// Ends sessions in which nothing happened for too long, and forgets those that ended long ago. A session with
    /// participants in its room is in use.
    pub async fn sweep(&self, now: Millis) {
        let sessions = self.all();
        join_all(sessions.iter().map(|live| self.look_after(live, now))).await;
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

    async fn look_after(&self, live: &Live, now: Millis) {
        let done = if let Some((ended, written)) = live.end_again() {
            self.lay_by(ended, written).await
        } else if now >= live.read(|session| session.expires) && !live.room.is_occupied() {
            self.end(live, EndReason::Expired).await
        } else {
            return;
        };
        if let Err(error) = done {
            tracing::error!(session = live.id, %error, "the end is not noted");
        }
    }

    /// Shows how many there are and what they hold.
    pub fn show(&self) {
        let book = self.book();
        let open = book.tally(|_| true);
        metrics::SESSIONS.with(&[]).set(open.sessions as f64);
        metrics::SESSIONS_HELD.with(&[]).set(open.bytes as f64);
        metrics::SESSIONS_KEPT.with(&[]).set(book.kept.count() as f64);
        metrics::SESSIONS_KEPT_BYTES.with(&[]).set(book.kept.bytes() as f64);
    }
}
