//! Sends results that are due: many at once, but few to one receiver and few for one tenant. A receiver that
//! is dead, or slow to fail, delays only its own results.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::attempt::attempt;
use super::capacity::Resource;
use super::shared::Shared;
use super::store::{Delivery, JobId, Next, Phase};
use super::waiting::{insist, rest};

/// The history of receivers with nothing in flight is kept for at most this many.
const IDLE_RECEIVERS_MAX: usize = 4096;

/// Deliveries in flight, by receiver and by tenant.
#[derive(Default)]
struct Traffic {
    receivers: HashMap<String, Receiver>,
    tenants: HashMap<u64, usize>,
}

#[derive(Default)]
struct Receiver {
    on_their_way: usize,
    fails: bool,
}

impl Traffic {
    fn begin(&mut self, receiver: &str, tenant: u64) {
        self.receivers.entry(receiver.to_owned()).or_default().on_their_way += 1;
        *self.tenants.entry(tenant).or_default() += 1;
    }

    /// `took`: whether the receiver accepted the result, if that is known.
    fn end(&mut self, receiver: &str, tenant: u64, took: Option<bool>) {
        if let Some(entry) = self.receivers.get_mut(receiver) {
            entry.on_their_way = entry.on_their_way.saturating_sub(1);
            entry.fails = took.map_or(entry.fails, |took| !took);
            if entry.on_their_way == 0 && !entry.fails {
                self.receivers.remove(receiver);
            }
        }
        if self.receivers.len() > IDLE_RECEIVERS_MAX {
            self.receivers.retain(|_, entry| entry.on_their_way > 0);
        }
        if let Some(count) = self.tenants.get_mut(&tenant) {
            *count -= 1;
            if *count == 0 {
                self.tenants.remove(&tenant);
            }
        }
    }

    /// Receivers that are at their limit. A failing receiver gets one result at a time.
    fn busy_receivers(&self, max: usize) -> Vec<String> {
        let busy = |entry: &Receiver| entry.on_their_way >= if entry.fails { 1 } else { max };
        self.receivers.iter().filter(|(_, entry)| busy(entry)).map(|(name, _)| name.clone()).collect()
    }

    fn busy_tenants(&self, max: usize) -> Vec<u64> {
        self.tenants.iter().filter(|(_, count)| **count >= max).map(|(tenant, _)| *tenant).collect()
    }
}

/// The outcome of an attempt, reported by its task.
struct Done {
    receiver: String,
    tenant: u64,
    took: bool,
}

pub async fn run(shared: &Arc<Shared>, stop: &CancellationToken) {
    let mut traffic = Traffic::default();
    let mut attempts = JoinSet::new();
    let config = &shared.config;
    let per_host = config.deliveries_per_host.max(1);
    // A tenant with many hanging receivers leaves half of the slots to others.
    let per_tenant = config.deliveries.div_ceil(2).max(1);
    while !stop.is_cancelled() {
        let mut next = None;
        if attempts.len() < config.deliveries.max(1) {
            let now = shared.world.now();
            let (receivers, tenants) = (traffic.busy_receivers(per_host), traffic.busy_tenants(per_tenant));
            match shared.store.claim_delivery(now, receivers, tenants).await {
                Ok(Some(delivery)) => {
                    traffic.begin(&delivery.receiver, delivery.tenant);
                    attempts.spawn(deliver(shared.clone(), delivery, stop.clone()));
                    continue;
                }
                Ok(None) => next = shared.store.next_due(Phase::Waiting, now).await.unwrap_or_default(),
                Err(error) => tracing::error!(error = &error as &dyn std::error::Error, "cannot read jobs"),
            }
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            Some(done) = attempts.join_next() => note(&mut traffic, done),
            () = rest(shared.world.as_ref(), &shared.finished, next) => {}
        }
    }
    // Each attempt has its own time limit; the rest is for recording its outcome.
    let limit = Duration::from_millis(config.delivery_timeout_ms) + Duration::from_secs(1);
    let finish = async { while attempts.join_next().await.is_some() {} };
    if tokio::time::timeout(limit, finish).await.is_err() {
        tracing::warn!(attempts = attempts.len(), "deliveries broken off");
    }
}

fn note(traffic: &mut Traffic, done: Result<Done, tokio::task::JoinError>) {
    match done {
        Ok(Done { receiver, tenant, took }) => traffic.end(&receiver, tenant, Some(took)),
        // A bug: this slot is lost until the next start, and its job is sent then.
        Err(error) => tracing::error!(%error, "an attempt to deliver failed in itself"),
    }
}

async fn deliver(shared: Arc<Shared>, delivery: Delivery, stop: CancellationToken) -> Done {
    let (id, receiver, tenant) = (delivery.id, delivery.receiver.clone(), delivery.tenant);
    let next = attempt(&shared, delivery).await;
    report(id, &next);
    let took = next == Next::Delivered;
    let keep = shared.config.result_retention_seconds > 0;
    // If the process ends before this is recorded, the result is sent again: at least once.
    let noted = insist(&stop, || shared.store.attempted(id, shared.world.now(), next.clone(), keep)).await;
    if noted.is_some() && !matches!(next, Next::Again { .. }) {
        shared.given_back(Resource::Places, tenant, 1);
        if let Some(nodes) = &shared.nodes {
            nodes.ended.notify_one();
        }
    }
    Done { receiver, tenant, took }
}

fn report(id: JobId, next: &Next) {
    match next {
        Next::Delivered => tracing::info!(%id, "job delivered"),
        Next::Again { error, .. } => tracing::info!(%id, error, "job not delivered, will be tried again"),
        Next::Dead { error } => tracing::warn!(%id, error, "job not delivered, and given up"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receiver_that_fails_is_tried_with_one_at_a_time() {
        let mut traffic = Traffic::default();
        for _ in 0..3 {
            traffic.begin("a:80", 1);
        }
        assert!(traffic.busy_receivers(4).is_empty());
        traffic.end("a:80", 1, Some(false));
        assert_eq!(traffic.busy_receivers(4), ["a:80"]);
        traffic.end("a:80", 1, Some(false));
        traffic.end("a:80", 1, Some(false));
        assert!(traffic.busy_receivers(4).is_empty(), "one may go");
        traffic.begin("a:80", 1);
        assert_eq!(traffic.busy_receivers(4), ["a:80"]);
        traffic.end("a:80", 1, Some(true));
        for _ in 0..3 {
            traffic.begin("a:80", 1);
        }
        assert!(traffic.busy_receivers(4).is_empty(), "it took one, so it is trusted again");
    }

    #[test]
    fn a_tenant_has_its_share() {
        let mut traffic = Traffic::default();
        traffic.begin("a:80", 1);
        traffic.begin("b:80", 1);
        traffic.begin("c:80", 2);
        assert_eq!(traffic.busy_tenants(2), [1]);
        traffic.end("a:80", 1, None);
        assert!(traffic.busy_tenants(2).is_empty());
    }
}
