//! Ended sessions in memory: a line each, without a look at the disk.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::remains::Ended;
use crate::clock::Millis;

#[derive(Default)]
pub struct Kept {
    by_id: HashMap<Arc<str>, Ended>,
    /// The ids of each tenant, in the order in which the sessions ended.
    by_tenant: HashMap<u64, VecDeque<Arc<str>>>,
    bytes: u64,
}

impl Kept {
    /// Call it in the order in which sessions end. A known session stays as it is.
    pub fn add(&mut self, ended: Ended) {
        if self.by_id.contains_key(ended.id.as_str()) {
            return;
        }
        let id: Arc<str> = ended.id.as_str().into();
        self.by_tenant.entry(ended.tenant).or_default().push_back(id.clone());
        self.bytes += ended.bytes;
        self.by_id.insert(id, ended);
    }

    pub fn get(&self, id: &str) -> Option<&Ended> {
        self.by_id.get(id)
    }

    pub fn count(&self) -> usize {
        self.by_id.len()
    }

    /// Size of all remains on disk, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn iter(&self) -> impl Iterator<Item = &Ended> {
        self.by_id.values()
    }

    /// Forgets the sessions that ended by `until`, and returns their ids.
    pub fn forget_until(&mut self, until: Millis) -> Vec<String> {
        let tenants: Vec<u64> = self.by_tenant.keys().copied().collect();
        let mut forgotten = Vec::new();
        for tenant in tenants {
            while self.oldest(tenant).is_some_and(|ended| ended.at <= until) {
                forgotten.extend(self.forget_oldest(tenant));
            }
        }
        forgotten
    }

    /// Forgets sessions until `count_max` are left, and returns their ids. The tenant with the most sessions loses
    /// its oldest, so that no tenant can push out another's.
    pub fn forget_beyond(&mut self, count_max: usize) -> Vec<String> {
        let mut forgotten = Vec::new();
        while self.count() > count_max
            && let Some((&tenant, _)) = self.by_tenant.iter().max_by_key(|(_, line)| line.len())
            && let Some(id) = self.forget_oldest(tenant)
        {
            forgotten.push(id);
        }
        forgotten
    }

    fn oldest(&self, tenant: u64) -> Option<&Ended> {
        self.by_id.get(self.by_tenant.get(&tenant)?.front()?)
    }

    fn forget_oldest(&mut self, tenant: u64) -> Option<String> {
        let line = self.by_tenant.get_mut(&tenant)?;
        let id = line.pop_front()?;
        if line.is_empty() {
            self.by_tenant.remove(&tenant);
        }
        let ended = self.by_id.remove(&id)?;
        self.bytes = self.bytes.saturating_sub(ended.bytes);
        Some(ended.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(id: &str, tenant: u64, at: Millis) -> Ended {
        Ended {
            id: id.into(),
            tenant,
            at,
            caller_number: None,
            wrong_answers: 0,
            is_sending: false,
            bytes: 100,
        }
    }

    #[test]
    fn the_organisation_that_has_most_loses_its_oldest() {
        let mut kept = Kept::default();
        kept.add(ended("quiet", 1, 0));
        for n in 1..=9 {
            kept.add(ended(&format!("busy {n}"), 2, n));
        }
        assert_eq!(kept.forget_beyond(7), ["busy 1", "busy 2", "busy 3"]);
        assert!(kept.get("quiet").is_some() && kept.get("busy 3").is_none());
        assert_eq!((kept.count(), kept.bytes()), (7, 700));
        assert_eq!(kept.forget_beyond(0).len(), 7);
        assert_eq!((kept.count(), kept.bytes()), (0, 0));
    }

    #[test]
    fn what_ended_long_ago_is_forgotten_of_all() {
        let mut kept = Kept::default();
        for (id, tenant, at) in [("a", 1, 5), ("b", 2, 6), ("c", 1, 7)] {
            kept.add(ended(id, tenant, at));
        }
        let mut forgotten = kept.forget_until(6);
        forgotten.sort();
        assert_eq!(forgotten, ["a", "b"]);
        assert_eq!(kept.iter().map(|ended| ended.id.as_str()).collect::<Vec<_>>(), ["c"]);
    }
}
