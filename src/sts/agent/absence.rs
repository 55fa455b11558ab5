//! When the room is empty, or a telephone is silent: how long the agent waits.

use std::time::Duration;

use tokio::time::Instant;

use super::Agent;
use super::reply::Job;
use crate::patience::Patience;
use crate::sts::session::EndReason;
use crate::sts::token::Kind;

/// After so much silence a caller is asked whether they are there: twice, then the agent says goodbye.
const SILENCE_MAX: Duration = Duration::from_secs(30);
const NUDGES_MAX: u32 = 2;

impl Agent {
    /// How long an empty room waits for a participant to come back.
    pub(super) fn patience(&self) -> Patience {
        let seconds = if self.hung_up { 0 } else { self.service.config.rejoin_seconds };
        Patience::new(Duration::from_secs(seconds))
    }

    pub(super) fn gone(&mut self, now: Instant) -> Option<EndReason> {
        let alone = self.alone.as_mut()?;
        let is_over = now >= alone.until() && !alone.goes_on(now);
        is_over.then_some(if self.hung_up { EndReason::HungUp } else { EndReason::Left })
    }

    /// On the telephone silence may be a line that is dead: the caller is asked, and then let go.
    pub(super) fn nudge(&mut self, now: Instant, is_idle: bool) {
        let has_phone = self.people.iter().any(|person| person.kind == Kind::Phone);
        if !has_phone || !is_idle || now < self.quiet_since + SILENCE_MAX {
            return;
        }
        self.quiet_since = now;
        self.nudges += 1;
        if self.nudges > NUDGES_MAX {
            self.ending = Some(EndReason::Goodbye);
            self.queue(Job::say(["I can't hear anybody. Goodbye!"]));
        } else {
            self.queue(Job::say(["Are you still there?"]));
        }
    }
}
