//! The longest talk: a word before its end, a goodbye at its end, and an end even if a participant talks on.

use std::time::Duration;

use tokio::time::Instant;

use super::conversation::Agent;
use super::reply::Job;
use crate::session::EndReason;

/// After the goodbye was due, whether or not it could be said.
const GOODBYE_WAIT: Duration = Duration::from_secs(20);

impl Agent {
    /// When a silent caller is asked, or the end of the talk is near: the first of them that is still to come.
    pub(super) fn next_reminder(&self, now: Instant) -> Option<Instant> {
        let reminders = [Some(self.timing.wake()), self.nudge_due()];
        reminders.into_iter().flatten().filter(|due| *due > now).min()
    }

    /// Says that the time is nearly over, or over. Returns the reason to end at once.
    pub(super) fn keep_time(&mut self, now: Instant) -> Option<EndReason> {
        if self.timing.is_over_for(GOODBYE_WAIT, now) {
            return Some(self.ending.unwrap_or(EndReason::TooLong));
        }
        if self.timing.left(now).is_zero() {
            if self.ending.is_none() {
                self.ending = Some(EndReason::TooLong);
                // Nothing that waits can be answered any more, and no participant may put it off.
                self.talk.jobs.clear();
                self.queue(Job {
                    is_interruptible: false,
                    ..Job::say(["I'm sorry, our time is up. Goodbye!"])
                });
            }
        } else if let Some(warning) = self.timing.warn(now) {
            self.queue(Job::say([warning]));
        }
        None
    }
}
