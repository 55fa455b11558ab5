//! Reports what happens in the session to its participants.

use super::conversation::Agent;
use super::reply::Job;
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
        while let Ok(event) = self.events.try_recv() {
            self.pass_on(&event);
        }
    }

    /// Announces completions that the agent has not mentioned yet, if a participant can hear it.
    pub(super) async fn announce(&mut self) {
        if !self.is_heard() || self.handle.read(|session| session.announcements.is_empty()) {
            return;
        }
        let taken = self.handle.change(|session, _, _| Ok(std::mem::take(&mut session.announcements))).await;
        match taken {
            Ok(lines) => lines.into_iter().for_each(|line| self.queue(Job::say([line]))),
            Err(error) => tracing::warn!(session = self.handle.id, %error, "a completion is not announced"),
        }
    }
}
