//! One server shared by several organisations: none of them may hold what the others need.
//!
//! [`Share`] bounds how much of something each tenant holds, [`Turns`] lets tenants in one after the other.
//! Both use dynamic thresholds (Choudhury and Hahne, 1998): a tenant may hold at most [`FREE_FACTOR`] times
//! what it leaves free. One busy tenant gets four fifths, two get four ninths each, and the next one always finds
//! some left. While the server has keys of one organisation only, that one may hold
//! it all.
#![doc = include_str!("README.md")]

mod turns;

pub use turns::{Turn, Turns};

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A tenant may hold so many times what it leaves free.
const FREE_FACTOR: u64 = 4;

/// How many organisations have keys. Cheap to clone: all clones are one.
#[derive(Debug, Clone, Default)]
pub struct Tenants(Arc<AtomicUsize>);

impl Tenants {
    pub fn set(&self, count: usize) {
        self.0.store(count, Ordering::Relaxed);
    }

    /// Whether no organisation has to leave anything to another.
    fn are_alone(&self) -> bool {
        self.0.load(Ordering::Relaxed) <= 1
    }
}

/// Why a tenant may not hold more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("all of it is taken")]
    Full,
    #[error("the organisation holds its share of it")]
    OverShare,
}

/// Whether a tenant that holds `mine` may hold `more`, where all tenants together hold `total` of `capacity`.
///
/// # Errors
/// [`Refused`].
pub fn may_hold(mine: u64, total: u64, more: u64, capacity: u64, tenants: &Tenants) -> Result<(), Refused> {
    let Some(free) = total.checked_add(more).and_then(|total| capacity.checked_sub(total)) else {
        // Others hold the rest, or this tenant does.
        return Err(if mine > 0 && !tenants.are_alone() { Refused::OverShare } else { Refused::Full });
    };
    let is_within =
        mine == 0 || tenants.are_alone() || mine.saturating_add(more) <= free.saturating_mul(FREE_FACTOR);
    if is_within { Ok(()) } else { Err(Refused::OverShare) }
}

/// Something that tenants hold parts of: places, bytes. Cheap to clone: all clones are one.
#[derive(Clone)]
pub struct Share(Arc<Ledger>);

struct Ledger {
    capacity: u64,
    tenants: Tenants,
    held: Mutex<Held>,
}

/// How much tenants hold, together and each.
#[derive(Default)]
struct Held {
    total: u64,
    by_tenant: HashMap<u64, u64>,
}

impl Held {
    fn of(&self, tenant: u64) -> u64 {
        self.by_tenant.get(&tenant).copied().unwrap_or(0)
    }

    fn add(&mut self, tenant: u64, amount: u64) {
        self.total += amount;
        *self.by_tenant.entry(tenant).or_insert(0) += amount;
    }

    fn give_back(&mut self, tenant: u64, amount: u64) {
        self.total = self.total.saturating_sub(amount);
        if let Some(mine) = self.by_tenant.get_mut(&tenant) {
            *mine = mine.saturating_sub(amount);
            if *mine == 0 {
                self.by_tenant.remove(&tenant);
            }
        }
    }
}

/// One request's part of a [`Share`]; dropping it gives it back.
pub struct Part {
    ledger: Arc<Ledger>,
    tenant: u64,
    amount: u64,
}

impl Share {
    pub fn new(capacity: u64, tenants: Tenants) -> Self {
        Self(Arc::new(Ledger { capacity, tenants, held: Mutex::default() }))
    }

    /// # Errors
    /// [`Refused`].
    pub fn take(&self, tenant: u64, amount: u64) -> Result<Part, Refused> {
        let mut part = Part { ledger: self.0.clone(), tenant, amount: 0 };
        part.grow(amount)?;
        Ok(part)
    }

    pub fn total(&self) -> u64 {
        self.0.held().total
    }

    #[cfg(test)]
    fn held_by(&self, tenant: u64) -> u64 {
        self.0.held().of(tenant)
    }
}

impl Ledger {
    fn held(&self) -> MutexGuard<'_, Held> {
        // A panic elsewhere cannot leave these numbers inconsistent.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Part {
    pub fn amount(&self) -> u64 {
        self.amount
    }

    /// Holds `more` on top; where that is refused, still what it held before.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn grow(&mut self, more: u64) -> Result<(), Refused> {
        let mut held = self.ledger.held();
        may_hold(held.of(self.tenant), held.total, more, self.ledger.capacity, &self.ledger.tenants)?;
        held.add(self.tenant, more);
        drop(held);
        self.amount += more;
        Ok(())
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.ledger.held().give_back(self.tenant, self.amount);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenants(count: usize) -> Tenants {
        let tenants = Tenants::default();
        tenants.set(count);
        tenants
    }

    /// How many single places `tenant` gets.
    fn fill(share: &Share, tenant: u64) -> Vec<Part> {
        std::iter::from_fn(|| share.take(tenant, 1).ok()).collect()
    }

    #[test]
    fn an_organisation_alone_may_hold_it_all() {
        let share = Share::new(10, tenants(1));
        let parts = fill(&share, 7);
        assert_eq!((parts.len(), share.take(7, 1).err()), (10, Some(Refused::Full)));
    }

    #[test]
    fn each_newcomer_finds_something_left() {
        let share = Share::new(1000, tenants(50));
        let mut held = Vec::new();
        let counts: Vec<usize> = (0..4)
            .map(|tenant| {
                let parts = fill(&share, tenant);
                let count = parts.len();
                held.extend(parts);
                count
            })
            .collect();
        assert_eq!(counts, [800, 160, 32, 6]);
        assert_eq!(share.take(0, 1).err(), Some(Refused::OverShare));
        assert!(share.take(9, 1).is_ok());
    }

    #[test]
    fn one_place_goes_to_the_first_and_the_last_one_of_two_to_another() {
        for (capacity, expected) in [(1, 1), (2, 1), (3, 2), (5, 4)] {
            let share = Share::new(capacity, tenants(2));
            assert_eq!(fill(&share, 1).len(), expected, "of {capacity}");
        }
    }

    #[test]
    fn what_is_dropped_is_given_back() {
        let share = Share::new(100, tenants(2));
        let mut part = share.take(1, 50).expect("room");
        part.grow(30).expect("room");
        assert_eq!((part.grow(1), part.amount()), (Err(Refused::OverShare), 80));
        let other = share.take(2, 15).expect("room");
        assert_eq!(share.take(3, 6).err(), Some(Refused::Full));
        drop(part);
        assert_eq!((share.total(), share.held_by(1), share.held_by(2)), (15, 0, 15));
        drop(other);
        assert_eq!(share.total(), 0);
    }
}
