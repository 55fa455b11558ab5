//! Proofs of admission: each gives back what it holds when it is dropped.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::cost::Work;
use super::{Error, Load};
use crate::engine::window::TenantId;

/// A request's place, from the door to its answer.
pub struct RequestPermit {
    pub(super) load: Arc<Load>,
    pub(super) tenant: TenantId,
    pub(super) reservation: Option<Reservation>,
}

/// The work that a request is expected to bring; to be dropped when its audio is read, or is late.
pub struct Reservation {
    pub(super) load: Arc<Load>,
    pub(super) tenant: TenantId,
    pub(super) work: Work,
}

/// Leave to bring in so many seconds of audio. The part that was not marked done is given back on drop.
pub struct AudioPermit {
    /// `None`: work that is not counted.
    account: Option<Account>,
}

struct Account {
    load: Arc<Load>,
    tenant: TenantId,
    remaining: Mutex<Work>,
}

impl RequestPermit {
    /// The work that is expected, for the reader of the audio; once.
    pub fn take_reservation(&mut self) -> Option<Reservation> {
        self.reservation.take()
    }
}

impl Drop for RequestPermit {
    fn drop(&mut self) {
        let mut state = self.load.state();
        state.requests -= 1;
        state.account(self.tenant).requests -= 1;
        state.forget_if_empty(self.tenant);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.load.state().expect_no_more(self.tenant, self.work);
    }
}

impl Account {
    fn remaining(&self) -> MutexGuard<'_, Work> {
        self.remaining.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Holds `work`, and nothing else, from here on.
    fn hold_instead(&self, work: Work) {
        let mut remaining = self.remaining();
        let before = std::mem::replace(&mut *remaining, work);
        let mut state = self.load.state();
        state.hold(self.tenant, work);
        state.release(self.tenant, before);
    }
}

impl AudioPermit {
    pub(super) fn new(load: Arc<Load>, tenant: TenantId, work: Work) -> Self {
        Self { account: Some(Account { load, tenant, remaining: Mutex::new(work) }) }
    }

    /// Leave that counts for nothing: the caller bounds the work by other means.
    pub(in crate::engine) fn uncounted() -> Self {
        Self { account: None }
    }

    /// While it is decoded, the audio turns out to have `seconds` at least.
    ///
    /// # Errors
    /// As [`super::Load::admit`]: it is longer than was admitted, and there is no room for the rest.
    pub fn grow(&self, seconds: f64) -> Result<(), Error> {
        let Some(account) = &self.account else { return Ok(()) };
        let mut remaining = account.remaining();
        if seconds <= remaining.seconds {
            return Ok(());
        }
        let more = Work::audio(seconds - remaining.seconds);
        let mut state = account.load.state();
        // The one piece on an idle engine may grow as long as it likes.
        if state.held != *remaining {
            account.load.check(&state, account.tenant, more, *remaining)?;
        }
        state.hold(account.tenant, more);
        *remaining = *remaining + more;
        Ok(())
    }

    /// The audio is decoded: it has `seconds`, and decoding `source_samples` took a processor so long.
    pub fn decoded(&self, seconds: f64, source_samples: f64, took: Duration) {
        let Some(account) = &self.account else { return };
        account.hold_instead(Work::audio(seconds));
        account.load.state().reading.learn(source_samples, took.as_secs_f64());
    }

    /// The audio is cut into windows of so many seconds: only these are held now.
    pub fn cut(&self, windows: impl Iterator<Item = f64>) {
        let Some(account) = &self.account else { return };
        account.hold_instead(windows.fold(Work::default(), |sum, seconds| sum + Work::window(seconds)));
    }

    /// `seconds` of the audio are transcribed; infinite: all that is left.
    pub fn done(&self, seconds: f64) {
        let Some(account) = &self.account else { return };
        let mut remaining = account.remaining();
        let part = if seconds < remaining.seconds { seconds / remaining.seconds } else { 1.0 };
        let done = remaining.times(part);
        *remaining = remaining.times(1.0 - part);
        let mut state = account.load.state();
        let foreseen = state.cost.of(done);
        state.pace.done(foreseen, done.seconds);
        state.account(account.tenant).done += foreseen;
        state.release(account.tenant, done);
    }
}

impl Drop for AudioPermit {
    fn drop(&mut self) {
        let Some(account) = &self.account else { return };
        let remaining = *account.remaining();
        account.load.state().release(account.tenant, remaining);
    }
}
