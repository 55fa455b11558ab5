//! A number of places, each held for a while: when the next ones come free, and for which refused client each is kept.
//!
//! The lengths of the last stays tell how much longer each present one is likely to last, and how long the next ones
//! will. So there is a calendar of present and promised stays. A refused client is promised the first time in it at which
//! another stay fits, and a new client gets a free place only if its stay fits beside all that is promised.
//! Pure: callers pass the time.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use super::{Asker, Ledger, Promises, Refused, Tenants, may_hold};

/// Bounds of the wait for a place, and the wait before any stay has ended, in seconds.
const WAIT_MIN: f64 = 1.0;
const WAIT_MAX: f64 = 120.0;
const WAIT_FIRST: f64 = 5.0;
/// The last stays from which the next ones are foretold.
const REMEMBERED: usize = 32;
/// A stay longer than all that are remembered is expected to last this part of their mean longer.
const OVERDUE: f64 = 0.25;

/// What the length of a stay depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lasting {
    /// On the client alone, as that of a stream.
    Apart,
    /// On the other stays too, since they share a machine: each of ten takes ten times as long as one alone.
    Together,
}

pub struct Places {
    capacity: u64,
    tenants: Tenants,
    lasting: Lasting,
    held: HashMap<u64, Hold>,
    /// The number of the next hold.
    next: u64,
    ledger: Ledger<u64>,
    /// Of each tenant's refused clients.
    lines: HashMap<u64, Promises>,
    /// In which stays are measured: seconds, or seconds of a stay's even share of the machine.
    clock: f64,
    read_at: Option<Instant>,
    /// By that clock, the oldest first.
    lengths: VecDeque<f64>,
}

struct Hold {
    tenant: u64,
    since: f64,
}

impl Places {
    pub fn new(capacity: u64, tenants: Tenants, lasting: Lasting) -> Self {
        Self {
            capacity,
            tenants,
            lasting,
            held: HashMap::new(),
            next: 0,
            ledger: Ledger::default(),
            lines: HashMap::new(),
            clock: 0.0,
            read_at: None,
            lengths: VecDeque::new(),
        }
    }

    pub fn share_between(&mut self, tenants: Tenants) {
        self.tenants = tenants;
    }

    /// All places, taken or not.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// The places that are taken.
    pub fn total(&self) -> u64 {
        self.ledger.total()
    }

    pub fn held_by(&self, tenant: u64) -> u64 {
        self.ledger.of(tenant)
    }

    /// Advances the clock, which stays that end later have to have been measured by.
    fn read_clock(&mut self, now: Instant) {
        let passed = self.read_at.map_or(0.0, |at| now.saturating_duration_since(at).as_secs_f64());
        self.clock += passed / self.at_once();
        self.read_at = Some(self.read_at.map_or(now, |at| at.max(now)));
    }

    /// Seconds that a second of the clock takes now.
    fn at_once(&self) -> f64 {
        match self.lasting {
            Lasting::Apart => 1.0,
            Lasting::Together => self.held.len().max(1) as f64,
        }
    }

    /// Takes a place, whether or not there is one; returns its number.
    pub fn begin(&mut self, tenant: u64, now: Instant) -> u64 {
        self.read_clock(now);
        let number = self.next;
        self.next += 1;
        self.held.insert(number, Hold { tenant, since: self.clock });
        self.ledger.add(tenant, 1);
        number
    }

    pub fn end(&mut self, number: u64, now: Instant) {
        self.read_clock(now);
        if let Some(since) = self.give_back(number) {
            if self.lengths.len() == REMEMBERED {
                self.lengths.pop_front();
            }
            self.lengths.push_back(self.clock - since);
        }
    }

    /// Gives a place back as if it had not been taken.
    pub fn withdraw(&mut self, number: u64, now: Instant) {
        self.read_clock(now);
        self.give_back(number);
    }

    fn give_back(&mut self, number: u64) -> Option<f64> {
        let Hold { tenant, since } = self.held.remove(&number)?;
        self.ledger.give_back(tenant, 1);
        Some(since)
    }

    /// The line of the refused clients of `tenant`.
    pub fn line(&mut self, tenant: u64) -> &mut Promises {
        self.lines.entry(tenant).or_default()
    }

    /// The clients of `tenant` that are expected to return.
    pub fn expected(&self, tenant: u64) -> f64 {
        self.lines.get(&tenant).map_or(0.0, Promises::expected)
    }

    /// Drops promises to clients that did not return.
    pub fn expire(&mut self, now: Instant) {
        self.lines.retain(|_, line| {
            line.expire(now);
            !line.is_empty()
        });
    }

