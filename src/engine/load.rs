//! Admission: the work in hand, how long it will take, and whether there is room for more.
//!
//! Work is counted as windows and seconds, which [`Cost`] converts to time, as a second of a short clip costs far more
//! than a second of a long file. Admission has two stages: [`Load::enter`] admits a request before its audio is read,
//! with the work that a request usually brings; [`Load::admit`] admits the audio itself once its length is known or
//! estimated. Work is done once it is recognised; the audio's memory (`memory.rs`) is held until its transcript is
//! done.
//!
//! The queue is fair between tenants, so the bound is on each tenant's own wait: while its work is being done, every
//! other tenant gets at most as much done. A tenant with little work is admitted however much another one has waiting,
//! and each has its own line of refused clients that may return. Pure but for the lock and the entrance's waiting: callers
//! pass the time.

mod cost;
mod entrance;
mod holdings;
mod memory;
mod permits;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

use std::sync::{Arc, MutexGuard};

use self::cost::Work;
use self::holdings::{Holdings, State, retry_after};
use self::memory::Memory;
pub use self::memory::MemoryReservation;
pub use self::permits::{AudioPermit, RequestPermit, Reservation};
use super::config::Config;
use super::error::Error;
use super::fairness::Flow;
use super::model::ModelId;
use super::window::TenantId;
use crate::share::Tenants;

/// Weight of the newest request in the work that a request usually brings.
const SMOOTHING: f64 = 0.05;

/// The load as the engine of one model sees it; those of all models share what is behind it.
pub struct Load {
    holdings: Arc<Holdings>,
    memory: Arc<Memory>,
    model: ModelId,
}

/// The current load, for monitoring.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LoadSnapshot {
    pub requests: usize,
    pub audio_seconds: f64,
    /// Time until all of it is done; `None` until the speed is known.
    pub wait_seconds: Option<f64>,
    /// Seconds of audio that the engine does in a second of its time.
    pub real_time_factor: Option<f64>,
}

/// Audio that asks for admission.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Audio {
    /// All transcribed channels' seconds together.
    pub seconds: f64,
    /// Samples that are still to be decoded, all channels counted.
    pub source_samples: f64,
}

impl From<f64> for Audio {
    /// Seconds of audio that is decoded already.
    fn from(seconds: f64) -> Self {
        Self { seconds, source_samples: 0.0 }
    }
}

impl Load {
    pub fn new(config: &Config) -> Self {
        Self {
            holdings: Arc::new(Holdings::new(config)),
            memory: Arc::new(Memory::new(config.max_held_seconds)),
            model: ModelId::FIRST,
        }
    }

    /// The same load, for the engine of `model`.
    pub fn of(&self, model: ModelId) -> Self {
        let Self { holdings, memory, .. } = self;
        Self { holdings: holdings.clone(), memory: memory.clone(), model }
    }

    /// Sets the number of devices, and of the model's slots on all of them.
    pub fn started(&self, devices: usize, slots: usize) {
        let mut state = self.state();
        state.devices = devices as f64;
        state.slots[self.model.index()] = slots as f64;
    }

    pub fn share_between(&self, tenants: Tenants) {
        self.memory.share_between(tenants.clone());
        self.state().places.share_between(tenants);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.holdings.state()
    }

    /// Admits audio. An idle engine admits any one piece; otherwise the wait for the tenant's work must stay within
    /// bounds.
    ///
    /// # Errors
    /// [`Error::Overloaded`], [`Error::OverShare`], with the time until there is room.
    pub fn admit(&self, tenant: TenantId, audio: Audio) -> Result<AudioPermit, Error> {
        self.admit_behind(tenant, audio, 0.0)
    }

    /// Admits the audio of the request that holds `permit`.
    ///
    /// # Errors
    /// As [`Self::admit`].
    pub fn admit_request(&self, permit: &RequestPermit, audio: Audio) -> Result<AudioPermit, Error> {
        self.admit_behind(permit.tenant(), audio, permit.behind())
    }

    /// As [`Self::admit`], for audio that may be `behind` the bound by so many seconds.
    fn admit_behind(&self, tenant: TenantId, audio: Audio, behind: f64) -> Result<AudioPermit, Error> {
        let mut state = self.state();
        let reading = state.reading.of(audio.source_samples);
        let work = Work::audio(self.model, audio.seconds).read_in(reading);
        let memory = self.memory.reserve(Flow::Tenant(tenant), audio.seconds);
        let room = memory.as_ref().map(drop).map_err(|refused| *refused);
        let whose = (tenant, self.model);
        self.holdings.check(&state, whose, (work, Work::default()), room, behind)?;
        let memory = memory.map_err(|_| Error::Overloaded { retry_after: retry_after(0.0) })?;
        state.hold(tenant, work);
        // A stream is admitted before it has any audio, which says nothing about requests.
        if audio.seconds > 0.0 {
            let usual = &mut state.usual[self.model.index()];
            *usual = usual.times(1.0 - SMOOTHING) + work.times(SMOOTHING);
        }
        Ok(AudioPermit::new(self.holdings.clone(), whose, work, memory))
    }

    /// A permit for a job with so much audio, as soon as there is memory for it. Its work is not counted.
    pub async fn admit_job(&self, tenant: TenantId, seconds: f64) -> AudioPermit {
        AudioPermit::of_job(self.memory.reserve_for_job(tenant, seconds).await)
    }

    pub fn held_seconds(&self) -> f64 {
        self.state().held.seconds()
    }

    pub fn snapshot(&self) -> LoadSnapshot {
        let state = self.state();
        let is_known = state.costs.are_known();
        LoadSnapshot {
            requests: usize::try_from(state.places.total()).unwrap_or(usize::MAX),
            audio_seconds: state.held.seconds(),
            wait_seconds: is_known.then(|| state.time(state.held + state.expected)),
            real_time_factor: state.throughput.audio().map(|factor| factor * state.devices),
        }
    }

    /// Seconds of a device that a window of so many seconds takes.
    pub fn window_cost(&self, seconds: f64) -> f64 {
        self.state().costs.of(&Work::window(self.model, seconds))
    }

    /// Requests that bring the usual work and fit within the bounds, if one tenant sends them all.
    pub fn requests_max(&self) -> usize {
        let state = self.state();
        let one = state.time(state.usual[self.model.index()]);
        let fit = self.holdings.bound(&state, self.model) / one.max(1e-6);
        // Saturates: before the speed is known, the bound is infinite.
        (fit as u64).min(state.places.capacity()).max(1) as usize
    }

    /// Records that a worker was busy with the model for `seconds`.
    pub fn busy(&self, seconds: f64) {
        let mut state = self.state();
        // With nothing in hand, the work was of a kind that is not counted here.
        if state.held != Work::default() || state.expected != Work::default() {
            let kept = state.throughput.busy(seconds);
            let State { accounts, throughput, .. } = &mut *state;
            accounts.values_mut().for_each(|account| account.done *= kept);
            accounts.retain(|_, account| !account.is_empty(throughput));
        }
    }

    /// Learns from a window of `seconds` that took `busy` seconds of the engine's time.
    pub fn learn(&self, seconds: f64, busy: f64) {
        self.state().costs.learn(self.model, seconds, busy);
    }
}
