//! Absence: how long the agent waits in an empty room, or for a silent caller.

use std::time::Duration;

use tokio::time::Instant;

use super::conversation::Agent;
use super::reply::Job;
use crate::patience::Patience;
use crate::room::Kind;
use crate::session::EndReason;

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

    /// Silence after which the agent asks; none: never. On the telephone it may be a dead line; a browser's user may
    /// read, and is asked only if the session's start says so.
    fn silence_max(&self) -> Option<Duration> {
        let has_phone = self.people.iter().any(|person| person.kind == Kind::Phone);
        let asked = self.handle.setup().talk.silence_seconds;
        let usual = self.tools.settings.silence.filter(|_| has_phone);
        let silence = asked.map_or(usual, |seconds| Some(Duration::from_secs(seconds)));
        silence.filter(|silence| !silence.is_zero())
    }

    /// When a caller who stays silent is asked.
    pub(super) fn nudge_due(&self) -> Option<Instant> {
        Some(self.absence.quiet_since + self.silence_max()?)
    }

    /// Asks whether a silent caller is still there, and in the end says goodbye.
    pub(super) fn nudge(&mut self, now: Instant, is_idle: bool) {
        if !is_idle || self.people.is_empty() || self.ending.is_some() {
            return;
        }
        if self.nudge_due().is_none_or(|due| now < due) {
            return;
        }
        self.absence.quiet_since = now;
        self.absence.nudges += 1;
        if self.absence.nudges > self.tools.settings.nudges_max {
            self.ending = Some(EndReason::Goodbye);
            self.queue(Job::say(["I can't hear anybody. Goodbye!"]));
        } else {
            self.queue(Job::say(["Are you still there?"]));
        }
    }
}
