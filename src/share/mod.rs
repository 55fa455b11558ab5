//! Shares of a server between organisations: none of them may hold the capacity that the others need.
//!
//! [`Share`] bounds the amount that each tenant holds, [`Turns`] lets tenants in one after the other, [`Places`] foretells
//! when places come free, [`Stays`] are such places behind a lock, and [`Promises`] what refused callers were told.
//! All use dynamic thresholds (Choudhury and Hahne, 1998):
//!
//! - A tenant may hold at most [`FREE_FACTOR`] times the capacity that it leaves free: four fifths of what the others
//!   leave. One busy tenant gets four fifths, two get four ninths each, and the next one always finds some left.
//! - Some pieces are larger than that by themselves. A tenant that holds nothing may bring a piece of any size that
//!   fits while the others hold less than a fifth, so that an idle server never refuses for ever what it can hold.
//! - While only one organisation has keys, it may hold everything.
//!
//! A refused tenant is over its share if it holds at least as much as all others together: then it waits for
//! itself. Otherwise it waits for the others, and the server is full.
#![doc = include_str!("README.md")]

mod places;
mod promises;
mod stays;
mod turns;

pub use places::{Lasting, Places};
pub use promises::{Asker, Claim, Promises};
pub use stays::{Busy, Stay, Stays};
pub use turns::{Turn, Turns};

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The most that a tenant may hold, as a multiple of the capacity that it leaves free.
pub const FREE_FACTOR: u64 = 4;

/// The number of organisations with keys. Cheap to clone: clones share it.
#[derive(Debug, Clone, Default)]
pub struct Tenants(Arc<AtomicUsize>);

impl Tenants {
    pub fn set(&self, count: usize) {
        self.0.store(count, Ordering::Relaxed);
    }

    /// Whether there is at most one organisation.
    pub fn are_alone(&self) -> bool {
        self.0.load(Ordering::Relaxed) <= 1
    }
}

/// The reason why a tenant may not hold more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The tenant waits until others give something back.
    #[error("all of it is taken")]
    Full,
    /// The tenant waits until it gives something back itself.
    #[error("the organisation holds its share of it")]
    OverShare,
}

/// Whether a tenant that holds `mine` may hold `more`, where all tenants together hold `total` of `capacity`.
///
/// # Errors
/// [`Refused`].
pub fn may_hold(mine: u64, total: u64, more: u64, capacity: u64, tenants: &Tenants) -> Result<(), Refused> {
    let others = total.saturating_sub(mine);
    let left = capacity.saturating_sub(others);
    let wanted = mine.saturating_add(more);
    let is_within = if tenants.are_alone() {
        true
    } else if mine > 0 {
        wanted <= left.saturating_sub(wanted).saturating_mul(FREE_FACTOR)
    } else {
        // The last single place is for a tenant without one, so the share of a tenant that holds nothing is rounded up.
        let share = (u128::from(left) * u128::from(FREE_FACTOR)).div_ceil(u128::from(FREE_FACTOR) + 1);
        let is_nearly_idle = u128::from(others) * (u128::from(FREE_FACTOR) + 1) < u128::from(capacity);
        u128::from(more) <= share || is_nearly_idle
    };
    if wanted <= left && is_within {
        return Ok(());
    }
    let waits_for_itself = mine > 0 && mine >= others && !tenants.are_alone();
    Err(if waits_for_itself { Refused::OverShare } else { Refused::Full })
}

/// A capacity that tenants hold parts of: places, bytes. Cheap to clone: clones share it.
#[derive(Clone)]
pub struct Share(Arc<Pool>);

struct Pool {
    capacity: u64,
    tenants: Tenants,
    ledger: Mutex<Ledger<u64>>,
}

/// The amount held, in total and by each holder.
pub struct Ledger<K> {
    total: u64,
    by_holder: HashMap<K, u64>,
}

impl<K> Default for Ledger<K> {
    fn default() -> Self {
        Self { total: 0, by_holder: HashMap::new() }
    }
}