    /// Whether there is a place for `tenant`, kept or not. One that is promised and due needs no more than a free one: it
    /// was within the tenant's share when it was promised.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn has_room(&self, tenant: u64, is_promised: bool) -> Result<(), Refused> {
        if is_promised && self.total() < self.capacity {
            return Ok(());
        }
        may_hold(self.held_by(tenant), self.total(), 1, self.capacity, &self.tenants)
    }

    /// Whether a new client of `tenant` may take a place that is free without breaking a promise.
    pub fn may_pass(&mut self, tenant: u64, now: Instant) -> bool {
        self.lines.is_empty() || self.free_after(tenant, false, now) <= 0.0
    }

    /// Seconds until a stay of `tenant` may begin, so that to its end there is a place for each present and promised stay,
    /// and the tenant keeps to its share. `again`: it has waited before, and goes ahead of those that have not.
    pub fn free_after(&mut self, tenant: u64, again: bool, now: Instant) -> f64 {
        self.read_clock(now);
        // Of stays that share the machine, as many as there will be once those come that are promised a place.
        let promised: f64 = self.lines.values().map(Promises::expected).sum();
        let at_once = match self.lasting {
            Lasting::Apart => 1.0,
            Lasting::Together => (self.total() + 1).saturating_add(whole(promised)).min(self.capacity) as f64,
        };
        let mean = self.mean().unwrap_or(WAIT_FIRST / at_once);
        let stay = mean * at_once;
        // When how many places are taken, and given back; negative.
        let mut changes: Vec<(f64, f64, u64)> = Vec::new();
        for Hold { tenant: whose, since } in self.held.values() {
            let end = self.left(self.clock - since, mean) * at_once;
            changes.push((end, -1.0, *whose));
        }
        for (whose, line) in &self.lines {
            for (due, amount) in line.all(again) {
                let due = due.saturating_duration_since(now).as_secs_f64();
                changes.extend([(due, amount, *whose), (due + stay, -amount, *whose)]);
            }
        }
        // What is given back first makes room for what is taken at the same time.
        changes.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.total_cmp(&other.1)));
        let quota = self.quota(self.total() - self.held_by(tenant));
        let has_room = |all: f64, own: f64| whole(all) < self.capacity && whole(own) < quota;
        // Promises to another tenant count within the share that it may have at most: they were made in the hope that
        // stays of its own would end.
        let share = self.quota(0);
        let mut held: HashMap<u64, (f64, f64)> = HashMap::new();
        for whose in self.held.values().map(|hold| hold.tenant).chain(self.lines.keys().copied()) {
            held.entry(whose).or_insert_with(|| {
                let now = self.held_by(whose);
                let most = if whose == tenant { u64::MAX } else { share.max(now) };
                (now as f64, most as f64)
            });
        }
        let (mut all, mut own) = (self.total() as f64, self.held_by(tenant) as f64);
        let mut since = has_room(all, own).then_some(0.0);
        let mut last = 0.0;
        for (at, more, whose) in changes {
            if since.is_some_and(|since| at - since >= stay) {
                break;
            }
            if let Some((count, most)) = held.get_mut(&whose) {
                all += (*count + more).min(*most) - count.min(*most);
                *count += more;
            }
            own += if whose == tenant { more } else { 0.0 };
            last = at;
            since = if has_room(all, own) { since.or(Some(at)) } else { None };
        }
        since.unwrap_or(last)
    }

    /// The places that a tenant may hold where the others hold `beside`; all, if they leave nothing, for then what they give
    /// back decides.
    fn quota(&self, beside: u64) -> u64 {
        let may =
            |held: u64| may_hold(held, beside.saturating_add(held), 1, self.capacity, &self.tenants).is_ok();
        let quota = most(self.capacity, may);
        if quota == 0 { self.capacity } else { quota }
    }

    /// Promises `asker` of `tenant`, who is refused, a place, unless it has a promise; returns the time until then.
    pub fn promise(&mut self, (tenant, asker): (u64, Asker), again: bool, now: Instant) -> Duration {
        if let Some(due) = self.line(tenant).of(asker) {
            return bounded(due.saturating_duration_since(now).as_secs_f64());
        }
        let wait = self.free_after(tenant, again, now);
        if wait < WAIT_MAX {
            self.line(tenant).make((asker, 1.0), (now, Duration::from_secs_f64(wait)), again);
        }
        bounded(wait)
    }

    /// The mean length of a stay alone, over the number of those that a refused tenant waits for, in whole seconds: for
    /// one that is refused though there is a place.
    pub fn next_end(&self, tenant: u64, refused: Refused) -> Duration {
        let number = match refused {
            Refused::Full => self.total(),
            Refused::OverShare => self.held_by(tenant),
        };
        bounded(self.mean().map_or(WAIT_FIRST, |mean| mean / number.max(1) as f64))
    }

    /// By the clock.
    fn mean(&self) -> Option<f64> {
        let count = self.lengths.len();
        (count > 0).then(|| self.lengths.iter().sum::<f64>() / count as f64)
    }

    /// The time that is left of a stay of this age, by the clock: what was left on average of those that lasted longer.
    fn left(&self, age: f64, mean: f64) -> f64 {
        let longer = self.lengths.iter().filter(|length| **length > age);
        let (sum, count) = longer.fold((0.0, 0.0), |(sum, count), length| (sum + length - age, count + 1.0));
        if count > 0.0 { sum / count } else { (mean - age).max(OVERDUE * mean) }
    }
}

