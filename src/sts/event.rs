//! What changed in a session, as those who watch it are told.

use serde::Serialize;
use serde_json::Value;

use super::action::Notice;
use super::session::{EndReason, Line, Sms};

/// Every change of a session. As JSON it is a message of the room.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "type")]
pub enum Event {
    CallerBound {
        /// Verifications were undone: the number is another one than before.
        verifications_reset: bool,
    },
    PageContextUpdated {
        version: u64,
        page_context: Value,
    },
    VerificationRequested {
        category: String,
    },
    VerificationUpdated {
        category: String,
        verified: bool,
        attempts: u32,
        locked: bool,
    },
    SmsUpdated(Box<Sms>),
    CompletionNotice(Notice),
    KnowledgeUpdated {
        passages: usize,
        website: Option<&'static str>,
    },
    ConversationText(Box<Line>),
    ParticipantJoined {
        identity: String,
        kind: &'static str,
    },
    ParticipantLeft {
        identity: String,
        kind: &'static str,
    },
    SessionEnded {
        reason: EndReason,
    },
}

impl Event {
    /// For the log, which learns what happened and not what was said.
    pub fn name(&self) -> &'static str {
        match self {
            Self::CallerBound { .. } => "caller bound",
            Self::PageContextUpdated { .. } => "page context updated",
            Self::VerificationRequested { .. } => "verification requested",
            Self::VerificationUpdated { .. } => "verification updated",
            Self::SmsUpdated(_) => "sms updated",
            Self::CompletionNotice(_) => "completed",
            Self::KnowledgeUpdated { .. } => "knowledge updated",
            Self::ConversationText(_) => "conversation",
            Self::ParticipantJoined { .. } => "participant joined",
            Self::ParticipantLeft { .. } => "participant left",
            Self::SessionEnded { .. } => "session ended",
        }
    }
}
