//! Limits on open connections, in total and from one address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub(super) struct ConnectionLimit {
    total: Arc<Semaphore>,
    per_address_max: usize,
    per_address: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

/// One connection's permit; dropping it admits the next.
pub(super) struct ConnectionPermit {
    _total: OwnedSemaphorePermit,
    address: Option<IpAddr>,
    per_address: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

impl ConnectionLimit {
    pub(super) fn new(total_max: usize, per_address_max: usize) -> Self {
        Self {
            total: Arc::new(Semaphore::new(total_max.clamp(1, Semaphore::MAX_PERMITS))),
            per_address_max,
            per_address: Arc::default(),
        }
    }

    /// Waits for a permit. Called before accepting, so that connections over the limit wait in the kernel's
    /// backlog. Cancel-safe.
    pub(super) async fn room(&self) -> Option<OwnedSemaphorePermit> {
        self.total.clone().acquire_owned().await.ok()
    }

    /// Gives `room` to a connection from `address`, unless that address is at its limit.
    pub(super) fn enter(&self, room: OwnedSemaphorePermit, address: IpAddr) -> Option<ConnectionPermit> {
        let address = address.to_canonical();
        let mut permit =
            ConnectionPermit { _total: room, address: None, per_address: self.per_address.clone() };
        if self.per_address_max > 0 {
            let mut counts = self.per_address.lock().unwrap_or_else(PoisonError::into_inner);
            let count = counts.entry(address).or_insert(0);
            if *count >= self.per_address_max {
                return None;
            }
            *count += 1;
            permit.address = Some(address);
        }
        Some(permit)
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let Some(address) = self.address else { return };
        let mut counts = self.per_address.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_address_has_its_share_and_no_more() {
        let limit = ConnectionLimit::new(10, 2);
        let enter = async |address: &str| {
            let room = limit.room().await.unwrap();
            limit.enter(room, address.parse().unwrap())
        };
        let first = enter("10.0.0.1").await;
        let second = enter("::ffff:10.0.0.1").await;
        assert!(first.is_some() && second.is_some());
        assert!(enter("10.0.0.1").await.is_none());
        assert!(enter("10.0.0.2").await.is_some());
        drop(first);
        assert!(enter("10.0.0.1").await.is_some());
        drop(second);
        assert!(limit.per_address.lock().unwrap().is_empty());
        assert_eq!(limit.total.available_permits(), 10);
    }
}
