//! Reports what happens in the session to its participants.

use super::conversation::Agent;
use crate::room::{Message, Outbound};
use crate::session::{Event, Role};

impl Agent {
    pub(super) fn pass_on(&mut self, event: &Event) {
        if let Event::ConversationText(line) = event
            && self.persona.history
        {
            let role = if line.role == Role::User { "user" } else { "assistant" };
            self.message(&Message::History { role, content: &line.content });
        }
        // The agent's own words have already gone out sentence by sentence.
        if let Event::ConversationText(line) = event
            && line.role == Role::Assistant
            && !line.interrupted
        {
            return;
        }
        match serde_json::to_string(event) {
            Ok(text) => self.tell(&Outbound::Message(text.into())),
            Err(error) => tracing::error!(%error, "an event could not be written"),
        }
    }

    /// Passes on the remaining events.
    pub(super) fn pass_on_events(&mut self) {
        while let Some(event) = self.next_event() {
            self.pass_on(&event);
        }
    }
}
