//! Events: the changes of a session, for everyone who watches it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::message::Sms;
use crate::clock::Millis;

/// The client's flow is complete.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Notice {
    pub status: String,
    pub message: Option<String>,
    pub updated_fields: Value,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndReason {
    /// No participant came, or nothing happened for too long.
    Expired,
    /// The last participant left and did not come back.
    Left,
    /// The caller hung up.
    HungUp,
    /// The talk reached its time limit.
    TooLong,
    /// The agent said goodbye.
    Goodbye,
    /// The room could not be created, or was lost.
    RoomFailed,
    /// The caller was connected with another number.
    Transferred,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    pub id: u64,
    pub role: Role,
    /// For the agent's lines, the part that was heard.
    pub content: String,
    pub interrupted: bool,
    pub at: Millis,
    /// From the end of the caller's speech to the agent's first sound.
    pub latency_ms: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    User,
    Assistant,
}

/// A change of a session. Its JSON is also a message of the room.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "type")]
pub enum Event {
    CallerBound {
        /// The number differs from the one before, so verifications were undone.
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
    /// The agent is to connect the caller with another number.
    TransferRequested,
    SessionEnded {
        reason: EndReason,
    },
}

impl Event {
    /// The name for the log, which must not contain what was said.
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
            Self::TransferRequested => "transfer requested",
            Self::SessionEnded { .. } => "session ended",
        }
    }
}