/// The largest number up to `end` below which `holds` is always true.
fn most(end: u64, holds: impl Fn(u64) -> bool) -> u64 {
    let (mut low, mut high) = (0, end);
    while low < high {
        let middle = low + (high - low) / 2;
        if holds(middle) { low = middle + 1 } else { high = middle }
    }
    low
}

/// An expected number of clients: a fraction is one that may come.
fn whole(amount: f64) -> u64 {
    // Sums of fractions are inexact.
    (amount - 1e-9).ceil().max(0.0) as u64
}

fn bounded(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds.clamp(WAIT_MIN, WAIT_MAX).ceil())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(capacity: u64, organisations: usize, lasting: Lasting) -> Places {
        let tenants = Tenants::default();
        tenants.set(organisations);
        Places::new(capacity, tenants, lasting)
    }

    /// A client's stay of `seconds`, alone, from `start` on.
    fn stay(places: &mut Places, start: Instant, seconds: f64) {
        let number = places.begin(1, start);
        places.end(number, start + Duration::from_secs_f64(seconds));
    }

    fn promise(places: &mut Places, tenant: u64, client: u64, now: Instant) -> u64 {
        places.promise((tenant, Asker { request: client, connection: client }), false, now).as_secs()
    }

    #[test]
    fn stays_by_the_client_last_as_long_as_they_do() {
        let (mut places, start) = (places(3, 1, Lasting::Apart), Instant::now());
        (0..3).for_each(|_| {
            places.begin(1, start);
        });
        assert_eq!(places.free_after(1, false, start), 5.0, "nothing is known");
        (0..3).for_each(|number| places.withdraw(number, start));
        stay(&mut places, start, 20.0);
        let start = start + Duration::from_secs(100);
        let at = |seconds| start + Duration::from_secs(seconds);
        for since in [0, 5, 10] {
            places.begin(1, at(since));
        }
        // They end 20, 25 and 30 s after the start.
        let told: Vec<u64> = (0..5).map(|client| promise(&mut places, 1, client, at(12))).collect();
        assert_eq!(told, [8, 13, 18, 28, 33]);
    }

    #[test]
    fn stays_at_one_machine_take_turns_at_it() {
        let (mut places, start) = (places(4, 1, Lasting::Together), Instant::now());
        stay(&mut places, start, 2.0);
        let start = start + Duration::from_secs(100);
        for _ in 0..4 {
            places.begin(1, start);
        }
        let told: Vec<u64> = (0..9).map(|client| promise(&mut places, 1, client, start)).collect();
        assert_eq!(told, [8, 8, 8, 8, 16, 16, 16, 16, 24]);
        assert_eq!(places.free_after(1, false, start + Duration::from_secs(4)), 20.0);
    }

    #[test]
    fn a_new_client_takes_no_place_that_is_promised() {
        let (mut places, start) = (places(2, 1, Lasting::Apart), Instant::now());
        stay(&mut places, start, 20.0);
        let start = start + Duration::from_secs(100);
        let at = |seconds| start + Duration::from_secs(seconds);
        let first = places.begin(1, at(0));
        places.begin(1, at(10));
        assert_eq!(promise(&mut places, 1, 7, at(11)), 9);
        // One has left early: its place is for the client that waits.
        places.end(first, at(12));
        assert!(places.has_room(1, false).is_ok() && !places.may_pass(1, at(12)));
        let claim = places.line(1).claim(Asker { request: 7, connection: 1 }, at(20)).expect("its turn");
        assert!(!places.may_pass(1, at(20)), "it is being answered");
        places.line(1).settle(claim);
        assert!(places.may_pass(1, at(20)));
    }

    #[test]
    fn a_busy_organisation_takes_no_turn_of_another_and_its_line_keeps_no_other_out() {
        let (mut places, start) = (places(8, 2, Lasting::Apart), Instant::now());
        stay(&mut places, start, 20.0);
        let start = start + Duration::from_secs(100);
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut first: Vec<u64> = (0..6).map(|_| places.begin(1, start)).collect();
        assert_eq!(places.has_room(1, false), Err(Refused::OverShare));
        // Six at a time.
        let told: Vec<u64> = (0..12).map(|client| promise(&mut places, 1, client, start)).collect();
        assert_eq!(told, [[20; 6], [40; 6]].concat());
        // There is room beside that line.
        assert!(places.has_room(2, false).is_ok() && places.may_pass(2, at(1)));
        places.begin(2, at(1));
        assert_eq!(promise(&mut places, 2, 1, at(1)), 20, "its own end");
        first.drain(..).for_each(|number| places.end(number, at(20)));
        assert!(places.may_pass(2, at(20)), "the last place, as nothing is promised there");
        places.begin(2, at(20));
        assert!(places.has_room(2, false).is_ok() && !places.may_pass(2, at(20)), "the others are promised");
        for client in 0..6 {
            let claim =
                places.line(1).claim(Asker { request: client, connection: 0 }, at(20)).expect("its turn");
            assert!(places.has_room(1, true).is_ok());
            places.line(1).settle(claim);
            places.begin(1, at(20));
        }
        // From here on both are served alike.
        assert!(promise(&mut places, 1, 99, at(20)) > 20);
    }
}
