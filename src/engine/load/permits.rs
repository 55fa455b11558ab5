//! Permits for requests and for audio: each releases its share of the load when it is dropped.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::cost::Work;
use super::holdings::Holdings;
use super::memory::MemoryReservation;
use crate::engine::error::Error;
use crate::engine::model::ModelId;
use crate::engine::window::TenantId;

/// The pause before retrying a job whose audio is longer than its file said and found no memory for the rest.
const JOB_RETRY: Duration = Duration::from_secs(5);

/// A permit for one request, from admission to its answer.
pub struct RequestPermit {
    holdings: Arc<Holdings>,
    tenant: TenantId,
    /// Of its place.
    number: u64,
    reservation: Option<Reservation>,
    /// Seconds by which the wait may exceed its bound: the client comes at the time that it was given.
    behind: f64,
}

/// A reservation for the work that a request usually brings; drop it when the audio is read, or is late.
pub struct Reservation {
    holdings: Arc<Holdings>,
    tenant: TenantId,
    work: Work,
}

/// A permit for audio of a certain length. Dropping it releases the work that was not marked done; the memory is released
/// with its last handle.
pub struct AudioPermit {
    /// `None` for a job, whose work is not counted.
    account: Option<Account>,
    memory: Arc<MemoryReservation>,
}

struct Account {
    holdings: Arc<Holdings>,
    tenant: TenantId,
    model: ModelId,
    remaining: Mutex<Work>,
}

impl RequestPermit {
    /// `usual` is reserved for the audio that is still to come.
    pub(super) fn new(
        holdings: Arc<Holdings>,
        (tenant, number): (TenantId, u64),
        usual: Work,
        behind: f64,
    ) -> Self {
        let reservation = Reservation { holdings: holdings.clone(), tenant, work: usual };
        Self { holdings, tenant, number, reservation: Some(reservation), behind }
    }

    /// Hands the reservation to the reader of the audio, once.
    pub fn take_reservation(&mut self) -> Option<Reservation> {
        self.reservation.take()
    }

    pub(super) fn tenant(&self) -> TenantId {
        self.tenant
    }

    pub(super) fn behind(&self) -> f64 {
        self.behind
    }
}

impl Drop for RequestPermit {
    fn drop(&mut self) {
        self.holdings.state().places.end(self.number, Instant::now());
        self.holdings.freed.notify_waiters();
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.holdings.state().expect_no_more(self.tenant, self.work);
    }
}

impl Account {
    fn remaining(&self) -> MutexGuard<'_, Work> {
        self.remaining.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the work that is held by `work`.
    fn hold_instead(&self, work: Work) {
        let mut remaining = self.remaining();
        let before = std::mem::replace(&mut *remaining, work);
        let mut state = self.holdings.state();
        state.hold(self.tenant, work);
        state.release(self.tenant, before);
    }
}

impl AudioPermit {
    pub(super) fn new(
        holdings: Arc<Holdings>,
        (tenant, model): (TenantId, ModelId),
        work: Work,
        memory: MemoryReservation,
    ) -> Self {
        let account = Account { holdings, tenant, model, remaining: Mutex::new(work) };
        Self { account: Some(account), memory: Arc::new(memory) }
    }

    /// A permit for a job, whose work is not counted, as it gives way to all other work. Its audio takes up memory like
    /// any other.
    pub(super) fn of_job(memory: MemoryReservation) -> Self {
        Self { account: None, memory: Arc::new(memory) }
    }

    /// A handle on the audio's memory; keep it as long as the audio.
    pub fn memory(&self) -> Arc<MemoryReservation> {
        self.memory.clone()
    }

    /// Extends the permit: while it is being decoded, the audio turns out to have `seconds` at least.
    ///
    /// # Errors
    /// As [`super::Load::admit`]: the audio is longer than was admitted, and there is no room for the rest.
    pub fn grow(&self, seconds: f64) -> Result<(), Error> {
        let room = self.memory.grow_to(seconds);
        let Some(account) = &self.account else {
            return room.map_err(|_| Error::Overloaded { retry_after: JOB_RETRY });
        };
        let mut remaining = account.remaining();
        if room.is_ok() && seconds <= remaining.seconds() {
            return Ok(());
        }
        let more = Work::audio(account.model, (seconds - remaining.seconds()).max(0.0));
        let mut state = account.holdings.state();
        // The only piece of audio on the engine may grow without bound.
        if room.is_err() || state.held != *remaining {
            let whose = (account.tenant, account.model);
            account.holdings.check(&state, whose, (more, *remaining), room, 0.0)?;
        }
        state.hold(account.tenant, more);
        *remaining = *remaining + more;
        Ok(())
    }

    /// Sets the final length once the audio is decoded; decoding its `source_samples` took one core the time `took`.
    pub fn decoded(&self, seconds: f64, source_samples: f64, took: Duration) {
        self.memory.shrink_to(seconds);
        let Some(account) = &self.account else { return };
        account.hold_instead(Work::audio(account.model, seconds));
        account.holdings.state().reading.learn(source_samples, took.as_secs_f64());
    }

    /// Replaces the work by windows of these lengths, in seconds, once the audio is cut.
    pub fn cut(&self, windows: impl Iterator<Item = f64>) {
        let Some(account) = &self.account else { return };
        let window = |seconds| Work::window(account.model, seconds);
        account.hold_instead(windows.fold(Work::default(), |sum, seconds| sum + window(seconds)));
    }

    /// Releases `seconds` of audio that are transcribed; infinity for all that is left.
    pub fn done(&self, seconds: f64) {
        let Some(account) = &self.account else { return };
        let mut remaining = account.remaining();
        let held = remaining.seconds();
        let part = if seconds < held { seconds / held } else { 1.0 };
        let done = remaining.times(part);
        *remaining = remaining.times(1.0 - part);
        let mut state = account.holdings.state();
        let foreseen = state.costs.of(&done);
        state.throughput.done(foreseen, done.seconds());
        state.account(account.tenant).done += foreseen;
        state.release(account.tenant, done);
    }
}

impl Drop for AudioPermit {
    fn drop(&mut self) {
        let Some(account) = &self.account else { return };
        let remaining = *account.remaining();
        account.holdings.state().release(account.tenant, remaining);
    }
}
