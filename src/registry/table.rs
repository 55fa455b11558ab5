//! The state of each served model, and what to do next about it. Pure: callers pass the time.

use std::time::Duration;

use tokio::time::Instant;

use super::error::Unavailable;

/// Before a model that could not be loaded is tried again.
const FAILED_PAUSE: Duration = Duration::from_secs(60);
/// Before memory for a model is looked for again.
const ROOM_PAUSE: Duration = Duration::from_secs(1);
/// A model is not unloaded to make room for another before it has been idle for this long: requests for two models that do
/// not fit together would otherwise load them in turn for ever.
const STAYS: Duration = Duration::from_secs(5);
/// Bounds of `Retry-After`.
const RETRY_AFTER_MIN: Duration = Duration::from_secs(1);
const RETRY_AFTER_MAX: Duration = Duration::from_secs(120);

/// The state of one model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Unloaded,
    Loading {
        since: Instant,
    },
    Loaded {
        uses: usize,
        idle_since: Instant,
    },
    /// There was no memory for it.
    NoRoom {
        at: Instant,
    },
    Failed {
        at: Instant,
    },
    /// It can never be loaded.
    TooLarge,
}

/// The next step of a request that wants a model.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// The model is loaded, and its use is counted.
    Use,
    /// Begin to load it, then wait.
    Load,
    Wait,
    Refuse(Unavailable),
}

pub struct Row {
    pub name: String,
    pub state: State,
    /// How long its last load took.
    load_time: Option<Duration>,
}

/// All served models, the default first, which is always loaded.
pub struct Table {
    rows: Vec<Row>,
    /// How long a request waits for a load.
    wait: Duration,
}

impl Table {
    pub fn new(names: impl Iterator<Item = String>, wait: Duration, now: Instant) -> Self {
        let row = |name| Row { name, state: State::Unloaded, load_time: None };
        let mut table = Self { rows: names.map(row).collect(), wait };
        if let Some(default) = table.rows.first_mut() {
            default.state = State::Loaded { uses: 0, idle_since: now };
        }
        table
    }

    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    pub fn want(&mut self, place: usize, now: Instant) -> Next {
        let wait = self.wait;
        let row = &mut self.rows[place];
        match row.state {
            State::Loaded { uses, idle_since } => {
                row.state = State::Loaded { uses: uses + 1, idle_since };
                Next::Use
            }
            State::Loading { .. } if row.left(now).is_some_and(|left| left > wait) => {
                Next::Refuse(row.still_loading(now))
            }
            State::Loading { .. } => Next::Wait,
            State::Failed { at } if now < at + FAILED_PAUSE => {
                let retry_after = bounded(at + FAILED_PAUSE - now);
                Next::Refuse(Unavailable::Failed { name: row.name.clone(), retry_after })
            }
            State::NoRoom { at } if now < at + ROOM_PAUSE => {
                // By then, a model that is idle now may be unloaded.
                Next::Refuse(Unavailable::NoRoom { name: row.name.clone(), retry_after: bounded(STAYS) })
            }
            State::TooLarge => Next::Refuse(Unavailable::TooLarge { name: row.name.clone() }),
            State::Unloaded | State::NoRoom { .. } | State::Failed { .. } => {
                row.state = State::Loading { since: now };
                Next::Load
            }
        }
    }

    /// For a request that has waited long enough for a load.
    pub fn still_loading(&self, place: usize, now: Instant) -> Unavailable {
        self.rows[place].still_loading(now)
    }

    /// The load of `place` has come to an end, as `state` says.
    pub fn settle(&mut self, place: usize, state: State, now: Instant) {
        let row = &mut self.rows[place];
        if let (State::Loading { since }, State::Loaded { .. }) = (row.state, state) {
            row.load_time = Some(now.saturating_duration_since(since));
        }
        row.state = state;
    }

    /// A use of `place` is over.
    pub fn leave(&mut self, place: usize, now: Instant) {
        if let State::Loaded { uses, idle_since } = &mut self.rows[place].state {
            *uses = uses.saturating_sub(1);
            *idle_since = now;
        }
    }

    /// The loaded models, but `place`.
    pub fn beside(&self, place: usize) -> Vec<usize> {
        let is_loaded = |other: &usize| matches!(self.rows[*other].state, State::Loaded { .. });
        (0..self.rows.len()).filter(|other| *other != place).filter(is_loaded).collect()
    }

    /// Models but the default that nothing uses, and since when.
    fn idle(&self) -> impl Iterator<Item = (usize, Instant)> {
        self.rows.iter().enumerate().skip(1).filter_map(|(place, row)| match row.state {
            State::Loaded { uses: 0, idle_since } => Some((place, idle_since)),
            _ => None,
        })
    }

    /// The model to unload for another one: that which has been idle for longest, and for long enough.
    pub fn makes_room(&self, now: Instant) -> Option<usize> {
        let idle = self.idle().filter(|(_, since)| now >= *since + STAYS);
        idle.min_by_key(|(_, since)| *since).map(|(place, _)| place)
    }

    /// A model that has been idle for `limit`.
    pub fn expired(&self, limit: Duration, now: Instant) -> Option<usize> {
        self.idle().find(|(_, since)| now >= *since + limit).map(|(place, _)| place)
    }

    /// When to look for [`Self::expired`] again; `None` if only the default is loaded.
    pub fn look_again(&self, limit: Duration, now: Instant) -> Option<Instant> {
        let loaded = self.rows.iter().skip(1).filter_map(|row| match row.state {
            State::Loaded { uses: 0, idle_since } => Some(idle_since + limit),
            State::Loaded { .. } => Some(now + limit),
            _ => None,
        });
        loaded.min()
    }

