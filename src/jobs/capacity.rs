//! How much may wait: a number of jobs, an amount of audio, and for each tenant a share of both.

use crate::share::{Refused, Tenants, may_hold};

/// The most that all tenants together may hold.
#[derive(Debug, Clone)]
pub struct Bounds {
    /// Jobs that have not ended.
    pub jobs: u64,
    /// Bytes of audio that wait.
    pub bytes: u64,
    pub tenants: Tenants,
}

/// Jobs and audio that wait: of all tenants, and of the tenant that asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    pub jobs: u64,
    pub bytes: u64,
    pub own_jobs: u64,
    pub own_bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Resource {
    /// Given back when a job has ended.
    Places,
    /// Given back when a job's audio has been transcribed.
    Bytes,
}

/// Why there is no room for another job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    pub why: Refused,
    pub of: Resource,
    /// How much has to be given back first; by the tenant itself for [`Refused::OverShare`].
    pub short: u64,
}

impl Usage {
    /// Both together.
    pub fn and(self, other: Self) -> Self {
        Self {
            jobs: self.jobs + other.jobs,
            bytes: self.bytes + other.bytes,
            own_jobs: self.own_jobs + other.own_jobs,
            own_bytes: self.own_bytes + other.own_bytes,
        }
    }
}

impl Bounds {
    /// Checks whether another job with this many bytes of audio may wait.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn may_take(&self, held: Usage, bytes: u64) -> Result<(), Refusal> {
        self.check(Resource::Places, (held.own_jobs, held.jobs), 1, self.jobs)?;
        // A job by URL takes up no audio, so the share of audio does not apply to it.
        if bytes > 0 {
            self.check(Resource::Bytes, (held.own_bytes, held.bytes), bytes, self.bytes)?;
        }
        Ok(())
    }

    fn check(&self, of: Resource, (own, total): (u64, u64), more: u64, capacity: u64) -> Result<(), Refusal> {
        let may_hold = |own, total| may_hold(own, total, more, capacity, &self.tenants);
        may_hold(own, total).map_err(|why| {
            // Given back by the tenant itself if it is over its share, otherwise by the others first.
            let after = |freed: u64| {
                let left = total.saturating_sub(freed);
                match why {
                    Refused::OverShare => may_hold(own.saturating_sub(freed), left),
                    Refused::Full => may_hold(own.min(left), left),
                }
            };
            // Binary search for the least amount that is enough.
            let (mut too_little, mut enough) = (0, total.max(1));
            while enough - too_little > 1 {
                let middle = too_little + (enough - too_little) / 2;
                if after(middle).is_ok() { enough = middle } else { too_little = middle }
            }
            Refusal { why, of, short: enough }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounds(jobs: u64, bytes: u64, count: usize) -> Bounds {
        let tenants = Tenants::default();
        tenants.set(count);
        Bounds { jobs, bytes, tenants }
    }

    #[test]
    fn a_tenant_leaves_room_to_others_and_knows_how_much_it_has_to_give_back() {
        let bounds = bounds(100, 1000, 2);
        let held = Usage { jobs: 80, own_jobs: 80, bytes: 0, own_bytes: 0 };
        let refused = |why, of, short| Err(Refusal { why, of, short });
        assert_eq!(bounds.may_take(held, 0), refused(Refused::OverShare, Resource::Places, 1));
        assert_eq!(bounds.may_take(Usage { own_jobs: 0, ..held }, 0), Ok(()));
        // Others came in since: with nine of its own ended, it would hold 72, four times the 18 that are free.
        let crowded = Usage { jobs: 90, ..held };
        assert_eq!(bounds.may_take(crowded, 0), refused(Refused::OverShare, Resource::Places, 9));
        let full = Usage { jobs: 100, own_jobs: 0, ..held };
        assert_eq!(bounds.may_take(full, 0), refused(Refused::Full, Resource::Places, 1));
        // The others hold more than it does: it waits for them.
        let small = Usage { jobs: 100, own_jobs: 2, ..held };
        assert_eq!(bounds.may_take(small, 0), refused(Refused::Full, Resource::Places, 2));
        let heavy = Usage { jobs: 1, own_jobs: 1, bytes: 700, own_bytes: 700 };
        assert_eq!(bounds.may_take(heavy, 200), refused(Refused::OverShare, Resource::Bytes, 100));
        assert_eq!(bounds.may_take(heavy, 0), Ok(()), "a URL takes no room on the disk");
    }

    #[test]
    fn a_tenant_alone_may_hold_it_all() {
        let bounds = bounds(2, 100, 1);
        let held = Usage { jobs: 1, own_jobs: 1, bytes: 50, own_bytes: 50 };
        assert_eq!(bounds.may_take(held, 50), Ok(()));
        let short = |short| Err(Refusal { why: Refused::Full, of: Resource::Bytes, short });
        assert_eq!(bounds.may_take(held, 60), short(10));
        assert_eq!(bounds.may_take(Usage::default(), 101), short(1), "and never fits");
    }
}
