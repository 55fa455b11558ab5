//! The summary of a talk: its facts, and some sentences about it.

use serde::{Deserialize, Serialize};

const TEXT_CHARACTERS_MAX: usize = 2000;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    pub text: String,
    pub by: Author,
    /// Seconds from the session's start to its end.
    pub seconds: u64,
    pub caller_turns: usize,
    pub agent_turns: usize,
    /// Categories that the caller is verified for.
    pub verified: Vec<String>,
    /// Categories in which the caller's proofs were wrong.
    pub not_verified: Vec<String>,
    /// Links that were sent as text messages.
    pub messages_sent: Vec<String>,
    /// Names of the fields that the client reported as filled.
    pub fields: Vec<String>,
    /// The status that the client completed the flow with.
    pub completion: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Author {
    /// Made of the facts.
    Embedded,
    /// Written by the chat model.
    Chat,
}

impl Summary {
    /// The same facts with the text of a chat model.
    pub fn written(&self, text: &str) -> Self {
        Self { text: shortened(text.trim(), TEXT_CHARACTERS_MAX), by: Author::Chat, ..self.clone() }
    }
}

/// The first characters of `text`, and a sign if there are more.
pub fn shortened(text: &str, characters_max: usize) -> String {
    match text.char_indices().nth(characters_max) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}