    /// Takes an idle model out of use; false if it is in use by now.
    pub fn unload(&mut self, place: usize) -> bool {
        let is_idle = matches!(self.rows[place].state, State::Loaded { uses: 0, .. });
        if is_idle {
            self.rows[place].state = State::Unloaded;
        }
        is_idle
    }
}

impl Row {
    /// How long its load will take from now on; `None` before its first one.
    fn left(&self, now: Instant) -> Option<Duration> {
        let State::Loading { since } = self.state else { return None };
        Some(self.load_time?.saturating_sub(now.saturating_duration_since(since)))
    }

    fn still_loading(&self, now: Instant) -> Unavailable {
        let taken = match self.state {
            State::Loading { since } => now.saturating_duration_since(since),
            _ => Duration::ZERO,
        };
        // A load of unknown length is about half done.
        let retry_after = bounded(self.left(now).filter(|left| !left.is_zero()).unwrap_or(taken));
        Unavailable::Loading { name: self.name.clone(), retry_after }
    }
}

fn bounded(time: Duration) -> Duration {
    time.clamp(RETRY_AFTER_MIN, RETRY_AFTER_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAIT: Duration = Duration::from_secs(30);
    const IDLE: Duration = Duration::from_secs(300);

    fn table(now: Instant) -> Table {
        Table::new(["base", "tiny.en", "small"].map(str::to_owned).into_iter(), WAIT, now)
    }

    fn after(now: Instant, seconds: u64) -> Instant {
        now + Duration::from_secs(seconds)
    }

    fn loaded(now: Instant) -> State {
        State::Loaded { uses: 0, idle_since: now }
    }

    #[test]
    fn a_model_is_loaded_once_and_counted_while_it_is_used() {
        let start = Instant::now();
        let mut table = table(start);
        assert_eq!(table.want(0, start), Next::Use);
        assert_eq!(table.want(1, start), Next::Load);
        assert_eq!(table.want(1, start), Next::Wait);
        table.settle(1, loaded(start), after(start, 3));
        assert_eq!((table.want(1, start), table.want(1, start)), (Next::Use, Next::Use));
        assert!(!table.unload(1));
        table.leave(1, after(start, 10));
        assert_eq!(table.expired(IDLE, after(start, 1000)), None);
        assert_eq!(table.look_again(IDLE, after(start, 1000)), Some(after(start, 1300)));
        table.leave(1, after(start, 20));
        assert_eq!(table.look_again(IDLE, after(start, 21)), Some(after(start, 320)));
        assert_eq!(table.expired(IDLE, after(start, 319)), None);
        assert_eq!(table.expired(IDLE, after(start, 320)), Some(1));
        assert!(table.unload(1));
        assert_eq!(table.look_again(IDLE, after(start, 321)), None);
        assert_eq!(table.want(1, after(start, 400)), Next::Load);
    }

    #[test]
    fn the_default_is_never_unloaded() {
        let start = Instant::now();
        let mut table = table(start);
        table.want(0, start);
        table.leave(0, start);
        assert_eq!(table.expired(IDLE, after(start, 10_000)), None);
        assert_eq!(table.makes_room(after(start, 10_000)), None);
    }

    #[test]
    fn a_request_waits_only_as_long_as_it_may_and_hears_how_long_it_takes() {
        let start = Instant::now();
        let mut table = table(start);
        table.want(1, start);
        let loading = |seconds| Unavailable::Loading {
            name: "tiny.en".into(),
            retry_after: Duration::from_secs(seconds),
        };
        assert_eq!(table.still_loading(1, after(start, 30)), loading(30));
        table.settle(1, loaded(start), after(start, 80));
        assert!(table.unload(1));
        // The second time, the length is known.
        table.want(1, after(start, 100));
        assert_eq!(table.want(1, after(start, 110)), Next::Refuse(loading(70)));
        assert_eq!(table.want(1, after(start, 155)), Next::Wait);
        assert_eq!(table.still_loading(1, after(start, 175)), loading(5));
    }

    #[test]
    fn a_model_that_failed_is_tried_again_later() {
        let start = Instant::now();
        let mut table = table(start);
        table.want(2, start);
        table.settle(2, State::Failed { at: start }, start);
        let refused = |seconds| {
            let (name, retry_after) = ("small".into(), Duration::from_secs(seconds));
            Next::Refuse(Unavailable::Failed { name, retry_after })
        };
        assert_eq!(table.want(2, after(start, 20)), refused(40));
        assert_eq!(table.want(2, after(start, 60)), Next::Load);
        table.settle(2, State::NoRoom { at: start }, start);
        let (name, retry_after) = ("small".into(), Duration::from_secs(5));
        assert_eq!(table.want(2, start), Next::Refuse(Unavailable::NoRoom { name, retry_after }));
        assert_eq!(table.want(2, after(start, 1)), Next::Load);
        table.settle(2, State::TooLarge, start);
        let name = "small".into();
        assert_eq!(table.want(2, after(start, 999)), Next::Refuse(Unavailable::TooLarge { name }));
    }

    #[test]
    fn room_is_made_by_the_model_that_was_idle_for_longest() {
        let start = Instant::now();
        let mut table = table(start);
        for (place, at) in [(1, 10), (2, 5)] {
            table.want(place, start);
            table.settle(place, loaded(after(start, at)), start);
        }
        assert_eq!((table.beside(0), table.beside(2)), (vec![1, 2], vec![0, 1]));
        assert_eq!(table.makes_room(after(start, 9)), None);
        assert_eq!(table.makes_room(after(start, 20)), Some(2));
        table.want(2, start);
        assert_eq!(table.makes_room(after(start, 20)), Some(1));
    }
}
