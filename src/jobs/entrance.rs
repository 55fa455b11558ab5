//! Who may submit a job: a client is answered before its audio is read, and one that is refused has a turn later.
//!
//! The place of a job whose audio is still being read counts like that of a job that waits, so a client that is let in
//! here is not refused afterwards. A client that returns as told waits a little if jobs end later than was foreseen.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::time::timeout_at;

use super::capacity::{Refusal, Resource, Usage};
use super::error::Error;
use super::shared::Shared;
use crate::share::{Asker, Claim, Promises};

#[derive(Default)]
pub struct Entrance {
    desk: Mutex<Desk>,
    /// Clients are answered one at a time: what is held is read from the database.
    one: tokio::sync::Mutex<()>,
    /// A job has given something back.
    pub freed: Notify,
}

#[derive(Default)]
struct Desk {
    /// Of each tenant's refused clients, by what they were short of.
    lines: HashMap<(Resource, u64), Promises>,
    /// Jobs of each tenant whose audio is being read, and the bytes that it was said to have.
    coming: HashMap<u64, (u64, u64)>,
}

/// The place of a job that is being submitted; drop it once the job is accepted.
pub struct Coming {
    shared: Arc<Shared>,
    tenant: u64,
    bytes: u64,
}

/// A client that has returned as told and waits.
struct Waiting {
    shared: Arc<Shared>,
    line: (Resource, u64),
    claim: Claim,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.shared.entrance.desk().settle(self.line, self.claim);
    }
}

impl Drop for Coming {
    fn drop(&mut self) {
        let mut desk = self.shared.entrance.desk();
        if let Some((jobs, bytes)) = desk.coming.get_mut(&self.tenant) {
            (*jobs, *bytes) = (jobs.saturating_sub(1), bytes.saturating_sub(self.bytes));
            if *jobs == 0 {
                desk.coming.remove(&self.tenant);
            }
        }
    }
}

impl Entrance {
    fn desk(&self) -> MutexGuard<'_, Desk> {
        // A panic elsewhere cannot leave these numbers inconsistent.
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Desk {
    fn settle(&mut self, line: (Resource, u64), claim: Claim) {
        if let Some(promises) = self.lines.get_mut(&line) {
            promises.settle(claim);
        }
    }

    fn claim(&mut self, tenant: u64, asker: Asker, now: Instant) -> Option<((Resource, u64), Claim)> {
        self.lines.retain(|_, promises| {
            promises.expire(now);
            !promises.is_empty()
        });
        [Resource::Places, Resource::Bytes].into_iter().find_map(|of| {
            let line = (of, tenant);
            self.lines.get_mut(&line)?.claim(asker, now).map(|claim| (line, claim))
        })
    }

    fn coming(&self, tenant: u64) -> Usage {
        let (own_jobs, own_bytes) = self.coming.get(&tenant).copied().unwrap_or_default();
        let (jobs, bytes) = self.coming.values().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        Usage { jobs, bytes, own_jobs, own_bytes }
    }

    /// What is held, with what is kept for refused clients. Of other tenants, as much as `tenant` has itself: a long line
    /// of one keeps no other out. `again`: only for those that have returned before.
    fn with_kept(&self, tenant: u64, held: Usage, again: bool) -> Usage {
        let mut all = held;
        for ((of, whose), promises) in &self.lines {
            let is_own = *whose == tenant;
            let amount = if is_own && again { promises.expected_again() } else { promises.expected() };
            let (own, own_held) = match of {
                Resource::Places => (&mut all.own_jobs, held.own_jobs),
                Resource::Bytes => (&mut all.own_bytes, held.own_bytes),
            };
            let kept = (amount - 1e-9).ceil() as u64;
            let kept = if is_own {
                *own += kept;
                kept
            } else {
                kept.min(own_held + 1)
            };
            match of {
                Resource::Places => all.jobs += kept,
                Resource::Bytes => all.bytes += kept,
            }
        }
        all
    }
}

impl Shared {
    /// A place for a job of `asker` with this many bytes of audio.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::OverShare`], or a database error.
    pub async fn enter(self: &Arc<Self>, tenant: u64, bytes: u64, asker: Asker) -> Result<Coming, Error> {
        let now = Instant::now();
        let claimed = self.entrance.desk().claim(tenant, asker, now);
        let waiting = claimed.map(|(line, claim)| Waiting { shared: self.clone(), line, claim });
        loop {
            let mut freed = pin!(self.entrance.freed.notified());
            freed.as_mut().enable();
            let answer = {
                let _one = self.entrance.one.lock().await;
                // Before the database is read: a job that is accepted meanwhile counts twice rather than never.
                let coming = self.entrance.desk().coming(tenant);
                let held = self.store.held(tenant).await.map_err(|error| self.for_client(error, bytes))?;
                let held = held.and(coming);
                let taken = match &waiting {
                    Some(_) => self.bounds.may_take(held, bytes),
                    None => self.bounds.may_take(self.entrance.desk().with_kept(tenant, held, false), bytes),
                };
                match taken {
                    Ok(()) if !self.audio.has_room(bytes) => return Err(self.no_disk(bytes)),
                    Ok(()) => {
                        let mut desk = self.entrance.desk();
                        let (jobs, sum) = desk.coming.entry(tenant).or_default();
                        (*jobs, *sum) = (*jobs + 1, *sum + bytes);
                        return Ok(Coming { shared: self.clone(), tenant, bytes });
                    }
                    Err(refusal) => (held, refusal),
                }
            };
            match &waiting {
                Some(Waiting { claim, .. }) if Instant::now() < claim.until => {
                    // At the end of its time it is refused again.
                    let _ = timeout_at(claim.until.into(), freed).await;
                }
                waiting => {
                    let returned = waiting.as_ref().map(|waiting| (waiting.line, waiting.claim));
                    return Err(self.promise((tenant, asker, bytes), answer, returned));
                }
            }
        }
    }

    /// Refuses, and promises a turn.
    fn promise(
        &self,
        (tenant, asker, bytes): (u64, Asker, u64),
        (held, refusal): (Usage, Refusal),
        returned: Option<((Resource, u64), Claim)>,
    ) -> Error {
        let now = Instant::now();
        let mut desk = self.entrance.desk();
        if let Some((line, claim)) = returned {
            desk.settle(line, claim);
        }
        // Behind those that are before it.
        let held = desk.with_kept(tenant, held, returned.is_some());
        let refusal = self.bounds.may_take(held, bytes).err().unwrap_or(refusal);
        let line = desk.lines.entry((refusal.of, tenant)).or_default();
        let wait = match line.of(asker) {
            Some(due) => due.saturating_duration_since(now),
            None => {
                // As the client reads it.
                let wait = Duration::from_secs_f64(self.wait(tenant, &refusal).as_secs_f64().ceil());
                let amount = match refusal.of {
                    Resource::Places => 1.0,
                    Resource::Bytes => bytes as f64,
                };
                line.make((asker, amount), (now, wait), returned.is_some());
                wait
            }
        };
        drop(desk);
        self.refused_for(refusal, wait)
    }

    /// Notes that `tenant` has given back `amount`.
    pub fn given_back(&self, of: Resource, tenant: u64, amount: u64) {
        self.drain_rate.note(of, tenant, amount, self.world.now());
        self.entrance.freed.notify_waiters();
    }
}