impl<K: Copy + Eq + Hash> Ledger<K> {
    pub fn total(&self) -> u64 {
        self.total
    }

    pub fn of(&self, holder: K) -> u64 {
        self.by_holder.get(&holder).copied().unwrap_or(0)
    }

    pub fn add(&mut self, holder: K, amount: u64) {
        if amount == 0 {
            return;
        }
        self.total += amount;
        *self.by_holder.entry(holder).or_insert(0) += amount;
    }

    pub fn give_back(&mut self, holder: K, amount: u64) {
        self.total = self.total.saturating_sub(amount);
        if let Some(held) = self.by_holder.get_mut(&holder) {
            *held = held.saturating_sub(amount);
            if *held == 0 {
                self.by_holder.remove(&holder);
            }
        }
    }
}

/// One request's part of a [`Share`]; dropping it gives it back.
pub struct Part {
    pool: Arc<Pool>,
    tenant: u64,
    amount: u64,
}

impl Share {
    pub fn new(capacity: u64, tenants: Tenants) -> Self {
        Self(Arc::new(Pool { capacity, tenants, ledger: Mutex::default() }))
    }

    /// # Errors
    /// [`Refused`].
    pub fn take(&self, tenant: u64, amount: u64) -> Result<Part, Refused> {
        let mut part = Part { pool: self.0.clone(), tenant, amount: 0 };
        part.grow(amount)?;
        Ok(part)
    }

    pub fn total(&self) -> u64 {
        self.0.ledger().total
    }

    pub fn held_by(&self, tenant: u64) -> u64 {
        self.0.ledger().of(tenant)
    }
}

impl Pool {
    fn ledger(&self) -> MutexGuard<'_, Ledger<u64>> {
        // A panic elsewhere cannot leave these numbers inconsistent.
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Part {
    pub fn amount(&self) -> u64 {
        self.amount
    }

    /// Adds `more` to this part; if that is refused, the part stays as it was.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn grow(&mut self, more: u64) -> Result<(), Refused> {
        let mut ledger = self.pool.ledger();
        may_hold(ledger.of(self.tenant), ledger.total, more, self.pool.capacity, &self.pool.tenants)?;
        ledger.add(self.tenant, more);
        drop(ledger);
        self.amount += more;
        Ok(())
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.pool.ledger().give_back(self.tenant, self.amount);
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
    fn a_first_piece_leaves_room_to_others_unless_the_server_is_nearly_idle() {
        let may = |mine, total, more| may_hold(mine, total, more, 1000, &tenants(9));
        // Larger than a share: what an idle server can hold is not refused for ever.
        assert_eq!(may(0, 0, 1000), Ok(()));
        assert_eq!((may(0, 199, 801), may(0, 199, 802)), (Ok(()), Err(Refused::Full)));
        // Beside others a first piece is bounded as any other.
        assert_eq!((may(0, 200, 640), may(0, 200, 641)), (Ok(()), Err(Refused::Full)));
        assert_eq!((may(0, 833, 134), may(0, 833, 135)), (Ok(()), Err(Refused::Full)));
        // A second piece, though the first alone might have been as large as both.
        assert_eq!((may(700, 700, 100), may(700, 700, 101)), (Ok(()), Err(Refused::OverShare)));
    }

    #[test]
    fn a_tenant_that_holds_less_than_the_others_waits_for_them_and_not_for_itself() {
        let may = |mine, total, more| may_hold(mine, total, more, 100, &tenants(9));
        assert_eq!(may(2, 100, 1), Err(Refused::Full));
        assert_eq!(may(4, 99, 1), Err(Refused::Full));
        assert_eq!(may(60, 100, 1), Err(Refused::OverShare));
        assert_eq!(may(44, 88, 1), Err(Refused::OverShare), "both hold their share");
        assert_eq!(may(0, 100, 1), Err(Refused::Full));
        assert_eq!(may_hold(100, 100, 1, 100, &tenants(1)), Err(Refused::Full), "it is alone");
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
