//! Handing a telephone caller over: the agent says so, and the talk ends. The room connects the caller.

use super::conversation::Agent;
use super::reply::Job;
use super::responder::asks_for_a_person;
use crate::room::Kind;
use crate::session::EndReason;

const HANDING_OVER: &str = "I'm connecting you now. One moment, please.";

impl Agent {
    /// Whether the caller asks for a person, and there is a number for that: then they are handed over.
    pub(super) async fn is_handed_over(&mut self, text: &str) -> bool {
        let setup = self.handle.setup();
        let Some(to) = setup.talk.transfer_to.clone().filter(|_| asks_for_a_person(text)) else {
            return false;
        };
        let phone = self.handle.participants().into_iter().find(|person| person.kind == Kind::Phone.name());
        let Some(phone) = phone else { return false };
        self.change(move |session, now, events| {
            session.check_open()?;
            session.hand_over(&to, &phone.identity, now, events);
            Ok(())
        })
        .await;
        true
    }

    /// Says that the caller is handed over, and ends.
    pub(super) async fn hand_over(&mut self) {
        self.interrupt().await;
        self.lose_floor().await;
        self.talk.jobs.clear();
        self.ending = Some(EndReason::Transferred);
        self.queue(Job { is_interruptible: false, ..Job::say([HANDING_OVER]) });
    }
}
