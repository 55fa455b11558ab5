//! Text messages of a session: a link of its catalogue, sent to the caller.

use serde::{Deserialize, Serialize};

use super::setup::Link;
use crate::clock::Millis;

/// The longest text that providers accept, in characters.
const TEXT_CHARACTERS_MAX: usize = 1600;

/// A text message and its delivery.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sms {
    /// One per category and link, so that a repeated request is sent once.
    pub id: String,
    pub category: String,
    pub sms_catalog_key: String,
    pub status: SmsStatus,
    /// The provider's identifier of it.
    pub sid: Option<String>,
    pub error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Attempts at the provider so far.
    #[serde(default)]
    pub attempts: u32,
    /// The time of the next attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_at_ms: Option<Millis>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SmsStatus {
    /// The caller's number is not known yet.
    AwaitingNumber,
    Queued,
    /// A request to the provider is under way. After a restart, such a message may or may not have been sent.
    Sending,
    Sent,
    Failed,
}

impl SmsStatus {
    pub fn is_pending(self) -> bool {
        matches!(self, Self::AwaitingNumber | Self::Queued | Self::Sending)
    }
}

/// The text of a message.
pub fn sms_text(link: &Link) -> String {
    let text = match (&link.sms_text, &link.title) {
        (Some(text), _) if text.contains(&link.url) => text.clone(),
        (Some(text), _) => format!("{text} {}", link.url),
        (None, Some(title)) => format!("{title}: {}", link.url),
        (None, None) => format!("Here is the link you asked for: {}", link.url),
    };
    text.chars().take(TEXT_CHARACTERS_MAX).collect()
}

/// Marks messages that were being sent when the process ended as failed, and returns whether there were any. The
/// provider may have got them, and sending twice is worse than not sending.
pub fn interrupt(messages: &mut [Sms]) -> bool {
    let mut interrupted = false;
    for message in messages.iter_mut().filter(|message| message.status == SmsStatus::Sending) {
        message.status = SmsStatus::Failed;
        message.error = Some("interrupted: it may have been sent".into());
        interrupted = true;
    }
    interrupted
}
