//! The words of callers as rooms show them: those of a turn that goes on, if wanted, and those of a whole turn.

use super::conversation::Agent;
use super::overheard::Overheard;
use super::recognizer::Whose;
use super::state::Inward;
use crate::audio::SAMPLE_RATE;
use crate::room::Outbound;
use crate::session::{Caution, Role};

impl Agent {
    /// Recognises a turn so far, if enough was said since the last time. A proof is shown at no time: while one is
    /// owed, or a code might be said, only whole turns are shown.
    pub(super) fn overhear(&mut self, seat: u64) {
        let every_ms = self.tools.settings.turn.interim_ms;
        if every_ms == 0 || !self.hearing.speaking.contains(&seat) || !self.may_show() {
            return;
        }
        let Some(ear) = self.hearing.ears.get(&seat) else { return };
        let turn = self.hearing.overhearing.turn(seat);
        let more =
            usize::try_from(every_ms).unwrap_or(usize::MAX).saturating_mul(SAMPLE_RATE as usize) / 1000;
        if turn.is_busy {
            return;
        }
        let Some(so_far) = ear.beyond(turn.samples + more) else { return };
        (turn.samples, turn.is_busy) = (so_far.pcm.len(), true);
        let turn = turn.number;
        let whose = Whose { tenant: self.handle.tenant, terms: self.persona.terms.clone() };
        let recognition = (self.tools.recognize)(so_far, whose);
        let to_self = self.to_self.clone();
        self.tools.tasks.spawn(async move {
            let text = recognition.await.ok();
            // The agent may be gone.
            let _ = to_self.send(Inward::Overheard(Overheard { seat, turn, text })).await;
        });
    }

    fn may_show(&self) -> bool {
        self.caution() == Caution::None && self.handle.read(|session| session.pending_verification.is_none())
    }

    pub(super) fn overheard(&mut self, Overheard { seat, turn, text }: Overheard) {
        if !self.hearing.overhearing.goes_on(seat, turn) {
            return;
        }
        if let Some(text) = text.filter(|text| !text.is_empty())
            && self.may_show()
        {
            self.tell(&Outbound::Heard { seat, text: text.into(), is_final: false });
        }
    }

    /// Adds a caller's line to the transcript, and shows whose it is.
    pub(super) async fn note_user(&mut self, content: String) {
        self.show(&content);
        self.note_line(Role::User, content, false, None).await;
    }

    /// Shows a whole turn, in the form in which the transcript has it.
    pub(super) fn show(&mut self, content: &str) {
        if let Some(seat) = self.hearing.overhearing.speaker {
            self.tell(&Outbound::Heard { seat, text: content.into(), is_final: true });
        }
    }
}
