//! Absence: how long the agent waits in an empty room, or for a silent telephone.

use std::time::Duration;

use tokio::time::Instant;

use super::conversation::Agent;
use super::reply::Job;
use crate::patience::Patience;
use crate::room::Kind;
use crate::session::EndReason;

/// Silence after which the agent asks whether the caller is still there: twice, then it says goodbye.
const SILENCE_MAX: Duration = Duration::from_secs(30);
const NUDGES_MAX: u32 = 2;

impl Agent {
    /// How long an empty room waits for a participant to come back.
    pub(super) fn patience(&self) -> Patience {
        Patience::new(if self.absence.hung_up { Duration::ZERO } else { self.tools.settings.rejoin })
    }

    pub(super) fn gone(&mut self, now: Instant) -> Option<EndReason> {
        let alone = self.absence.alone.as_mut()?;
        let is_over = now >= alone.until() && !alone.goes_on(now);
        is_over.then_some(if self.absence.hung_up { EndReason::HungUp } else { EndReason::Left })
    }

    /// Silence on the telephone may be a dead line: the agent asks, and in the end hangs up.
    pub(super) fn nudge(&mut self, now: Instant, is_idle: bool) {
        let has_phone = self.people.iter().any(|person| person.kind == Kind::Phone);
        if !has_phone || !is_idle || now < self.absence.quiet_since + SILENCE_MAX {
            return;
        }
        self.absence.quiet_since = now;
        self.absence.nudges += 1;
        if self.absence.nudges > NUDGES_MAX {
            self.ending = Some(EndReason::Goodbye);
            self.queue(Job::say(["I can't hear anybody. Goodbye!"]));
        } else {
            self.queue(Job::say(["Are you still there?"]));
        }
    }
}
