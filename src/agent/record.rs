//! Records the talk if that is wanted, and says so.

use tokio::time::Instant;

use super::conversation::Agent;
use super::reply::Job;
use crate::recording::Record;
use crate::room::Outbound;
use crate::session::Caution;

impl Agent {
    /// To be called for each participant who joins, before the greeting: begins the recording, and announces it.
    pub(super) async fn begin_recording(&mut self) {
        let shelf = &self.tools.recordings;
        let is_wanted = match shelf.config().record {
            Record::Never => false,
            Record::Request => self.handle.setup().talk.recording == Some(true),
            Record::Always => true,
        };
        if !is_wanted {
            return;
        }
        if self.tape.is_none() {
            self.tape = shelf.tape(self.handle.tenant, &self.handle.id);
            if self.tape.is_none() {
                self.change(|session, _, _| {
                    session
                        .warn("the talk is not recorded: recordings take up as much as they may".to_owned());
                    Ok(())
                })
                .await;
                return;
            }
        }
        let announcement = self.tools.recordings.config().announcement.clone();
        self.queue(Job { is_interruptible: false, ..Job::say([announcement]) });
    }

    /// Records a participant's audio. While a proof is owed it is left out, as the transcript leaves out all numbers.
    pub(super) fn record_heard(&mut self, seat: u64, samples: &[f32]) {
        if self.tape.is_none() {
            return;
        }
        let setup = self.handle.setup();
        let is_hidden = self.handle.read(|session| session.caution(&setup)) == Caution::Digits;
        match &mut self.tape {
            Some(tape) if is_hidden => tape.hear_nothing(seat, samples.len()),
            Some(tape) => tape.hear(seat, samples),
            None => {}
        }
    }

    /// Records what goes out to all.
    pub(super) fn record_said(&mut self, outbound: &Outbound) {
        let Some(tape) = &mut self.tape else { return };
        match outbound {
            Outbound::Audio(samples, range) => tape.say(samples, range),
            Outbound::Clear => tape.cut(),
            Outbound::Message(_)
            | Outbound::Mark(_)
            | Outbound::Heard { .. }
            | Outbound::Caller { .. }
            | Outbound::End => {}
        }
    }

    pub(super) fn roll_tape(&mut self, now: Instant) {
        if let Some(tape) = &mut self.tape {
            tape.roll(now);
        }
    }
}
