//! When a talk ends, and when the caller hears of it. Pure: the time is an argument.

use std::time::Duration;

use tokio::time::Instant;

use super::tools::Settings;
use crate::session::Setup;

/// A word before the end of a talk that is hardly longer would be in the way.
const SHORT_TALK: u32 = 2;

/// When a talk ends.
pub(super) struct Timing {
    pub(super) begun: Instant,
    longest: Duration,
    /// How long before the end the caller hears of it; none if no more.
    warning: Option<Duration>,
}

impl Timing {
    pub(super) fn of(begun: Instant, settings: &Settings, setup: &Setup) -> Self {
        Self::new(begun, settings.talk_max, settings.talk_warning, setup)
    }

    fn new(begun: Instant, longest: Duration, warning: Duration, setup: &Setup) -> Self {
        let asked = setup.talk.max_duration_seconds.map(Duration::from_secs);
        let longest = asked.map_or(longest, |asked| asked.min(longest));
        let is_short = longest < warning * SHORT_TALK;
        Self { begun, longest, warning: Some(warning).filter(|warning| !is_short && !warning.is_zero()) }
    }

    /// Zero once it is over.
    pub(super) fn left(&self, now: Instant) -> Duration {
        (self.begun + self.longest).saturating_duration_since(now)
    }

    /// The next time at which something is due.
    pub(super) fn wake(&self) -> Instant {
        self.begun + self.longest.saturating_sub(self.warning.unwrap_or_default())
    }

    /// Whether it is over for so long.
    pub(super) fn is_over_for(&self, time: Duration, now: Instant) -> bool {
        now >= self.begun + self.longest + time
    }

    /// The sentence before the end, once, when it is due.
    pub(super) fn warn(&mut self, now: Instant) -> Option<String> {
        let left = self.left(now);
        self.warning.filter(|warning| left <= *warning)?;
        self.warning = None;
        Some(warning(left))
    }
}

/// How much time is left, in round numbers.
fn warning(left: Duration) -> String {
    match left.as_secs_f64().round() as u64 {
        0 | 1 => "We have about one second left.".to_owned(),
        seconds if seconds < 50 => format!("We have about {seconds} seconds left."),
        seconds if seconds < 90 => "We have about one minute left.".to_owned(),
        seconds => format!("We have about {} minutes left.", (seconds + 30) / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timing(longest: u64, warning: u64, asked: Option<u64>) -> Timing {
        let mut setup = Setup::default();
        setup.talk.max_duration_seconds = asked;
        Timing::new(Instant::now(), Duration::from_secs(longest), Duration::from_secs(warning), &setup)
    }

    #[test]
    fn a_start_may_ask_for_less_time_but_not_for_more() {
        for (asked, longest) in [(None, 1800), (Some(300), 300), (Some(9000), 1800)] {
            assert_eq!(timing(1800, 60, asked).longest.as_secs(), longest);
        }
        assert!(timing(1800, 60, Some(100)).warning.is_none() && timing(1800, 0, None).warning.is_none());
        assert!(timing(1800, 60, Some(120)).warning.is_some());
    }

    #[test]
    fn the_time_left_is_said_in_round_numbers() {
        let said = |seconds: f64| warning(Duration::from_secs_f64(seconds));
        assert_eq!(said(59.98), "We have about one minute left.");
        assert_eq!(said(30.0), "We have about 30 seconds left.");
        assert_eq!(said(299.9), "We have about 5 minutes left.");
    }
}
